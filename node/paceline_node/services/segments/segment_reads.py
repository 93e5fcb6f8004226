"""Reading segments by byte position (DESIGN 7.1)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from paceline.errors import CorruptMessage, NotLeader, OffsetOutOfRange
from paceline.values import dataclass
from paceline.wire.batch import BatchHeader, read_extension, verify
from paceline_node.replication.partition import Partition, PartitionKey
from paceline_node.storage.byte_positions import batch_at, batch_holding_offset, first_position
from paceline_node.storage.byte_segment_state import DATA_KINDS
from paceline_node.storage.reading import LocalSlice

_INLINE_BYTES = 64 * 1024
_CURSORS = 4096


@dataclass(frozen=True, slots=True)
class SegmentBounds:
    """What may be read: positions ``start..end``; ``end`` is the readable end. ``log_end`` is
    where the leader's log ends, committed or not. ``is_sealed``: nothing comes behind ``end``."""

    start: int
    end: int
    log_end: int
    is_sealed: bool


def bounds_of(partition: Partition) -> SegmentBounds:
    """The bounds now. Raises CorruptMessage where the log is damaged."""
    log = partition.log
    marks = log.producers.marks
    high_watermark = partition.high_watermark
    pending = batch_holding_offset(log, high_watermark)
    end = marks.end_position if pending is None else pending.start
    is_sealed = 0 <= marks.sealed_at < high_watermark
    return SegmentBounds(min(first_position(log), end), end, marks.end_position, is_sealed)


class _Cursor(NamedTuple):
    partition: PartitionKey
    leader_epoch: int
    position: int


class SegmentReads:
    """Reads committed bytes. Remembers where sequential readers go on, so that they never
    search."""

    def __init__(self) -> None:
        # What is committed stays where it is while one node leads, so an entry is true in its
        # leader epoch. After an unclean election another history may lie at these positions.
        self._cursors: OrderedDict[_Cursor, int] = OrderedDict()

    async def read(self, partition: Partition, position: int, max_bytes: int) -> list[memoryview]:
        """Committed bytes from ``position`` on: at least one when there is one, at most
        ``max_bytes`` of log or what is left of one batch. Cancel-safe.

        Raises OffsetOutOfRange when retention has just removed them, NotLeader when another
        leader epoch has just begun, CorruptMessage.
        """
        epoch = partition.leader_epoch
        offset = self._cursors.get(_Cursor(partition.key, epoch, position))
        if offset is None:
            found = batch_at(partition.log, position)
            if found is None or found.start > position:
                raise OffsetOutOfRange(f"{partition}: no byte {position}")
            offset = found.base_offset
        parts: list[memoryview] = []
        while not parts:
            if partition.leader_epoch != epoch:
                raise NotLeader(f"{partition}: another leader epoch began meanwhile")
            read = partition.read(offset, max_bytes, from_follower=True)
            if read.slice is None:
                raise OffsetOutOfRange(f"{partition}: byte {position} is not committed")
            if isinstance(read.slice, LocalSlice) and read.slice.size <= _INLINE_BYTES:
                data = read.slice.read()
            else:
                data = await read.slice.read_async()
            try:
                parts, end = _payloads(read.slice.batches(data), data, position)
            except CorruptMessage:
                partition.suspect(offset)
                raise
            offset = read.slice.next_offset
            self._remember(_Cursor(partition.key, epoch, end), offset)
        return parts

    def _remember(self, key: _Cursor, offset: int) -> None:
        self._cursors[key] = offset
        self._cursors.move_to_end(key)
        if len(self._cursors) > _CURSORS:
            self._cursors.popitem(last=False)


def _payloads(
    batches: Iterable[tuple[int, BatchHeader]], data: bytes, position: int
) -> tuple[list[memoryview], int]:
    """The bytes from ``position`` on in a slice of batches, and the position behind them."""
    view = memoryview(data)
    parts = []
    for at, header in batches:
        verify(data, at)
        extension = read_extension(data, at)
        if extension.kind not in DATA_KINDS:
            continue
        payload = view[at + header.payload_start : at + header.size_bytes]
        skip = max(0, position - extension.base_position)
        if skip < len(payload):
            parts.append(payload[skip:])
            position = extension.base_position + len(payload)
    return parts, position
