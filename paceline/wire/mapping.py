"""One record in two protocols: what of a Cursus record is a log's record, and back (SETTLED P5).

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

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from paceline.errors import InvalidRecord
from paceline.wire.cursus.batch import MAX_STRING_BYTES, CursusRecord
from paceline.wire.records import Header, Record

_PRODUCER = "cursus.producer"
_SEQUENCE = "cursus.seq"
_EPOCH = "cursus.epoch"
_EVENT_TYPE = "cursus.event_type"
_SCHEMA_VERSION = "cursus.schema_version"
_AGGREGATE_VERSION = "cursus.aggregate_version"
_METADATA = "cursus.metadata"
_DECIMAL = re.compile(rb"-?[0-9]{1,19}\Z")


class Columns(NamedTuple):
    """Records as ``records.encode_values`` takes them. ``keys`` and ``headers`` are None when no
    record has any."""

    values: list[bytes]
    keys: list[bytes | None] | None
    headers: list[tuple[Header, ...]] | None


def columns_of(records: Sequence[CursusRecord]) -> Columns:
    """Cursus records as columns of a log's batch."""
    keys: list[bytes | None] = [record.key or None for record in records]
    headers = [headers_of(record) for record in records]
    return Columns(
        [record.payload for record in records],
        None if keys.count(None) == len(keys) else keys,
        headers if any(headers) else None,
    )


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
    fields: dict[str, Any] = {}
    for name, content in headers:
        field = _FIELDS.get(name)
        if field is not None and content is not None:
            parsed = field.read(content)
            if parsed is not None:
                fields[field.name] = parsed
    return CursusRecord(offset, key=key or b"", payload=value or b"", **fields)


def _text(content: bytes) -> bytes | None:
    return content if len(content) <= MAX_STRING_BYTES else None


def _number(low: int, high: int) -> Callable[[bytes], int | None]:
    def read(content: bytes) -> int | None:
        if not _DECIMAL.match(content) or not low <= int(content) <= high:
            return None
        return int(content)

    return read


class _Field(NamedTuple):
    name: str
    read: Callable[[bytes], bytes | int | None]


_FIELDS = {
    _PRODUCER: _Field("producer_id", _text),
    _SEQUENCE: _Field("sequence", _number(0, 2**63 - 1)),
    _EPOCH: _Field("epoch", _number(-(2**63), 2**63 - 1)),
    _EVENT_TYPE: _Field("event_type", _text),
    _SCHEMA_VERSION: _Field("schema_version", _number(0, 2**31 - 1)),
    _AGGREGATE_VERSION: _Field("aggregate_version", _number(0, 2**63 - 1)),
    _METADATA: _Field("metadata", _text),
}
