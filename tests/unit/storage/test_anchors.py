"""Anchors that are made anew: what they say, and the records behind, add up to what was known."""

from __future__ import annotations

import random

import pytest

from paceline.errors import DuplicateSequence, OutOfOrderSequence
from paceline.wire.batch import build_batch, read_header
from paceline.wire.batch_header import TRANSACTIONAL
from paceline.wire.records import Record
from paceline_node.storage import anchors, producer_file, scrubbing
from paceline_node.storage.earlier_states import as_of
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.producer_state import Duplicate, ProducerState
from paceline_node.storage.producers import FrozenTable, ProducerTable
from paceline_node.storage.sequenced_records import contains, table_key
from paceline_node.storage.torn_tail import Ending
from paceline_node.storage.transaction_index import is_aborted
from tests.unit.storage import test_sequenced_log as sequenced
from tests.unit.storage.test_repair import spoil
from tests.unit.storage.test_transaction_compaction import marker
from tests.unit.storage.world import IDENTITY, PATH, batch, content, flush, new_log, reopen

WHOLE = LogSettings(segment_bytes=1 << 20, index_interval_bytes=150, retention_ms=None)
NAME = table_key(sequenced.number(1).key)


def judged(table: ProducerTable, data: bytearray) -> str:
    """What a leader with ``table`` says of a batch."""
    try:
        found = table.check(read_header(data))
    except DuplicateSequence:
        return "stored"
    except OutOfOrderSequence:
        return "refused"
    return "stored" if isinstance(found, Duplicate) else "new"


def began_with(log: Log, anchor: FrozenTable) -> ProducerTable:
    """The table of a replica that has begun with ``anchor`` and fetched the rest."""
    table = ProducerTable()
    table.load(anchor)
    producer_file.replay(log.segments, table, anchor.offset, log.log_end_offset)
    return table


async def anchor_of(disk: MemoryDisk, log: Log) -> FrozenTable:
    assert log.state_offset is not None
    kept = await producer_file.read(disk, PATH, log.state_offset, IDENTITY.owner)
    assert kept is not None
    return kept.table


class Mixed:
    """Producers of all kinds that one log may have, in turns; where batches begin."""

    def __init__(self, seed: int, log: Log) -> None:
        self.log, self.rng = log, random.Random(seed)
        self.begins: list[int] = []
        self.sequences: dict[tuple[int, int], int] = {}
        self.epochs: dict[int, int] = {}
        self.numbers = dict.fromkeys("ab", 0)

    def write(self) -> None:
        rng, log = self.rng, self.log
        self.begins.append(log.log_end_offset)
        match rng.randrange(12):
            case 0:
                who = rng.choice("ab")
                self.numbers[who] += rng.choice((1, 1, 2))
                sequenced.append(log, [sequenced.number(self.numbers[who], who)])
            case 1 | 2:
                who = rng.randrange(10, 13)
                state = log.producers.producer(who)
                if state is not None and state.is_open:
                    commits = rng.random() < 0.5
                    log.append_leader(marker(who, commits=commits), 0, 1_000)
            case 3:
                who = rng.randrange(13)
                state = log.producers.producer(who)
                if state is None or not state.is_open:
                    self.epochs[who] = self.epochs.get(who, 0) + 1
            case _:
                self._batch(rng.randrange(13))

    def _batch(self, who: int) -> None:
        epoch = self.epochs.setdefault(who, 0)
        if who >= 10:
            epoch = 0
        first = self.sequences.get((who, epoch), 0)
        count = self.rng.randint(1, 3)
        data = build_batch(
            [Record(-1, 1_000, None, b"v")] * count,
            producer_id=who,
            producer_epoch=epoch,
            base_sequence=first,
            flags=TRANSACTIONAL if who >= 10 else 0,
        )
        self.log.append_leader(data, 0, 1_000)
        self.sequences[who, epoch] = first + count


def aborted(log: Log, table: ProducerTable, start: int) -> list[int]:
    """Batches from ``start`` on that a reader of committed records does not get."""
    data, found = content(log), []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        is_ours = header.base_offset >= start and not header.is_control
        if is_ours and is_aborted(header, table.transactions.aborted):
            found.append(header.base_offset)
        position += header.size_bytes
    return found


@pytest.mark.parametrize("seed", range(40))
async def test_a_state_of_before_and_the_records_behind_add_up(seed: int) -> None:
    log = await new_log(settings=WHOLE)
    mixed = Mixed(seed, log)
    for _ in range(60):
        mixed.write()
    now = log.producers.freeze(log.log_end_offset)
    for offset in mixed.begins:
        table = began_with(log, await as_of(now, offset))
        assert {key for key, _ in table} == {key for key, _ in log.producers}
        for key, state in log.producers:
            then = table.state(key)
            if isinstance(state, ProducerState):
                assert isinstance(then, ProducerState)
                assert then.known <= state.known
                state = state._replace(known=0, open_offset=max(state.open_offset, offset))
                then = then._replace(known=0, open_offset=max(then.open_offset, offset))
            assert then == state
        assert aborted(log, table, offset) == aborted(log, log.producers, offset)
    log.abandon()


async def test_what_lay_in_a_hole_is_stored_for_who_begins_behind_it() -> None:
    """Producers that went on writing behind the hole: what they had written before was forgotten,
    and stored again where they sent it once more."""
    disk = MemoryDisk()
    log = await new_log(disk, WHOLE)
    sequenced.append(log, [sequenced.number(1)])
    lost = batch(producer=(6, 0, 0))
    log.append_leader(bytearray(lost), 0, 1_000)
    sequenced.append(log, [sequenced.number(2)])
    log.append_leader(batch(producer=(6, 0, 1)), 0, 1_000)
    await flush(log, disk)
    spoil(disk, log, 0, 1)
    await scrubbing.scrub(disk, log, 0)
    log.advance_start(2)
    assert await anchors.renew(disk, log, log.log_end_offset)
    theirs = began_with(log, await anchor_of(disk, log))
    state = theirs.sequenced(NAME)
    assert state is not None
    assert contains(state.runs, 1)
    assert judged(theirs, lost) == "stored"
    log.abandon()


async def test_nothing_that_is_not_committed_goes_into_an_anchor() -> None:
    """A leader to come may not have it, and would call it stored."""
    disk = MemoryDisk()
    log = await new_log(disk, WHOLE)
    sequenced.append(log, [sequenced.number(1)])
    log.append_leader(batch(), 0, 1_000)
    sequenced.append(log, [sequenced.number(2)])
    await flush(log, disk)
    spoil(disk, log, 0)
    await scrubbing.scrub(disk, log, 0)
    log.advance_start(1)
    assert await anchors.renew(disk, log, 2)
    state = (await anchor_of(disk, log)).states
    ((_, only),) = state.items()
    assert only.runs == ((1, 1),)  # type: ignore[union-attr]
    log.abandon()


async def trimmed(disk: MemoryDisk) -> tuple[Log, ProducerTable]:
    """A log that begins at 4, of two segments, with a snapshot at each of its segments' ends."""
    log = await new_log(disk, WHOLE)
    for sequence in range(9):
        log.append_leader(batch(producer=(5, 0, sequence)), 0, 1_000)
        if sequence in (3, 7):
            log.append_leader(batch(producer=(6 + sequence, 0, 0)), 0, 1_000)
            log.seal()
            await flush(log, disk)
    await flush(log, disk)
    log.advance_start(5)
    log.start_written(5)
    assert log.oldest_offset == log.state_offset == 5
    return log, began_with(log, await anchor_of(disk, log))


@pytest.mark.parametrize("how", ["rotten", "lost"])
async def test_a_lost_anchor_is_written_from_memory(how: str) -> None:
    disk = MemoryDisk()
    log, before = await trimmed(disk)
    path = f"{PATH}/{producer_file.name(5)}"
    if how == "lost":
        disk.remove(path)
    else:
        disk.overwrite(path, disk.content(path)[:-1])
    assert not await anchors.renew(disk, log, 11)
    log.state.unreadable(5)
    assert log.state_offset is None
    assert not log.is_damaged
    assert await anchors.renew(disk, log, 5)  # though nothing behind it is committed
    assert began_with(log, await anchor_of(disk, log)) == before
    log.abandon()


@pytest.mark.parametrize("ending", [Ending.CLEAN, Ending.KILLED, Ending.POWER_CUT])
async def test_a_later_snapshot_of_what_was_committed_gives_the_anchor_again(
    ending: Ending,
) -> None:
    disk = MemoryDisk()
    log, before = await trimmed(disk)
    await log.close()
    disk.remove(f"{PATH}/{producer_file.name(5)}")
    for _ in range(2):
        log = await reopen(disk, mark=11, ending=ending, log_start=5, settings=WHOLE)
        assert not log.is_damaged
        await log.write_state()
        assert log.state_offset == 5
        table = began_with(log, await anchor_of(disk, log))
        assert aborted(log, table, 5) == aborted(log, log.producers, 5)
        state, then = table.producer(5), before.producer(5)
        assert state is not None
        assert then is not None
        assert state.window == then.window
        assert {key for key, _ in table} == {key for key, _ in before}
        log.abandon()


async def test_a_snapshot_of_what_may_not_be_committed_gives_no_anchor() -> None:
    disk = MemoryDisk()
    log, _ = await trimmed(disk)
    await log.close()
    for offset in (5, 10):
        disk.remove(f"{PATH}/{producer_file.name(offset)}")
    assert producer_file.offsets(disk.list(PATH)) == [11]
    log = await reopen(disk, mark=10, ending=Ending.KILLED, log_start=5, settings=WHOLE)
    assert log.is_damaged
    assert log.state_offset is None
    log.abandon()


async def test_what_was_aborted_stays_so_behind_an_anchor_on_an_operators_word() -> None:
    """The transaction that its producer had open at the end was taken for the one before, whose
    records a reader of committed ones was given then."""
    disk = MemoryDisk()
    log = await new_log(disk, WHOLE)
    log.append_leader(batch(), 0, 1_000)
    log.seal()
    await flush(log, disk)
    log.advance_start(1)
    log.start_written(1)
    mixed = Mixed(1, log)
    for _ in range(2):
        mixed._batch(10)
    log.append_leader(marker(10, commits=False), 0, 1_000)
    mixed._batch(10)
    await flush(log, disk)
    expected = aborted(log, log.producers, 1)
    assert expected
    log.abandon()
    for offset in producer_file.offsets(disk.list(PATH)):
        disk.remove(f"{PATH}/{producer_file.name(offset)}")
    log = await reopen(disk, mark=5, log_start=1, settings=WHOLE)
    assert log.state.is_missing
    await anchors.believe_own(disk, log, log.log_end_offset)
    theirs = began_with(log, await anchor_of(disk, log))
    assert aborted(log, theirs, 1) == expected
    log.abandon()


async def test_a_cut_below_all_that_is_remembered_takes_the_state_along() -> None:
    """The table was read again from a state that lay below the oldest segment: what the records in
    between had said was forgotten without a word."""
    disk = MemoryDisk()
    log = await new_log(disk, WHOLE)
    for number in range(60):
        log.append_leader(batch(producer=(number, 0, 0)), 0, 1_000)
        if number % 10 == 9:
            log.seal()
            await flush(log, disk)
    log.advance_start(35)
    log.start_written(35)
    assert log.producers.floor.offset < log.oldest_offset
    for sequence in range(9_000):  # more than can be undone
        log.append_leader(batch(producer=(1_000, 0, sequence)), 0, 1_000)
    log.truncate(38)
    assert log.is_damaged
    assert not log.state.is_founded
    assert log.state_offset is None
    log.abandon()
