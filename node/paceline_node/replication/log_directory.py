"""The logs of a data directory: opening all, making, setting aside, checkpointing.

Async file work only; who may do what to a partition is the table's business. Nothing is deleted
because local metadata does not know it (DESIGN 5.9): unknown directories stay, logs of
partitions that were assigned elsewhere become strays, and only a deletion seen in the metadata log
removes files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from functools import partial

import structlog
import trio

from paceline.errors import CorruptMessage, StorageError
from paceline.types import TopicId
from paceline.values import dataclass
from paceline_node.env import Env, SyncFailed, is_full
from paceline_node.loop_turns import pause_after
from paceline_node.storage import layout
from paceline_node.storage.durability import Marked
from paceline_node.storage.durable_marks import NAME as MARKS
from paceline_node.storage.durable_marks import DurableMarks
from paceline_node.storage.fingerprint import ForeignLog
from paceline_node.storage.layout import Offsets, PartitionDirectory, PartitionKey
from paceline_node.storage.log import Log
from paceline_node.storage.log_file import is_unreadable
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.offset_checkpoints import DECISIVE, KnownOffsets
from paceline_node.storage.opening import create_log, open_log
from paceline_node.storage.partition_file import PartitionIdentity, write_identity
from paceline_node.storage.recovery_report import RecoveryHints
from paceline_node.storage.torn_tail import Ending
from paceline_node.storage.waiting_for_space import when_there_is_room

_PARALLEL_OPENS = 8
STRAY_KEPT_MS = 60_000
"""How long the log of a partition that was assigned elsewhere is kept."""


@dataclass(frozen=True, slots=True)
class OpenedLogs:
    """What was found at the start.

    ``missing``: partitions that this directory kept and whose logs are gone. ``list_is_lost``:
    there may be more of them, of which only the cluster's metadata knows. ``doubtful``: why what is
    there may be less than was acknowledged although nothing shows it: the start is not trusted.
    ``lost_ends``: how far what is missing, or has lost its tail, is known to have reached.
    """

    logs: Mapping[PartitionKey, Log]
    high_watermarks: Mapping[PartitionKey, int]
    missing: tuple[PartitionKey, ...] = ()
    list_is_lost: bool = False
    doubtful: tuple[str, ...] = ()
    lost_ends: Mapping[PartitionKey, int] = field(default_factory=dict)

    @property
    def damaged(self) -> tuple[PartitionKey, ...]:
        """Partitions whose logs lost, or cannot read, something that was durable."""
        found = [
            key
            for key, log in sorted(self.logs.items(), key=lambda item: item[1].path)
            if log.is_damaged or log.recovery.lost_tail
        ]
        return (*found, *self.missing)

    @property
    def reached_durable_mark(self) -> bool:
        """Whether every log still holds all that it had fsynced (storage/DESIGN 2.3)."""
        whole = all(log.recovery.reached_durable_mark for log in self.logs.values())
        return whole and not self.missing and not self.doubtful


class LogDirectory:
    """The ``topics/`` part of one data directory."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._disk = env.disk
        self._known = KnownOffsets(env.disk)
        self.marks = DurableMarks(env.disk)
        self.known_syncs = 0
        """What lies elsewhere says that the marks counted so many (storage/DESIGN 6.2); 0: it says
        nothing."""
        self._log = structlog.get_logger(component="logs")

    async def open_all(
        self,
        *,
        clean: bool,
        settings: LogSettings,
        disk_failed: bool = False,
        same_boot: bool = False,
        acked_unsynced: bool = False,
    ) -> OpenedLogs:
        """Open and recover every log, as :class:`RecoveryHints` says. ``same_boot``: the page cache
        outlived the process before; ``acked_unsynced``: it ran a flush mode that does not wait for
        the disk. Raises OSError: the directory cannot be used."""
        known = self._known
        await known.load()
        marks = await when_there_is_room(self.marks.open, self._env.waits)
        ending = Ending.of(clean=clean, same_boot=same_boot and not disk_failed)
        logs: dict[PartitionKey, Log] = {}
        slots = trio.CapacityLimiter(_PARALLEL_OPENS)

        async def open_one(path: str, identity: PartitionIdentity) -> None:
            key = (identity.topic_id, identity.partition)
            hints = self._hints(
                key, marks, ending, disk_failed=disk_failed, acked_unsynced=acked_unsynced
            )
            async with slots:
                try:
                    log = logs[key] = await when_there_is_room(
                        partial(open_log, self._env, path, settings, hints), self._env.waits
                    )
                except ForeignLog as error:
                    await self._set_aside_foreign(path, str(error))
                    return
                except CorruptMessage as error:
                    await self._set_aside_unusable(path, str(error))
                    return
                except OSError as error:
                    if not _is_of_one_file(error):
                        raise
                    await self._set_aside_unusable(path, str(error))
                    return
            # What a log lost is known by its old mark until the controller has been told.
            told, now = marks.get(key), log.marked
            is_short = told is not None and told.offset > now.offset
            log.mark = self.marks.of(key, told if told is not None and is_short else now)

        listed = known.partitions | marks.keys()
        async with trio.open_nursery() as nursery:
            identify = partial(self._identify, listed)
            for path, identity in await when_there_is_room(identify, self._env.waits):
                nursery.start_soon(open_one, path, identity)
        # A power cut may have left older marks. After a kill they are taken for exact, and this
        # process may be killed before it syncs anything of its own.
        unmarked = [] if ending is Ending.CLEAN else self._unmarked(logs, marks, ending)
        if not unmarked:
            await self.marks.sync()  # otherwise not before the controller has heard of this start
        for log in logs.values():
            self._tell_recovery(log)
        missing = tuple(sorted(listed - logs.keys(), key=lambda key: (key[0].bytes, key[1])))
        ends = {key: self._known_end(key, marks) for key in listed}
        self._tell_missing(missing, ends)
        return OpenedLogs(
            logs,
            known.all(Offsets.HIGH_WATERMARK),
            missing,
            known.list_is_lost,
            self._doubts(logs, unmarked),
            {key: ends[key] for key in listed if key in missing or logs[key].recovery.lost_tail},
        )

    def _known_end(self, key: PartitionKey, marks: Mapping[PartitionKey, Marked]) -> int:
        """How far the files beside a log say that it reached at least."""
        said = [self._known.of(which, key) or 0 for which in Offsets]
        return max(*said, marks[key].offset if key in marks else 0)

    def _hints(
        self,
        key: PartitionKey,
        marks: Mapping[PartitionKey, Marked],
        ending: Ending,
        *,
        disk_failed: bool,
        acked_unsynced: bool,
    ) -> RecoveryHints:
        point = self._known.of(Offsets.RECOVERY, key)
        mark = marks.get(key)
        log_start = self._known.of(Offsets.LOG_START, key)
        # A start is written down before any file below it goes: a log of which nothing is said
        # begins at 0. Before there were marks, segments were deleted first.
        is_told = bool(marks) and Offsets.LOG_START not in self._known.unreadable
        return RecoveryHints(
            ending=ending,
            recovery_point=max(point or 0, 0 if mark is None else mark.offset),
            checkpoint=point or 0,
            point_known=point is not None or mark is not None,
            mark_exact=mark is not None and not acked_unsynced,
            mark=mark,
            mark_lost=mark is None and self._had_mark(point, ending),
            log_start=log_start or 0,
            first_offset=(log_start or 0) if is_told else None,
            removed_to=self._known.removed_to(key),
            disk_failed=disk_failed,
        )

    async def _identify(
        self, listed: Iterable[PartitionKey]
    ) -> list[tuple[str, PartitionIdentity]]:
        """The logs that are there, and whose they are. A directory that does not say so itself goes
        by its name if a listed partition has that name; otherwise, or if it says that it is
        another's, it is set aside."""
        found: list[tuple[str, PartitionIdentity]] = []
        for each in await layout.list_partitions(self._disk):
            if each.belongs_at is not None:
                await self._set_aside_misplaced(each)
                continue
            if each.is_unreadable:
                await self._set_aside_unusable(each.path, "its directory cannot be read")
                continue
            identity = each.identity or layout.identity_by_name(each.path, listed)
            if identity is None:
                await self._set_aside_unusable(each.path, "its partition.metadata cannot be read")
                continue
            if each.identity is None:
                try:
                    await write_identity(self._disk, each.path, identity)
                except OSError as error:
                    if not _is_of_one_file(error):
                        raise
                    await self._set_aside_unusable(each.path, str(error))
                    continue
                self._log.error(
                    "partition.metadata could not be read and was made anew from the directory's "
                    "name",
                    partition=str(identity),
                    path=each.path,
                )
            found.append((each.path, identity))
        return found

    def _unmarked(
        self,
        logs: Mapping[PartitionKey, Log],
        marks: Mapping[PartitionKey, Marked],
        ending: Ending,
    ) -> list[str]:
        """Logs that may end too early without a trace: cut between two batches, above a recovery
        point that is some seconds old."""
        points = {key: self._known.of(Offsets.RECOVERY, key) for key in logs.keys() - marks.keys()}
        return [str(logs[key].identity) for key, at in points.items() if self._had_mark(at, ending)]

    def _had_mark(self, point: int | None, ending: Ending) -> bool:
        """Whether a log with that recovery point had one. What is listed has one, and no end of a
        process takes it away; a power cut may, until the first checkpoint."""
        sure = ending is not Ending.POWER_CUT or self.marks.was_missing
        return point is not None and (sure or point > 0)

    async def _set_aside_misplaced(self, found: PartitionDirectory) -> None:
        """A directory that says it is another partition's is that, however it came to its name.
        Whether its log is as new as the marks say, nobody knows: it is not put back."""
        stray = await layout.set_aside(self._disk, found.path, self._env.host.wall_ms())
        assert found.belongs_at is not None, f"{found.path}: it is where it belongs"
        is_free = not layout.is_taken(self._disk, found.belongs_at)
        self._log.error(
            "partition directory holds another partition and was set aside",
            path=found.path,
            holds=str(found.identity),
            stray=stray,
            what_to_do="both partitions are filled from other replicas; if there are none, stop "
            f"the node and move {stray} to {found.belongs_at}"
            + ("" if is_free else ", in whose place a directory lies now"),
        )

    async def _set_aside_foreign(self, path: str, why: str) -> None:
        stray = await layout.set_aside(self._disk, path, self._env.host.wall_ms())
        self._log.error(
            "partition directory holds a file of another log and was set aside",
            path=path,
            stray=stray,
            reason=why,
            what_to_do="it is filled from other replicas; if there are none, find the file that "
            "was exchanged among the strays",
        )

    async def _set_aside_unusable(self, path: str, why: str) -> None:
        stray = await layout.set_aside(self._disk, path, self._env.host.wall_ms())
        self._log.error(
            "partition directory cannot be used and was set aside",
            path=path,
            stray=stray,
            reason=why,
            what_to_do="it is filled from other replicas; if there are none, mend the file, stop "
            f"the node and move {stray} back",
        )

    def _doubts(self, logs: Mapping[PartitionKey, Log], unmarked: list[str]) -> tuple[str, ...]:
        lost = [which.value for which in self._known.unreadable if which in DECISIVE]
        doubts = [f"{name} is missing or rotten" for name in lost]
        if self.marks.syncs < self.known_syncs:
            doubts.append(
                f"the logs are an older copy of themselves: {MARKS} counts {self.marks.syncs} "
                f"syncs, and {self.known_syncs} are known beside them; what they hold "
                "counts when they have caught up"
            )
        if unmarked:
            doubts.append(
                f"{MARKS} is missing, rotten, or lacks {min(unmarked)} "
                f"({len(unmarked)} logs without a mark)"
            )
        doubts += [
            f"{log.identity}: bytes were cut that may have been acknowledged"
            for log in logs.values()
            if log.recovery.doubtful_tail
        ]
        if doubts:
            self._log.error("what the logs must hold is not known", reasons=doubts)
        return tuple(doubts)

    def _tell_missing(
        self, missing: Iterable[PartitionKey], ends: Mapping[PartitionKey, int]
    ) -> None:
        for key in missing:
            self._log.error(
                "log is missing", topic_id=str(key[0]), partition=key[1], known_end=ends[key]
            )

    def _tell_recovery(self, log: Log) -> None:
        report = log.recovery
        if log.state.is_missing:
            self._log.error(
                "what the records below the log start said is not known: a snapshot is missing",
                partition=str(log.identity),
                log_start_offset=log.log_start_offset,
            )
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
        if layout.is_taken(self._disk, path):
            await self._set_aside(path, "a new log is made in its place")
        key = (identity.topic_id, identity.partition)
        try:
            log = await create_log(self._env, path, identity, settings)
            # Listed before it is used, and not before it is there: what is listed and not there
            # was lost. Nor before it has a mark: what is listed and has none lost it.
            mark = self.marks.of(key, log.marked)
            self.marks.flush()
            await self._known.begin(key)
        except OSError as error:
            if is_full(error):  # nothing of it was ever promised, and it will be made anew
                self.marks.forget([key])
                self._disk.remove_tree(path)
            raise
        log.mark = mark
        return log

    async def retire(self, logs: Collection[Log], *, delete: bool) -> None:
        """Close logs that are no longer ours; delete their files, or keep them as strays. Raises
        OSError."""
        for seen, log in enumerate(logs, 1):
            await pause_after(seen)
            log.abandon()
        keys = [_key(log) for log in logs]
        try:
            await self._known.remove(keys)
        except OSError as error:
            if not is_full(error):
                raise
            # They would be told as missing once, of partitions that are not ours: harmless.
        # Behind the list: what is listed and has no mark is not trusted.
        self.marks.forget(keys)
        # Else a power cut brings a mark back without its log, and the whole start is not trusted.
        await self.marks.sync()
        for log in logs:
            await self._dispose_of(log.path, delete=delete)

    async def _dispose_of(self, path: str, *, delete: bool) -> None:
        stray = path
        try:
            stray = await self._set_aside(path, "deleted" if delete else "assigned elsewhere")
        except OSError as error:
            if not is_full(error):
                raise
            # Even a new name may want room; what is deleted here makes some. What is only given up
            # is told apart by the next start, or when it is assigned here again.
        if delete:
            await when_there_is_room(partial(self._remove, stray), self._env.waits)

    async def _remove(self, path: str) -> bool:
        """Delete a stray; whether that could be done."""
        try:
            self._disk.remove_tree(path)
        except OSError as error:
            if not is_unreadable(error):
                raise
            self._log.warning("stray cannot be deleted", path=path, reason=str(error))
            return False
        await self._disk.fsync_dir(layout.TOPICS)
        return True

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
            is_useless = is_elsewhere((identity.topic_id, identity.partition))
            if is_useless and await self._remove(stray.path):
                self._log.info("stray deleted", path=stray.path)

    async def write_checkpoints(self, watermarks: Mapping[Log, int]) -> None:
        """Write log starts, high watermarks and recovery points of these logs; what is known of
        others stays. Raises OSError."""
        if not watermarks:
            return
        await self.write_starts(watermarks)
        logs: dict[PartitionKey, Log] = {}
        recovery: dict[PartitionKey, int] = {}
        high: dict[PartitionKey, int] = {}
        removed: dict[PartitionKey, int] = {}
        for seen, (log, high_watermark) in enumerate(watermarks.items(), 1):
            await pause_after(seen)
            if log.failed is not None:
                continue
            try:
                durable = await log.checkpoint()
            except OSError:
                if log.closed:  # given up meanwhile, its directory renamed
                    continue
                raise
            # A truncation never goes below the high watermark, so the point stays true.
            key = _key(log)
            logs[key] = log
            recovery[key] = min(durable, high_watermark)
            high[key] = high_watermark
            removed[key] = log.compaction.removals.removed_to
        await self.marks.sync()  # what has a recovery point has a mark
        _drop_given_up(logs, high, removed)
        await self._known.write_watermarks(high, removed)
        _drop_given_up(logs, recovery)
        await self._known.write(Offsets.RECOVERY, recovery)

    async def close(self) -> None:
        """All logs are closed, and so synced to their ends: say so. Raises OSError."""
        await self.marks.sync()
        self.marks.close()

    async def write_starts(self, logs: Iterable[Log]) -> Mapping[PartitionKey, int]:
        """Write where these logs begin, and only then delete their segments below; what is on disk
        then. Raises OSError."""
        logs = [log for log in logs if log.failed is None and not log.closed]
        if logs:
            starts = {_key(log): log.log_start_offset for log in logs}
            try:
                await self._known.write(Offsets.LOG_START, starts)
            except OSError as error:
                if not is_full(error):
                    raise
                # What has expired is the only room there is. A crash before the next line has
                # succeeded would look like a loss, and cost a repair.
                for log in logs:
                    _delete_below(log, log.log_start_offset)
                await self._known.write(Offsets.LOG_START, starts)
        written = self._known.on_disk(Offsets.LOG_START)
        for seen, log in enumerate(logs, 1):
            await pause_after(seen)
            _delete_below(log, written.get(_key(log), 0))
        return written


def _key(log: Log) -> PartitionKey:
    return TopicId(log.topic_id), log.partition


def _delete_below(log: Log, start: int) -> None:
    if log.failed is None:
        try:
            log.start_written(start)
        except StorageError:
            assert log.failed is not None, f"{log}: it has failed"
            raise log.failed.with_traceback(None) from None


def _drop_given_up(logs: Mapping[PartitionKey, Log], *offsets: dict[PartitionKey, int]) -> None:
    """Keep only what is still kept here: a listed partition without a log counts as lost."""
    for key in [key for key, log in logs.items() if log.closed]:
        for each in offsets:
            each.pop(key, None)


def _is_of_one_file(error: OSError) -> bool:
    """Whether a failure may be that of one file: one that has rotted can be neither replaced nor
    removed. Its directory can be moved, unless it is the whole disk that fails."""
    return is_unreadable(error) and not isinstance(error, SyncFailed)
