"""Compacting logs that hold transactions: as Kafka's cleaner does it (KIP-98, KIP-534)."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import takewhile

import msgpack
import pytest

from paceline.wire.batch import TRANSACTIONAL, iter_batches
from paceline.wire.records import decode_records
from paceline_node.storage import checkpoint, compaction_file, producer_file
from paceline_node.storage.compaction_file import NAME
from paceline_node.storage.log import Log
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.producers import ProducerNamespace, ProducerTable, read_detail
from paceline_node.storage.replica_comparison import compare_replicas
from paceline_node.storage.sequenced_batches import expire_batch
from paceline_node.storage.verify import verify_log
from tests.unit.storage.keyed import RULES, compact, keyed
from tests.unit.storage.test_transaction_index import marker
from tests.unit.storage.world import (
    IDENTITY,
    PATH,
    SMALL,
    StillHost,
    content,
    flush,
    new_log,
    reopen,
)

Values = dict[bytes, bytes]
Pair = tuple[bytes | None, bytes | None]


class Writer:
    """One producer's transactions in a log."""

    def __init__(self, log: Log, producer: int = 1) -> None:
        self._log = log
        self._producer = producer
        self._sequence = 0

    def write(self, *pairs: Pair, log: Log | None = None) -> None:
        data = keyed(pairs, producer=(self._producer, 0, self._sequence), flags=TRANSACTIONAL)
        (log or self._log).append_leader(data, 1, 1_000)
        self._sequence += len(pairs)

    def end(self, *, commits: bool) -> None:
        self._log.append_leader(marker(self._producer, commits=commits), 1, 1_000)


def rebuilt(log: Log) -> ProducerTable:
    """The table that a replica makes which fetches the whole log."""
    table = ProducerTable()
    data = content(log)
    for position, header in iter_batches(data):
        table.note(header, read_detail(data, position, header), header.base_offset)
    return table


def committed(log: Log, table: ProducerTable | None = None) -> Values:
    """What a reader of committed records knows at the end, by one table of what was aborted. As
    Kafka's clients do, it drops what an aborted producer wrote until it meets the marker."""
    index = (log.producers if table is None else table).transactions
    begun = sorted(index.aborted_in(0, log.log_end_offset), key=lambda each: -each.first_offset)
    dropped: set[int] = set()
    stable = index.first_unstable(log.log_end_offset)
    values: Values = {}
    data = content(log)
    for position, header in iter_batches(data):
        while begun and begun[-1].first_offset <= header.last_offset:
            dropped.add(begun.pop().producer_id)
        if header.is_control:
            dropped.discard(header.producer_id)
            continue
        is_dropped = header.is_transactional and header.producer_id in dropped
        if header.base_offset >= stable or is_dropped:
            continue
        for record in decode_records(data, position):
            if record.value is None:
                values.pop(record.key or b"", None)
            else:
                values[record.key or b""] = record.value
    return values


def stable_offset(log: Log) -> int:
    return log.producers.transactions.first_unstable(log.log_end_offset)


def counts(log: Log) -> tuple[int, int]:
    """Batches with records, and markers."""
    headers = [header for _, header in iter_batches(content(log))]
    markers = sum(header.is_control for header in headers)
    return sum(header.record_count > 0 for header in headers) - markers, markers


async def test_a_changelog_of_transactions_shrinks_as_a_plain_one() -> None:
    disk, host = MemoryDisk(), StillHost()
    log = await new_log(disk, host=host)
    writer = Writer(log)
    for number in range(300):
        writer.write((b"k%d" % (number % 10), b"%d" % number))
        writer.end(commits=True)
    log.seal()
    wanted = committed(log)
    before = log.size_bytes
    await compact(disk, log, host)
    assert counts(log) == (10, 300), "whoever has read the records must find their markers"
    for _ in range(2):  # markers learn when they may go, then go
        host.wall += 2_000
        await compact(disk, log, host)
    # Those of what is left, and of the five last batches, and no others.
    assert counts(log) == (10, 10)
    assert log.size_bytes < before / 15
    assert committed(log) == committed(log, rebuilt(log)) == wanted
    assert not rebuilt(log).transactions.open
    assert (await verify_log(disk, PATH)).findings == ()
    log.abandon()


async def test_what_was_aborted_goes_and_supersedes_nothing() -> None:
    disk, host = MemoryDisk(), StillHost()
    log = await new_log(disk, host=host)
    one, two = Writer(log, 1), Writer(log, 2)
    one.write((b"a", b"kept"), (b"b", b"kept"))
    two.write((b"a", b"aborted"), (b"c", b"aborted"))
    one.end(commits=True)
    two.write((b"b", None))
    two.end(commits=False)
    two.write((b"d", b"kept"))
    two.end(commits=True)
    log.seal()
    await compact(disk, log, host)
    assert committed(log) == {b"a": b"kept", b"b": b"kept", b"d": b"kept"}
    assert b"aborted" not in content(log)
    assert committed(log, rebuilt(log)) == committed(log)
    assert log.producers.transactions.aborted == [], "nothing is left that it speaks of"
    log.abandon()


async def test_a_tombstone_in_a_transaction_deletes_for_good() -> None:
    disk, host = MemoryDisk(), StillHost()
    log = await new_log(disk, host=host)
    writer = Writer(log)
    log.append_leader(keyed([(b"k", b"plain")]), 1, 1_000)
    writer.write((b"k", b"value"))
    writer.end(commits=True)
    writer.write((b"k", None))
    writer.end(commits=True)
    writer.write((b"other", b"x"))
    writer.end(commits=False)
    log.seal()
    for _ in range(4):
        await compact(disk, log, host)
        assert committed(log) == committed(log, rebuilt(log)) == {}
        host.wall += 2_000
    assert counts(log)[0] == 0
    log.abandon()


async def test_a_transaction_that_reaches_over_the_end_of_what_is_compacted() -> None:
    disk, host = MemoryDisk(), StillHost()
    log = await new_log(disk, host=host)
    writer = Writer(log)
    writer.write((b"a", b"old"))
    writer.end(commits=True)
    writer.write((b"a", b"aborted"))
    log.seal()
    writer.write((b"b", b"aborted"))
    writer.end(commits=False)  # in the active segment
    await compact(disk, log, host)
    host.wall += 2_000
    await compact(disk, log, host)
    for table in (log.producers, rebuilt(log)):
        assert committed(log, table) == {b"a": b"old"}
        assert not table.transactions.open
    log.abandon()


async def test_the_last_marker_of_a_producer_stays_until_it_is_forgotten() -> None:
    """It may have fenced an older instance, which the log alone must tell."""
    disk, host = MemoryDisk(), StillHost()
    log = await new_log(disk, host=host)
    log.append_leader(marker(1, commits=False, epoch=3), 1, 1_000)
    log.append_leader(keyed([(b"a", b"plain")]), 1, 1_000)
    log.seal()
    for _ in range(4):
        host.wall += 2_000
        await compact(disk, log, host)
    state = rebuilt(log).producer(1)
    assert state is not None
    assert state.epoch == 3
    log.append_leader(expire_batch(log.log_end_offset, 5, ProducerNamespace.NONE), 1, 1_000)
    log.seal()
    for _ in range(4):
        host.wall += 2_000
        await compact(disk, log, host)
    assert counts(log) == (1, 0)
    log.abandon()


async def test_a_log_that_was_compacted_without_its_transactions_is_looked_at_again() -> None:
    """There a value in a transaction outlived what came behind it: its tombstone must not go."""
    disk, host = MemoryDisk(), StillHost()
    log = await new_log(disk, host=host)
    writer = Writer(log)
    writer.write((b"k", b"value"))
    writer.end(commits=True)
    log.append_leader(keyed([(b"k", None)]), 1, 1_000)
    log.seal()
    await flush(log, disk)
    await log.close()
    payload = msgpack.packb([log.log_end_offset, 5, None])
    path, owner = f"{PATH}/{NAME}", IDENTITY.owner
    await checkpoint.write(disk, path, checkpoint.Kind.COMPACTION, payload, owner)
    assert (await compaction_file.read(disk, PATH, IDENTITY.owner)).cleaned_offset == 0
    log = await reopen(disk, mark=log.log_end_offset, clean=True, host=host)
    host.wall += 10_000
    for _ in range(3):
        await compact(disk, log, host)
        assert committed(log) == {}
        host.wall += 2_000
    assert counts(log)[0] == 0
    log.abandon()


async def stale(disk: MemoryDisk, host: StillHost) -> tuple[Log, Values]:
    """A log whose first aborted transaction is compacted away, marker and all, while every snapshot
    on disk is older than that. A second one is still there."""
    log = await new_log(disk, host=host)
    writer = Writer(log)
    writer.write((b"a", b"aborted"))
    writer.end(commits=False)
    for number in range(8):
        writer.write((b"precious%d" % number, b"x"))
        writer.end(commits=True)
    log.seal()
    other = Writer(log, 2)
    other.write((b"b", b"aborted"))
    other.end(commits=False)
    log.take_snapshot()
    await flush(log, disk)
    await log.write_epochs()
    wanted = committed(log)
    assert len(wanted) == 8
    for _ in range(3):
        await compact(disk, log, host)
        host.wall += 2_000
    first = next(header for _, header in iter_batches(content(log)))
    assert first.next_offset >= 2, "the marker is gone"
    return log, wanted


@pytest.mark.parametrize("clean", [False, True])
async def test_a_snapshot_older_than_the_compaction_hides_nothing(clean: bool) -> None:
    """It still lists the aborted transaction: a client told of it waits for the marker, which is
    gone, and drops what the producer committed behind it."""
    disk, host = MemoryDisk(), StillHost()
    log, wanted = await stale(disk, host)
    end = log.log_end_offset
    if clean:
        await log.close()
    else:
        disk.kill()
        log.abandon()
    for _ in range(2):
        log = await reopen(disk, mark=end, clean=clean, host=host)
        assert [each.producer_id for each in log.producers.transactions.aborted] == [2]
        assert committed(log) == wanted
        await log.close()


async def test_nor_does_it_where_nobody_knows_how_far_the_log_was_compacted() -> None:
    disk, host = MemoryDisk(), StillHost()
    log, wanted = await stale(disk, host)
    end = log.log_end_offset
    await log.close()
    for name in disk.list(PATH):
        if name.startswith("compaction"):
            disk.remove(f"{PATH}/{name}")
    settings = replace(SMALL, compaction=RULES)
    log = await reopen(disk, mark=end, clean=True, host=host, settings=settings)
    assert [each.producer_id for each in log.producers.transactions.aborted] == [2]
    assert committed(log) == wanted
    log.abandon()


async def test_the_marker_of_a_transaction_that_is_open_at_the_logs_anchor_stays() -> None:
    """A replica that begins there is told that it is open: only the marker says that it ended."""
    disk, host = MemoryDisk(), StillHost()
    log = await new_log(disk, host=host)
    writer = Writer(log)
    writer.write((b"a", b"old"))
    log.seal()
    await flush(log, disk)
    begin = log.log_end_offset
    writer.end(commits=True)
    log.append_leader(keyed([(b"b", b"plain")]), 1, 1_000)
    log.append_leader(expire_batch(log.log_end_offset, 5, ProducerNamespace.NONE), 1, 1_000)
    assert log.producers.producer(1) is None
    log.seal()
    await flush(log, disk)
    log.advance_start(begin)
    log.start_written(begin)
    assert log.oldest_offset == log.state_offset == begin
    for _ in range(4):
        await compact(disk, log, host)
        host.wall += 2_000
    kept = await producer_file.read(disk, PATH, begin, IDENTITY.owner)
    assert kept is not None
    table = ProducerTable()
    table.load(kept.table)
    assert table.transactions.open
    data = content(log)
    for position, header in iter_batches(data):
        table.note(header, read_detail(data, position, header), header.base_offset)
    assert not table.transactions.open
    assert committed(log, table) == committed(log) == {b"b": b"plain"}
    log.abandon()


class Story:
    """A log, and what was written to it: by whose open transaction, or by nobody's."""

    def __init__(self, rng: random.Random, log: Log, disk: MemoryDisk, host: StillHost) -> None:
        self.rng, self.log, self.disk, self.host = rng, log, disk, host
        self.sequences = dict.fromkeys(range(3), 0)
        self.written: list[tuple[int | None, list[Pair]]] = []

    @property
    def open(self) -> set[int]:
        return {who for who, _ in self.written if who is not None}

    def write(self, who: int | None, pairs: list[Pair]) -> None:
        if who is None:
            self.log.append_leader(keyed(pairs), 1, 1_000)
        else:
            data = keyed(pairs, producer=(who, 0, self.sequences[who]), flags=TRANSACTIONAL)
            self.log.append_leader(data, 1, 1_000)
            self.sequences[who] += len(pairs)
        self.written.append((who, pairs))

    def end(self, who: int, *, commits: bool) -> None:
        self.log.append_leader(marker(who, commits=commits), 1, 1_000)
        self.written = [
            (None if writer == who else writer, pairs)
            for writer, pairs in self.written
            if commits or writer != who
        ]

    async def compact(self) -> None:
        self.host.wall += self.rng.choice([10, 600, 1_500])
        await compact(self.disk, self.log, self.host, stable_offset=stable_offset(self.log))

    async def restart(self, *, keeps_snapshots: bool) -> None:
        if keeps_snapshots:  # and the next start believes them, older than compactions or not
            await self.log.write_epochs()
        await flush(self.log, self.disk)
        end = self.log.log_end_offset
        self.log.abandon()
        for name in self.disk.list(PATH):
            if name.endswith(".snap") and not keeps_snapshots:
                self.disk.remove(f"{PATH}/{name}")
        self.log = await reopen(self.disk, mark=end, host=self.host)

    async def step(self, number: int) -> None:
        rng, who = self.rng, self.rng.randrange(3)
        pairs: list[Pair] = [
            (b"k%d" % rng.randrange(5), rng.choice([None, b"v%d" % number])) for _ in range(2)
        ]
        match rng.randrange(9):
            case 0 | 1 | 2:
                self.write(who, pairs)
            case 3 | 4 if who in self.open:
                self.end(who, commits=rng.random() < 0.6)
            case 5:
                self.write(None, pairs)
            case 6:
                self.log.seal()
            case 7:
                await self.compact()
            case 8 if rng.random() < 0.3:
                await self.restart(keeps_snapshots=rng.random() < 0.5)

    def expected(self) -> Values:
        """Nothing behind an open transaction is shown yet."""
        values: Values = {}
        for _, pairs in takewhile(lambda each: each[0] is None, self.written):
            for key, value in pairs:
                values.pop(key or b"", None)
                if value is not None:
                    values[key or b""] = value
        return values


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 30))]
)
async def test_whatever_is_written_the_committed_values_stay(seed: int) -> None:
    """Transactions that overlap, tombstones, compactions and markers that go, restarts: readers
    of committed records, on this replica and on one that fetches the log, know the same."""
    disk, host = MemoryDisk(), StillHost()
    story = Story(random.Random(seed), await new_log(disk, host=host), disk, host)
    for number in range(150):
        await story.step(number)
        again = rebuilt(story.log)
        assert committed(story.log) == committed(story.log, again) == story.expected(), number
        assert again.transactions.open.keys() == story.open
    story.log.abandon()


async def test_replicas_that_differ_in_what_is_compacted_compare_equal() -> None:
    disks = [MemoryDisk(), MemoryDisk()]
    for index, disk in enumerate(disks):
        log = await new_log(disk)
        writer = Writer(log)
        for number in range(6):
            writer.write((b"k", b"%d" % number))
            writer.end(commits=number % 2 == 0)
        log.seal()
        await flush(log, disk)
        if index:
            await compact(disk, log)
        await log.close()
    replicas = {str(index): (disk, PATH) for index, disk in enumerate(disks)}
    assert await compare_replicas(replicas, high_watermark=12) == []
