"""What a consumer hands out, and how it is cut from a fetched slice. Pure: no I/O, no clock."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from paceline.errors import CorruptMessage
from paceline.types import TopicPartition
from paceline.wire.batch_header import BatchHeader, verify
from paceline.wire.native.data import AbortedTransaction
from paceline.wire.records import Header, Record, decode_records

_ABORT = 0


class ConsumedRecord(NamedTuple):
    """One record with its place. A null value is a tombstone."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class ConsumedBatch:
    """One batch as it lies in the log, checksum checked; records are decoded when asked for.

    ``data`` is a view into the fetched frame: keeping it keeps up to one whole fetch in memory.
    ``first_offset .. end_offset`` (exclusive) is the part that the consumer asked for.
    """

    __slots__ = ("at", "data", "end_offset", "first_offset", "header")

    def __init__(
        self,
        at: TopicPartition,
        header: BatchHeader,
        data: memoryview,
        first_offset: int,
        end_offset: int,
    ) -> None:
        self.at = at
        self.header = header
        self.data = data
        self.first_offset = first_offset
        self.end_offset = end_offset

    @property
    def topic(self) -> str:
        return self.at.topic

    @property
    def partition(self) -> int:
        return self.at.partition

    def behind(self, offset: int) -> ConsumedBatch:
        """What lies at ``offset`` and behind it."""
        return ConsumedBatch(self.at, self.header, self.data, offset, self.end_offset)

    def records(self) -> list[Record]:
        """The records asked for. Raises CorruptMessage, UnsupportedCompression."""
        records = decode_records(self.data)
        header = self.header
        if self.first_offset <= header.base_offset and self.end_offset >= header.next_offset:
            return records
        return [each for each in records if self.first_offset <= each.offset < self.end_offset]

    def consumed(self) -> list[ConsumedRecord]:
        """As :meth:`records`, each with its topic and partition."""
        topic, partition = self.at.topic, self.at.partition
        return [ConsumedRecord(topic, partition, *record) for record in self.records()]


class Slice:
    """Fetched bytes of one partition: whole batches, taken one by one.

    ``next_offset`` is the offset that the next batch must hold; a gap or an overlap is corruption,
    because the log is contiguous (wire/DESIGN 3). The first batch may begin before
    ``fetch_offset``; no checksum covers where, but it must lead to the next one, or to
    ``end_offset``.
    """

    def __init__(
        self,
        at: TopicPartition,
        data: memoryview,
        fetch_offset: int,
        end_offset: int,
        aborted: tuple[AbortedTransaction, ...] = (),
    ) -> None:
        self.size_bytes = len(data)
        self._at = at
        self._data = data
        self._position = 0
        self._expected = fetch_offset
        self._end_offset = end_offset
        self._is_first = True
        self._aborted_later = deque(aborted)
        self._aborted_now: set[int] = set()

    @property
    def is_empty(self) -> bool:
        return self._position >= len(self._data)

    @property
    def next_offset(self) -> int:
        """First offset not yet taken."""
        return self._expected

    def take(self, stop_offset: int | None) -> ConsumedBatch | None:
        """The next batch whose records a reader may see, None when no more is here.

        Control batches and those of aborted transactions are passed over. Raises CorruptMessage.
        """
        while not self.is_empty:
            start = self._expected
            header, data = self._next()
            is_hidden = self._is_hidden(header, data)
            self._position += header.size_bytes
            self._expected = header.next_offset
            self._is_first = False
            if is_hidden or header.record_count == 0:
                continue
            end = header.next_offset
            return ConsumedBatch(
                self._at, header, data, start, end if stop_offset is None else min(end, stop_offset)
            )
        return None

    def _next(self) -> tuple[BatchHeader, memoryview]:
        header = verify(self._data, self._position)
        contains = header.base_offset <= self._expected < header.next_offset
        if not contains or (header.base_offset != self._expected and not self._is_first):
            raise CorruptMessage(
                f"{self._at}: batch of offsets {header.base_offset}..{header.next_offset} "
                f"where {self._expected} was expected"
            )
        end = self._position + header.size_bytes
        if self._is_first and header.next_offset != self._begin_at(end):
            raise CorruptMessage(
                f"{self._at}: batch of offsets {header.base_offset}..{header.next_offset} "
                f"before offset {self._begin_at(end)}"
            )
        return header, self._data[self._position : end]

    def _begin_at(self, position: int) -> int:
        """The offset that what lies behind a batch begins with."""
        if position == len(self._data):
            return self._end_offset
        return int.from_bytes(self._data[position : position + 8], "big", signed=True)

    def _is_hidden(self, header: BatchHeader, data: memoryview) -> bool:
        while self._aborted_later and self._aborted_later[0].first_offset <= header.last_offset:
            self._aborted_now.add(self._aborted_later.popleft().producer_id)
        if header.is_control:
            if _is_abort_marker(data):
                self._aborted_now.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborted_now


def _is_abort_marker(data: memoryview) -> bool:
    records = decode_records(data)
    if not records or records[0].key is None or len(records[0].key) < 4:
        raise CorruptMessage("control batch without a marker")
    return int.from_bytes(records[0].key[2:4], "big") == _ABORT
