"""The record batch: building one, and judging what a client sent.

The unit of everything: clients build batches, leaders stamp them, logs and replicas keep their
bytes (layout in ``batch_header.py``, which this module re-exports; records in ``records.py``).
Clients build batches of at most 1 MiB; a single larger record rides alone (DESIGN 1.4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.errors import InvalidRecord, MessageTooLarge, UnsupportedCompression
from paceline.types import MAX_BATCH_BYTES, Compression
from paceline.wire.batch_header import (
    APPEND_TIME,
    COMPRESSION_MASK,
    CONTROL,
    DELETE_HORIZON,
    EXTENDED,
    EXTENSION_BYTES,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    MAX_STORED_BATCH_BYTES,
    TRANSACTIONAL,
    BatchExtension,
    BatchHeader,
    Buffer,
    PayloadKind,
    ProducerNamespace,
    TimestampType,
    TruncatedBatch,
    batch_crc,
    check_crc,
    iter_batches,
    iter_range,
    pack_header,
    read_extension,
    read_header,
    seal,
    stamp,
    verify,
)
from paceline.wire.compression import MAX_DECOMPRESSED_BYTES, compress
from paceline.wire.records import Record, encode_values
from paceline.wire.uncompressed_size import unpacks_beyond

__all__ = [
    "APPEND_TIME",
    "CLIENT_ATTRIBUTES",
    "COMPRESSION_MASK",
    "CONTROL",
    "DELETE_HORIZON",
    "EXTENDED",
    "EXTENSION_BYTES",
    "HEADER_BYTES",
    "LENGTH_OVERHEAD",
    "MAGIC",
    "MAX_CLIENT_BATCHES",
    "MAX_STORED_BATCH_BYTES",
    "TRANSACTIONAL",
    "BatchExtension",
    "BatchHeader",
    "Buffer",
    "PayloadKind",
    "ProducerNamespace",
    "TimestampType",
    "TruncatedBatch",
    "batch_crc",
    "build_batch",
    "build_raw_batch",
    "build_value_batch",
    "checked_batches",
    "iter_batches",
    "iter_range",
    "read_extension",
    "read_header",
    "stamp",
    "validate_client_batches",
    "verify",
]

CLIENT_ATTRIBUTES = COMPRESSION_MASK
"""Attribute bits that any client may set. A caller that has verified a transaction with its
coordinator adds TRANSACTIONAL (DESIGN 1.3)."""

MAX_BATCH_RECORDS = 262_144
"""In one batch of a client. A kilobyte may unpack to millions, which each reader would pay for."""

MAX_CLIENT_BATCHES = 1000
"""For one partition in one request; each costs some 10 us to append, however small it is."""

_MAGIC_AT = 16
_LAST_CODEC = max(Compression)


# --- building -------------------------------------------------------------------------------


def build_batch(
    records: Sequence[Record],
    *,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp_ms: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
    flags: int = 0,
) -> bytearray:
    """One batch of ``records``, at least one, with consecutive offsets from ``base_offset``.

    ``timestamp_ms`` stands in for records that have none (-1); records' own offsets are not read.
    ``flags`` are attribute bits such as TRANSACTIONAL and CONTROL.
    """
    _, stamps, keys, values, headers = zip(*records, strict=True)
    if -1 in stamps:
        stamps = tuple([timestamp_ms if each == -1 else each for each in stamps])
    base = stamps[0]
    payload = encode_values(
        values,
        None if keys.count(None) == len(keys) else keys,
        timestamp_deltas=(
            None if stamps.count(base) == len(stamps) else [each - base for each in stamps]
        ),
        headers=headers if any(headers) else None,
    )
    return build_raw_batch(
        compress(compression, payload) if compression else payload,
        record_count=len(records),
        attributes=compression | flags,
        base_timestamp=base,
        max_timestamp=max(stamps),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def build_value_batch(
    values: Sequence[Buffer | None],
    keys: Sequence[Buffer | None] | None = None,
    *,
    timestamp_ms: int,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """One batch from columns, at least one value: no object is made per record.

    All records carry ``timestamp_ms`` and no headers; ``keys``, if given, is as long as
    ``values``.
    """
    payload = encode_values(values, keys)
    return build_raw_batch(
        compress(compression, payload) if compression else payload,
        record_count=len(values),
        attributes=int(compression),
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def build_raw_batch(
    payload: Buffer,
    *,
    record_count: int,
    last_offset_delta: int | None = None,
    attributes: int = 0,
    base_timestamp: int = -1,
    max_timestamp: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
    extension: BatchExtension | None = None,
) -> bytearray:
    """A batch round bytes that are already encoded, and compressed as ``attributes`` say.

    ``last_offset_delta`` is by default one less than ``record_count``; an empty placeholder
    (DESIGN 3) gives it with ``record_count=0``. ``extension`` sets attribute bit 7.
    """
    behind = b"" if extension is None else extension.to_bytes()
    size = HEADER_BYTES + len(behind) + len(payload)
    if size > MAX_STORED_BATCH_BYTES:
        raise MessageTooLarge(f"batch of {size} bytes exceeds {MAX_STORED_BATCH_BYTES}")
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=size - LENGTH_OVERHEAD,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes if extension is None else attributes | EXTENDED,
        last_offset_delta=record_count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=record_count,
    )
    batch = bytearray(b"").join((pack_header(header), behind, payload))
    seal(batch)
    return batch


# --- judging --------------------------------------------------------------------------------


def validate_client_batches(
    buffer: Buffer,
    *,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    allowed_attributes: int = CLIENT_ATTRIBUTES,
) -> list[BatchHeader]:
    """The headers of the batches in ``buffer``, each of which a client may send as it is.

    Looks at heads, CRCs and what compressed payloads say of their size, never at records.
    ``max_batch_bytes`` bounds the length field of a batch of several records; a single record may
    be as large as the record cap. Raises CorruptMessage (length, CRC), MessageTooLarge (also of
    records that no reader would unpack), UnsupportedCompression, and InvalidRecord for everything
    that is whole but not allowed (DESIGN 1.3): foreign magic, unknown or reserved attribute bits,
    control batches, counts and producer fields that do not fit, no batch at all, more than
    :data:`MAX_CLIENT_BATCHES`.
    """
    headers = list(
        checked_batches(
            buffer, max_batch_bytes=max_batch_bytes, allowed_attributes=allowed_attributes
        )
    )
    if not headers:
        raise InvalidRecord("no batch")
    return headers


def checked_batches(
    buffer: Buffer,
    *,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    allowed_attributes: int = CLIENT_ATTRIBUTES,
) -> Iterator[BatchHeader]:
    """As :func:`validate_client_batches`, one batch at a time; to find none is no error."""
    position = count = 0
    end = len(buffer)
    while position < end:
        count += 1
        if count > MAX_CLIENT_BATCHES:
            raise InvalidRecord(
                f"more than {MAX_CLIENT_BATCHES} batches for one partition: put more into each"
            )
        if end - position >= HEADER_BYTES and buffer[position + _MAGIC_AT] != MAGIC:
            raise InvalidRecord(
                f"batch at byte {position}: magic {buffer[position + _MAGIC_AT]}, "
                f"only {MAGIC} is accepted"
            )
        header = read_header(buffer, position)
        if not _is_allowed(header, allowed_attributes):
            raise InvalidRecord(f"batch at byte {position}: {_refusal(header, allowed_attributes)}")
        if header.batch_length > max_batch_bytes and header.record_count > 1:
            raise MessageTooLarge(
                f"batch at byte {position}: {header.batch_length} bytes in "
                f"{header.record_count} records, limit {max_batch_bytes}"
            )
        if header.attributes & COMPRESSION_MASK > _LAST_CODEC:
            raise UnsupportedCompression(f"batch at byte {position}: codec {header.compression}")
        check_crc(buffer, position, header)
        end_of_batch = position + header.batch_length + LENGTH_OVERHEAD
        if header.attributes & COMPRESSION_MASK and unpacks_beyond(
            header.compression,
            memoryview(buffer)[position + HEADER_BYTES : end_of_batch],
            MAX_DECOMPRESSED_BYTES,
        ):
            raise MessageTooLarge(
                f"batch at byte {position}: {header.record_count} records unpack to more than "
                f"{MAX_DECOMPRESSED_BYTES} bytes, which no reader takes: put fewer into a batch"
            )
        yield header
        position = end_of_batch


def _is_allowed(header: BatchHeader, allowed_attributes: int) -> bool:
    """One expression, for it judges every batch; :func:`_refusal` says what was wrong."""
    count = header.record_count
    return (
        not header.attributes & (~allowed_attributes | CONTROL)
        and header.last_offset_delta == count - 1 >= 0
        and count <= MAX_BATCH_RECORDS
        and (
            header.producer_id == -1
            or (header.producer_id >= 0 <= header.producer_epoch and header.base_sequence >= 0)
        )
    )


def _refusal(header: BatchHeader, allowed_attributes: int) -> str:
    if header.is_control:
        return "control batches are written by brokers only"
    if header.attributes & ~allowed_attributes:
        return f"attributes {header.attributes & 0xFFFF:#06x} outside {allowed_attributes:#06x}"
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        return f"{header.record_count} records with last offset delta {header.last_offset_delta}"
    if header.record_count > MAX_BATCH_RECORDS:
        return f"{header.record_count} records, limit {MAX_BATCH_RECORDS}"
    if header.producer_id < -1:
        return f"producer id {header.producer_id}"
    return (
        f"producer {header.producer_id} with epoch {header.producer_epoch}, "
        f"sequence {header.base_sequence}"
    )
