"""One record in two protocols: what of a Cursus record is a log's record, and back (DESIGN 4).

======================= =========================================================================
Cursus                  log, V1, native, Kafka
======================= =========================================================================
key                     key; an empty one is a null key, and a null or empty key shows as empty
payload                 value; a null value (a tombstone) shows as empty
producer id             header ``cursus.producer``, absent when empty
sequence, epoch         headers ``cursus.seq`` and ``cursus.epoch``, decimal, absent when 0
event type, metadata    headers ``cursus.event_type`` and ``cursus.metadata``, absent when empty
schema version,         headers ``cursus.schema_version`` and ``cursus.aggregate_version``, decimal,
aggregate version       absent when 0
offset                  offset
nothing                 timestamp; all other headers, which Cursus does not see
======================= =========================================================================

A ``cursus.`` header that holds what Cursus could not have written is another program's and hidden
like the rest. What cannot be shown at all (a key of more than 65,535 bytes) is an error that names
its offset, never a silent skip.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from paceline.errors import InvalidRecord
from paceline.wire.cursus.batch import MAX_STRING_BYTES, CursusRecord
from paceline.wire.records import NO_HEADERS, Header, Record, encode_headers, encode_varint

_PRODUCER = "cursus.producer"
_SEQUENCE = "cursus.seq"
_EPOCH = "cursus.epoch"
_EVENT_TYPE = "cursus.event_type"
_SCHEMA_VERSION = "cursus.schema_version"
_AGGREGATE_VERSION = "cursus.aggregate_version"
_METADATA = "cursus.metadata"
_MAX_DIGITS = 19
_SEQUENCE_HEADS = tuple(
    encode_headers([(_SEQUENCE, bytes(length))])[1 : -length or None] for length in range(20)
)
"""Name and length of the header of a number with so many digits."""


class Columns(NamedTuple):
    """Records as ``records.encode_values`` takes them. ``keys`` and ``headers`` are None when no
    record has any; headers are encoded, for most of a producer's are the same bytes."""

    values: list[bytes]
    keys: list[bytes | None] | None
    headers: list[bytes] | None


def columns_of(records: Sequence[CursusRecord]) -> Columns:
    """Cursus records as columns of a log's batch."""
    values: list[bytes] = []
    keys: list[bytes | None] = []
    headers: list[bytes] = []
    around: dict[tuple[bytes, int], tuple[bytes, bytes]] = {}
    for record in records:  # once: they may be made as they are asked for
        values.append(record.payload)
        keys.append(record.key or None)
        headers.append(_encoded_headers(record, around))
    return Columns(
        values,
        None if keys.count(None) == len(keys) else keys,
        None if headers.count(NO_HEADERS) == len(headers) else headers,
    )


def _encoded_headers(
    record: CursusRecord, around: dict[tuple[bytes, int], tuple[bytes, bytes]]
) -> bytes:
    """:func:`headers_of`, encoded. ``around`` remembers what stands before and behind the number
    of a producer's records, which is all that differs between most of them."""
    _, sequence, producer_id, _, epoch, _, event_type, schema, aggregate, metadata = record
    if not sequence or event_type or schema or aggregate or metadata:
        headers = headers_of(record)
        return encode_headers(headers) if headers else NO_HEADERS
    found = around.get((producer_id, epoch))
    if found is None:
        before = [(_PRODUCER, producer_id)] if producer_id else []
        behind = [(_EPOCH, b"%d" % epoch)] if epoch else []
        count = encode_varint(len(before) + 1 + len(behind))
        found = around[producer_id, epoch] = (
            count + encode_headers(before)[1:],
            encode_headers(behind)[1:],
        )
    digits = b"%d" % sequence
    return b"".join((found[0], _SEQUENCE_HEADS[len(digits)], digits, found[1]))


def headers_of(record: CursusRecord) -> tuple[Header, ...]:
    """What of a Cursus record has no place in a log's record but its headers."""
    _, sequence, producer_id, _, epoch, _, event_type, schema, aggregate, metadata = record
    headers: list[Header] = []
    if producer_id:
        headers.append((_PRODUCER, producer_id))
    if sequence:
        headers.append((_SEQUENCE, b"%d" % sequence))
    if epoch:
        headers.append((_EPOCH, b"%d" % epoch))
    if event_type:
        headers.append((_EVENT_TYPE, event_type))
    if schema:
        headers.append((_SCHEMA_VERSION, b"%d" % schema))
    if aggregate:
        headers.append((_AGGREGATE_VERSION, b"%d" % aggregate))
    if metadata:
        headers.append((_METADATA, metadata))
    return tuple(headers)


def record_of(record: CursusRecord, *, timestamp_ms: int = -1) -> Record:
    """A Cursus record as a log's record."""
    return Record(
        record.offset, timestamp_ms, record.key or None, record.payload, headers_of(record)
    )


def cursus_of(record: Record) -> CursusRecord:
    """A log's record as Cursus shows it. Raises InvalidRecord naming the offset."""
    offset, _, key, value, headers = record
    if key is not None and len(key) > MAX_STRING_BYTES:
        raise InvalidRecord(
            f"offset {offset}: the key has {len(key)} bytes, Cursus shows {MAX_STRING_BYTES}"
        )
    if not headers:
        return CursusRecord(offset, key=key or b"", payload=value or b"")
    sequence = epoch = schema = aggregate = 0
    producer_id = event_type = metadata = b""
    for name, content in headers:
        if content is None:
            continue
        match name:
            case "cursus.seq":
                sequence = _number(content, 0, 2**63 - 1)
            case "cursus.producer":
                producer_id = _text(content)
            case "cursus.epoch":
                epoch = _number(content, -(2**63), 2**63 - 1)
            case "cursus.event_type":
                event_type = _text(content)
            case "cursus.schema_version":
                schema = _number(content, 0, 2**31 - 1)
            case "cursus.aggregate_version":
                aggregate = _number(content, 0, 2**63 - 1)
            case "cursus.metadata":
                metadata = _text(content)
    return CursusRecord(
        offset=offset,
        sequence=sequence,
        producer_id=producer_id,
        key=key or b"",
        epoch=epoch,
        payload=value or b"",
        event_type=event_type,
        schema_version=schema,
        aggregate_version=aggregate,
        metadata=metadata,
    )


def _text(content: bytes) -> bytes:
    return content if len(content) <= MAX_STRING_BYTES else b""


def _number(content: bytes, low: int, high: int) -> int:
    """A decimal number within its bounds; 0, which is none, for anything else."""
    digits = content.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > _MAX_DIGITS:
        return 0
    number = int(content)
    return number if low <= number <= high else 0
