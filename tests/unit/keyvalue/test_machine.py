"""Internal tables: versions, conditions, changes; what a failover folds is what was answered."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from paceline.errors import RemoteProtocolError
from paceline.wire.peer.tables import (
    ABSENT,
    UNCONDITIONAL,
    TableAnswer,
    TableOperation,
    TableRequest,
    TableStatus,
)
from paceline_node.keyvalue.machine import TableLimits, TableMachine
from paceline_node.keyvalue.records import Cell, Newest, TableMade, decode, encode
from paceline_node.state_machines.machine import Entry, Scope

_LIMITS = TableLimits(tables=3, keys_per_table=5, key_bytes=8, update_bytes=100)


class Log:
    """A journal that keeps what is written, and folds it into the machine that leads."""

    def __init__(self, limits: TableLimits = _LIMITS) -> None:
        self.entries: list[Entry] = []
        self.limits = limits
        self.machine = TableMachine(limits)
        self.machine.lead(self, log_is_empty=True)

    def write(self, scope: Scope, entries: Sequence[Entry]) -> None:
        self.entries += entries
        for entry in entries:
            self.machine.apply(entry)

    def now(self) -> float:
        raise AssertionError("tables know no time")

    def wall_ms(self) -> int:
        raise AssertionError("tables know no time")

    def ask(self, operation: TableOperation, table: str = "t", **fields: object) -> TableAnswer:
        return self.machine.perform(TableRequest(operation, table, **fields))  # type: ignore[arg-type]

    def put(self, *cells: tuple[bytes, bytes, int], position: int = -1) -> TableAnswer:
        keys, values, versions = zip(*cells, strict=True)
        return self.ask(
            TableOperation.UPDATE, keys=keys, values=values, versions=versions, position=position
        )

    def changes(self, position: int, count: int = 100) -> TableAnswer:
        return self.ask(TableOperation.CHANGES, position=position, count=count)

    def failover(self, rng: random.Random | None = None) -> None:
        """Another replica leads, after compaction if ``rng`` is given: of a key, the last entry
        stays, and maybe older ones."""
        if rng is not None:
            last = {entry.key: at for at, entry in enumerate(self.entries)}
            self.entries = [
                entry
                for at, entry in enumerate(self.entries)
                if last[entry.key] == at or rng.random() < 0.3
            ]
        self.machine = TableMachine(self.limits)
        for entry in self.entries:
            self.machine.apply(entry)
        self.machine.lead(self, log_is_empty=False)


@pytest.fixture
def log() -> Log:
    log = Log()
    assert log.ask(TableOperation.CREATE).status is TableStatus.OK
    return log


def test_tables_come_and_go(log: Log) -> None:
    assert log.ask(TableOperation.CREATE).status is TableStatus.EXISTS
    assert log.ask(TableOperation.GET, "u", keys=(b"k",)).status is TableStatus.NO_TABLE
    log.put((b"k", b"v", ABSENT))
    assert log.ask(TableOperation.DELETE_EMPTY).status is TableStatus.NOT_EMPTY
    log.failover()
    assert log.ask(TableOperation.DELETE).status is TableStatus.OK
    assert log.ask(TableOperation.DELETE).status is TableStatus.NO_TABLE
    log.failover()
    assert log.ask(TableOperation.CREATE).status is TableStatus.OK
    assert log.changes(0).keys == ()
    assert log.ask(TableOperation.DELETE_EMPTY).status is TableStatus.OK


def test_an_update_happens_for_all_keys_or_none(log: Log) -> None:
    first = log.put((b"a", b"1", ABSENT), (b"b", b"1", UNCONDITIONAL))
    a, b = first.versions
    assert a < b
    bad = [
        ((b"a", b"2", a), (b"b", b"2", ABSENT)),
        ((b"a", b"2", b), (b"b", b"2", b)),
    ]
    for cells in bad:
        assert log.put(*cells).status is TableStatus.BAD_VERSION
    assert log.put((b"a", b"2", a), (b"c", b"2", 1)).status is TableStatus.NO_KEY
    assert log.put((b"a", b"2", a), position=a).status is TableStatus.BAD_VERSION
    assert log.changes(0).values == (b"1", b"1")
    assert log.put((b"a", b"2", a), position=b).status is TableStatus.OK


def test_a_conditional_update_sent_again_after_a_lost_answer_changes_nothing(log: Log) -> None:
    """Also at another leader, and though somebody wrote since: whoever asks again is told of the
    version, as by Pravega, and finds its own value or that of who came after."""
    for wanted, value in ((ABSENT, b"1"), (None, b"2")):
        before = log.changes(0).versions[-1] if wanted is None else wanted
        done = log.put((b"k", value, before))
        assert done.status is TableStatus.OK
        entries = list(log.entries)
        log.failover()
        assert log.put((b"k", value, before)).status is TableStatus.BAD_VERSION
        assert log.entries == entries
        assert log.changes(0).values == (value,)
    log.put((b"k", b"another's", UNCONDITIONAL))
    assert log.put((b"k", b"2", before)).status is TableStatus.BAD_VERSION
    assert log.changes(0).values == (b"another's",)


def test_changes_come_in_order_and_once(log: Log) -> None:
    for key in (b"a", b"b", b"c"):
        log.put((key, b"1", ABSENT))
    log.put((b"a", b"2", UNCONDITIONAL))
    log.failover()
    first = log.changes(0, count=2)
    assert (first.keys, first.is_end) == ((b"b", b"c"), False)
    rest = log.changes(first.position, count=2)
    assert (rest.keys, rest.values, rest.is_end) == ((b"a",), (b"2",), True)
    end = log.changes(rest.position)
    assert (end.keys, end.position) == ((), rest.position)


def test_listing_and_looking_up(log: Log) -> None:
    for key in (b"c", b"a", b"b"):
        log.put((key, key * 2, ABSENT))
    first = log.ask(TableOperation.LIST, count=2)
    assert (first.keys, first.values, first.is_end) == ((b"a", b"b"), (b"aa", b"bb"), False)
    assert log.ask(TableOperation.LIST, keys=(b"b",), count=2).keys == (b"c",)
    found = log.ask(TableOperation.GET, keys=(b"c", b"x"))
    assert found.values == (b"cc", b"")
    assert found.versions[1] == ABSENT


def test_a_table_of_the_brokers_own_always_has_a_place(log: Log) -> None:
    """Clients' tables kept the register of streams from being made, for good."""
    for number in range(2):  # and the one that every test begins with
        assert log.ask(TableOperation.CREATE, f"sc/t{number}").status is TableStatus.OK
    assert log.ask(TableOperation.CREATE, "sc/more").status is TableStatus.TOO_LARGE
    assert log.ask(TableOperation.CREATE, "/streams").status is TableStatus.OK
    assert log.ask(TableOperation.DELETE, "sc/t0").status is TableStatus.OK
    assert log.ask(TableOperation.CREATE, "sc/more").status is TableStatus.OK


def test_versions_never_fall() -> None:
    """Also when the newest change is gone with its key, its table, and what compaction took."""
    log = Log()
    log.ask(TableOperation.CREATE)
    rng = random.Random(1)
    newest = 0
    for _ in range(60):
        [version] = log.put((b"k", b"v", UNCONDITIONAL)).versions
        assert version > newest
        newest = version
        if rng.random() < 0.5:
            log.ask(TableOperation.REMOVE, keys=(b"k",), versions=(version,))
        if rng.random() < 0.3:
            log.ask(TableOperation.DELETE)
            log.ask(TableOperation.CREATE)
        if rng.random() < 0.5:
            log.failover(rng)


def test_a_fold_is_what_was_answered() -> None:
    """Random requests against a plain dictionary, with failovers over compacted logs."""
    log = Log(TableLimits())
    log.ask(TableOperation.CREATE)
    rng = random.Random(7)
    model: dict[bytes, tuple[int, bytes]] = {}
    for step in range(400):
        key = bytes((rng.randrange(6),))
        version = model.get(key, (ABSENT, b""))[0]
        if rng.random() < 0.6:
            value = step.to_bytes(2, "big")
            [version] = log.put((key, value, version)).versions
            model[key] = (version, value)
        else:
            answer = log.ask(TableOperation.REMOVE, keys=(key,), versions=(version,))
            assert answer.status is TableStatus.OK
            model.pop(key, None)
        if rng.random() < 0.1:
            log.failover(rng)
        found = log.changes(0)
        cells = zip(found.versions, found.values, strict=True)
        assert dict(zip(found.keys, cells, strict=True)) == model
        assert list(found.versions) == sorted(found.versions)


def test_bounds() -> None:
    log = Log()
    for name in "tuv":
        assert log.ask(TableOperation.CREATE, name).status is TableStatus.OK
    assert log.ask(TableOperation.CREATE, "w").status is TableStatus.TOO_LARGE
    assert log.put((b"k" * 9, b"", ABSENT)).status is TableStatus.TOO_LARGE
    assert log.put((b"k", b"v" * 100, ABSENT)).status is TableStatus.TOO_LARGE
    assert log.put((b"k", b"v" * 90, ABSENT)).status is TableStatus.OK
    assert log.put((b"l", b"v" * 90, ABSENT)).status is TableStatus.OK
    assert log.put(*((bytes((9 + n,)), b"", ABSENT) for n in range(4))).status is (
        TableStatus.TOO_LARGE
    )


def test_small_keys_and_empty_tables_are_counted_as_what_they_take() -> None:
    """500,000 keys of two bytes were 80 MB on each node, and counted as one."""
    log = Log(TableLimits(all_bytes=1600))
    assert log.ask(TableOperation.CREATE).status is TableStatus.OK
    for number in range(5):
        assert log.put((bytes((number,)), b"", ABSENT)).status is TableStatus.OK
    assert log.put((b"k", b"", ABSENT)).status is TableStatus.TOO_LARGE
    assert log.ask(TableOperation.CREATE, "u").status is TableStatus.TOO_LARGE
    assert log.put((bytes((0,)), b"", UNCONDITIONAL)).status is TableStatus.OK
    log.failover()
    assert log.put((b"k", b"", ABSENT)).status is TableStatus.TOO_LARGE
    log.ask(TableOperation.DELETE)
    assert log.ask(TableOperation.CREATE).status is TableStatus.OK
    assert log.put(*((bytes((n,)), b"", ABSENT) for n in range(5))).status is TableStatus.OK


def test_the_brokers_own_tables_have_bytes_that_nobody_else_takes() -> None:
    log = Log(TableLimits(all_bytes=4000))
    assert log.ask(TableOperation.CREATE, "/streams").status is TableStatus.OK
    assert log.ask(TableOperation.CREATE).status is TableStatus.OK
    for number in range(3):
        assert log.put((bytes((number,)), b"v" * 500, ABSENT)).status is TableStatus.OK
    assert log.put((b"k", b"v" * 500, ABSENT)).status is TableStatus.TOO_LARGE
    own = log.ask(
        TableOperation.UPDATE, "/streams", keys=(b"s",), values=(b"v" * 500,), versions=(ABSENT,)
    )
    assert own.status is TableStatus.OK


@pytest.mark.parametrize(
    "record",
    [
        Newest(9),
        TableMade("t", 3),
        TableMade("t", None),
        Cell("é", b"k", 4, b"v"),
        Cell("t", b"", None, b""),
    ],
)
def test_records_come_back(record: Newest | TableMade | Cell) -> None:
    assert decode(encode(record)) == record


@pytest.mark.parametrize(
    "entry",
    [
        Entry(b"", b""),
        Entry(b"\x00", None),
        Entry(b"\x00", b"short"),
        Entry(b"\x07", bytes(8)),
        Entry(b"\x01\xff", bytes(8)),
        Entry(b"\x02\x00\x09t", bytes(8)),
    ],
)
def test_other_records_are_refused(entry: Entry) -> None:
    with pytest.raises(RemoteProtocolError, match="__tables"):
        decode(entry)


def test_a_full_table_takes_changes_of_its_keys(log: Log) -> None:
    """It took none, so a stream of a full register could neither be sealed nor deleted."""
    versions = log.put(*((b"%d" % key, b"v", ABSENT) for key in range(5))).versions
    assert log.put((b"more", b"v", ABSENT)).status is TableStatus.TOO_LARGE
    assert log.put((b"0", b"w", versions[0]), (b"1", b"w", versions[1])).status is TableStatus.OK
    both = ((b"0", b"x", UNCONDITIONAL), (b"more", b"v", ABSENT))
    assert log.put(*both).status is TableStatus.TOO_LARGE
