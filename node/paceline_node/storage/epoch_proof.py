"""Whether the epoch table on disk is as new as the recovery point beside it.

The table is written before the point, so it covers every batch below. An older one, with a good
checksum, lacks what began since; whoever leads with it names a wrong end of an epoch, and has
others cut what they hold. The last batches below the point show it.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Sequence

import trio

from paceline.errors import CorruptMessage
from paceline.wire.batch_header import BatchHeader, verify
from paceline_node.env import Disk
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.log_segment import Boundary, Segment
from paceline_node.storage.segment_scan import SLICE_BATCHES


class Word(enum.Enum):
    """What the last two batches say of the table."""

    FITS = enum.auto()
    DOUBTFUL = enum.auto()
    """One batch disagrees: its epoch rotted, or it alone is newer than the table."""
    OLDER = enum.auto()


async def compare(disk: Disk, segments: Sequence[Segment], table: EpochCache, until: int) -> Word:
    """Ask the last two batches below ``until``; unreadable ones say nothing. Raises OSError."""
    try:
        last = await batch_with(disk, segments, until - 1)
        if last is None or _fits(table, last):
            return Word.FITS
        before = await batch_with(disk, segments, last.base_offset - 1)
    except CorruptMessage:
        return Word.FITS
    return Word.DOUBTFUL if before is not None and _fits(table, before) else Word.OLDER


def _fits(table: EpochCache, header: BatchHeader) -> bool:
    # By its end: the table begins inside a batch that the log start lies in.
    return table.epoch_at(header.last_offset) == header.leader_epoch


async def batch_with(disk: Disk, segments: Sequence[Segment], offset: int) -> BatchHeader | None:
    """The batch that holds an offset; None where there is none. Raises CorruptMessage."""
    within = [segment for segment in segments if segment.base_offset <= offset]
    if not within:
        return None
    segment = await indexed(disk, within[-1])
    start, position = segment.offsets.floor(offset)
    for count, step in enumerate(segment.walk(Boundary(position, start)), 1):
        if step.next_offset > offset:
            return verify(segment.file.pread(step.end - step.position, step.position))
        if count % SLICE_BATCHES == 0:
            await trio.lowlevel.checkpoint()
    return None


async def indexed(disk: Disk, segment: Segment) -> Segment:
    """The same file with its indexes, to look into before it is opened for good; without them where
    it was begun since the last checkpoint. Raises OSError."""
    found = Segment(segment.directory, segment.base_offset, segment.file)
    found.size = found.file.size()
    with contextlib.suppress(CorruptMessage):
        await found.read_indexes(disk)
    return found
