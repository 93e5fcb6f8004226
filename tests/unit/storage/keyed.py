"""What the compaction tests share: batches with keys, and what a reader sees of a log."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.types import Compression
from paceline.wire.batch import build_batch, iter_batches
from paceline.wire.records import Record, decode_records
from paceline_node.storage.cleaner import CleanerLimits, CleanerStatistics, Cleaning
from paceline_node.storage.compaction import CompactionRules
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from tests.unit.storage.world import SMALL, StillHost, content, env_on, flush, new_log

Pair = tuple[bytes | None, bytes | None]
RULES = CompactionRules(min_cleanable_ratio=0.0, delete_retention_ms=1_000)
FAST = CleanerLimits(bytes_per_s=1 << 60, piece_bytes=200)


def keyed(
    pairs: Sequence[Pair],
    *,
    timestamp: int = 1_000,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: Compression = Compression.NONE,
    flags: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """A batch of (key, value) records; ``producer`` is (id, epoch, first sequence)."""
    return build_batch(
        [Record(-1, timestamp + at, key, value) for at, (key, value) in enumerate(pairs)],
        compression=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        flags=flags,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def visible(log: Log) -> list[Record]:
    """Every record a reader gets from the log start on; offsets checked to be in a row."""
    data = content(log)
    found: list[Record] = []
    expected = log.log_start_offset
    for position, header in iter_batches(data):
        # The log may begin inside a batch.
        assert header.base_offset == expected or (not position and header.base_offset < expected)
        expected = header.next_offset
        if not header.is_control:
            found += decode_records(data, position)
    assert expected == log.log_end_offset
    return found


def last_values(records: Sequence[Record]) -> dict[bytes, bytes]:
    """What remains of records that are read in order; tombstones delete."""
    state: dict[bytes, bytes] = {}
    for record in records:
        if record.key is None:
            continue
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value
    return state


async def compact(
    disk: MemoryDisk,
    log: Log,
    host: StillHost | None = None,
    *,
    rules: CompactionRules = RULES,
    limits: CleanerLimits = FAST,
    stable_offset: int | None = None,
) -> CleanerStatistics:
    """Rounds until nothing dirty is left."""
    statistics = CleanerStatistics()
    stable = log.log_end_offset if stable_offset is None else stable_offset
    while await Cleaning(
        env_on(disk, host), log, rules, limits, statistics, stable_offset=stable
    ).run():
        pass
    return statistics


async def keyed_log(
    disk: MemoryDisk, rounds: int = 10, *, settings: LogSettings = SMALL, keys: int = 3
) -> Log:
    """Batches of all keys, over and over, in small segments; the last one sealed."""
    log = await new_log(disk, settings)
    for number in range(rounds):
        pairs = [(b"k%d" % key, b"v%d" % number) for key in range(keys)]
        log.append_leader(keyed(pairs), 1, 1_000)
    log.seal()
    await flush(log, disk)
    return log
