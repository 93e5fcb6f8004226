"""The log of one replica of one partition: segments, epochs, producers, and what is durable.

Every change is synchronous: bytes go to the page cache without an await between a role check and
the append. The flusher makes them durable (``flusher.py``): it asks for a :class:`SyncTicket` and
hands it back. Rules that keep a log sound whatever the moment of a crash:

* Memory follows the file: nothing is noted before the write has succeeded.
* After a truncation that is not synced yet, appends go to a new file. Overwriting in place could,
  after a power cut, leave a mixture of old and new pages that is neither history (DESIGN 4.3).
* Files are removed newest first by truncation and oldest first by retention, so that any prefix
  of these operations leaves a log without a gap.

A failed write or sync ends the log (``failed``, DESIGN 2.2); a full disk has the append refused.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Sequence

from paceline.errors import StorageError, StorageFull
from paceline.wire.batch_header import BatchHeader
from paceline_node.env import Bytes, Env
from paceline_node.storage import (
    checkpoint,
    compaction_file,
    damage,
    offset_assignment,
    producer_table_truncation,
    reading,
)
from paceline_node.storage.damage import DamagedRange
from paceline_node.storage.durability import UNMARKED, Durability, Mark, Marked, SyncTicket
from paceline_node.storage.epoch_file import EpochFile
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.log_failure import LogFailure
from paceline_node.storage.log_segment import Hole, Segment
from paceline_node.storage.log_segment_files import SegmentFiles
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.offset_assignment import Appended, Placed
from paceline_node.storage.partition_file import PartitionIdentity
from paceline_node.storage.producers import FrozenTable, read_detail
from paceline_node.storage.reading import LocalSlice
from paceline_node.storage.recovery import Recovered
from paceline_node.storage.recovery_report import RecoveryReport
from paceline_node.storage.repair import Replaced
from paceline_node.storage.retention import RetentionLimits, expired_count
from paceline_node.storage.tiered_storage import Tiers


class Log:
    """An open log, made by ``opening.py``; end with :meth:`close`."""

    def __init__(
        self,
        env: Env,
        path: str,
        identity: PartitionIdentity,
        settings: LogSettings,
        parts: Recovered,
        durability: Durability,
    ) -> None:
        self._env = env
        self._disk = env.disk
        self.path = path
        self.identity = identity
        self.topic_id, self.partition = identity.topic_id, identity.partition
        self.settings = settings
        self.recovery: RecoveryReport = parts.report
        self.damaged: tuple[DamagedRange, ...] = parts.report.damaged
        self.epochs = parts.epochs
        self.state, self.producers = parts.state, parts.state.table
        self._failure = LogFailure(identity)
        self.fail, self.disk_errors = self._failure.note, self._failure.disk_errors
        self.closed = False  # by its owner: what fails then is not the disk's fault
        self.mark: Mark = UNMARKED
        self.version = 0  # counts cuts and replacements: compared by who reads beside the log
        self.generation = 0  # as in ``folding.py``
        self.compaction, self.notes_lock = parts.compaction, checkpoint.new_lock()
        self.log_start_offset = self._written_start = parts.segments[0].base_offset
        self._epoch_file = EpochFile(env.disk, path, identity.owner, parts.epochs_on_disk)
        self._durability = durability
        self.checkpointed: dict[int, int] = {}  # the active segment's size then, by base offset
        self._files = SegmentFiles(env.disk, path, parts.segments, self._durability)
        self.tiers = Tiers(self)
        self.prove, self.is_proven = self._durability.prove, self._durability.is_proven
        self.watch_reads, self.doubt = self._files.watch_reads, self._files.tell

    def __repr__(self) -> str:
        return f"<Log {self.identity} {self.log_start_offset}..{self.log_end_offset}>"

    # --- closing ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Flush everything and write all checkpoints, so that the next open may be ``clean``.

        Raises OSError: then the next open must not be. Files are closed in any case.
        """
        try:
            with self._failure.disk_errors():
                self._failure.check()
                with contextlib.suppress(StorageFull):  # the next open reads more instead
                    self.seal_files(self._files.active)
            await self.sync()
            await self.state.write_due()
            await self.write_epochs()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close all files as they are; idempotent. The next open has to recover."""
        self.closed = True
        self._durability.close()
        self._files.close()
        self.fail(OSError(errno.EBADF, "the log is closed", self.path))

    # --- facts --------------------------------------------------------------------------------

    @property
    def failed(self) -> OSError | None:
        """Why the disk under this log cannot be trusted any more: it refuses all appends."""
        return self._failure.error

    @property
    def is_damaged(self) -> bool:
        """Whether something durable is missing, of its records or of what those before said."""
        return bool(self.damaged) or self.state.is_missing

    @property
    def oldest_offset(self) -> int:
        """The first offset on disk; at most the log start."""
        return self._files.all[0].base_offset

    @property
    def oldest_whole_offset(self) -> int:
        """From here on a follower can have everything: damage below the log start is given up."""
        return self._files.whole_from(self.log_start_offset)

    @property
    def state_offset(self) -> int | None:
        """Where a replica that has nothing begins, with the state as of there."""
        return self.state.anchor(self.oldest_whole_offset, self.log_start_offset)

    @property
    def log_end_offset(self) -> int:
        return self._files.active.next_offset

    @property
    def durable_offset(self) -> int:
        """Exclusive end of what is known to be on stable storage; at most the log end."""
        return self._durability.durable_offset

    @property
    def marked(self) -> Marked:
        """What its mark should say of it now."""
        return self._durability.marked(self.epochs)

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
        last_epoch, at = self.epochs.last_epoch, self.log_end_offset
        assert leader_epoch >= last_epoch, f"{self}: epoch {leader_epoch} behind {self.epochs}"
        placed, end = offset_assignment.place_leader(batches, headers, at, leader_epoch)
        appended = self._append(batches, placed, end, now_ms)
        if leader_epoch != last_epoch:
            self.epochs.assign(leader_epoch, appended.base_offset)
        return appended

    def append_follower(
        self,
        data: memoryview,
        newest_epoch: int = offset_assignment.NEWEST_EPOCH,
        told: EpochCache = offset_assignment.NOTHING_TOLD,
    ) -> Appended:
        """Append a leader's batches as they are, after every check of ``place_follower``.
        Raises CorruptMessage (nothing appended), StorageFull, StorageError."""
        epoch, at = int(self.epochs.last_epoch), self.log_end_offset
        data, placed, end = offset_assignment.place_follower(data, at, epoch, newest_epoch, told)
        appended = self._append(data, placed, end, self._env.host.wall_ms())
        for _, header, offset in placed:
            if header.leader_epoch != epoch:
                epoch = header.leader_epoch
                self.epochs.assign(epoch, offset)
        return appended

    def _append(self, data: Bytes, placed: Sequence[Placed], end: int, now_ms: int) -> Appended:
        self._failure.check()
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
            self._files.name_active()
            start = active.file.append([data])
        except OSError as error:
            raise self._failure.of_write(error) from error
        assert start == active.size, f"{active}: wrote at {start}, expected {active.size}"
        if active.created_ms < 0:
            active.created_ms = now_ms
        interval = self.settings.index_interval_bytes
        for (position, header, offset), detail in zip(placed, details, strict=True):
            active.note(header, offset, start + position, interval)
            self.producers.note(header, detail, offset)
        self._durability.appended(active.file, placed)
        return Appended(placed[0][2], end - 1, size)

    # --- rolling ------------------------------------------------------------------------------

    def _is_old(self, segment: Segment, now_ms: int) -> bool:
        return segment.size > 0 and now_ms - segment.created_ms >= self.settings.segment_ms

    def _roll(self) -> Segment:
        """Seal the active segment and begin a new one; on an error the old one stays active."""
        sealed = self._files.active
        if sealed.is_empty:
            return sealed
        self.seal_files(sealed)
        with self._failure.refusing():
            self._files.add(sealed.next_offset)
        return self._files.active

    def seal_files(self, segment: Segment) -> None:
        """Write what recovery uses instead of reading ``segment``, the active one."""
        self.write_indexes(segment)
        self.take_snapshot()

    def write_indexes(self, segment: Segment) -> None:
        with self._failure.refusing():
            self._files.name_active()
            self._durability.sync_and_close(segment.write_indexes(self._disk))

    def take_snapshot(self) -> None:
        if self.damaged or not self.state.is_founded:
            return  # the table may have been built without what is damaged, or was
        end = self.log_end_offset
        epoch = int(self.epochs.epoch_at(end - 1))
        try:
            file = self.state.take(end, epoch, self._files.bases, self._written_start)
        except OSError as error:
            raise self._failure.of_write(error) from error
        if file is not None:
            self._durability.sync_and_close([file])

    async def write_state(self) -> None:
        """Write the snapshots that are due; remove what waited. Raises OSError, StorageError."""
        await self.state.write_due()
        if self.failed is None:
            self.advance_start(self.log_start_offset)

    # --- reading ------------------------------------------------------------------------------

    def locate(
        self, offset: int, max_bytes: int, end_offset: int, *, below_start: bool = False
    ) -> LocalSlice | None:
        """Whole batches from the one that contains ``offset``, at most ``max_bytes`` but at least
        one, none that reaches ``end_offset``; None when there is none. A follower may also have
        what lies ``below_start`` on disk.

        Raises OffsetOutOfRange outside log start..end, InOlderTier where ``tiers.find`` has it,
        CorruptMessage where the log is damaged.
        """
        start = self.oldest_offset if below_start else self.log_start_offset
        if not start <= offset <= self.log_end_offset:
            raise self.tiers.outside(offset, start)
        if offset >= end_offset or offset == self.log_end_offset:
            return None
        interval = self.settings.index_interval_bytes
        return reading.locate(self._files.at(offset), offset, max_bytes, end_offset, interval)

    def offset_for_timestamp(self, ts_ms: int) -> tuple[int, int] | None:
        """As ``reading.offset_for_timestamp``, from the log start on. Raises TimesInDoubt."""
        return reading.offset_for_timestamp(self._files.all, ts_ms, self.log_start_offset)

    # --- shortening ---------------------------------------------------------------------------

    def truncate(self, offset: int) -> None:
        """Remove everything at or above ``offset`` (a follower whose log forks from its leader's).

        An offset inside a batch removes the whole batch. Epochs, producers and the durable offset
        follow; what cannot be read for that is ``damaged`` then. Raises ValueError below the log
        start (see :meth:`begin_at`); StorageFull, CorruptMessage (nothing removed); StorageError.
        """
        if offset >= self.log_end_offset:
            return
        if offset < self.log_start_offset:
            raise ValueError(f"{self}: cannot truncate to {offset}, below the log start")
        self._failure.check()
        with self._failure.refusing():
            boundary = self._files.at(offset).boundary_at_offset(offset)
            if boundary.offset < self.log_start_offset:
                raise ValueError(f"{self}: the batch at {offset} begins below the log start")
            producer_table_truncation.prepare(self.producers, self._files.all, boundary.offset)
            prepared = self._files.prepare(boundary)
        self.mark.lower(Marked.of(boundary.offset, self.epochs))
        with self._failure.ending():
            self._files.cut_back(boundary, prepared)
        self._forget_from(boundary.offset)

    def end_if_cut(self, offset: int) -> int:
        """Where :meth:`truncate` would end the log. Raises CorruptMessage and as that does."""
        with self._failure.refusing():
            return self._files.at(offset).boundary_at_offset(offset).offset

    def begin_at(self, state: FrozenTable, *, is_kept: bool) -> None:
        """Remove everything and go on, empty, where ``state`` was taken; ``is_kept``: a snapshot
        in this log's directory says so, durably (or it is of offset 0). Raises as truncate."""
        self._failure.check()
        offset = state.offset
        with self._failure.refusing():
            prepared = self._files.prepare_anew(offset)
        self.mark.lower(Marked(offset))
        with self._failure.ending():
            self._files.begin_anew(offset, prepared)
        self.generation += 1
        self._forget_from(0, spared=offset)
        self.epochs.clear()
        self.state.begun(state, is_kept=is_kept)
        self.log_start_offset = self._written_start = self._durability.durable_offset = offset

    def advance_start(self, offset: int) -> None:
        """Records below ``offset`` are no longer kept; segments below it go at
        :meth:`start_written`. Raises ValueError beyond the log end (that is a :meth:`begin_at`)."""
        if offset > self.log_end_offset:
            raise ValueError(f"{self}: cannot begin at {offset}, beyond the log end")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.damaged = damage.above(self.damaged, offset)
            self._weigh_holes()
        self._remove_oldest()
        self.state.want_anchor(self.oldest_whole_offset, offset)

    def start_written(self, offset: int) -> None:
        """A restart would find this log's start at ``offset``: delete the segments below it. Not
        before: what is missing above the written start was lost. Raises StorageError."""
        self._written_start = min(offset, self.log_start_offset)
        self._remove_oldest()

    def enforce_retention(self, now_ms: int, high_watermark: int) -> int:
        """Move the log start behind what has expired; return how many segments that is. The active
        one is not, but is sealed when it is old, so that an idle topic's records expire too; nor is
        one whose age is yet to be proven (``scrubbing.expiry_in_doubt``)."""
        self._files.close_retired()
        if self.failed is None and self._is_old(self._files.active, now_ms):
            with contextlib.suppress(StorageFull):  # deleting is all the more needed then
                self._roll()
        limits, segments = RetentionLimits.of(self.settings), self._files.all
        start = self.log_start_offset
        count = expired_count(
            segments, limits, now_ms=now_ms, high_watermark=high_watermark, log_start=start
        )
        if count:
            self.advance_start(segments[count].base_offset)
        return sum(each.next_offset > start for each in segments[:count])

    def _remove_oldest(self) -> None:
        """Remove segments below the log start, as far as that and their state are on disk."""
        bases = self._files.bases
        count = sum(base <= self._written_start for base in bases[1:])
        count = self.state.removable(bases, count, self._written_start)
        with self._failure.ending():
            self._files.remove_oldest(count)
        self.epochs.truncate_start(self.oldest_offset)
        self.producers.forget_below(self.log_start_offset)
        if count:
            self.version += 1

    def _forget_from(self, end: int, *, spared: int = -1) -> None:
        """Everything derived from the log follows it back to ``end``."""
        self.version += 1
        self._durability.cut_back(end)
        self.epochs.truncate_end(end)
        self.damaged = tuple(each for each in self.damaged if each.start < end)
        if self.compaction.is_cut_at(end):
            self.generation += 1
            self.compaction = compaction_file.forget(self._disk, self.path, self.compaction)
        self.drop_snapshots_above(end, spared=spared)
        if spared >= 0:
            return
        start = self.producers.known_before(end)
        lost = producer_table_truncation.forget_from(
            self.producers, self._files.all, self.damaged, end
        )
        if lost is not None:
            self.note_damage(*lost)
        if start < end:
            self._read_around(start)

    def drop_snapshots_above(self, offset: int, *, spared: int = -1) -> None:
        with self._failure.ending():
            if self.state.drop_above(offset, spared=spared):
                self._durability.touch_directory()

    # --- damage -------------------------------------------------------------------------------

    def note_damage(self, segment: Segment, found: Sequence[tuple[Hole, str]]) -> None:
        """A scan of ``segment`` found these holes, and no others. They are not served from now on;
        :func:`~paceline_node.storage.scrubbing.scrub` also writes them down."""
        holes = [hole for hole, _ in found]
        readable = [hole for hole in segment.holes if hole not in holes]
        segment.mark_holes(holes)
        new = [DamagedRange(hole.start, hole.end, reason) for hole, reason in found]
        now = damage.renewed(self.damaged, segment.base_offset, segment.next_offset, new)
        self.damaged = damage.above(now, self.log_start_offset)  # what is deleted needs no repair
        self._weigh_holes()
        self.state.want_anchor(self.oldest_whole_offset, self.log_start_offset)
        if any(self.state.is_deaf_to(hole.end) for hole in readable):
            self._read_again(segment.base_offset)
        elif holes and (known_to := self.producers.transactions.known_to) is not None:
            self._read_around(known_to)

    def _read_again(self, offset: int) -> None:
        """Let the producers be rebuilt from ``offset`` on (``scrubbing.rebuild_producers``)."""
        producer_table_truncation.rebuild_from(self.producers, offset)
        known_to = self.producers.transactions.known_to
        self._read_around(offset if known_to is None else known_to)

    def _read_around(self, start: int) -> None:
        """The producers are read from ``start`` on, without what lies in holes or is gone."""
        if start < self.oldest_offset:
            self.state.lose_table()
        if self._files.last_hole_end > start:
            self.state.read_around(start)
            self._weigh_holes()

    def _weigh_holes(self) -> None:
        """No hole below the log start is filled any more: where the producers were read around one,
        what its records have said is lost here (DESIGN 4.13)."""
        if self.state.is_deaf_to(self._files.given_up_to(self.log_start_offset)):
            self.state.lose_table()

    def seal(self) -> None:
        """Begin a new segment now. Raises StorageFull, StorageError."""
        self._failure.check()
        self._roll()

    def adopt(self, old: Segment, replaced: Replaced) -> None:
        """Put a repaired segment in the place of ``old``; the directory needs a sync after it, and
        ``producers`` the batches from their ``known_to`` on. Raises StorageError; LookupError when
        ``old`` was truncated or deleted meanwhile."""
        self._failure.check()
        repaired = replaced.segment
        if old not in self._files.all or old.truncations != replaced.truncations:
            raise LookupError(f"{self.identity}: the damaged segment has changed")
        self._swap([old], repaired, replaced.path)
        self.generation += 1
        self.note_damage(repaired, [])
        self.epochs.splice(repaired.base_offset, repaired.next_offset, replaced.epochs.entries)
        self.epochs.truncate_start(self.oldest_offset)
        self._read_again(repaired.base_offset)

    # --- compaction ---------------------------------------------------------------------------

    def announce(self, path: str) -> None:
        """Opening the log may from now on put ``path`` in its place (``compaction_file.py``)."""
        self._files.announce(path)

    def replace(self, old: Sequence[Segment], compacted: Segment, path: str) -> None:
        """Put the announced file, opened as ``compacted``, in the place of ``old``, segments of
        this log of the same epochs and producers; the directory needs a sync then. Raises
        StorageError."""
        self._failure.check()
        self._swap(old, compacted, path)

    def _swap(self, old: Sequence[Segment], new: Segment, path: str) -> None:
        with self._failure.ending():
            self._files.swap(old, new, path)
        self.version += 1
        self._durability.replaced()
        with contextlib.suppress(StorageFull):
            self.write_indexes(new)

    # --- durability ---------------------------------------------------------------------------

    def files_to_sync(self) -> SyncTicket:
        """What the next sync must cover. Hand the ticket back to :meth:`synced` when all of it is
        on stable storage, to :meth:`put_back` where the sync was not made; after a failed one call
        :meth:`fail` instead."""
        return self._durability.draw(self.log_end_offset)

    def put_back(self, ticket: SyncTicket) -> None:
        """The next sync must cover all of the ticket."""
        self._durability.put_back(ticket)

    def synced(self, ticket: SyncTicket) -> None:
        """A sync of the ticket's files and directory, begun after it was drawn, has succeeded."""
        self._durability.synced(ticket)
        self.mark.reach(self.marked)
        if self.state.synced(ticket.closing) and self.failed is None:
            with contextlib.suppress(StorageError):  # it is noted in ``failed``
                self.advance_start(self.log_start_offset)

    async def sync(self) -> None:
        """Sync all there is, where no flusher does. Raises OSError."""
        ticket = self.files_to_sync()
        await self._disk.sync(ticket.files)
        if ticket.directory is not None:
            await self._disk.fsync_dir(ticket.directory)
        self.synced(ticket)

    async def checkpoint(self) -> int:
        """Write what a recovery point relies on; return the offset it may name, unless the high
        watermark is lower: a truncation never goes below that. Raises OSError."""
        durable = self.durable_offset
        self._checkpoint_active()
        await self.write_epochs()
        return min(durable, self.durable_offset)

    def _checkpoint_active(self) -> None:
        """Write indexes and producers as they are; the next flush makes them durable. Without them,
        or with torn ones, recovery only reads more."""
        active = self.segments[-1]
        grown = active.size - self.checkpointed.get(active.base_offset, 0)
        if grown < self.settings.checkpoint_bytes or self.failed is not None:
            return
        with self.disk_errors(), contextlib.suppress(StorageFull):
            self.seal_files(active)
            self.checkpointed = {active.base_offset: active.size}

    async def write_epochs(self) -> None:
        """Write the epoch table down, if that has not been done. Raises OSError."""
        await self._epoch_file.write(self.epochs)
