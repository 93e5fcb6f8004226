"""What the storage tests share: an environment on a memory disk, and batches."""

from __future__ import annotations

import random
from typing import NoReturn
from uuid import UUID

from paceline.types import TopicId
from paceline.wire.batch import build_value_batch
from paceline_node.env import Disk, Env, RunBlocking
from paceline_node.storage import scrubbing
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.opening import create_log, open_log
from paceline_node.storage.partition_file import PartitionIdentity
from paceline_node.storage.recovery_report import RecoveryHints
from paceline_node.storage.time_index_check import TimesInDoubt
from paceline_node.storage.torn_tail import Ending

PATH = "topics/orders-0.00000000"
IDENTITY = PartitionIdentity(TopicId(UUID(int=1)), "orders", 0)
SMALL = LogSettings(segment_bytes=700, index_interval_bytes=150, retention_ms=None)


class StillHost:
    """A host whose wall clock stands where the test puts it."""

    def __init__(self) -> None:
        self.wall = 1_000

    def now(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return self.wall

    @property
    def stopwatch(self) -> None:
        return

    def boot_id(self) -> str:
        return "boot"

    def pid(self) -> int:
        return 1

    def environ(self) -> dict[str, str]:
        return {}

    async def run_blocking(self, work):  # type: ignore[no-untyped-def]
        return work()

    def apart(self) -> RunBlocking:
        return self.run_blocking

    def exit(self, code: int) -> NoReturn:
        raise SystemExit(code)

    def buggify(self, site: str) -> bool:
        return False


def env_on(disk: Disk, host: StillHost | None = None) -> Env:
    return Env(host or StillHost(), disk, None, random.Random(1))  # type: ignore[arg-type]


def batch(
    count: int = 1,
    *,
    value: bytes = b"value",
    timestamp: int = 1_000,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytearray:
    """A batch of ``count`` equal records; ``producer`` is (id, epoch, first sequence)."""
    return build_value_batch(
        [value] * count,
        timestamp_ms=timestamp,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
    )


async def new_log(
    disk: Disk | None = None, settings: LogSettings = SMALL, host: StillHost | None = None
) -> Log:
    disk = disk or MemoryDisk()
    disk.mkdir("topics")
    await disk.fsync_dir("")
    return await create_log(env_on(disk, host), PATH, IDENTITY, settings)


async def reopen(
    disk: Disk,
    *,
    mark: int = 0,
    clean: bool = False,
    ending: Ending | None = None,
    log_start: int = 0,
    removed_to: int = 0,
    disk_failed: bool = False,
    settings: LogSettings = SMALL,
    host: StillHost | None = None,
) -> Log:
    hints = RecoveryHints(
        ending=ending or Ending.of(clean=clean, same_boot=False),
        recovery_point=mark,
        log_start=log_start,
        removed_to=removed_to,
        disk_failed=disk_failed,
    )
    return await open_log(env_on(disk, host), PATH, settings, hints)


async def flush(log: Log, disk: Disk) -> None:
    """What the flusher does."""
    ticket = log.files_to_sync()
    await disk.sync(ticket.files)
    if ticket.directory is not None:
        await disk.fsync_dir(ticket.directory)
    log.synced(ticket)


def content(log: Log) -> bytes:
    """All bytes from the log start on, as fetches give them."""
    parts = []
    offset = log.log_start_offset
    while (found := log.locate(offset, 1 << 20, log.log_end_offset)) is not None:
        parts.append(found.read())
        offset = found.next_offset
    return b"".join(parts)


async def ask(disk: MemoryDisk, log: Log, when: int) -> tuple[int, int] | None:
    """As a client that asks again after a doubt."""
    for _ in range(2 * len(log.segments)):
        try:
            return log.offset_for_timestamp(when)
        except TimesInDoubt as doubt:
            await mend(disk, log, doubt)
    raise AssertionError("doubted for ever")


async def mend(disk: MemoryDisk, log: Log, doubt: TimesInDoubt) -> None:
    """What a node does with such a doubt."""
    if doubt.offset is None:
        return
    if doubt.offset == log.segments[-1].base_offset:
        log.seal()
    await scrubbing.scrub(disk, log, doubt.offset)
