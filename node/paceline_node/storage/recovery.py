"""Opening a log: what is there, what of it is good, and what must be rebuilt.

The rules are DESIGN 2.5, 5 and 6. In short: after a clean stop checkpoints are trusted and only the
last batch is checked. Otherwise the segment that holds the recovery point, and all behind it, are
read batch by batch. A bad batch below the point is damage, which is reported and never cut. At or
above it, it is cut off only where the end of the process before explains it (``torn_tail.py``).
Sealed segments before it were synced with their indexes; only their ends are looked at. The same
holds for the part of the active segment that lies before its last checkpointed index entry
(``LogSettings.checkpoint_bytes``): a start after a kill reads tens of megabytes, not a gigabyte.
Damage in what is not read is found by scrubbing and by readers.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial

from paceline.errors import CorruptMessage
from paceline.values import dataclass
from paceline.wire.batch_header import BatchHeader, verify
from paceline.wire.end_marker import is_end_marker
from paceline_node.env import Disk
from paceline_node.storage import (
    compacted_sizes,
    compaction_file,
    damage,
    epoch_file,
    epoch_proof,
    fingerprint,
    producer_file,
)
from paceline_node.storage.checkpoint import TEMPORARY
from paceline_node.storage.compaction_file import CLEANED, CompactionState
from paceline_node.storage.damage import DamagedRange
from paceline_node.storage.earlier_states import as_of
from paceline_node.storage.epochs import EpochCache, EpochStart
from paceline_node.storage.file_owner import Owner
from paceline_node.storage.log_file import list_directory, open_file
from paceline_node.storage.log_segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    Boundary,
    Hole,
    Segment,
    Step,
    is_orphan,
    parse_name,
    segment_name,
)
from paceline_node.storage.log_state import LogState
from paceline_node.storage.obstructing_entries import make_way
from paceline_node.storage.producers import FrozenTable, ProducerTable, read_detail
from paceline_node.storage.recovery_report import Findings, RecoveryHints, RecoveryReport
from paceline_node.storage.repair import REPLACEMENT
from paceline_node.storage.rewrite_after_failed_sync import rewrite
from paceline_node.storage.segment_scan import ScanEnd, ScanRules, SegmentScan
from paceline_node.storage.snapshots import KnownTerms, Snapshots
from paceline_node.storage.torn_tail import Ending, Tail


@dataclass(slots=True)
class Recovered:
    """The parts of an open log. ``segments`` is never empty."""

    segments: list[Segment]
    epochs: EpochCache
    state: LogState
    epochs_on_disk: Sequence[EpochStart] | None
    """None: there is no file, or a bad one."""
    compaction: CompactionState
    report: RecoveryReport
    anchor: FrozenTable | None
    """To be written: it was lost, and made anew from a later snapshot."""
    scanned: list[Segment]
    dirty: bool


async def recover(disk: Disk, path: str, owner: Owner, hints: RecoveryHints, gap: int) -> Recovered:
    """Open every segment in ``path`` and make ``owner``'s log whole.

    Raises OSError. On an error, or when cancelled, all files are closed; torn bytes may have been
    cut already, which the next recovery would do again.
    """
    try:
        return await _recover_once(_Recovery(disk, path, owner, hints, gap))
    except CorruptMessage:
        # Something bad lies in what need not be read: read all, so that it is found to be damage.
        again = _Recovery(disk, path, owner, hints, gap)
        again.doubt = True
        return await _recover_once(again)


async def _recover_once(recovery: _Recovery) -> Recovered:
    try:
        return await recovery.run()
    except BaseException:
        for segment in recovery.segments:
            segment.file.close()
        raise


class _Recovery:
    """One opening of one log."""

    def __init__(self, disk: Disk, path: str, owner: Owner, hints: RecoveryHints, gap: int) -> None:
        self.doubt = False
        self._disk = disk
        self._path = path
        self._owner = owner
        self._hints = hints
        self._interval = gap  # between index entries
        self._mark = hints.recovery_point
        # What is derived was written at a checkpoint: the mark may be ahead of it.
        point = hints.checkpoint
        self._known_until = hints.recovery_point if point is None else point
        self._tail = Tail.after(hints.ending, mark_exact=hints.mark_exact)
        self._found = Findings()
        self.segments: list[Segment] = []
        self.scanned: list[Segment] = []
        self._epochs = EpochCache()
        self._table = EpochCache()
        self._epochs_on_disk: Sequence[EpochStart] | None = None
        self._producers = ProducerTable()
        self._producers_from = 0
        self._floor: FrozenTable | None = None
        self._anchor: FrozenTable | None = None
        self._is_founded = True
        self._loaded_at = 0
        self._snapshots = Snapshots(disk, path, owner)

    async def run(self) -> Recovered:
        compaction = await self._finish_compaction()
        compaction_file.refuse_older(self._path, compaction, self._hints.removed_to)
        await self._open_files()
        await self._refuse_foreign()
        known = await self._load_epochs()
        self._floor = await self._find_anchor()
        if self._floor is None:
            self._floor = self._anchor = await self._make_anchor()
        damaged_from = await self._load_damage()
        first = await self._load_trusted(known, damaged_from)
        if first < len(self.segments):
            resumes = known and damaged_from is None and not self.doubt
            start = await self._resume(first) if resumes else None
            await self._scan_from(first, start, known=known)
        else:
            await self._restore_producers(self.segments[-1].next_offset, KnownTerms(self._epochs))
            self._replay(self.segments[-1].next_offset)
        self._end_at_live_segment()
        compacted_sizes.check(self.segments, compaction.rewritten)
        if compaction.is_cut_at(self.segments[-1].next_offset):
            compaction = compaction_file.forget(self._disk, self._path, compaction)
        return Recovered(
            segments=self.segments,
            epochs=self._epochs,
            state=LogState(
                self._disk,
                self._path,
                self._owner.named_always(),
                self._producers,
                self._snapshots.offsets,
                durable=self._hints.clean,
                is_missing=self._floor is None,
                is_founded=self._is_founded,
                read_from=self._loaded_at if self._found.damaged else math.inf,
            ),
            epochs_on_disk=self._epochs_on_disk,
            compaction=compaction,
            report=self._found.report(self._hints, self.segments[-1].next_offset),
            anchor=self._anchor,
            scanned=self.scanned,
            dirty=self._found.dirty,
        )

    # --- what is there ------------------------------------------------------------------------

    async def _finish_compaction(self) -> CompactionState:
        try:
            state = await compaction_file.read(self._disk, self._path, self._owner)
        except CorruptMessage:  # written in one piece: it rotted, with nothing under way
            self._found.rebuilt.append(compaction_file.NAME)
            return compaction_file.unknown()
        return await compaction_file.finish(self._disk, self._path, self._owner, state)

    async def _open_files(self) -> None:
        names = list_directory(self._disk, self._path)
        bases = sorted(base for name in names if (base := parse_name(name)) is not None)
        for name in names:
            if name.endswith((TEMPORARY, REPLACEMENT, CLEANED)) or is_orphan(name, bases):
                make_way(self._disk, f"{self._path}/{name}")
                self._found.dirty = True
        for base in bases:
            path = f"{self._path}/{segment_name(base)}{LOG_SUFFIX}"
            segment = Segment(self._path, base, await open_file(self._disk, path))
            self.segments.append(segment)
        first = self._hints.first_offset
        if bases and first is not None and bases[0] > first:
            # Its file is lost, and no retention removed it: an empty one takes its place, of which
            # the scan finds that everything is missing.
            self._mark = max(self._mark, bases[0])
            path = f"{self._path}/{segment_name(first)}{LOG_SUFFIX}"
            self.segments.insert(0, Segment(self._path, first, self._disk.create(path)))
            self._found.dirty = True
        if not self.segments:
            start = max(self._hints.log_start, 0)
            path = f"{self._path}/{segment_name(start)}{LOG_SUFFIX}"
            self.segments.append(Segment(self._path, start, self._disk.create(path)))
            self._found.dirty = True
        self._snapshots.found(names)

    async def _refuse_foreign(self) -> None:
        """Neither batches nor files say whose they are. The mark, where it is exact, knows."""
        mark = self._hints.mark
        if mark is None or self._hints.ending is Ending.POWER_CUT:
            return
        newest = await epoch_proof.indexed(self._disk, self.segments[-1])
        try:
            await fingerprint.check(newest, mark.offset, mark.fingerprint)
        except fingerprint.ForeignLog:
            raise
        except CorruptMessage:  # damage, which a scan will find
            return

    async def _find_anchor(self) -> FrozenTable | None:
        """What the records below this log's have said (``log_state.py``); None: nobody knows."""
        oldest = self.segments[0].base_offset
        if oldest == 0:
            return FrozenTable(0)
        limit = max(oldest, self._hints.log_start)
        found = await self._snapshots.newest(self._terms, oldest, limit)
        return None if found is None else found.table

    async def _make_anchor(self) -> FrozenTable | None:
        """As it follows from the next snapshot of what was committed (``anchors.py``)."""
        oldest = self.segments[0].base_offset
        found = await self._snapshots.oldest(self._terms, oldest, self._known_until)
        return None if found is None else await as_of(found.table, oldest)

    @property
    def _terms(self) -> KnownTerms:
        """What is known before anything is read."""
        marked = self._hints.mark
        newest = math.inf if marked is None else marked.epoch
        return KnownTerms(self._table, self._known_until, newest)

    async def _load_epochs(self) -> bool:
        try:
            table = await epoch_file.read(self._disk, self._path, self._owner)
        except CorruptMessage:
            table = None
        if table is None:
            if any(segment.file.size() for segment in self.segments):
                self._found.rebuilt.append(epoch_file.NAME)
                return False
            table = EpochCache()
            self._epochs_on_disk = []
        else:
            self._epochs_on_disk = table.entries
        if await self._is_older(table):
            self._found.rebuilt.append(epoch_file.NAME)
            return False
        marked = self._hints.mark
        if marked is not None and marked.epoch > table.last_epoch:
            table.assign(marked.epoch, marked.epoch_start)  # it began after the checkpoint
        self._table, self._epochs = table, EpochCache(table.entries)
        return True

    async def _is_older(self, table: EpochCache) -> bool:
        """Whether the table is not the one that was written last."""
        if self._hints.clean:  # that wrote the whole table
            marked = self._hints.mark
            return marked is not None and marked.is_ahead_of(table)
        word = await epoch_proof.compare(self._disk, self.segments, table, self._known_until)
        self.doubt |= word is epoch_proof.Word.DOUBTFUL
        return word is epoch_proof.Word.OLDER

    # --- what may be trusted --------------------------------------------------------------------

    async def _load_damage(self) -> int | None:
        """The first offset known to be damaged since an earlier start; it is looked at again."""
        try:
            ranges = await damage.read(self._disk, self._path, self._owner)
        except CorruptMessage:
            self._found.rebuilt.append(damage.NAME)
            return 0
        for each in ranges:  # what was durable when it was found to be damaged is no torn write
            self._mark = max(self._mark, each.end)
        return min((each.start for each in ranges), default=None)

    async def _load_trusted(self, epochs_known: bool, damaged_from: int | None) -> int:
        """Load segments that need no scan; return the index of the first one that does."""
        if not epochs_known or self.doubt:
            return 0
        limit = len(self.segments) if self._hints.clean else self._index_of(self._known_until)
        if damaged_from is not None:
            limit = min(limit, self._index_of(damaged_from))
        for index in range(limit):
            if not await self._trust(index):
                return index
        return limit

    def _index_of(self, offset: int) -> int:
        """Index of the segment that holds ``offset``."""
        bases = [segment.base_offset for segment in self.segments]
        return max(0, bisect_right(bases, offset) - 1)

    async def _trust(self, index: int) -> bool:
        """Take a segment as its indexes describe it; False when it does not fit."""
        segment = self.segments[index]
        is_last = index == len(self.segments) - 1
        end = None if is_last else self.segments[index + 1].base_offset
        try:
            await segment.read_indexes(self._disk)
            segment.size = segment.file.size()
            # After a clean stop, too: the file may have lost its end since, or itself.
            self._find_end(segment, check_crc=is_last)
        except CorruptMessage:
            self._found.rebuilt.append(f"{segment_name(segment.base_offset)}{INDEX_SUFFIX}")
            return False
        segment.times_opened(segment.next_offset)
        if end is None and segment.next_offset < self._mark:
            return False
        if end is not None and segment.next_offset != end:
            return False
        if segment.size:
            try:
                segment.believe_first()
            except CorruptMessage:  # it begins with damage
                return False
        return True

    def _find_end(self, segment: Segment, *, check_crc: bool) -> None:
        """Walk from the last index entry to the end of the file."""
        offset, position = segment.offsets.floor_position(segment.size)
        segment.next_offset = offset
        last: Step | None = None
        for last in segment.walk(Boundary(position, offset)):
            segment.next_offset = last.next_offset
        if last is not None and check_crc:
            verify(segment.file.pread(last.end - last.position, last.position))

    # --- what must be read ------------------------------------------------------------------------

    async def _resume(self, index: int) -> Boundary | None:
        """Where reading may begin in a segment whose indexes were written at a checkpoint: the last
        entry below the mark, if a good batch lies there. None: at the segment's start."""
        segment = Segment(self._path, self.segments[index].base_offset, self.segments[index].file)
        segment.size = segment.file.size()
        try:
            await segment.read_indexes(self._disk)
            offset, position = segment.offsets.floor(self._known_until - 1)
            step = next(segment.walk(Boundary(position, offset)), None)
            if step is None or position == 0:
                return None
            verify(segment.file.pread(step.end - step.position, step.position))
            segment.believe_first()
        except CorruptMessage:
            return None
        segment.resume_at(step)
        self.segments[index] = segment
        return Boundary(position, offset)

    async def _scan_from(self, first: int, start: Boundary | None, *, known: bool) -> None:
        """Read everything from a segment, or from a place in it, to the end of the log."""
        begin = self.segments[first].base_offset if start is None else start.offset
        self._epochs.truncate_end(begin)
        # A snapshot at or below the mark holds whatever the scan finds; it saves replaying.
        limit = max(begin, self._known_until) if known else begin
        await self._restore_producers(limit, self._terms)
        self._replay(begin)
        for index in range(first, len(self.segments)):
            if not await self._scan(index, start):
                self._drop_from(index + 1, "behind a torn write")
                break
            start = None
        end = self.segments[-1].next_offset
        if self._producers_from > end:
            await self._restore_producers(end, KnownTerms(self._epochs))
            self._replay(end)

    async def _scan(self, index: int, start: Boundary | None) -> bool:
        """Read one segment, cut or report what is bad; False when the log ends in it."""
        segment = self.segments[index]
        end = self.segments[index + 1].base_offset if index + 1 < len(self.segments) else None
        if start is None:
            segment = Segment(self._path, segment.base_offset, segment.file)
            self.segments[index] = segment
            start = Boundary(0, segment.base_offset)
        size, hints = segment.file.size(), self._hints
        known = (self._mark, self._table, self._known_until, end, self._tail)
        scan = SegmentScan(
            segment.file,
            size,
            start,
            ScanRules(*known, hints.mark, hints.mark_lost),
            last_epoch=self._epochs.last_epoch,
            visit=partial(self._note, segment),
            visit_hole=partial(self._note_hole, segment),
        )
        result = await scan.run()
        self._found.scanned_bytes += size - start.position
        self._cut(segment, result)
        if self._hints.disk_failed:
            await rewrite(segment.file, start.position)
        elif self._hints.ending is Ending.KILLED:
            await self._rewrite_unsynced(segment)
        self.scanned.append(segment)
        return result.torn is None and end in (None, segment.next_offset)

    async def _rewrite_unsynced(self, segment: Segment) -> None:
        """Write anew what was never known to be synced: the process may have died of a sync that
        failed, without being able to say so on such a disk."""
        if segment.next_offset > self._mark:
            below = max(self._mark, segment.base_offset)
            await rewrite(segment.file, segment.boundary_at_offset(below).position)

    def _cut(self, segment: Segment, result: ScanEnd) -> None:
        torn_bytes = segment.file.size() - result.position
        if torn_bytes > 0:
            segment.file.truncate(result.position)
            self._found.truncated += torn_bytes
            self._found.discarded += result.discarded_valid_bytes
            self._found.dirty = True

    def _drop_from(self, index: int, why: str) -> None:
        """Remove segments that do not join what lies before them, newest first."""
        for segment in reversed(self.segments[index:]):
            self._found.truncated += segment.file.size()
            self._found.rebuilt.append(f"{segment_name(segment.base_offset)}{LOG_SUFFIX} ({why})")
            segment.file.close()
            segment.unlink(self._disk)
            self._found.dirty = True
        del self.segments[index:]

    def _end_at_live_segment(self) -> None:
        """Damage at the very end: go on in a new file, so that nothing is written behind it."""
        last = self.segments[-1]
        if last.holes and last.holes[-1].end == last.next_offset:
            path = f"{self._path}/{segment_name(last.next_offset)}{LOG_SUFFIX}"
            file = self._disk.create(path)
            self.segments.append(Segment(self._path, last.next_offset, file))
            self._found.dirty = True

    # --- producers --------------------------------------------------------------------------------

    async def _restore_producers(self, limit: int, terms: KnownTerms) -> None:
        """Load the newest snapshot at or below ``limit``; none means the log's start."""
        start = self.segments[0].base_offset
        floor = self._floor or FrozenTable(start)
        kept = await self._snapshots.newest(terms, start, limit)
        newest = floor if kept is None or kept.table.offset < floor.offset else kept.table
        self._producers.load(newest, floor)
        self._is_founded = kept is not None or self._floor is not None
        self._producers_from = self._loaded_at = newest.offset

    def _replay(self, end: int) -> None:
        """Feed the batches between the snapshot and ``end`` to the table."""
        if self._producers_from < end:
            producer_file.replay(self.segments, self._producers, self._producers_from, end)
            self._producers_from = end

    def _note(self, segment: Segment, header: BatchHeader, position: int) -> None:
        if segment.created_ms < 0:
            segment.created_ms = header.max_timestamp
        segment.note(header, header.base_offset, position, self._interval)
        if header.leader_epoch != self._epochs.last_epoch:
            self._epochs.assign(header.leader_epoch, header.base_offset)
        if header.base_offset < self._producers_from:
            return
        detail = None
        if header.is_extended or is_end_marker(header):
            batch = segment.file.pread(header.size_bytes, position)
            detail = read_detail(batch, 0, header)
        self._producers.note(header, detail, header.base_offset)

    def _marked_term(self) -> Sequence[EpochStart]:
        """The newest term that the mark knows, where no table could be believed."""
        marked = self._hints.mark
        if marked is None or marked.epoch < 0:
            return ()
        return (EpochStart(marked.epoch, marked.epoch_start),)

    def _note_hole(self, segment: Segment, hole: Hole, reason: str) -> None:
        segment.skip(hole)
        # Terms that lie wholly inside: the next start judges what is there by them.
        for epoch, start in (*self._table.entries, *self._marked_term()):
            if hole.start <= start < hole.end and epoch > self._epochs.last_epoch:
                self._epochs.assign(epoch, start)
        self._found.damaged.append(DamagedRange(hole.start, hole.end, reason))
