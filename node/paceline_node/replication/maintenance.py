"""What is done for partitions from time to time: checkpoints, retention, ISR shrinking, interval
flushes, and watching the disk (DESIGN 3.6, 7; rows 17 to 19 of tests/sim/README.md).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

import structlog
import trio

from paceline.errors import StorageError
from paceline.values import dataclass
from paceline_node.env import Env, is_full
from paceline_node.loop_turns import pause_after
from paceline_node.replication.disk_health import Health, RefusedWrites, SlowDisk, free_floor
from paceline_node.replication.log_directory import LogDirectory
from paceline_node.replication.partition import Partition, PartitionContext, PartitionKey
from paceline_node.settings import tree
from paceline_node.settings.flush_mode import FlushMode
from paceline_node.storage import scrubbing
from paceline_node.storage.flusher import Flusher
from paceline_node.storage.log import Log
from paceline_node.storage.scrubbing import Scrubbed

_LOG = tree.LogSettings()
_CHECKPOINTS = "checkpoints"
_APPENDS = "appends"


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """``min_free_bytes``: free space below which writes are refused; None: as
    :func:`free_floor` says. ``expired_bytes_per_s``: how fast segments are read that seem to have
    expired."""

    checkpoint_s: float = _LOG.checkpoint_ms / 1000
    retention_s: float = _LOG.retention_check_ms / 1000
    disk_check_s: float = 1.0
    min_free_bytes: int | None = None
    expired_bytes_per_s: int = 50_000_000


class _Doubt(NamedTuple):
    """The segment at ``offset`` is to be read before a log that begins at ``start`` may go on."""

    start: int
    offset: int


class Maintenance:
    """Runs all of it over the partitions that ``hosted`` returns; ``is_elsewhere`` tells which
    strays are of no use. ``starts_written``: partitions were told that their log starts are.
    ``scrub`` reads the segment that holds an offset, and acts if it is damaged."""

    def __init__(
        self,
        env: Env,
        context: PartitionContext[Partition],
        directory: LogDirectory,
        flusher: Flusher,
        health: Health,
        *,
        hosted: Callable[[], Iterable[Partition]],
        is_elsewhere: Callable[[PartitionKey], bool],
        starts_written: Callable[[], None],
        scrub: Callable[[Partition, int], Awaitable[Scrubbed | None]],
        settings: MaintenanceSettings | None = None,
    ) -> None:
        self._env = env
        self._context = context
        self._directory = directory
        self._flusher = flusher
        self._health = health
        self._hosted = hosted
        self._is_elsewhere = is_elsewhere
        self._settings = settings or MaintenanceSettings()
        self._start_moved = trio.Event()
        self._starts_written = starts_written
        self._scrub = scrub
        self._reading_expired = False
        self._slow_disk = SlowDisk()
        self._refused = RefusedWrites()
        self._no_room = False
        self._flush_at: dict[PartitionKey, float] = {}
        self._log = structlog.get_logger(component="maintenance", node=context.node_id)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._checkpoints)
            nursery.start_soon(self._starts)
            nursery.start_soon(self._retention)
            nursery.start_soon(self._shrinking)
            nursery.start_soon(self._interval_flushes)
            self._look_at_disk()
            nursery.start_soon(self._disk_watch)
            task_status.started()

    async def _checkpoints(self) -> None:
        while True:
            await trio.sleep(self._settings.checkpoint_s)
            await self.checkpoint()

    async def checkpoint(self) -> None:
        """Write the offsets checkpoints once."""
        watermarks = {partition.log: partition.high_watermark for partition in self._hosted()}
        try:
            await self._write_starts()
            await self._directory.write_checkpoints(watermarks)
            self._health.lacks_room(_CHECKPOINTS, False)
            await self._directory.remove_strays(self._is_elsewhere)
        except OSError as error:
            self._no_checkpoints(error)

    def _no_checkpoints(self, error: OSError) -> None:
        if not is_full(error):
            self._disk_error(error)
        else:  # the old checkpoints hold as well; recovery only reads more
            self._log.warning("no room for checkpoints", reason=str(error))
            self._health.lacks_room(_CHECKPOINTS)

    def write_starts_soon(self) -> None:
        """A log start was moved forward, and somebody waits for it to be written down."""
        self._start_moved.set()

    async def _starts(self) -> None:
        while True:
            await self._start_moved.wait()
            self._start_moved = trio.Event()
            try:
                await self._write_starts()
            except OSError as error:
                self._no_checkpoints(error)
                # A follower is told of the start with every fetch until it has written it down: to
                # try again at the pace of checkpoints is enough.
                await trio.sleep(self._settings.checkpoint_s)

    async def _write_starts(self) -> None:
        hosted = tuple(self._hosted())
        written = await self._directory.write_starts(each.log for each in hosted)
        for seen, partition in enumerate(hosted, 1):
            await pause_after(seen)
            if partition.key in written:
                partition.start_written(written[partition.key])
        self._starts_written()

    async def _retention(self) -> None:
        # Reading may take hours after a start, and holds up no other partition's retention.
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(self._settings.retention_s)
                await self.enforce_retention()
                if not self._reading_expired and await self._any_in_doubt():
                    nursery.start_soon(self.read_expired)

    async def enforce_retention(self) -> None:
        """Delete expired segments of all partitions once. Never above a high watermark."""
        for seen, partition in enumerate(self._hosted(), 1):
            await pause_after(seen)
            if not partition.log.closed:
                self._expire(partition)

    async def _any_in_doubt(self) -> bool:
        for seen, partition in enumerate(self._hosted(), 1):
            await pause_after(seen)
            if not partition.log.closed and self._in_doubt(partition):
                return True
        return False

    def _expire(self, partition: Partition) -> None:
        now_ms = self._env.expiry_ms()
        start = partition.log_start_offset
        try:
            deleted = partition.log.enforce_retention(now_ms, partition.high_watermark)
        except StorageError:
            assert partition.log.failed is not None, f"{partition}: it has failed"
            self._disk_error(partition.log.failed)
            return
        if deleted or partition.log_start_offset > start:
            self._context.events.advanced(partition)
            self._flusher.request(partition.log)
            self.write_starts_soon()
            self._log.info(
                "segments expired",
                partition=str(partition),
                deleted=deleted,
                log_start_offset=partition.log_start_offset,
            )

    def _in_doubt(self, partition: Partition) -> _Doubt | None:
        log, high_watermark = partition.log, partition.high_watermark
        offset = scrubbing.expiry_in_doubt(log, self._env.expiry_ms(), high_watermark)
        return None if offset is None else _Doubt(log.log_start_offset, offset)

    async def read_expired(self) -> None:
        """Read what has expired by a word without a checksum, and delete it where that was true."""
        self._reading_expired = True
        try:
            for partition in self._hosted():
                before: _Doubt | None = None
                while (doubt := self._in_doubt(partition)) not in (None, before):
                    assert doubt is not None, "compared above"
                    before = doubt
                    scrubbed = await self._scrub(partition, doubt.offset)
                    if scrubbed is None:
                        break
                    self._expire(partition)
                    await trio.sleep(scrubbed.size_bytes / self._settings.expired_bytes_per_s)
        finally:
            self._reading_expired = False

    async def _shrinking(self) -> None:
        while True:
            await trio.sleep(self._context.lag_max_s / 2)
            for seen, partition in enumerate(self._hosted(), 1):
                await pause_after(seen)
                partition.consider_shrink()

    async def _interval_flushes(self) -> None:
        while True:
            pause_s = self.flush_intervals()
            await trio.sleep(pause_s)

    def flush_intervals(self) -> float:
        """Request the syncs that mode ``interval`` asks for now; seconds until the next look."""
        now = self._env.now()
        pause_s = 1.0
        flush_at = self._flush_at
        self._flush_at = {}
        for partition in self._hosted():
            if partition.config.flush_mode is not FlushMode.INTERVAL:
                continue
            interval_s = partition.config.flush_interval_ms / 1000
            due = flush_at.get(partition.key, now)
            if due <= now:
                if partition.log.durable_offset < partition.log_end_offset:
                    self._flusher.request(partition.log)
                due = now + interval_s
            self._flush_at[partition.key] = due
            pause_s = min(pause_s, due - now)
        return max(pause_s, 0.001)

    async def _disk_watch(self) -> None:
        while True:
            await trio.sleep(self._settings.disk_check_s)
            self._look_at_disk()

    def _look_at_disk(self) -> None:
        try:
            free = self._env.disk.free_bytes()
            total = self._env.disk.total_bytes()
        except OSError as error:
            self._disk_error(error)
            return
        floor = self._settings.min_free_bytes
        if floor is None:
            floor = free_floor(total)
        self._set_full(free < floor, free, floor)
        now = self._env.now()
        self._set_no_room(self._refused.recently(now))
        figures = self._flusher.statistics()
        slow = self._slow_disk.observe(now, figures)
        if slow != self._health.slow:
            self._health.slow = slow
            self._log.warning("disk is slow" if slow else "disk is fast again", p99_s=figures.p99_s)

    def append_failed(self, log: Log) -> None:
        """An append raised StorageError or StorageFull: the disk failed, or it has no room,
        whatever the file system says is free."""
        if log.failed is not None:
            self._disk_error(log.failed)
            return
        self._refused.refused(self._env.now())
        self._set_no_room(True)

    def _set_no_room(self, no_room: bool) -> None:
        if no_room == self._no_room:
            return
        self._no_room = no_room
        self._health.lacks_room(_APPENDS, no_room)
        event = "an append found no room" if no_room else "no append lacked room of late"
        self._log.warning(event)

    def _set_full(self, full: bool, free: int, floor: int) -> None:
        if full == self._health.storage_full:
            return
        self._health.storage_full = full
        self._context.admission.storage_full = full
        event = "disk is nearly full, writes are refused" if full else "disk has room again"
        self._log.warning(event, free_bytes=free, min_free_bytes=floor)

    def _disk_error(self, error: OSError) -> None:
        self._context.events.failed(error)
