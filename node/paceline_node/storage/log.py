"""The log of one replica of one partition: segments, epochs, producers, and what is durable.

Every change is synchronous: bytes go to the page cache without an await between a role check and
the append (SETTLED B12). Making them durable is the flusher's work (``flusher.py``), which asks for
a :class:`SyncTicket` and hands it back. Rules that keep a log sound whatever the moment of a crash:

* Memory follows the file: nothing is noted before the write has succeeded.
* After a truncation that is not synced yet, appends go to a new file. Overwriting in place could,
  after a power cut, leave a mixture of old and new pages that is neither history (README).
* Files are removed newest first by truncation and oldest first by retention, so that any prefix
  of these operations leaves a log without a gap.

A failed write or sync ends the log (``failed``): the kernel may have dropped pages, so nothing is
retried (spec replication 2.2 rule 3). A full disk does not: the append is undone and refused.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence
from uuid import UUID

from paceline.errors import CorruptMessage, OffsetOutOfRange, StorageError, StorageFull
from paceline.wire.batch_header import BatchHeader
from paceline_node.env import Bytes, Env
from paceline_node.storage import compaction_file, damage, epoch_file, producer_file, reading
from paceline_node.storage.damage import DamagedRange
from paceline_node.storage.durability import Durability, SyncTicket
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.partition_file import PartitionIdentity, read_identity, write_identity
from paceline_node.storage.placing import Appended, Placed, place_follower, place_leader
from paceline_node.storage.producers import read_detail
from paceline_node.storage.reading import LogSlice
from paceline_node.storage.recovery import Recovered, RecoveryHints, RecoveryReport, recover
from paceline_node.storage.repair import Replaced
from paceline_node.storage.retention import RetentionLimits, expired_count
from paceline_node.storage.segment import Hole, Segment
from paceline_node.storage.segment_files import SegmentFiles

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Log:
    """An open log. Create with :meth:`create` or :meth:`open`; end with :meth:`close`."""

    def __init__(
        self,
        env: Env,
        path: str,
        identity: PartitionIdentity,
        settings: LogSettings,
        parts: Recovered,
    ) -> None:
        self._env = env
        self._disk = env.disk
        self.path = path
        self.identity = identity
        self.settings = settings
        self.recovery: RecoveryReport = parts.report
        self.damaged: tuple[DamagedRange, ...] = parts.report.damaged
        self.epochs = parts.epochs
        self.producers = parts.producers
        self.failed: OSError | None = None
        self.closed = False  # by its owner: what fails then is not the disk's fault
        self.version = 0
        """Counts cuts and replacements; who reads beside the log compares before and after."""
        self.compaction = parts.compaction
        self.log_start_offset = parts.segments[0].base_offset
        self._snapshots = parts.snapshots
        self._epochs_written = parts.epochs_on_disk
        self._durability = Durability(path, self.log_start_offset)
        # Size of the active segment, by its base offset, at its last checkpoint.
        self._checkpointed: dict[int, int] = {}
        self._files = SegmentFiles(env.disk, path, parts.segments, self._durability)

    def __repr__(self) -> str:
        return f"<Log {self.identity} {self.log_start_offset}..{self.log_end_offset}>"

    # --- opening and closing --------------------------------------------------------------------

    @classmethod
    async def create(
        cls, env: Env, path: str, identity: PartitionIdentity, settings: LogSettings
    ) -> Log:
        """Make the directory of a new, empty log. Raises OSError.

        A crash or cancellation in between leaves a directory that :meth:`open` accepts, or one
        without ``partition.metadata``, which holds no record.
        """
        env.disk.mkdir(path)
        await write_identity(env.disk, path, identity)
        parent = path.rpartition("/")[0]
        await env.disk.fsync_dir(parent)
        return await cls.open(env, path, settings, RecoveryHints())

    @classmethod
    async def open(cls, env: Env, path: str, settings: LogSettings, hints: RecoveryHints) -> Log:
        """Open and recover a log; ``log.recovery`` says what was found.

        A damaged log opens and is readable outside ``log.damaged``. Raises OSError, and
        CorruptMessage when ``partition.metadata`` cannot be read.
        """
        identity = await read_identity(env.disk, path)
        parts = await recover(
            env.disk,
            path,
            hints,
            index_interval=settings.index_interval_bytes,
        )
        log = cls(env, path, identity, settings, parts)
        try:
            with log._disk_errors():
                await log._settle(parts, hints)
        except BaseException:
            log.abandon()
            raise
        return log

    async def _settle(self, parts: Recovered, hints: RecoveryHints) -> None:
        """Make durable what recovery decided, so that nothing rests on unsynced bytes."""
        for segment in parts.scanned:
            self._durability.touch(segment.file)
            if segment is not self._files.active:
                with contextlib.suppress(StorageFull):  # they are read again next time
                    self._write_indexes(segment)
        if parts.dirty:
            self._durability.touch_directory()
        if hints.log_start > self.log_end_offset:
            self.reset(hints.log_start)
        self.advance_start(min(hints.log_start, self.log_end_offset))
        self._drop_snapshots_above(self.log_end_offset)
        if (
            parts.scanned and self.size_bytes
        ):  # snapshots on which the table rests may never have been synced
            with contextlib.suppress(StorageFull):
                self._write_snapshot()
        if self._durability.is_dirty:
            await self._sync()
        self._durability.durable_offset = self.log_end_offset
        if self.epochs.entries != self._epochs_written:
            await self._write_epochs()
        if parts.scanned:
            await damage.write(self._disk, self.path, self.damaged)

    async def _sync(self) -> None:
        """Sync at opening and closing, when no flusher serves this log."""
        ticket = self.files_to_sync()
        await self._disk.sync(ticket.files)
        if ticket.directory is not None:
            await self._disk.fsync_dir(ticket.directory)
        self.synced(ticket)

    async def close(self) -> None:
        """Flush everything and write all checkpoints, so that the next open may be ``clean``.

        Raises OSError: then the next open must not be. Files are closed in any case.
        """
        try:
            with self._disk_errors():
                self._check_usable()
                with contextlib.suppress(StorageFull):  # the next open reads more instead
                    self._seal_files(self._files.active)
            await self._sync()
            if self.epochs.entries != self._epochs_written:
                await self._write_epochs()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close all files as they are; idempotent. The next open has to recover."""
        self.closed = True
        self._durability.close()
        self._files.close()
        self.failed = self.failed or OSError(errno.EBADF, "the log is closed", self.path)

    def fail(self, error: OSError) -> None:
        """Refuse all further appends: the disk under this log cannot be trusted any more."""
        self.failed = self.failed or error

    # --- facts --------------------------------------------------------------------------------

    @property
    def topic_id(self) -> UUID:
        return self.identity.topic_id

    @property
    def partition(self) -> int:
        return self.identity.partition

    @property
    def log_end_offset(self) -> int:
        return self._files.active.next_offset

    @property
    def durable_offset(self) -> int:
        """Exclusive end of what is known to be on stable storage; at most the log end."""
        return self._durability.durable_offset

    @property
    def segments(self) -> Sequence[Segment]:
        """Oldest first, never empty; the last one is active. Not to be changed by callers."""
        return self._files.all

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._files.all)

    # --- appending ----------------------------------------------------------------------------

    def append_leader(
        self,
        batches: bytearray | memoryview,
        leader_epoch: int,
        now_ms: int,
        headers: Sequence[BatchHeader] | None = None,
    ) -> Appended:
        """Append validated batches, whose ``headers`` the caller may give to save reading them.

        Next offsets and ``leader_epoch`` are stamped in place (the CRC covers neither field); no
        copy is made. Raises StorageFull (nothing appended) and StorageError (the log has failed).
        """
        last_epoch = self.epochs.last_epoch
        assert leader_epoch >= last_epoch, f"{self}: epoch {leader_epoch} behind {self.epochs}"
        placed, end = place_leader(batches, headers, self.log_end_offset, leader_epoch)
        appended = self._append(batches, placed, end, now_ms)
        if leader_epoch != last_epoch:
            self.epochs.assign(leader_epoch, appended.base_offset)
        return appended

    def append_follower(self, data: memoryview) -> Appended:
        """Append a leader's batches as they are.

        Every CRC, the offsets' continuity and the order of leader epochs are checked first. Raises
        CorruptMessage (nothing appended), StorageFull, StorageError.
        """
        epoch = int(self.epochs.last_epoch)
        data, placed, end = place_follower(data, self.log_end_offset, epoch)
        appended = self._append(data, placed, end, self._env.host.wall_ms())
        for _, header, offset in placed:
            if header.leader_epoch != epoch:
                epoch = header.leader_epoch
                self.epochs.assign(epoch, offset)
        return appended

    def _append(self, data: Bytes, placed: Sequence[Placed], end: int, now_ms: int) -> Appended:
        self._check_usable()
        if not placed:
            raise AssertionError(f"{self}: an append without a batch")
        size = len(data)
        # Read before anything is written: one that this version does not know is refused.
        details = [read_detail(data, at, header) for at, header, _ in placed]
        active = self._files.active
        if (
            not active.has_room(size, end - 1, self.settings.segment_bytes)
            or self._durability.truncation_pending
            or self._is_old(active, now_ms)
        ):
            active = self._roll()
        try:
            start = active.file.append([data])
        except OSError as error:
            raise self._write_error(error) from error
        assert start == active.size, f"{active}: wrote at {start}, expected {active.size}"
        if active.created_ms < 0:
            active.created_ms = now_ms
        interval = self.settings.index_interval_bytes
        for (position, header, offset), detail in zip(placed, details, strict=True):
            active.note(header, offset, start + position, interval)
            self.producers.note(header, detail, offset)
        self._durability.touch(active.file)
        return Appended(placed[0][2], end - 1, size)

    def _check_usable(self) -> None:
        if self.failed is not None:
            raise StorageError(f"{self.identity}: {self.failed}")

    def _write_error(self, error: OSError) -> StorageFull | StorageError:
        """The error to raise for a failed write; a full disk leaves the log as it was."""
        if error.errno in _FULL:
            return StorageFull(f"{self.identity}: {error.strerror}")
        return self._broken(error)

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Callers that look after the whole disk get the disk's own error."""
        try:
            yield
        except StorageError:
            assert self.failed is not None
            raise self.failed from None

    def _broken(self, error: OSError) -> StorageError:
        self.fail(error)
        return StorageError(f"{self.identity}: {error}")

    # --- rolling ------------------------------------------------------------------------------

    def _is_old(self, segment: Segment, now_ms: int) -> bool:
        return segment.size > 0 and now_ms - segment.created_ms >= self.settings.segment_ms

    def _roll(self) -> Segment:
        """Seal the active segment and begin a new one; on an error the old one stays active."""
        sealed = self._files.active
        if sealed.is_empty:
            return sealed
        self._seal_files(sealed)
        try:
            return self._files.add(sealed.next_offset)
        except OSError as error:
            raise self._write_error(error) from error

    def _seal_files(self, segment: Segment) -> None:
        """Write what recovery uses instead of reading ``segment``, the active one."""
        self._write_indexes(segment)
        self._write_snapshot()

    def _write_indexes(self, segment: Segment) -> None:
        try:
            self._durability.sync_and_close(segment.write_indexes(self._disk))
        except OSError as error:
            raise self._write_error(error) from error

    def _write_snapshot(self) -> None:
        try:
            file = self._snapshots.write_unsynced(self.producers, self.log_end_offset, self.epochs)
        except OSError as error:
            raise self._write_error(error) from error
        self._durability.sync_and_close([file])

    # --- reading ------------------------------------------------------------------------------

    def locate(self, offset: int, max_bytes: int, end_offset: int) -> LogSlice | None:
        """Whole batches from the one that contains ``offset``, at most ``max_bytes`` but at least
        one, none that reaches ``end_offset``; None when there is none.

        Raises OffsetOutOfRange outside log start..end, CorruptMessage where the log is damaged.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            known = f"{self.log_start_offset}..{self.log_end_offset}"
            raise OffsetOutOfRange(f"{self.identity}: offset {offset} outside {known}")
        if offset >= end_offset or offset == self.log_end_offset:
            return None
        segment = self._files.at(offset)
        try:
            return reading.locate(segment, offset, max_bytes, end_offset)
        except CorruptMessage:
            if segment.holes:
                raise
        # The index does not fit the file, or the file is damaged: building the index anew tells.
        segment.reindex(self.settings.index_interval_bytes)
        return reading.locate(segment, offset, max_bytes, end_offset)

    def offset_for_timestamp(self, ts_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record not older than ``ts_ms``; None when all are."""
        return reading.offset_for_timestamp(self._files.all, ts_ms, self.log_start_offset)

    # --- shortening ---------------------------------------------------------------------------

    def truncate(self, offset: int) -> None:
        """Remove everything at or above ``offset`` (a follower whose log forks from its leader's).

        An offset inside a batch removes the whole batch. Epochs, producers and the durable offset
        follow. Raises ValueError below the log start (that is a :meth:`reset`), StorageError.
        """
        if offset >= self.log_end_offset:
            return
        if offset < self.log_start_offset:
            raise ValueError(f"{self}: cannot truncate to {offset}, below the log start")
        self._check_usable()
        boundary = self._files.at(offset).boundary_at_offset(offset)
        end = boundary.offset
        try:
            self._files.cut_back(end)
            active = self._files.active
            if active.base_offset == end:
                self._files.begin_anew(end)
            elif active.next_offset > end:
                active.truncate(boundary)
                active.remove_indexes(self._disk)
                self._durability.shortened(active.file)
                self._durability.touch_directory()
        except OSError as error:
            raise self._broken(error) from error
        self._forget_from(end)

    def reset(self, offset: int) -> None:
        """Remove everything and go on, empty, at ``offset``. Raises StorageError."""
        self._check_usable()
        try:
            self._files.begin_anew(offset)
        except OSError as error:
            raise self._broken(error) from error
        self._forget_from(0)
        self.epochs.clear()
        self.producers.clear(offset)
        self.log_start_offset = self._durability.durable_offset = offset

    def advance_start(self, offset: int) -> None:
        """Records below ``offset`` are no longer kept; whole segments below it are deleted.

        Raises ValueError beyond the log end (that is a :meth:`reset`).
        """
        if offset > self.log_end_offset:
            raise ValueError(f"{self}: cannot begin at {offset}, beyond the log end")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
        count = 0
        segments = self._files.all
        while count < len(segments) - 1 and segments[count].next_offset <= self.log_start_offset:
            count += 1
        self._remove_oldest(count)

    def enforce_retention(self, now_ms: int, high_watermark: int) -> int:
        """Delete what has expired; return how many segments. The active one never goes, but is
        sealed when it is old enough, so that an idle topic's records expire too."""
        self._files.close_retired()
        if self.failed is None and self._is_old(self._files.active, now_ms):
            with contextlib.suppress(StorageFull):  # deleting is all the more needed then
                self._roll()
        limits = RetentionLimits(self.settings.retention_ms, self.settings.retention_bytes)
        segments = self._files.all
        count = expired_count(segments, limits, now_ms=now_ms, high_watermark=high_watermark)
        if count:
            self.log_start_offset = max(self.log_start_offset, self._files.all[count].base_offset)
            self._remove_oldest(count)
        return count

    def _remove_oldest(self, count: int) -> None:
        try:
            self._files.remove_oldest(count)
        except OSError as error:
            raise self._broken(error) from error
        self.epochs.truncate_start(self.log_start_offset)
        self.producers.transactions.forget_below(self.log_start_offset)
        if count:
            self.version += 1
            start = self._files.all[0].base_offset
            self.damaged = tuple(each for each in self.damaged if each.end > start)

    def _forget_from(self, end: int) -> None:
        """Everything derived from the log follows it back to ``end``."""
        self.version += 1
        self._durability.cut_back(end)
        self.epochs.truncate_end(end)
        self.damaged = tuple(each for each in self.damaged if each.start < end)
        if self.compaction.cleaned_offset > end:
            self.compaction = compaction_file.forget(self._disk, self.path)
        self._drop_snapshots_above(end)
        replay_from = self.producers.truncate(end)
        if replay_from < end:
            producer_file.replay(self._files.all, self.producers, replay_from, end)

    def _drop_snapshots_above(self, offset: int) -> None:
        try:
            if self._snapshots.drop_above(offset):
                self._durability.touch_directory()
        except OSError as error:
            raise self._broken(error) from error

    # --- damage -------------------------------------------------------------------------------

    def note_damage(self, segment: Segment, found: Sequence[tuple[Hole, str]]) -> None:
        """A scan of ``segment`` found these holes, and no others. They are not served from now on;
        :func:`~paceline_node.storage.upkeep.scrub` also writes them down."""
        segment.mark_holes([hole for hole, _ in found])
        new = [DamagedRange(hole.start, hole.end, reason) for hole, reason in found]
        self.damaged = damage.renewed(self.damaged, segment.base_offset, segment.next_offset, new)

    def seal(self) -> None:
        """Begin a new segment now. Raises StorageFull, StorageError."""
        self._check_usable()
        self._roll()

    def adopt(self, old: Segment, replaced: Replaced) -> None:
        """Put a repaired segment in the place of ``old``; the directory needs a sync after it.

        Raises StorageError; LookupError when ``old`` was truncated or deleted meanwhile.
        """
        self._check_usable()
        repaired = replaced.segment
        if old not in self._files.all or old.truncations != replaced.truncations:
            raise LookupError(f"{self.identity}: the damaged segment has changed")
        self._swap([old], repaired, replaced.path)
        self.note_damage(repaired, [])
        self.epochs.splice(repaired.base_offset, repaired.next_offset, replaced.epochs.entries)
        self.epochs.truncate_start(self.log_start_offset)
        replay_from = self.producers.truncate(repaired.base_offset)
        producer_file.replay(self._files.all, self.producers, replay_from, self.log_end_offset)

    # --- compaction ---------------------------------------------------------------------------

    def announce(self, path: str) -> None:
        """Opening the log may from now on put ``path`` in its place (``compaction_file.py``)."""
        self._files.announce(path)

    def replace(self, old: Sequence[Segment], compacted: Segment, path: str) -> None:
        """Put the announced file, opened as ``compacted``, in the place of ``old``, segments of
        this log of the same epochs and producers; the directory needs a sync then. Raises
        StorageError."""
        self._check_usable()
        self._swap(old, compacted, path)

    def _swap(self, old: Sequence[Segment], new: Segment, path: str) -> None:
        try:
            self._files.swap(old, new, path)
        except OSError as error:
            raise self._broken(error) from error
        self.version += 1
        with contextlib.suppress(StorageFull):
            self._write_indexes(new)

    # --- durability ---------------------------------------------------------------------------

    def files_to_sync(self) -> SyncTicket:
        """What the next sync must cover. Hand the ticket back to :meth:`synced` when all of it is
        on stable storage; after a failed sync call :meth:`fail` instead."""
        return self._durability.draw(self.log_end_offset)

    def synced(self, ticket: SyncTicket) -> None:
        """A sync of the ticket's files and directory, begun after it was drawn, has succeeded."""
        self._durability.synced(ticket)

    async def checkpoint(self) -> int:
        """Write what a recovery point relies on; return the offset it may name. Raises OSError.

        Put ``min(returned offset, high watermark)`` into ``recovery.ckpt``: a truncation never goes
        below the high watermark, so the point stays true without rewriting it first.
        """
        durable = self.durable_offset
        self._checkpoint_active()
        if self.epochs.entries != self._epochs_written:
            await self._write_epochs()
        return min(durable, self.durable_offset)

    def _checkpoint_active(self) -> None:
        """Write indexes and producers as they are; the next flush makes them durable. Without
        them, or with torn ones, recovery only reads more."""
        active = self._files.active
        grown = active.size - self._checkpointed.get(active.base_offset, 0)
        if grown < self.settings.checkpoint_bytes or self.failed is not None:
            return
        with self._disk_errors(), contextlib.suppress(StorageFull):
            self._seal_files(active)
            self._checkpointed = {active.base_offset: active.size}

    async def _write_epochs(self) -> None:
        entries = self.epochs.entries
        await epoch_file.write(self._disk, self.path, entries)
        self._epochs_written = entries
