"""Checking and printing logs offline: what ``paceline log verify`` and ``log dump`` run.

Reads only; no lock is needed, and no node may be writing. What belongs here: CRC, offsets, epochs,
torn tails, index entries of one replica; what segments of the segment protocol must hold besides
is ``verify_byte_segment.py``'s. Comparing replicas is ``replica_comparison.py``'s.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable
from dataclasses import field
from functools import partial

from paceline.errors import CorruptMessage
from paceline.values import dataclass
from paceline.wire.batch import BatchHeader, TruncatedBatch, batch_crc, read_header
from paceline_node.env import Disk, File
from paceline_node.storage import damage, epoch_file, producer_file
from paceline_node.storage.checkpoint import read_file
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.file_owner import Owner
from paceline_node.storage.index import OffsetIndex
from paceline_node.storage.log_file import Salvage
from paceline_node.storage.log_segment import INDEX_SUFFIX, Boundary, Hole, parse_name, segment_name
from paceline_node.storage.partition_file import PartitionIdentity, read_metadata
from paceline_node.storage.producers import ProducerTable
from paceline_node.storage.segment_scan import ScanRules, SegmentScan
from paceline_node.storage.verify_byte_segment import SegmentCheck

_EVERYTHING = 1 << 62
_WINDOW = 4 * 1024 * 1024


class Problem(enum.Enum):
    """What kind of finding; ``is_error`` says whether records are affected."""

    DAMAGED = "damaged"
    MISSING = "missing"
    GIVEN_UP = "given-up"
    REPAIRING = "repairing"
    DIVERGED = "diverged"
    METADATA = "metadata"
    TORN_TAIL = "torn-tail"
    EPOCH_TABLE = "epoch-table"
    INDEX = "index"
    SEGMENT = "segment"

    @property
    def is_error(self) -> bool:
        """False for what the next start of the node cuts off or rebuilds by itself, and for what is
        told besides."""
        return self not in _NOTES


_NOTES = frozenset(
    (
        Problem.TORN_TAIL,
        Problem.EPOCH_TABLE,
        Problem.INDEX,
        Problem.GIVEN_UP,
        Problem.REPAIRING,
    )
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong: in which file, from which offset (-1: the file as a whole), and what."""

    problem: Problem
    path: str
    offset: int
    message: str

    def __str__(self) -> str:
        place = f"{self.path} offset {self.offset}" if self.offset >= 0 else self.path
        return f"{self.problem.value}: {place}: {self.message}"


@dataclass(frozen=True, slots=True)
class LogReport:
    """One log as it lies on disk. Offsets: start, end (exclusive)."""

    path: str
    identity: PartitionIdentity | None
    log_start_offset: int
    log_end_offset: int
    batch_count: int
    record_count: int
    size_bytes: int
    findings: tuple[Finding, ...]


async def verify_log(
    disk: Disk, path: str, *, recovery_point: int = 0, log_start: int = 0
) -> LogReport:
    """Verify one log. Below ``recovery_point`` the epoch table must agree with the batches; above
    it the table may lag behind after a crash. What is lost below ``log_start`` was given up. Raises
    OSError."""
    check = _LogCheck(disk, path, recovery_point, log_start)
    await check.run()
    return check.report()


@dataclass(slots=True)
class _LogCheck:
    disk: Disk
    path: str
    recovery_point: int
    log_start: int
    identity: PartitionIdentity | None = None
    owner: Owner | None = None
    expected: int = 0
    first: int = 0
    batches: int = 0
    records: int = 0
    size: int = 0
    epochs: EpochCache = field(default_factory=EpochCache)
    table: EpochCache = field(default_factory=EpochCache)
    findings: list[Finding] = field(default_factory=list)
    snapshots: dict[int, producer_file.Snapshot] = field(default_factory=dict)
    segment: SegmentCheck = field(default_factory=lambda: SegmentCheck(is_whole=True))

    async def run(self) -> None:
        try:
            metadata = await read_metadata(self.disk, self.path)
            self.identity, self.owner = metadata.identity, metadata.owner
        except CorruptMessage as error:
            self._add(Problem.METADATA, self.path, -1, str(error))
        await self._read_tables()
        await self._read_snapshots()
        await self._read_known_damage()
        bases = segment_bases(self.disk, self.path)
        self.first = self.expected = bases[0] if bases else 0
        self.segment = SegmentCheck(is_whole=self.first == 0)
        for index, base in enumerate(bases):
            await self._segment(base, bases[index + 1] if index + 1 < len(bases) else None)
        if self.expected < self.recovery_point:
            self._add(
                Problem.MISSING,
                self.path,
                self.expected,
                f"the log ends here, below its recovery point {self.recovery_point}",
            )

    def report(self) -> LogReport:
        return LogReport(
            path=self.path,
            identity=self.identity,
            log_start_offset=self.first,
            log_end_offset=self.expected,
            batch_count=self.batches,
            record_count=self.records,
            size_bytes=self.size,
            findings=tuple(self.findings),
        )

    async def _read_tables(self) -> None:
        try:
            self.table = await epoch_file.read(self.disk, self.path, self.owner) or EpochCache()
        except CorruptMessage as error:
            self._add(Problem.EPOCH_TABLE, f"{self.path}/{epoch_file.NAME}", -1, str(error))

    async def _read_known_damage(self) -> None:
        """What the node itself has found, and repairs as soon as there is a leader that has it."""
        try:
            known = await damage.read(self.disk, self.path, self.owner)
        except CorruptMessage as error:
            self._add(Problem.METADATA, f"{self.path}/{damage.NAME}", -1, str(error))
            return
        for each in damage.above(known, self.log_start):
            message = f"up to offset {each.end}: the node knows, and repairs it: {each.reason}"
            self._add(Problem.REPAIRING, self.path, each.start, message)

    async def _read_snapshots(self) -> None:
        for offset in producer_file.offsets(self.disk.list(self.path)):
            # A damaged one is passed over here as at the next start.
            with contextlib.suppress(CorruptMessage):
                kept = await producer_file.read(self.disk, self.path, offset, self.owner)
                if kept is not None:
                    self.snapshots[offset] = kept

    async def _segment(self, base: int, end: int | None) -> None:
        name = f"{self.path}/{segment_name(base)}"
        if base > self.expected:
            self._add(
                Problem.MISSING, f"{name}.log", self.expected, f"no batches up to offset {base}"
            )
        index = await self._read_index(name, base)
        file = await self.disk.open(f"{name}.log")
        try:
            self.size += file.size()
            scan = SegmentScan(
                file,
                file.size(),
                Boundary(0, base),
                ScanRules(_EVERYTHING, self.table, self.recovery_point, end),
                last_epoch=self.epochs.last_epoch,
                visit=partial(self._batch, file, index),
                visit_hole=lambda hole, reason: self._hole(f"{name}.log", hole, reason),
            )
            result = await scan.run()
        finally:
            file.close()
        if result.next_offset != _EVERYTHING:
            self.expected = result.next_offset
        for position, offset in sorted(index.items()):
            message = f"the entry for byte {position} leads to no batch"
            self._add(Problem.INDEX, f"{name}{INDEX_SUFFIX}", offset, message)

    async def _read_index(self, name: str, base: int) -> dict[int, int]:
        """Positions to offsets, as the index file has them."""
        content = await read_file(self.disk, f"{name}{INDEX_SUFFIX}")
        if content is None:
            return {}
        try:
            return dict(OffsetIndex.from_bytes(base, content, _EVERYTHING).entries())
        except CorruptMessage as error:
            self._add(Problem.INDEX, f"{name}{INDEX_SUFFIX}", -1, str(error))
            return {}

    def _batch(self, file: File, index: dict[int, int], header: BatchHeader, position: int) -> None:
        self.batches += 1
        self.records += header.record_count
        self.expected = header.next_offset
        self.epochs.assign(header.leader_epoch, header.base_offset)
        if index.get(position) == header.base_offset:
            del index[position]
        if header.is_extended:
            data = memoryview(file.pread(header.size_bytes, position))
            for message in self.segment.batch(header, data):
                self._add(Problem.SEGMENT, file.path, header.base_offset, message)
        if self.segment.has_batches:
            self._check_snapshot(header)

    def _check_snapshot(self, last: BatchHeader) -> None:
        """Hold a snapshot that was taken behind a batch of a segment against the batches."""
        offset = last.next_offset
        snapshot = self.snapshots.get(offset)
        if snapshot is None or snapshot.epoch != last.leader_epoch:
            return  # none, or of another history: never used
        table = ProducerTable()
        table.load(snapshot.table)
        for message in self.segment.snapshot(table):
            path = f"{self.path}/{producer_file.name(offset)}"
            self._add(Problem.SEGMENT, path, offset, message)

    def _hole(self, path: str, hole: Hole, reason: str) -> None:
        if hole.end != _EVERYTHING:
            problem = Problem.MISSING if hole.position == hole.end_position else Problem.DAMAGED
            if hole.end <= self.log_start:
                problem = Problem.GIVEN_UP
            self._add(problem, path, hole.start, f"up to offset {hole.end}: {reason}")
        elif hole.start < self.recovery_point:
            self._add(Problem.DAMAGED, path, hole.start, reason)
        else:
            size = hole.end_position - hole.position
            self._add(Problem.TORN_TAIL, path, hole.start, f"{size} bytes: {reason}")

    def _add(self, problem: Problem, path: str, offset: int, message: str) -> None:
        self.findings.append(Finding(problem, path, offset, message))


def segment_bases(disk: Disk, path: str) -> list[int]:
    """Base offsets of a log's segments, ascending."""
    return sorted(base for name in disk.list(path) if (base := parse_name(name)) is not None)


# --- one segment, batch by batch ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """A batch as it lies in the file. ``data`` is all of it, valid during the visit only."""

    position: int
    header: BatchHeader
    checksum_holds: bool
    data: memoryview


async def dump_segment(disk: Disk, path: str, visit: Callable[[DumpedBatch], None]) -> str | None:
    """Show every batch of a ``.log`` file to ``visit``, in order.

    Returns None at the end of the file, or why the bytes from some place on are no batch. Raises
    OSError.
    """
    file = await disk.open(path)
    cursor = BatchCursor(file)
    try:
        while (batch := await cursor.advance()) is not None:
            visit(batch)
            batch.data.release()
        return cursor.stopped
    finally:
        file.close()


class BatchCursor:
    """Walks a segment file by the batches' own lengths."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._salvage = Salvage(file)  # what the disk cannot give shows as a checksum that fails
        self._position = 0
        self._window = b""
        self._start = 0
        self.stopped: str | None = None
        """Why the walk ended before the end of the file."""

    async def advance(self) -> DumpedBatch | None:
        """The next batch; None at the end or when ``stopped`` is set."""
        while self._position < self._file.size():
            at = self._position - self._start
            try:
                header = read_header(self._window, at)
            except TruncatedBatch as cut:
                if self._position + cut.needed_bytes > self._file.size():
                    self.stopped = f"byte {self._position}: the batch is cut short"
                    return None
                count = max(cut.needed_bytes, _WINDOW)
                self._window = await self._salvage.read(count, self._position)
                self._start = self._position
                continue
            except CorruptMessage as error:
                # The header counts from the window's start, which nobody knows.
                what = str(error).removeprefix(f"batch at byte {at}: ")
                self.stopped = f"byte {self._position}: {what}"
                return None
            position = self._position
            self._position += header.size_bytes
            data = memoryview(self._window)[at : at + header.size_bytes]
            holds = batch_crc(self._window, at, header.size_bytes) == header.crc
            return DumpedBatch(position, header, holds, data)
        return None
