"""Opening a log: what is there, what of it is good, and what must be rebuilt.

The rules are spec replication 2.5. In short: after a clean stop checkpoints are trusted and only
the last batch is checked. Otherwise the segment that holds the recovery point, and all behind it,
are read batch by batch: a bad batch at or above the recovery point is a torn write and is cut off;
below it, it is damage, which is reported and never cut. Sealed segments before it were synced with
their indexes; only their ends are looked at. The same holds for the part of the active segment that
lies before its last checkpointed index entry (``LogSettings.checkpoint_bytes``): a start after a
kill reads tens of megabytes, not a gigabyte. Damage in what is not read is found by scrubbing and
by readers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from paceline.errors import CorruptMessage
from paceline.wire.batch_header import BatchHeader, verify
from paceline.wire.end_marker import is_end_marker
from paceline_node.env import Disk
from paceline_node.storage import compaction_file, damage, epoch_file, producer_file
from paceline_node.storage.checkpoint import TEMPORARY
from paceline_node.storage.compaction_file import CLEANED, CompactionState
from paceline_node.storage.damage import DamagedRange
from paceline_node.storage.epochs import EpochCache, EpochStart
from paceline_node.storage.producer_file import Snapshots
from paceline_node.storage.producers import ProducerTable, read_detail
from paceline_node.storage.repair import REPLACEMENT
from paceline_node.storage.rewriting import rewrite
from paceline_node.storage.scan import ScanEnd, ScanRules, SegmentScan
from paceline_node.storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    Boundary,
    Hole,
    Segment,
    Step,
    parse_name,
    segment_name,
)


@dataclass(frozen=True, slots=True)
class RecoveryHints:
    """What the node knows about a log before opening it.

    ``clean``: the process before this one stopped in an orderly way. ``recovery_point``: an offset
    from ``recovery.ckpt``, below which everything was durable (0: nothing known). ``log_start``:
    from ``logstart.ckpt`` (0: the first segment's base). ``disk_failed``: a sync failed under the
    process before, so what lies above the recovery point may be in the page cache alone.
    """

    clean: bool = False
    recovery_point: int = 0
    log_start: int = 0
    disk_failed: bool = False


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening found.

    ``lost_tail``: the log ends below the recovery point, so acknowledged records are gone and the
    replica cannot be trusted. ``truncated_bytes`` were cut as torn writes, of which the last
    ``discarded_valid_bytes`` began with a good batch. ``rebuilt`` names derived state that was
    missing or bad.
    """

    scanned_bytes: int
    truncated_bytes: int
    discarded_valid_bytes: int
    damaged: tuple[DamagedRange, ...]
    lost_tail: bool
    rebuilt: tuple[str, ...]

    @property
    def reached_durable_mark(self) -> bool:
        """Whether all that was durable is still there (spec replication 2.3)."""
        return not self.lost_tail and not self.damaged


@dataclass(slots=True)
class Recovered:
    """The parts of an open log. ``segments`` is never empty."""

    segments: list[Segment]
    epochs: EpochCache
    producers: ProducerTable
    snapshots: Snapshots
    epochs_on_disk: Sequence[EpochStart] | None
    """None: there is no file, or a bad one."""
    compaction: CompactionState
    report: RecoveryReport
    scanned: list[Segment]
    dirty: bool


@dataclass(slots=True)
class _Findings:
    scanned_bytes: int = 0
    truncated: int = 0
    discarded: int = 0
    damaged: list[DamagedRange] = field(default_factory=list)
    rebuilt: list[str] = field(default_factory=list)
    dirty: bool = False


async def recover(disk: Disk, path: str, hints: RecoveryHints, *, index_interval: int) -> Recovered:
    """Open every segment in ``path`` and make the log whole.

    Raises OSError. On an error, or when cancelled, all files are closed; torn bytes may have been
    cut already, which the next recovery would do again.
    """
    recovery = _Recovery(disk, path, hints, index_interval)
    try:
        return await recovery.run()
    except BaseException:
        for segment in recovery.segments:
            segment.file.close()
        raise


class _Recovery:
    """One opening of one log."""

    def __init__(self, disk: Disk, path: str, hints: RecoveryHints, interval: int) -> None:
        self._disk = disk
        self._path = path
        self._hints = hints
        self._interval = interval
        self._mark = hints.recovery_point
        self._found = _Findings()
        self.segments: list[Segment] = []
        self.scanned: list[Segment] = []
        self._epochs = EpochCache()
        self._table = EpochCache()
        self._epochs_on_disk: Sequence[EpochStart] | None = None
        self._producers = ProducerTable()
        self._producers_from = 0
        self._snapshots: list[int] = []

    async def run(self) -> Recovered:
        compaction = await self._finish_compaction()
        await self._open_files()
        known = await self._load_epochs()
        damaged_from = await self._load_damage()
        first = await self._load_trusted(known, damaged_from)
        if first < len(self.segments):
            start = await self._resume(first) if known and damaged_from is None else None
            await self._scan_from(first, start, known=known)
        else:
            await self._restore_producers(self.segments[-1].next_offset, self._epochs)
            self._replay(self.segments[-1].next_offset)
        self._end_at_live_segment()
        if compaction.cleaned_offset > self.segments[-1].next_offset:
            compaction = CompactionState()
        return Recovered(
            self.segments,
            self._epochs,
            self._producers,
            Snapshots(self._disk, self._path, self._snapshots),
            self._epochs_on_disk,
            compaction,
            self._report(),
            self.scanned,
            self._found.dirty,
        )

    # --- what is there ------------------------------------------------------------------------

    async def _finish_compaction(self) -> CompactionState:
        try:
            state = await compaction_file.read(self._disk, self._path)
        except CorruptMessage:  # written in one piece: it rotted, with nothing under way
            self._found.rebuilt.append(compaction_file.NAME)
            return CompactionState()
        return await compaction_file.finish(self._disk, self._path, state)

    async def _open_files(self) -> None:
        names = self._disk.list(self._path)
        bases = sorted(base for name in names if (base := parse_name(name)) is not None)
        for name in names:
            if name.endswith((TEMPORARY, REPLACEMENT, CLEANED)) or _is_orphan(name, bases):
                self._disk.remove(f"{self._path}/{name}")
                self._found.dirty = True
        for base in bases:
            path = f"{self._path}/{segment_name(base)}{LOG_SUFFIX}"
            segment = Segment(self._path, base, await self._disk.open(path))
            self.segments.append(segment)
        if not self.segments:
            start = max(self._hints.log_start, 0)
            path = f"{self._path}/{segment_name(start)}{LOG_SUFFIX}"
            self.segments.append(Segment(self._path, start, self._disk.create(path)))
            self._found.dirty = True
        self._snapshots = producer_file.offsets(names)

    async def _load_epochs(self) -> bool:
        try:
            table = await epoch_file.read(self._disk, self._path)
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
        self._table = table
        self._epochs = EpochCache(table.entries)
        return True

    # --- what may be trusted --------------------------------------------------------------------

    async def _load_damage(self) -> int | None:
        """The first offset known to be damaged since an earlier start; it is looked at again."""
        try:
            ranges = await damage.read(self._disk, self._path)
        except CorruptMessage:
            self._found.rebuilt.append(damage.NAME)
            return 0
        for each in ranges:  # what was durable when it was found to be damaged is no torn write
            self._mark = max(self._mark, each.end)
        return min((each.start for each in ranges), default=None)

    async def _load_trusted(self, epochs_known: bool, damaged_from: int | None) -> int:
        """Load segments that need no scan; return the index of the first one that does."""
        if not epochs_known:
            return 0
        limit = len(self.segments) if self._hints.clean else self._index_of(self._mark)
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
            if self._hints.clean and end is not None:
                segment.next_offset = end
            else:
                self._find_end(segment, check_crc=is_last)
        except CorruptMessage:
            self._found.rebuilt.append(f"{segment_name(segment.base_offset)}{INDEX_SUFFIX}")
            return False
        if end is None and segment.next_offset < self._mark:
            return False
        if end is not None and segment.next_offset != end:
            return False
        if segment.size:
            segment.created_ms = segment.batch_timestamps(0)[1]
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
            offset, position = segment.offsets.floor(self._mark - 1)
            step = next(segment.walk(Boundary(position, offset)), None)
            if step is None or position == 0:
                return None
            verify(segment.file.pread(step.end - step.position, step.position))
            segment.created_ms = segment.batch_timestamps(0)[1]
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
        limit = max(begin, self._mark) if known else begin
        await self._restore_producers(limit, self._table)
        self._replay(begin)
        for index in range(first, len(self.segments)):
            if not await self._scan(index, start):
                self._drop_from(index + 1, "behind a torn write")
                break
            start = None
        end = self.segments[-1].next_offset
        if self._producers_from > end:
            await self._restore_producers(end, self._epochs)
            self._replay(end)

    async def _scan(self, index: int, start: Boundary | None) -> bool:
        """Read one segment, cut or report what is bad; False when the log ends in it."""
        segment = self.segments[index]
        end = None
        if index + 1 < len(self.segments):
            end = self.segments[index + 1].base_offset
        if start is None:
            segment = Segment(self._path, segment.base_offset, segment.file)
            self.segments[index] = segment
            start = Boundary(0, segment.base_offset)
        size = segment.file.size()
        scan = SegmentScan(
            segment.file,
            size,
            start,
            ScanRules(self._mark, self._table, self._mark, end),
            last_epoch=self._epochs.last_epoch,
            visit=partial(self._note, segment),
            visit_hole=partial(self._note_hole, segment),
        )
        result = await scan.run()
        self._found.scanned_bytes += size - start.position
        self._cut(segment, result)
        if self._hints.disk_failed:
            await rewrite(segment.file, start.position)
        self.scanned.append(segment)
        return result.torn is None and end in (None, segment.next_offset)

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

    async def _restore_producers(self, limit: int, epochs: EpochCache) -> None:
        """Load the newest snapshot at or below ``limit``; none means the log's start."""
        start = self.segments[0].base_offset
        restored = await producer_file.restore_newest(
            self._disk, self._path, self._snapshots, self._producers, epochs, limit
        )
        if restored is None:
            self._producers.clear(start)
            restored = start
        self._producers_from = restored

    def _replay(self, end: int) -> None:
        """Feed the batches between the snapshot and ``end`` to the table."""
        if self._producers_from < end:
            producer_file.replay(self.segments, self._producers, self._producers_from, end)
            self._producers_from = end

    def _report(self) -> RecoveryReport:
        end = self.segments[-1].next_offset
        return RecoveryReport(
            scanned_bytes=self._found.scanned_bytes,
            truncated_bytes=self._found.truncated,
            discarded_valid_bytes=self._found.discarded,
            damaged=tuple(self._found.damaged),
            lost_tail=end < self._hints.recovery_point,
            rebuilt=tuple(self._found.rebuilt),
        )

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

    def _note_hole(self, segment: Segment, hole: Hole, reason: str) -> None:
        segment.skip(hole)
        for epoch, start in self._table.entries:  # terms that lie wholly inside are known from it
            if hole.start <= start < hole.end and epoch > self._epochs.last_epoch:
                self._epochs.assign(epoch, start)
        self._found.damaged.append(DamagedRange(hole.start, hole.end, reason))


def _is_orphan(name: str, bases: Sequence[int]) -> bool:
    """Whether an index file's segment is gone."""
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        if name.endswith(suffix):
            return parse_name(name.removesuffix(suffix) + LOG_SUFFIX) not in bases
    return False
