"""The head of a record batch: 61 bytes, and 56 more when the batch is extended.

Big-endian; the same bytes in memory, on disk and between nodes (DESIGN 1.1)::

     0           8        12       16  17       21   23
    +-----------+--------+--------+---+--------+----+--------+
    | i64       | i32    | i32    |i8 | u32    |i16 | i32    |
    | base      | batch  | leader |mag| CRC-   |attr| last   |
    | offset    | length | epoch  |=2 | 32C    |    | offset |
    |           |        |        |   |        |    | delta  |
    +-----------+--------+--------+---+--------+----+--------+
    27          35          43          51    53      57      61
    +-----------+-----------+-----------+-----+-------+-------+-----------
    | i64       | i64       | i64       | i16 | i32   | i32   | records
    | base      | max       | producer  |prod.| base  |record | (or the
    | timestamp | timestamp | id        |epoch| seq.  |count  | extension)
    +-----------+-----------+-----------+-----+-------+-------+-----------

    batch length  counts everything behind itself: the whole batch is batch length + 12 bytes
    CRC           covers byte 21 to the end; base offset and leader epoch lie outside, so a
                  leader stamps them without touching record bytes (DESIGN 1.2)
    attributes    bits 0-2 compression | 3 timestamp is append time | 4 transactional
                  | 5 control | 6 base timestamp is a delete horizon | 7 extended | 8-15 zero

Extension, behind the header when bit 7 is set (DESIGN 2.1); v2's producer fields are then -1::

    61   62    63     64   65          81      89         97         105        113     117
    +----+-----+------+----+-----------+-------+----------+----------+----------+-------+--
    | u8 | u8  | u8   | u8 | 16 bytes  | i64   | i64      | i64      | i64      | i32   |
    | v1 |kind |name- | 0  | producer  |prod.  | first    | last     | base     | event |
    |    |     |space |    | key       |epoch  | sequence | sequence | position | count |
    +----+-----+------+----+-----------+-------+----------+----------+----------+-------+--

Here belong reading, stamping and checking heads; nothing here looks at a record. Source of the v2
layout: KIP-98 and Kafka's message format documentation.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import NamedTuple

from paceline.errors import CorruptMessage
from paceline.types import MAX_RECORD_BYTES
from paceline.wire.checksum import crc32c

Buffer = bytes | bytearray | memoryview

LENGTH_OVERHEAD = 12
"""Bytes of a batch that its length field does not count."""
HEADER_BYTES = 61
EXTENSION_BYTES = 56
CRC_START = 21
MAGIC = 2
MAX_STORED_BATCH_BYTES = MAX_RECORD_BYTES + 64 * 1024
"""No batch is larger than this, anywhere: the largest record and its envelope (DESIGN 1.4)."""

COMPRESSION_MASK = 0x07
APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
EXTENDED = 0x80

_HEADER = struct.Struct(">qiibIhiqqqhii")
# Of it, what a walk over batches looks at.
_OUTLINE = struct.Struct(">qiibIhi")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_AT = 12
_CRC = struct.Struct(">I")
_CRC_AT = 17
_EXTENSION = struct.Struct(">BBBB16sqqqqi")
_EXTENSION_VERSION = 1
_MAX_OFFSET = 2**63 - 1


class TimestampType(enum.IntEnum):
    """Who set the records' timestamps."""

    CREATE = 0
    APPEND = 1


class BatchHeader(NamedTuple):
    """The 61 bytes of one batch, decoded. Immutable; holds no reference to the buffer."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record (inclusive)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """First offset behind this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapped at 2**31; -1 without a producer."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> int:
        """Codec id 0..7; ids above 4 name no codec (see ``Compression``)."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.APPEND if self.attributes & APPEND_TIME else TimestampType.CREATE

    @property
    def has_producer(self) -> bool:
        """Whether v2's own producer fields are in use (an extended batch has its own)."""
        return self.producer_id >= 0

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_extended(self) -> bool:
        return bool(self.attributes & EXTENDED)

    @property
    def payload_start(self) -> int:
        """Where the payload begins, relative to the batch."""
        return HEADER_BYTES + EXTENSION_BYTES if self.attributes & EXTENDED else HEADER_BYTES


class PayloadKind(enum.IntEnum):
    """What lies behind an extension."""

    RECORDS = 0
    EVENTS = 1
    SEAL = 2
    TRUNCATE = 3
    EXPIRE = 4
    RAW = 5


class ProducerNamespace(enum.IntEnum):
    """Whose numbering an extension's producer key belongs to."""

    NONE = 0
    CURSUS = 1
    SEGMENT_SEED = 2
    SEGMENT_PRAVEGA = 3


class BatchExtension(NamedTuple):
    """The 56 bytes behind an extended batch's header (DESIGN 2.1)."""

    kind: PayloadKind
    namespace: ProducerNamespace
    producer_key: bytes
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    base_position: int
    event_count: int

    def to_bytes(self) -> bytes:
        """The 56 bytes."""
        return _EXTENSION.pack(
            _EXTENSION_VERSION,
            self.kind,
            self.namespace,
            0,
            self.producer_key,
            self.producer_epoch,
            self.first_sequence,
            self.last_sequence,
            self.base_position,
            self.event_count,
        )


class TruncatedBatch(CorruptMessage):
    """A batch begins here but its end is not in the buffer.

    ``needed_bytes`` is the size to have from the batch's start on before trying again: the header's
    61 bytes when not even those are there, the whole batch otherwise. The length it is taken from
    has been checked against its limits, but not by the CRC.
    """

    def __init__(self, message: str, needed_bytes: int) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at ``position``, whose bytes are all in ``buffer``.

    Every number that others rely on is within its limits afterwards; the CRC has not been looked
    at. Raises TruncatedBatch, or CorruptMessage naming the field.
    """
    available = len(buffer) - position
    if available < HEADER_BYTES:
        raise TruncatedBatch(
            f"batch at byte {position}: {available} bytes, a header has {HEADER_BYTES}",
            HEADER_BYTES,
        )
    fields = _HEADER.unpack_from(buffer, position)
    header = BatchHeader._make(fields)
    base_offset, batch_length, _, magic, _, attributes, last_delta = fields[:7]
    size = batch_length + LENGTH_OVERHEAD
    if (
        magic != MAGIC
        or size < (HEADER_BYTES + EXTENSION_BYTES if attributes & EXTENDED else HEADER_BYTES)
        or size > MAX_STORED_BATCH_BYTES
        or last_delta < 0
        or not 0 <= base_offset <= _MAX_OFFSET - 1 - last_delta
        or not 0 <= header.record_count <= last_delta + 1
    ):
        raise CorruptMessage(f"batch at byte {position}: {_bad_field(header)}")
    if size > available:
        raise TruncatedBatch(f"batch at byte {position}: {available} of {size} bytes", size)
    return header


def outline(buffer: Buffer, position: int) -> tuple[int, int, int, int]:
    """(size, attributes, base offset, next offset) of the batch at ``position`` whose header, but
    maybe no more, is in ``buffer``: for walks over stored batches. Raises CorruptMessage for a size
    that no batch has."""
    base_offset, batch_length, _, _, _, attributes, last_delta = _OUTLINE.unpack_from(
        buffer, position
    )
    size = batch_length + LENGTH_OVERHEAD
    if not HEADER_BYTES <= size <= MAX_STORED_BATCH_BYTES:
        raise CorruptMessage(f"batch at byte {position}: size of {size} bytes")
    return size, attributes, base_offset, base_offset + last_delta + 1


def outline_with_crc(buffer: Buffer, position: int) -> tuple[int, int, int, int, int]:
    """As :func:`outline`, and the CRC that the header names: for walks that check what they pass.
    Raises CorruptMessage for a batch of another format, too, of which nothing is known."""
    base_offset, batch_length, _, magic, crc, attributes, last_delta = _OUTLINE.unpack_from(
        buffer, position
    )
    size = batch_length + LENGTH_OVERHEAD
    if magic != MAGIC:
        raise CorruptMessage(f"batch at byte {position}: magic {magic}, expected {MAGIC}")
    if not HEADER_BYTES <= size <= MAX_STORED_BATCH_BYTES:
        raise CorruptMessage(f"batch at byte {position}: size of {size} bytes")
    return size, attributes, base_offset, base_offset + last_delta + 1, crc


def _bad_field(header: BatchHeader) -> str:
    if header.magic != MAGIC:
        return f"magic {header.magic}, expected {MAGIC}"
    if not header.payload_start <= header.size_bytes <= MAX_STORED_BATCH_BYTES:
        return (
            f"size of {header.size_bytes} bytes outside "
            f"{header.payload_start}..{MAX_STORED_BATCH_BYTES}"
        )
    if header.last_offset_delta < 0:
        return f"last offset delta {header.last_offset_delta} is negative"
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        return f"{header.record_count} records in {header.last_offset_delta + 1} offsets"
    return f"base offset {header.base_offset} outside its range"


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Every batch from ``position`` to the end of ``buffer``, as (position, header).

    Raises as :func:`read_header` at the first batch that is cut or out of limits, after those
    before it were given. CRCs are not checked (:func:`verify`).
    """
    end = len(buffer)
    while position < end:
        header = read_header(buffer, position)
        yield position, header
        position += header.size_bytes


def iter_range(
    buffer: Buffer, base_offset: int, next_offset: int
) -> Iterator[tuple[int, BatchHeader]]:
    """As :func:`iter_batches`, of a range of a log that holds ``base_offset..next_offset``.

    No checksum covers a batch's base offset, but a log has no gaps (DESIGN 3): raises
    CorruptMessage, too, where a batch does not begin where the one before ended.
    """
    expected = base_offset
    for position, header in iter_batches(buffer):
        if header.base_offset != expected:
            raise CorruptMessage(
                f"batch at byte {position}: base offset {header.base_offset}, expected {expected}"
            )
        expected = header.next_offset
        yield position, header
    if expected != next_offset:
        raise CorruptMessage(f"batches end at offset {expected}, expected {next_offset}")


def verify(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Check the CRC of the batch at ``position`` and return its header.

    Raises CorruptMessage naming expected and found, or as :func:`read_header`.
    """
    header = read_header(buffer, position)
    check_crc(buffer, position, header)
    return header


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Check the CRC of the batch at ``position``, whose header was read already. Raises
    CorruptMessage naming expected and found."""
    found = batch_crc(buffer, position, header.batch_length + LENGTH_OVERHEAD)
    if found != header.crc:
        raise CorruptMessage(
            f"batch at byte {position}, base offset {header.base_offset}: "
            f"CRC-32C {found:08x}, header says {header.crc:08x}"
        )


def batch_crc(buffer: Buffer, position: int, size: int) -> int:
    """CRC-32C over what the batch's CRC covers: byte 21 to its end."""
    with memoryview(buffer) as view, view[position + CRC_START : position + size] as covered:
        return crc32c(covered)


def stamp(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Write base offset and leader epoch in place; both lie outside the CRC."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_AT, leader_epoch)


def seal(batch: bytearray) -> None:
    """Write the CRC of the one batch that fills ``batch``."""
    _CRC.pack_into(batch, _CRC_AT, batch_crc(batch, 0, len(batch)))


def read_extension(buffer: Buffer, position: int = 0) -> BatchExtension:
    """The extension of the extended batch at ``position``.

    Raises CorruptMessage for an unknown version, kind or
    namespace, and where the header denies an extension.
    """
    header = read_header(buffer, position)
    if not header.is_extended:
        raise CorruptMessage(f"batch at byte {position} has no extension")
    return _unpack_extension(buffer, position)


def read_head(buffer: Buffer, position: int = 0) -> tuple[BatchHeader, BatchExtension | None]:
    """Header and extension (None: not extended) of a batch of which no more than its first 117
    bytes need be there. Raises as :func:`read_header` and :func:`read_extension`."""
    try:
        header = read_header(buffer, position)
    except TruncatedBatch:
        if len(buffer) - position < HEADER_BYTES + EXTENSION_BYTES:
            raise
        # Its length holds, only its payload is not here.
        header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
    return header, _unpack_extension(buffer, position) if header.is_extended else None


def _unpack_extension(buffer: Buffer, position: int) -> BatchExtension:
    version, kind, namespace, zero, *rest = _EXTENSION.unpack_from(buffer, position + HEADER_BYTES)
    if version != _EXTENSION_VERSION or zero != 0:
        raise CorruptMessage(f"batch at byte {position}: extension version {version}.{zero}")
    try:
        return BatchExtension(PayloadKind(kind), ProducerNamespace(namespace), *rest)
    except ValueError as error:
        raise CorruptMessage(f"batch at byte {position}: extension: {error}") from None


def pack_header(header: BatchHeader) -> bytes:
    """The 61 bytes of ``header``."""
    return _HEADER.pack(*header)
