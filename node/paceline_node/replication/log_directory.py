"""The logs of a data directory: opening all, making, setting aside, checkpointing.

Async file work only; who may do what to a partition is the table's business. Nothing is deleted
because local metadata does not know it (spec replication 2.5): unknown directories stay, logs of
partitions that were assigned elsewhere become strays, and only a deletion seen in the metadata log
removes files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog
import trio

from paceline.errors import CorruptMessage
from paceline.types import TopicId
from paceline_node.env import Env, is_full
from paceline_node.storage import layout
from paceline_node.storage.layout import Offsets, PartitionKey
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.partition_file import PartitionIdentity
from paceline_node.storage.recovery import RecoveryHints

_PARALLEL_OPENS = 8
STRAY_KEPT_MS = 60_000
"""How long the log of a partition that was assigned elsewhere is kept."""


@dataclass(frozen=True, slots=True)
class OpenedLogs:
    """What was found at the start. ``reached_durable_mark``: every log still holds all that it had
    fsynced (spec replication 2.3)."""

    logs: Mapping[PartitionKey, Log]
    high_watermarks: Mapping[PartitionKey, int]

    @property
    def damaged(self) -> tuple[PartitionKey, ...]:
        """Partitions whose logs lost, or cannot read, something that was durable."""
        return tuple(
            key
            for key, log in sorted(self.logs.items(), key=lambda item: item[1].path)
            if log.damaged or log.recovery.lost_tail
        )

    @property
    def reached_durable_mark(self) -> bool:
        return all(log.recovery.reached_durable_mark for log in self.logs.values())


class LogDirectory:
    """The ``topics/`` part of one data directory."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._disk = env.disk
        self._written: dict[Offsets, dict[PartitionKey, int]] = {}
        self._writing = trio.Lock()
        # Also of logs that no metadata has claimed yet: their starts must not be forgotten.
        self._starts: dict[PartitionKey, int] = {}
        self._log = structlog.get_logger(component="logs")

    async def open_all(
        self, *, clean: bool, settings: LogSettings, disk_failed: bool = False
    ) -> OpenedLogs:
        """Open and recover every log, as :class:`RecoveryHints` says. Raises OSError: the directory
        cannot be used."""
        recovery = await layout.read_offsets(self._disk, Offsets.RECOVERY)
        log_start = await layout.read_offsets(self._disk, Offsets.LOG_START)
        high_watermarks = await layout.read_offsets(self._disk, Offsets.HIGH_WATERMARK)
        logs: dict[PartitionKey, Log] = {}
        slots = trio.CapacityLimiter(_PARALLEL_OPENS)

        async def open_one(path: str, identity: PartitionIdentity) -> None:
            key = (identity.topic_id, identity.partition)
            hints = RecoveryHints(clean, recovery.get(key, 0), log_start.get(key, 0), disk_failed)
            async with slots:
                try:
                    logs[key] = await Log.open(self._env, path, settings, hints)
                except CorruptMessage as error:
                    await self._set_aside(path, str(error))

        async with trio.open_nursery() as nursery:
            for found in await layout.list_partitions(self._disk):
                if found.identity is None:
                    await self._set_aside(found.path, "its partition.metadata cannot be read")
                else:
                    nursery.start_soon(open_one, found.path, found.identity)
        for log in logs.values():
            self._tell_recovery(log)
        self._starts = {key: log.log_start_offset for key, log in logs.items()}
        return OpenedLogs(logs, high_watermarks)

    def _tell_recovery(self, log: Log) -> None:
        report = log.recovery
        if log.damaged or report.lost_tail:
            self._log.error(
                "log is damaged",
                partition=str(log.identity),
                damaged=[str(each) for each in log.damaged],
                lost_tail=report.lost_tail,
            )
        elif report.truncated_bytes:
            self._log.warning(
                "torn write cut",
                partition=str(log.identity),
                truncated_bytes=report.truncated_bytes,
                discarded_valid_bytes=report.discarded_valid_bytes,
            )

    async def create(self, identity: PartitionIdentity, settings: LogSettings) -> Log:
        """Make an empty log; what lies at its place already is set aside. Raises OSError."""
        path = layout.partition_path(identity.topic, identity.topic_id, identity.partition)
        if self._disk.list(path):
            await self._set_aside(path, "a new log is made in its place")
        try:
            return await Log.create(self._env, path, identity, settings)
        except OSError as error:
            if is_full(error):  # nothing of it was ever promised, and it will be made anew
                self._disk.remove_tree(path)
            raise

    async def retire(self, log: Log, *, delete: bool) -> None:
        """Close a log that is no longer ours; delete its files, or keep them as a stray. Raises
        OSError."""
        log.abandon()
        self._starts.pop(_key(log), None)
        stray = await self._set_aside(log.path, "deleted" if delete else "assigned elsewhere")
        if delete:
            self._disk.remove_tree(stray)
            await self._disk.fsync_dir(layout.TOPICS)

    async def _set_aside(self, path: str, why: str) -> str:
        stray = await layout.set_aside(self._disk, path, self._env.host.wall_ms())
        self._log.info("partition directory set aside", path=path, stray=stray, reason=why)
        return stray

    async def remove_strays(self, is_elsewhere: Callable[[PartitionKey], bool]) -> None:
        """Delete strays that metadata says are of no use here, once they are old enough. Raises
        OSError."""
        oldest_ms = self._env.host.wall_ms() - STRAY_KEPT_MS
        for stray in await layout.list_strays(self._disk):
            identity = stray.identity
            if identity is None or stray.since_ms > oldest_ms:
                continue
            if is_elsewhere((identity.topic_id, identity.partition)):
                self._disk.remove_tree(stray.path)
                await self._disk.fsync_dir(layout.TOPICS)
                self._log.info("stray deleted", path=stray.path)

    async def write_checkpoints(self, watermarks: Mapping[Log, int]) -> None:
        """Write log starts, high watermarks and recovery points. Raises OSError."""
        await self.write_starts(watermarks)
        recovery: dict[PartitionKey, int] = {}
        high: dict[PartitionKey, int] = {}
        for log, high_watermark in watermarks.items():
            if log.failed is not None:
                continue
            key = _key(log)
            try:
                durable = await log.checkpoint()
            except OSError:
                if log.closed:  # given up meanwhile, its directory renamed
                    continue
                raise
            # A truncation never goes below the high watermark, so the point stays true.
            recovery[key] = min(durable, high_watermark)
            high[key] = high_watermark
        await self._write(Offsets.HIGH_WATERMARK, high)
        await self._write(Offsets.RECOVERY, recovery)

    async def write_starts(self, logs: Iterable[Log]) -> Mapping[PartitionKey, int]:
        """Write where the logs begin; what is on disk then. Raises OSError."""
        async with self._writing:
            self._starts |= {_key(log): log.log_start_offset for log in logs if log.failed is None}
            starts = dict(self._starts)
            await self._write(Offsets.LOG_START, starts)
            return starts

    async def _write(self, which: Offsets, offsets: dict[PartitionKey, int]) -> None:
        """Replace a checkpoint, unless it says so already: an idle node leaves its disk alone."""
        if self._written.get(which) != offsets:
            await layout.write_offsets(self._disk, which, offsets)
            self._written[which] = offsets


def _key(log: Log) -> PartitionKey:
    return TopicId(log.topic_id), log.partition
