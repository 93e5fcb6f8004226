"""How many producers a log may know, and who gives way (pure)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from paceline.errors import NotLeader
from paceline.wire.batch import TRANSACTIONAL, build_batch
from paceline.wire.batch_header import ProducerNamespace, read_header
from paceline.wire.end_marker import EndMarker, build_end_marker
from paceline.wire.records import Record
from paceline_node.replication.producer_quota import (
    ENDED_S,
    IDLE_S,
    ProducerLimits,
    ProducerQuota,
    ProducerShares,
    TooManyProducers,
    writers_of,
)
from paceline_node.storage.byte_segment_batches import Run, run_batch
from paceline_node.storage.producer_state import ProducerKey, key_of_id
from paceline_node.storage.producers import ProducerTable, read_detail

LIMITS = ProducerLimits(per_partition=8, per_client=10)


class Leader:
    """A log's producers, and who may write; all is committed at once unless ``holds`` is set."""

    def __init__(self, shares: ProducerShares, clock: list[float]) -> None:
        self.clock = clock
        self.table = ProducerTable()
        self.end = 0
        self.committed = 0
        self.holds = False
        self.forgotten: list[int] = []
        self.is_leading = True
        self.quota = ProducerQuota(
            shares, "log", self.table, lambda: clock[0], lambda: self.committed, self._forget
        )

    def _forget(self, keys: Sequence[ProducerKey]) -> None:
        if not self.is_leading:
            raise NotLeader("not here")
        for _, key in keys:
            self.forgotten.append(int.from_bytes(key, "big"))
        self._append(self.table.eviction(keys, 5))

    def _append(self, batch: bytearray) -> None:
        header = read_header(batch)
        self.table.note(header, read_detail(batch, 0, header), self.end)
        self.end += header.last_offset_delta + 1
        if not self.holds:
            self.committed = self.end

    def write(self, client: str | None, producer_id: int, *, opens: bool = False) -> None:
        state = self.table.producer(producer_id)
        after = state.window[-1].last_sequence + 1 if state is not None and state.window else 0
        batch = build_batch(
            [Record(value=b"v", timestamp_ms=1)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=after,
            flags=TRANSACTIONAL if opens else 0,
        )
        self.quota.admit(writers_of(batch, [read_header(batch)]), client)
        self._append(batch)

    def end_transaction(self, producer_id: int) -> None:
        self.quota.admit_marker(key_of_id(producer_id))
        self._append(
            build_end_marker(
                EndMarker(True, 3), producer_id=producer_id, producer_epoch=0, timestamp_ms=5
            )
        )

    def append_run(self, run: Run) -> None:
        batch = run_batch(run, self.table.marks, 5)
        self.quota.admit(writers_of(batch, [read_header(batch)]), "a")
        self._append(batch)

    def lose_and_regain(self) -> None:
        self.quota.clear()

    def known(self) -> set[int]:
        return {int.from_bytes(key, "big") for (_, key), _ in self.table}


@pytest.fixture
def clock() -> list[float]:
    return [1000.0]


@pytest.fixture
def shares() -> ProducerShares:
    return ProducerShares(LIMITS)


@pytest.fixture
def leader(shares: ProducerShares, clock: list[float]) -> Leader:
    return Leader(shares, clock)


def test_a_client_that_has_its_share_and_no_idle_ones_is_refused_a_new_one(leader: Leader) -> None:
    for each in range(4):
        leader.write("greedy", each)
    with pytest.raises(TooManyProducers, match=r"it has 4 of 4 here \(at most 4 of 8"):
        leader.write("greedy", 4)
    leader.write("greedy", 0)  # those that are known go on
    leader.write("other", 100)
    assert leader.forgotten == []


def test_a_client_loses_its_own_least_recently_used_one(leader: Leader, clock: list[float]) -> None:
    leader.write("other", 100)
    for each in range(4):
        leader.write("greedy", each)
    leader.write("greedy", 0)
    clock[0] += IDLE_S
    leader.write("greedy", 2)
    leader.write("greedy", 4)
    leader.write("greedy", 5)
    assert leader.forgotten == [1, 3]
    assert leader.known() == {0, 2, 4, 5, 100}


def test_what_is_open_or_not_committed_is_kept(leader: Leader, clock: list[float]) -> None:
    leader.write("a", 0, opens=True)
    leader.write("a", 1)
    leader.write("a", 2, opens=True)
    leader.holds = True
    leader.write("a", 3)
    clock[0] += IDLE_S
    leader.write("a", 4)
    assert leader.forgotten == [1]
    with pytest.raises(TooManyProducers):
        leader.write("a", 5)


def test_ended_transactions_need_less_time(leader: Leader, clock: list[float]) -> None:
    for each in range(40):
        leader.write("spark", each, opens=True)
        leader.end_transaction(each)
        clock[0] += ENDED_S / 4
    assert leader.known() == {36, 37, 38, 39}


def test_who_ended_a_moment_ago_is_kept_whoever_asks(leader: Leader, clock: list[float]) -> None:
    """Else a batch from a coordinator of before would open a transaction that nobody ends."""
    for each in range(4):
        leader.write("a", each, opens=True)
        leader.write("b", 10 + each, opens=True)
        leader.end_transaction(each)
        leader.end_transaction(10 + each)
    with pytest.raises(TooManyProducers):
        leader.write("new", 100)
    leader.lose_and_regain()
    with pytest.raises(TooManyProducers):
        leader.write("another", 100)
    clock[0] += ENDED_S
    leader.write("another", 100)


def test_whoever_has_most_gives_way_in_a_full_partition(leader: Leader) -> None:
    for each in range(4):
        leader.write("greedy", each)
    for each in range(10, 13):
        leader.write("also", each)
    leader.write("small", 100)
    leader.write("small", 101)  # at once, though nobody was idle for long
    leader.write("new", 200)
    assert leader.forgotten == [0, 1]
    with pytest.raises(TooManyProducers):
        leader.write("greedy", 4)
    assert leader.known() >= {100, 101, 200, 10, 11, 12}


def test_many_clients_with_one_each_lose_idle_ones_only(leader: Leader, clock: list[float]) -> None:
    for each in range(8):
        leader.write(f"client {each}", each)
        clock[0] += 1
    with pytest.raises(TooManyProducers):
        leader.write("new", 8)
    clock[0] += IDLE_S - 7
    leader.write("new", 8)
    assert leader.forgotten == [0]


def test_a_new_leader_counts_those_that_write_again(leader: Leader, clock: list[float]) -> None:
    for each in range(4):
        leader.write("greedy", each)
        leader.write("also", 10 + each)
    leader.lose_and_regain()
    leader.write("also", 10)
    leader.write("new", 100)
    assert leader.forgotten == [0], "of those that nobody knows of, the one that wrote first"
    leader.write("new", 101)
    leader.write("new", 102)
    with pytest.raises(TooManyProducers):
        leader.write("new", 103)  # there are no more of those than of its own
    assert {10, 100, 101, 102} <= leader.known()
    clock[0] += IDLE_S
    leader.write("new", 103)
    assert len(leader.known()) == 8


def test_a_client_has_a_bound_over_all_partitions(
    shares: ProducerShares, clock: list[float]
) -> None:
    leaders = [Leader(shares, clock) for _ in range(4)]
    for number, leader in enumerate(leaders[:3]):
        for each in range(3):
            leader.write("wide", number * 10 + each)
            clock[0] += 1
    leaders[3].write("wide", 30)
    with pytest.raises(TooManyProducers, match="10 on this node"):
        leaders[3].write("wide", 31)
    leaders[3].write("other", 32)
    clock[0] += IDLE_S - 8
    leaders[3].write("wide", 33)
    assert [leader.forgotten for leader in leaders] == [[0], [], [], []]
    leaders[0].is_leading = False  # and cannot forget any
    with pytest.raises(TooManyProducers):
        leaders[3].write("wide", 34)
    leaders[0].quota.clear()
    assert shares.count("wide") == 8
    leaders[3].write("wide", 34)


def test_writers_of_segments_stay_as_long_as_they_are_connected(clock: list[float]) -> None:
    shares = ProducerShares(ProducerLimits(per_partition=4))
    leader = Leader(shares, clock)
    for each in range(2):
        run = Run(ProducerNamespace.SEGMENT_SEED, bytes(15) + bytes([each + 1]), 0, 1, 1, b"x")
        leader.append_run(run)
    shares.is_connected = lambda log, key: log == "log" and key[1][-1] == 1
    clock[0] += IDLE_S
    leader.append_run(run._replace(writer=bytes(15) + b"\3"))
    assert leader.forgotten == [2]


def test_markers_are_never_refused(leader: Leader, clock: list[float]) -> None:
    for each in range(40):
        leader.end_transaction(each)
    assert len(leader.known()) == 40
    clock[0] += ENDED_S
    leader.end_transaction(40)
    assert len(leader.known()) == 8
    clock[0] += ENDED_S
    for each in range(4):
        leader.write("a", 100 + each, opens=True)
        leader.write("b", 200 + each, opens=True)
    leader.end_transaction(300)
    assert len(leader.known()) == 9, "all others are open"


def test_what_is_decided_is_never_refused(leader: Leader, clock: list[float]) -> None:
    """However many transactions have ended here that wrote nothing."""
    for each in range(5):
        leader.end_transaction(each)
    leader.write(None, 100, opens=True)
    for each in range(2):
        leader.write(f"client {each}", 200 + each, opens=True)
    leader.write(None, 101, opens=True)
    leader.write(None, 102, opens=True)
    assert leader.forgotten == [], "nobody was idle for long enough"
    with pytest.raises(TooManyProducers):
        leader.write("new", 300)
    clock[0] += ENDED_S
    leader.write(None, 103, opens=True)
    assert leader.forgotten == [0, 1, 2, 3, 4]
    assert leader.known() == {100, 101, 102, 103, 200, 201}


def test_those_that_expired_are_nobodys(leader: Leader) -> None:
    for each in range(4):
        leader.write("a", each)
    leader._append(leader.table.eviction([key_of_id(each) for each in range(4)], 5))
    for each in range(10, 14):
        leader.write("a", each)
    assert len(leader.quota) == 4


PRODUCERS = st.integers(0, 30)
CLIENTS = st.sampled_from(["a", "b", "c", "d"])
PLACES = st.integers(0, 1)
DECIDED = st.integers(100, 120)
SETTLER = "the coordinator"
NAMES = (*"abcd", SETTLER)


class QuotaMachine(RuleBasedStateMachine):
    """Four clients that open producers as they like in two partitions, where a coordinator stores
    what it has decided."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = [0.0]
        self.shares = ProducerShares(LIMITS)
        self.leaders = [Leader(self.shares, self.clock) for _ in range(2)]
        self.open: list[set[int]] = [set(), set()]
        self.ended: list[set[int]] = [set(), set()]
        self.used: list[dict[int, float]] = [{}, {}]
        self.owner: list[dict[int, str]] = [{}, {}]

    @rule(where=PLACES, client=CLIENTS, producer=PRODUCERS, opens=st.booleans())
    def write(self, where: int, client: str, producer: int, opens: bool) -> None:
        leader, owner = self.leaders[where], self.owner[where]
        known = producer in leader.known()
        opens = opens or producer in self.open[where]
        sizes = {name: list(owner.values()).count(name) for name in NAMES}
        before = [dict(each) for each in self.used]
        kept = [leader.known() for leader in self.leaders]
        for each in self.leaders:
            each.forgotten.clear()
        try:
            leader.write(client, producer, opens=opens)
        except TooManyProducers:
            assert not known, "a known producer was refused"
            assert leader.forgotten == [] or len(leader.known()) < len(kept[where])
        else:
            if not known:
                assert leader.quota.count(client) <= LIMITS.per_partition // 2
                everywhere = sum(each.quota.count(client) for each in self.leaders)
                assert everywhere <= LIMITS.per_client
            owner[producer] = client
            self.used[where][producer] = self.clock[0]
            self.ended[where].discard(producer)
            if opens:
                self.open[where].add(producer)
        for place in range(len(self.leaders)):
            self.check_forgotten(place, where, client, sizes, before[place])
            self.drop_forgotten(place, None if place != where else producer)

    def drop_forgotten(self, place: int, but: int | None) -> None:
        for gone in self.leaders[place].forgotten:
            if gone != but:
                self.owner[place].pop(gone, None)
                self.used[place].pop(gone, None)
                self.ended[place].discard(gone)

    @rule(where=PLACES, producer=DECIDED)
    def settle(self, where: int, producer: int) -> None:
        """What was decided is stored whoever else is there, and the transaction ends."""
        leader, owner = self.leaders[where], self.owner[where]
        sizes = {name: list(owner.values()).count(name) for name in NAMES}
        for each in self.leaders:
            each.forgotten.clear()
        try:
            leader.write(None, producer, opens=True)
        except TooManyProducers as error:
            raise AssertionError("what is decided was refused") from error
        leader.end_transaction(producer)
        for place in range(len(self.leaders)):
            self.check_forgotten(place, where, SETTLER, sizes, self.used[place])
            self.drop_forgotten(place, None)
        owner[producer] = SETTLER
        self.used[where][producer] = self.clock[0]
        self.ended[where].add(producer)

    def check_forgotten(
        self, place: int, where: int, client: str, sizes: dict[str, int], used: dict[int, float]
    ) -> None:
        for gone in self.leaders[place].forgotten:
            assert gone not in self.open[place], f"{gone} has a transaction open"
            whose = self.owner[place].get(gone)
            needed = ENDED_S if gone in self.ended[place] else IDLE_S
            if used.get(gone, 0.0) + needed <= self.clock[0] or whose is None:
                continue
            assert gone not in self.ended[place], f"{gone} ended its transaction a moment ago"
            assert place == where, "for what happens elsewhere only idle ones go"
            assert sizes[whose] > sizes[client], f"{whose} had no more than {client}"

    @rule(where=PLACES, data=st.data())
    @precondition(lambda self: any(self.open))
    def end(self, where: int, data: st.DataObject) -> None:
        if self.open[where]:
            producer = data.draw(st.sampled_from(sorted(self.open[where])))
            self.leaders[where].end_transaction(producer)
            self.open[where].discard(producer)
            self.ended[where].add(producer)
            self.used[where][producer] = self.clock[0]

    @rule(seconds=st.sampled_from([1.0, IDLE_S / 2, IDLE_S]))
    def wait(self, seconds: float) -> None:
        self.clock[0] += seconds

    @rule(where=PLACES)
    def move(self, where: int) -> None:
        self.leaders[where].lose_and_regain()
        self.owner[where].clear()

    @invariant()
    def bounds_hold(self) -> None:
        for leader in self.leaders:
            decided = {each for each in leader.known() if each >= 100}
            # But for markers of unknown ones.
            assert len(leader.known() - decided) <= LIMITS.per_partition
            assert len(leader.known()) <= LIMITS.per_partition or decided
        for client in "abcd":
            counts = [leader.quota.count(client) for leader in self.leaders]
            assert self.shares.count(client) == sum(counts)


TestQuotaMachine = QuotaMachine.TestCase
TestQuotaMachine.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None, report_multiple_bugs=False
)
