"""Looking after the content of an open log: scrubbing it, and repairing what is damaged.

Both run beside appends, truncation and retention: they look at a segment while it stands, and give
up on it when it has changed meanwhile.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

import trio

from paceline.errors import StorageError, StorageFull
from paceline.types import LeaderEpoch
from paceline.values import dataclass
from paceline.wire.batch_header import BatchHeader
from paceline_node.env import Disk
from paceline_node.storage import compacted_sizes, compaction_file, damage
from paceline_node.storage.damage import DamagedRange
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.log import Log
from paceline_node.storage.log_segment import Boundary, Hole, Segment
from paceline_node.storage.producer_file import replay_some
from paceline_node.storage.producers import FrozenTable
from paceline_node.storage.repair import SegmentRepair
from paceline_node.storage.retention import RetentionLimits, first_in_doubt
from paceline_node.storage.segment_scan import ScanRules, SegmentScan


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """One segment was read: ``size_bytes`` of it, to throttle by. Go on at ``next_offset``."""

    next_offset: int
    size_bytes: int
    damaged: tuple[DamagedRange, ...]


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a log begins anew, empty: with ``state``, as a copy of the log of the leader of
    ``leader_epoch``, which lacks tombstones up to ``removed_to`` and is compacted up to
    ``cleaned_offset``."""

    state: FrozenTable
    leader_epoch: LeaderEpoch
    removed_to: int
    cleaned_offset: int


async def note_beginning(disk: Disk, log: Log, beginning: Beginning) -> None:
    """Write down what ``log``, which has just begun anew, is a copy of. It follows as a copy only
    after that. Raises OSError."""
    if beginning.removed_to == beginning.cleaned_offset == 0:
        return
    async with log.notes_lock:
        await disk.fsync_dir(log.path)  # of the log before, nothing may come back beside the note
        removals = log.compaction.removals.begun(
            beginning.leader_epoch, beginning.removed_to, beginning.cleaned_offset
        )
        state = replace(log.compaction, removals=removals)
        await compaction_file.write(disk, log.path, log.identity.owner, state)
        log.compaction = state


async def write_damage(disk: Disk, log: Log) -> None:
    """Write down what ``log.damaged`` says now. Raises OSError."""
    async with log.notes_lock:
        await damage.write(disk, log.path, log.identity.owner, log.damaged)


async def scrub(
    disk: Disk, log: Log, offset: int, leader_epochs: EpochCache | None = None
) -> Scrubbed:
    """Check every batch of the segment that holds ``offset``; damage is noted in ``log.damaged``
    and written down, so that it is neither served nor forgotten. The segment's times are proven
    then, and indexes that say something else are written anew. ``leader_epochs``: judge by the
    leader's table, which may know what damage here has taken from the log's own.

    Also what to call for a segment in which a reader met a bad checksum. Raises OSError.
    """
    segment = next(each for each in reversed(log.segments) if each.base_offset <= offset)
    end, size, version = segment.next_offset, segment.size, log.version
    found: list[tuple[Hole, str]] = []
    read = Segment(segment.directory, segment.base_offset, segment.file)
    last = Boundary(0, segment.base_offset)

    def note(header: BatchHeader, position: int) -> None:
        nonlocal last
        last = Boundary(position, header.base_offset)
        if read.created_ms < 0:
            read.created_ms = header.max_timestamp
        read.note(header, header.base_offset, position, log.settings.index_interval_bytes)

    def note_hole(hole: Hole, reason: str) -> None:
        read.skip(hole)
        found.append((hole, reason))

    scan = SegmentScan(
        segment.file,
        size,
        Boundary(0, segment.base_offset),
        ScanRules(end, leader_epochs or log.epochs, end, end),
        last_epoch=-1,
        visit=note,
        visit_hole=note_hole,
    )
    try:
        position = (await scan.run()).position
    except OSError:
        if log.version == version:
            raise
        return Scrubbed(end, size, ())  # the file was cut while it was read
    if position < size:
        # A hole reached to the end of the file, and the offsets that it stood for are good now. The
        # bytes behind are no part of the log: they must be neither kept nor appended to.
        found = [each for each in found if each[0].start < last.offset]
        found.append((Hole(last.offset, end, last.position, size), "bytes behind the log's end"))
    if log.version != version:  # truncated or cut at its start: what was read may be gone
        return Scrubbed(end, size, ())
    if found != [] or segment.holes:
        log.note_damage(segment, found)
        await write_damage(disk, log)
    if segment.prove(read, is_sealed=segment is not log.segments[-1]) and log.failed is None:
        with log.disk_errors(), contextlib.suppress(StorageFull):
            log.write_indexes(segment)
    ranges = tuple(DamagedRange(hole.start, hole.end, reason) for hole, reason in found)
    return Scrubbed(end, size, ranges)


def expiry_in_doubt(log: Log, now_ms: int, high_watermark: int) -> int | None:
    """An offset in a segment that must be read (:func:`scrub`) before ``enforce_retention``
    may delete another one; None: there is no such."""
    segments, limits = log.segments, RetentionLimits.of(log.settings)
    start = log.log_start_offset
    at = first_in_doubt(
        segments, limits, now_ms=now_ms, high_watermark=high_watermark, log_start=start
    )
    return None if at is None else max(segments[at].base_offset, start)


async def take_epochs(disk: Disk, log: Log, theirs: EpochCache) -> bool:
    """Believe the leader's epoch table where that of ``log``, which does not fork from it, says
    something else, and read the records there again by it; whether there was any. A table that was
    made from a batch with a rotten epoch calls good ones damaged. Raises OSError."""
    conflict = log.epochs.conflict(theirs, log.log_end_offset)
    if conflict is None:
        return False
    offset, end = conflict
    log.epochs.take(theirs, offset, log.log_end_offset)
    log.mark.reach(log.marked)
    while (offset := max(offset, log.log_start_offset)) < min(end, log.log_end_offset):
        offset = (await scrub(disk, log, offset)).next_offset
    return True


def begin_repair(
    disk: Disk, log: Log, damaged: DamagedRange, leader_epochs: EpochCache | None = None
) -> SegmentRepair:
    """Start replacing the segment that ``damaged`` lies in.

    Feed the result what it says is ``missing``, then pass it to :func:`finish_repair`. Raises
    LookupError when the range is gone, StorageFull, StorageError.
    """
    for segment in log.segments:
        if any(hole.start == damaged.start for hole in segment.holes):
            break
    else:
        raise LookupError(f"{log.identity}: {damaged} is no longer damaged")
    if segment is log.segments[-1]:
        log.seal()
    return SegmentRepair(
        disk,
        segment,
        leader_epochs or log.epochs,
        index_interval=log.settings.index_interval_bytes,
    )


async def finish_repair(disk: Disk, log: Log, repair: SegmentRepair) -> None:
    """Check the replacement, swap it in by rename, make that durable.

    Raises CorruptMessage when the replacement is not whole, LookupError when the segment has
    changed meanwhile, StorageError when the log failed or was closed, OSError. The old file stays
    in place in each of these cases.
    """
    replaced = await repair.finish()
    await _forget_size(disk, log, repair.damaged)
    try:
        log.adopt(repair.damaged, replaced)
    except (LookupError, StorageError):
        replaced.segment.file.close()
        with contextlib.suppress(OSError):  # a failed disk: opening the log removes it
            disk.remove(replaced.path)
        raise
    await disk.fsync_dir(log.path)
    log.mark.reach(log.marked)  # the newest epoch may have been lost
    await write_damage(disk, log)
    await rebuild_producers(log)


async def _forget_size(disk: Disk, log: Log, segment: Segment) -> None:
    """It is about to be another's, compacted at other times (``compacted_sizes.py``). Raises
    OSError."""
    async with log.notes_lock:
        known = log.compaction.rewritten
        left = compacted_sizes.without(known, segment.base_offset)
        if left != known:
            state = replace(log.compaction, rewritten=left)
            await compaction_file.write(disk, log.path, log.identity.owner, state)
            log.compaction = state


async def rebuild_producers(log: Log) -> None:
    """Let the table see all batches that it has yet to see, a slice at a time: a log may be of any
    size. Until that is done ``known_to`` says so. Raises CorruptMessage, StorageError."""
    index = log.producers.transactions
    while index.known_to is not None:
        if log.failed is not None:
            raise StorageError(f"{log.identity}: {log.failed}")
        end = log.log_end_offset
        if index.known_to >= end:
            index.known_to = None
            return
        index.known_to = replay_some(log.segments, log.producers, index.known_to, end)
        await trio.lowlevel.checkpoint()
