"""A batch on its way from a producer's caller to a leader: columns first, bytes later.

No I/O and no clock here. Records are kept as columns, because encoding works on columns
(``paceline.wire.records``), and a batch is encoded once, when it is sent for the first time. The
producer id, epoch and sequence are stamped apart from the payload, so that a retry under another
identity changes 61 bytes and a checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import NamedTuple

from paceline.errors import Closed, MessageTooLarge, PacelineError
from paceline.types import Compression, TopicPartition
from paceline.wire.batch_header import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    MAX_STORED_BATCH_BYTES,
    BatchHeader,
    Buffer,
    pack_header,
)
from paceline.wire.checksum import crc32c
from paceline.wire.compression import compress
from paceline.wire.records import Header, encode_values

RECORD_OVERHEAD_BYTES = 28
"""Upper bound of what a record costs beside key, value and headers: five varints and a byte."""
HEADER_OVERHEAD_BYTES = 10
_SEQUENCE_MASK = 0x7FFFFFFF


class RecordMetadata(NamedTuple):
    """Where a record was stored. ``offset`` is -1 when the leader cannot say (acks NONE)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    leader_epoch: int


class BatchMetadata(NamedTuple):
    """Where the ``record_count`` records from ``base_offset`` on were stored. ``duplicate``: an
    earlier attempt had stored them."""

    topic: str
    partition: int
    base_offset: int
    record_count: int
    leader_epoch: int
    duplicate: bool


class Identity(NamedTuple):
    """Producer id and epoch that a batch is stamped with."""

    producer_id: int
    producer_epoch: int


NO_IDENTITY = Identity(-1, -1)


def estimated_size(key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()) -> int:
    """Upper bound of a record's bytes in a batch."""
    size = RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += HEADER_OVERHEAD_BYTES + 4 * len(name) + (0 if content is None else len(content))
    return size


class Batch:
    """Records of one partition that travel together.

    ``order`` counts batches of a producer; a partition's batches are sent in that order.
    ``place`` counts those that its partition has sent, -1 before.
    ``unknown``: an attempt ended without an answer, so the batch may be in the log.
    ``is_observed``: somebody was told how the batch ended.
    ``contested``: when last sent, an earlier batch of the partition was still unresolved.
    ``reserved_bytes`` is what the batch occupies of the producer's buffer.
    """

    __slots__ = (
        "_headers",
        "_keys",
        "_on_done",
        "_stamps",
        "_values",
        "at",
        "attempts",
        "contested",
        "count",
        "deadline",
        "due_at",
        "encoded",
        "error",
        "identity",
        "is_closed",
        "is_observed",
        "last_error",
        "order",
        "place",
        "reserved_bytes",
        "result",
        "sequence",
        "unknown",
    )

    def __init__(self, at: TopicPartition, order: int, *, due_at: float, deadline: float) -> None:
        self.at = at
        self.order = order
        self.due_at = due_at
        self.deadline = deadline
        self.count = 0
        self.reserved_bytes = 0
        self.is_closed = False
        self.is_observed = False
        self.encoded: EncodedBatch | None = None
        self.identity = NO_IDENTITY
        self.sequence = -1
        self.place = -1
        self.attempts = 0
        self.last_error: PacelineError | None = None
        self.unknown = False
        self.contested = False
        self.result: BatchMetadata | None = None
        self.error: PacelineError | None = None
        self._values: list[bytes | None] = []
        self._keys: list[bytes | None] | None = None
        self._stamps: list[int] = []
        self._headers: list[Sequence[Header]] | None = None
        self._on_done: list[Callable[[], None]] = []

    # --- filling ----------------------------------------------------------------------------------

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp_ms: int,
        size: int,
    ) -> int:
        """Add a record of estimated ``size``; returns its place in the batch."""
        place = self.count
        if key is not None and self._keys is None:
            self._keys = [None] * place
        if headers and self._headers is None:
            self._headers = [()] * place
        self._values.append(value)
        self._stamps.append(timestamp_ms)
        if self._keys is not None:
            self._keys.append(key)
        if self._headers is not None:
            self._headers.append(headers)
        self.count = place + 1
        self.reserved_bytes += size
        return place

    def extend(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        timestamp_ms: int,
        size: int,
    ) -> None:
        """Add records of estimated ``size`` together, without headers."""
        added = len(values)
        if keys is not None and self._keys is None:
            self._keys = [None] * self.count
        self._values.extend(values)
        self._stamps.extend(repeat(timestamp_ms, added))
        if self._keys is not None:
            self._keys.extend(repeat(None, added) if keys is None else keys)
        if self._headers is not None:
            self._headers.extend(repeat((), added))
        self.count += added
        self.reserved_bytes += size

    def encode(self, compression: Compression) -> None:
        """Turn the columns into bytes; closes the batch. May take long: about 1 us a record, and
        the codec's time. Raises MessageTooLarge."""
        self.is_closed = True
        stamps = self._stamps
        base = stamps[0]
        uniform = stamps.count(base) == len(stamps)
        payload: Buffer = encode_values(
            self._values,
            self._keys,
            timestamp_deltas=None if uniform else [stamp - base for stamp in stamps],
            headers=self._headers,
        )
        if compression is not Compression.NONE:
            payload = compress(compression, payload)
        self.encoded = EncodedBatch(payload, self.count, int(compression), base, max(stamps))
        self._values, self._keys, self._stamps, self._headers = [], None, [], None

    # --- resolving --------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        return self.result is not None or self.error is not None

    def succeed(self, base_offset: int, leader_epoch: int, *, duplicate: bool) -> None:
        topic, partition = self.at.topic, self.at.partition
        self.result = BatchMetadata(
            topic, partition, base_offset, self.count, leader_epoch, duplicate
        )
        self._resolved()

    def fail(self, error: PacelineError) -> None:
        self.error = error
        self._resolved()

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once when the batch is resolved; at once when it is already."""
        if self.is_done:
            callback()
        else:
            self._on_done.append(callback)

    def _resolved(self) -> None:
        callbacks, self._on_done = self._on_done, []
        for callback in callbacks:
            callback()

    def metadata(self) -> BatchMetadata:
        """The result of a resolved batch. Raises what the batch failed with."""
        self.is_observed = True
        if self.error is not None:
            # The same error is raised to everyone who waits for the batch.
            raise self.error.with_traceback(None)
        if self.result is None:
            raise Closed(f"{self.at}: the batch is not resolved")
        return self.result


class EncodedBatch:
    """A batch's payload and the facts of its header; the producer's fields come by :meth:`head`."""

    __slots__ = ("attributes", "base_timestamp", "count", "max_timestamp", "payload")

    def __init__(
        self, payload: Buffer, count: int, attributes: int, base_timestamp: int, max_timestamp: int
    ) -> None:
        size = HEADER_BYTES + len(payload)
        if size > MAX_STORED_BATCH_BYTES:
            raise MessageTooLarge(f"batch of {size} bytes, limit {MAX_STORED_BATCH_BYTES}")
        self.payload = payload
        self.count = count
        self.attributes = attributes
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp

    @property
    def size_bytes(self) -> int:
        return HEADER_BYTES + len(self.payload)

    def head(self, identity: Identity, sequence: int, flags: int = 0) -> bytes:
        """The 61 bytes before the payload, checksum included. ``flags`` are further attributes."""
        header = BatchHeader(
            base_offset=0,
            batch_length=self.size_bytes - LENGTH_OVERHEAD,
            leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=self.attributes | flags,
            last_offset_delta=self.count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
            record_count=self.count,
        )
        covered = memoryview(pack_header(header))[CRC_START:]
        return pack_header(header._replace(crc=crc32c(self.payload, crc32c(covered))))


def sequence_after(sequence: int, count: int) -> int:
    """The sequence that follows ``count`` records from ``sequence`` on (wraps at 2**31)."""
    return (sequence + count) & _SEQUENCE_MASK
