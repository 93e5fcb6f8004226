"""A batch without some of its records: what compaction leaves of it (DESIGN 3).

The batch keeps its header, its extension, its offsets, and of its records those that stay, byte for
byte; so the log it lies in has no gap. A batch that loses all of them is an empty placeholder::

    header, attributes without codec, last offset delta as it was, record count 0 | extension | -

Placeholders of one leader epoch in a row may be joined into one, where nothing of them is needed
but the offsets. Only the broker that compacts its own log may make any of this (DESIGN 3).

A batch in which tombstones stay says until when: attribute bit 6 is set and the base timestamp is
that time, the *delete horizon*, in ms (KIP-534). The records' timestamps do not change: their
deltas are written anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from paceline.errors import CorruptMessage
from paceline.types import Compression
from paceline.wire.batch import build_raw_batch
from paceline.wire.batch_header import (
    APPEND_TIME,
    COMPRESSION_MASK,
    DELETE_HORIZON,
    BatchHeader,
    Buffer,
    PayloadKind,
    read_extension,
)
from paceline.wire.compression import MAX_DECOMPRESSED_BYTES, compress, decompress
from paceline.wire.records import encode_varint, read_varint

_LAST_DELTA = 2**31 - 1


class RecordSpan(NamedTuple):
    """One record's place in its batch's uncompressed payload, and what decides about it.

    Its timestamp delta ends at ``rest``. A tombstone has a key and no value.
    """

    start: int
    end: int
    rest: int
    timestamp_delta: int
    offset: int
    key: bytes | None
    is_tombstone: bool


def has_records(header: BatchHeader, buffer: Buffer, position: int = 0) -> bool:
    """Whether the batch's payload is v2 records of clients, at least one."""
    if header.record_count == 0 or header.is_control:
        return False
    return not header.is_extended or read_extension(buffer, position).kind is PayloadKind.RECORDS


def open_payload(header: BatchHeader, buffer: Buffer, position: int = 0) -> bytes:
    """The records' bytes, uncompressed. Raises CorruptMessage, UnsupportedCompression; output is
    bounded. May take long: for a thread where the batch is compressed (DESIGN 5)."""
    start = position + header.payload_start
    with memoryview(buffer) as view, view[start : position + header.size_bytes] as payload:
        return decompress(header.compression, payload, max_bytes=MAX_DECOMPRESSED_BYTES)


def record_spans(header: BatchHeader, body: bytes) -> list[RecordSpan]:
    """Every record in the payload. Raises CorruptMessage naming the batch's offset."""
    try:
        spans, end = _span_loop(header, body)
    except IndexError:
        raise _corrupt(header, "a record runs over the batch's end") from None
    if end != len(body):
        raise _corrupt(header, f"{len(body) - end} bytes behind the last record")
    return spans


def _span_loop(header: BatchHeader, body: bytes) -> tuple[list[RecordSpan], int]:
    """The spans and where the last one ends. Varints of one byte are decoded in place: a call costs
    as much as all the rest."""
    spans: list[RecordSpan] = []
    previous = -1
    at = 0
    for _ in range(header.record_count):
        start = at
        length, at = read_varint(body, at)
        end = at + length
        if length < 0 or end > len(body):
            raise _corrupt(header, f"record of {length} bytes at byte {start}")
        number = body[at + 1]
        if number < 0x80:
            delta, rest = (number >> 1) ^ -(number & 1), at + 2
        else:
            delta, rest = read_varint(body, at + 1)
        offset, at = read_varint(body, rest)
        if not previous < offset <= header.last_offset_delta:
            raise _corrupt(header, f"offset delta {offset} after {previous}")
        previous = offset
        number = body[at]
        if number < 0x80:
            length, at = (number >> 1) ^ -(number & 1), at + 1
        else:
            length, at = read_varint(body, at)
        key = None
        if length >= 0:
            key = body[at : at + length]
            at += length
        if at >= end:
            raise _corrupt(header, f"a key of {length} bytes runs over its record")
        spans.append(
            RecordSpan(
                start,
                end,
                rest,
                delta,
                header.base_offset + offset,
                key,
                # -1 in one byte; a longer form of it is no tombstone and is kept.
                key is not None and body[at] == 1,
            )
        )
        at = end
    return spans, at


def thin(
    header: BatchHeader,
    buffer: Buffer,
    position: int,
    body: bytes,
    kept: Sequence[RecordSpan],
    *,
    horizon_ms: int | None = None,
) -> bytearray:
    """The batch at ``position`` of ``buffer`` with the records ``kept`` of its uncompressed
    payload ``body``, in order; compressed as it was. ``horizon_ms`` sets its delete horizon."""
    base = header.base_timestamp
    attributes = header.attributes
    if horizon_ms is not None and kept:
        payload = b"".join(_moved(body, kept, base - horizon_ms))
        base = horizon_ms
        attributes |= DELETE_HORIZON
    else:
        payload = b"".join(_joined(body, kept))
    if not kept:
        attributes &= ~COMPRESSION_MASK
    elif header.compression:
        payload = compress(Compression(header.compression), payload)
    return build_raw_batch(
        payload,
        record_count=len(kept),
        last_offset_delta=header.last_offset_delta,
        attributes=attributes,
        base_timestamp=base,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        extension=read_extension(buffer, position) if header.is_extended else None,
    )


def _joined(body: bytes, kept: Sequence[RecordSpan]) -> Iterable[bytes]:
    """The records' bytes, neighbours together."""
    index = 0
    while index < len(kept):
        start, end = kept[index].start, kept[index].end
        index += 1
        while index < len(kept) and kept[index].start == end:
            end = kept[index].end
            index += 1
        yield body[start:end]


def _moved(body: bytes, kept: Sequence[RecordSpan], shift: int) -> Iterable[bytes]:
    """The records' bytes with ``shift`` added to each timestamp delta."""
    for span in kept:
        delta = encode_varint(span.timestamp_delta + shift)
        yield encode_varint(1 + len(delta) + span.end - span.rest)
        yield b"\x00"
        yield delta
        yield body[span.rest : span.end]


def bare(header: BatchHeader, *, base_offset: int | None = None) -> bytearray:
    """An empty batch over the offsets of ``header``, or from ``base_offset`` to their end, with its
    times and leader epoch and nothing else of it.

    A replica needs the second form whose log ends in the middle of a placeholder that its leader
    has joined.
    """
    base = header.base_offset if base_offset is None else base_offset
    attributes = header.attributes & (APPEND_TIME | DELETE_HORIZON)
    return build_raw_batch(
        b"",
        record_count=0,
        last_offset_delta=header.last_offset - base,
        attributes=attributes,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        base_offset=base,
        leader_epoch=header.leader_epoch,
    )


def join(first: BatchHeader, second: BatchHeader) -> BatchHeader | None:
    """The header of one placeholder in the place of two neighbours, for :func:`bare`; None when
    they may not be joined. The delete horizon is the later one."""
    if first.leader_epoch != second.leader_epoch:
        return None
    delta = second.last_offset - first.base_offset
    if delta > _LAST_DELTA:
        return None
    horizons = [each.base_timestamp for each in (first, second) if each.attributes & DELETE_HORIZON]
    return first._replace(
        last_offset_delta=delta,
        attributes=first.attributes | second.attributes & DELETE_HORIZON,
        base_timestamp=max(horizons) if horizons else first.base_timestamp,
        max_timestamp=max(first.max_timestamp, second.max_timestamp),
    )


def is_bare(header: BatchHeader) -> bool:
    """Whether an empty batch carries nothing but offsets and a time: it may be joined or cut."""
    return not (
        header.record_count
        or header.is_extended
        or header.is_control
        or header.is_transactional
        or header.has_producer
    )


def _corrupt(header: BatchHeader, what: str) -> CorruptMessage:
    return CorruptMessage(f"batch at offset {header.base_offset}: {what}")
