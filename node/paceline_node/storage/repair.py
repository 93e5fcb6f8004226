"""Putting back what was damaged (replication/DESIGN 6.2).

The leader still has the damaged range. Its batches are written, between the good parts of the old
file, to ``<segment>.log.replacement``; that file is checked from end to end and renamed over the
old one. Nothing of the old file is touched before, so a crash at any moment leaves the old damage
or the repaired segment.
"""

from __future__ import annotations

from functools import partial

import trio

from paceline.errors import CorruptMessage
from paceline.types import NO_EPOCH
from paceline.values import dataclass
from paceline.wire.batch import BatchHeader, verify
from paceline_node.env import Disk, File
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.log_segment import Boundary, Hole, Segment
from paceline_node.storage.segment_scan import SLICE_BATCHES, ScanRules, SegmentScan

REPLACEMENT = ".replacement"
"""Suffix of a segment that a repair is writing; recovery removes it."""

_COPY = 512 * 1024
_UNSYNCED = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Replaced:
    """A whole segment, its file still under the temporary name, synced.

    ``epochs`` are its own; ``truncations`` is the damaged segment's count that it was made from.
    """

    segment: Segment
    path: str
    epochs: EpochCache
    truncations: int


class SegmentRepair:
    """The replacement of one segment with one or more holes, in the order of the file.

    Feed it each hole's batches (:meth:`fill`) while ``missing`` is not None, then :meth:`finish`;
    :meth:`abandon` in any case. ``leader_epochs`` is the leader's epoch table, the log's own where
    that is not at hand: batches of another epoch than it says are refused.
    """

    def __init__(
        self, disk: Disk, damaged: Segment, leader_epochs: EpochCache, *, index_interval: int
    ) -> None:
        self._disk = disk
        self.damaged = damaged
        self._end = Boundary(damaged.size, damaged.next_offset)
        self._truncations = damaged.truncations
        self._epochs = leader_epochs
        self._interval = index_interval
        self._holes = sorted(damaged.holes)
        self._copied = 0
        self._path = damaged.path() + REPLACEMENT
        disk.remove(self._path)
        self._file: File | None = disk.create(self._path)
        self._next_offset = self._holes[0].start if self._holes else damaged.next_offset

    @property
    def missing(self) -> tuple[int, int] | None:
        """(first offset, end offset) of what :meth:`fill` needs next; None: nothing more."""
        return (self._next_offset, self._holes[0].end) if self._holes else None

    async def fill(self, data: memoryview) -> None:
        """Write batches of the damaged range, as the leader sends them.

        Raises CorruptMessage when they do not begin at ``missing``, reach behind the hole, fail
        their CRC, or carry another epoch than the leader's table; nothing is written then.
        """
        hole = self._open_hole()
        position, expected, checked = 0, self._next_offset, 0
        while position < len(data):
            header = verify(data, position)
            self._check(header, expected, hole)
            expected = header.next_offset
            position += header.size_bytes
            checked += 1
            if checked % SLICE_BATCHES == 0:
                await trio.lowlevel.checkpoint()
        file = self._writable()
        if self._copied < hole.position:
            await self._copy(file, hole.position)
        file.append([data])
        self._next_offset = expected
        if expected == hole.end:
            self._holes.pop(0)
            self._copied = hole.end_position
            if self._holes:
                self._next_offset = self._holes[0].start

    async def finish(self) -> Replaced:
        """Copy the rest, sync, and check the whole file. Raises CorruptMessage, and LookupError
        when the damaged segment was cut meanwhile."""
        if self._holes:
            raise CorruptMessage(
                f"{self.damaged.path()}: offset {self._next_offset} is still missing"
            )
        file = self._writable()
        await self._copy(file, self._end.position)
        await self._disk.sync([file])
        fresh = Segment(self.damaged.directory, self.damaged.base_offset, file)
        fresh.created_ms = self.damaged.created_ms
        fresh.is_created_proven = self.damaged.is_created_proven
        epochs = EpochCache()
        end = self._end.offset
        rules = ScanRules(end, self._epochs, end, end)
        scan = SegmentScan(
            file,
            file.size(),
            Boundary(0, fresh.base_offset),
            rules,
            last_epoch=-1,
            visit=partial(self._note, fresh, epochs),
            visit_hole=self._refuse,
        )
        result = await scan.run()
        if result.next_offset != end or result.position != file.size():
            raise CorruptMessage(f"{self._path}: ends at offset {result.next_offset}")
        self._file = None
        return Replaced(fresh, self._path, epochs, self._truncations)

    def abandon(self) -> None:
        """Close and remove the unfinished file; idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._disk.remove(self._path)

    def _open_hole(self) -> Hole:
        if not self._holes:
            raise CorruptMessage(f"{self.damaged.path()}: nothing is missing")
        return self._holes[0]

    def _writable(self) -> File:
        if self._file is None:
            raise CorruptMessage(f"{self._path}: the repair has ended")
        return self._file

    def _check(self, header: BatchHeader, expected: int, hole: Hole) -> None:
        known = self._epochs.epoch_at(header.base_offset)
        if (
            header.base_offset != expected
            or header.next_offset > hole.end
            or known not in (NO_EPOCH, header.leader_epoch)
        ):
            raise CorruptMessage(
                f"{self.damaged.path()}: batch {header.base_offset}..{header.last_offset} of epoch "
                f"{header.leader_epoch} does not fit offset {expected}, epoch {known}"
            )

    async def _copy(self, file: File, end: int) -> None:
        unsynced = 0
        while self._copied < end:
            data = await self.damaged.file.read(min(_COPY, end - self._copied), self._copied)
            if self.damaged.truncations != self._truncations:
                raise LookupError(f"{self.damaged.path()} was cut meanwhile")
            file.append([data])
            self._copied += len(data)
            unsynced += len(data)
            if unsynced >= _UNSYNCED:  # a write waits for the disk when too much is not there yet
                await self._disk.sync([file])
                unsynced = 0

    def _note(
        self, segment: Segment, epochs: EpochCache, header: BatchHeader, position: int
    ) -> None:
        epochs.assign(header.leader_epoch, header.base_offset)
        segment.note(header, header.base_offset, position, self._interval)

    def _refuse(self, hole: Hole, reason: str) -> None:
        raise CorruptMessage(f"{self._path}: offset {hole.start}: {reason}")
