"""Records inside a v2 batch: encoding, and decoding where a listener or a client must look.

::

    varint length | i8 attributes (0) | varint timestamp delta | varint offset delta
    | varint key length (-1 null) | key | varint value length (-1 null) | value
    | varint header count | { varint key length | key | varint value length (-1) | value }*

All varints are zigzag, at most 10 bytes; ``length`` counts everything behind itself. Lengths
come first so that nothing is allocated on a claim: every length is checked against the bytes that
are there.

This is the only per-record code on the way of a record, so it is written for speed: encoding
works on columns with the loops inside the interpreter's C code, decoding is one flat loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import add
from typing import Any, NamedTuple

from paceline.errors import CorruptMessage
from paceline.wire.batch_header import (
    BatchHeader,
    Buffer,
    PayloadKind,
    TimestampType,
    read_extension,
    read_header,
)
from paceline.wire.compression import MAX_DECOMPRESSED_BYTES, decompress
from paceline.wire.segment.events import event_data

Header = tuple[str, bytes | None]

NO_HEADERS = b"\x00"
"""What :func:`encode_headers` makes of none."""
MAX_BATCH_HEADERS = 500_000
"""Of all records of a batch. A header may take two bytes, and a kilobyte may unpack to millions."""
_MIN_RECORD_BYTES = 7
_MAX_VARINT_BITS = 70
_SIGN = 1 << 63
_FAR = 1 << 62
"""A time and its delta, both nearer to 0 than this, make a time of 64 bits."""


class Record(NamedTuple):
    """One record. A null value is a tombstone; ``offset`` is not read when encoding.

    ``timestamp_ms`` is milliseconds since the epoch, -1 for none. Header names are text; bytes
    that are not UTF-8 come and go as surrogate escapes.
    """

    offset: int = -1
    timestamp_ms: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


# --- varints --------------------------------------------------------------------------------


def encode_varint(number: int) -> bytes:
    """Zigzag varint of a 64-bit signed number; another one wraps to one."""
    number = _wrapped(number)
    rest = ((number << 1) ^ (number >> 63)) & 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _wrapped(number: int) -> int:
    """As arithmetic of 64 bits leaves it, which differences of times are subject to elsewhere."""
    return (number + _SIGN & 0xFFFFFFFFFFFFFFFF) - _SIGN


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The zigzag varint at ``position`` and the position behind it.

    Raises CorruptMessage when it has more than 10 bytes, IndexError when the data end first.
    """
    rest = 0
    shift = 0
    while True:
        byte = data[position]
        position += 1
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            rest &= 0xFFFFFFFFFFFFFFFF
            return (rest >> 1) ^ -(rest & 1), position
        shift += 7
        if shift >= _MAX_VARINT_BITS:
            raise CorruptMessage(f"varint longer than 10 bytes at byte {position}")


_TWO_BYTE_LIMIT = 8192
_SMALL = tuple(encode_varint(number) for number in range(_TWO_BYTE_LIMIT))
"""Varints of 0..8191: offset deltas and most lengths without a computation."""


class _Heads(dict[int, bytes]):
    """Varints by number, remembered for one batch: most batches repeat few lengths."""

    def __missing__(self, number: int) -> bytes:
        encoded = _SMALL[number] if 0 <= number < _TWO_BYTE_LIMIT else encode_varint(number)
        self[number] = encoded
        return encoded


class _RecordHeads(dict[int, bytes]):
    """Record length and attributes by the size of all other fields, remembered for one batch."""

    def __init__(self, extra: int, tail: bytes) -> None:
        super().__init__()
        self._extra = extra + 1 + len(tail)
        self._tail = b"\x00" + tail

    def __missing__(self, size: int) -> bytes:
        head = encode_varint(size + self._extra) + self._tail
        self[size] = head
        return head


# --- encoding -------------------------------------------------------------------------------


def encode_values(
    values: Sequence[Buffer | None],
    keys: Sequence[Buffer | None] | None = None,
    *,
    timestamp_deltas: Sequence[int] | None = None,
    headers: Sequence[Sequence[Header]] | None = None,
    encoded_headers: Sequence[bytes] | None = None,
) -> bytes:
    """The records' bytes, from columns; offset deltas count from 0.

    A column that is None is constant: null keys, no headers, every record at the base timestamp.
    ``encoded_headers`` is for who has the bytes of :func:`encode_headers` already.
    """
    count = len(values)
    value_heads, value_bodies, sizes = _length_prefixed(values)
    columns: list[Sequence[Buffer]] = []
    if keys is not None:
        key_heads, key_bodies, key_sizes = _length_prefixed(keys)
        columns += (key_heads, key_bodies)
        sizes = list(map(add, sizes, key_sizes))
    columns += (value_heads, value_bodies)
    if headers is not None:
        encoded_headers = [encode_headers(each) if each else NO_HEADERS for each in headers]
    if encoded_headers is not None:
        columns.append(encoded_headers)
        sizes = list(map(add, sizes, map(len, encoded_headers)))
    if timestamp_deltas is not None:
        heads = _Heads()
        deltas = [heads[delta] for delta in timestamp_deltas]
        sizes = list(map(add, sizes, map(len, deltas)))
        columns.insert(0, deltas)
    constants = (keys is None) + (encoded_headers is None)
    parts: list[Buffer] = []
    for start, stop, width in _offset_widths(count):
        tail = b"\x00" if timestamp_deltas is None else b""
        record_heads = _RecordHeads(constants + width, tail)
        row: list[Iterable[Buffer]] = [
            map(record_heads.__getitem__, sizes[start:stop]),
            *(column[start:stop] for column in columns),
        ]
        # Behind the timestamp comes the offset delta, then the key; at the end the header count.
        place = 1 if timestamp_deltas is None else 2
        row.insert(place, _offset_deltas(start, stop))
        if keys is None:
            row.insert(place + 1, repeat(b"\x01"))
        if encoded_headers is None:
            row.append(repeat(NO_HEADERS))
        parts.extend(chain.from_iterable(zip(*row, strict=False)))
    return b"".join(parts)


def _offset_widths(count: int) -> Iterator[tuple[int, int, int]]:
    """Runs of offset deltas whose varints have the same number of bytes."""
    start = 0
    width = 1
    while start < count:
        stop = min(count, 1 << (7 * width - 1))
        yield start, stop, width
        start = stop
        width += 1


def _offset_deltas(start: int, stop: int) -> Sequence[bytes]:
    if stop <= _TWO_BYTE_LIMIT:
        return _SMALL[start:stop]
    return [encode_varint(number) for number in range(start, stop)]


def _length_prefixed(
    items: Sequence[Buffer | None],
) -> tuple[list[bytes], Sequence[Buffer], list[int]]:
    """Length varints, bodies, and the size of both together, of each item."""
    bodies: Sequence[Buffer]
    if None in items:
        lengths = [-1 if item is None else len(item) for item in items]
        bodies = [b"" if item is None else item for item in items]
    else:
        bodies = items  # type: ignore[assignment]
        lengths = list(map(len, bodies))
    heads = _Heads()
    prefixes = list(map(heads.__getitem__, lengths))
    sizes = {length: len(head) + max(0, length) for length, head in heads.items()}
    return prefixes, bodies, list(map(sizes.__getitem__, lengths))


def encode_headers(headers: Sequence[Header]) -> bytes:
    """A record's headers with their count, as they stand in it."""
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        raw = name.encode("utf-8", "surrogateescape")
        parts += (encode_varint(len(raw)), raw)
        if value is None:
            parts.append(b"\x01")
        else:
            parts += (encode_varint(len(value)), value)
    return b"".join(parts)


# --- decoding -------------------------------------------------------------------------------


def decode_records(
    buffer: Buffer, position: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> list[Record]:
    """All records of the batch at ``position``, decompressed if need be.

    ``max_bytes`` bounds the decompressed records. Of an extended batch, each Event of a run is one
    record with neither key nor headers (DESIGN 2.2); seals and the like hold none. The CRC is the
    caller's business. Raises CorruptMessage naming the batch's base offset,
    UnsupportedCompression.
    """
    header, body = _open(buffer, position, max_bytes)
    if header.is_extended and _kind(buffer, position) is not PayloadKind.RECORDS:
        stamp = header.max_timestamp
        return [
            Record(offset, stamp, None, value)
            for offset, value in _bare_values(header, body, _kind(buffer, position))
        ]
    try:
        return _decode_loop(body, header)
    except IndexError:
        raise CorruptMessage(f"{_name(header)}: a record runs over the batch's end") from None
    except CorruptMessage as error:
        raise CorruptMessage(f"{_name(header)}: {error}") from None


def _name(header: BatchHeader) -> str:
    return f"batch at offset {header.base_offset}"


def _open(buffer: Buffer, position: int, max_bytes: int) -> tuple[BatchHeader, bytes]:
    header = read_header(buffer, position)
    start = position + header.payload_start
    with memoryview(buffer) as view, view[start : position + header.size_bytes] as payload:
        try:
            body = decompress(header.compression, payload, max_bytes=max_bytes)
        except CorruptMessage as error:
            raise CorruptMessage(f"{_name(header)}: {error}") from None
    if not header.is_extended and header.record_count * _MIN_RECORD_BYTES > len(body):
        raise CorruptMessage(f"{_name(header)}: {header.record_count} records in {len(body)} bytes")
    return header, body


def _kind(buffer: Buffer, position: int) -> PayloadKind:
    return read_extension(buffer, position).kind


def _bare_values(
    header: BatchHeader, body: bytes, kind: PayloadKind
) -> Iterator[tuple[int, bytes]]:
    """(offset, value) of what an extended batch holds instead of v2 records."""
    if kind is PayloadKind.RAW:
        values = [body]
    elif kind is PayloadKind.EVENTS:
        values = event_data(body)
    else:
        values = []
    if len(values) != header.record_count:
        raise CorruptMessage(
            f"{_name(header)}: {len(values)} Events, the header says {header.record_count}"
        )
    yield from enumerate(values, start=header.base_offset)


def _decode_loop(body: bytes, header: BatchHeader) -> list[Record]:  # noqa: C901 - flat for speed
    """Every record; varints of one and two bytes are decoded in place, a call costs as much."""
    size = len(body)
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    records: list[Record] = []
    keep = records.append
    make: Any = tuple.__new__
    header_count = 0
    previous = -1
    at = 0
    for _ in range(header.record_count):
        number = body[at]
        if number < 0x80:
            end = at + 1 + (number >> 1)
            at += 2
        elif (more := body[at + 1]) < 0x80:
            end = at + 2 + ((number & 0x7F | more << 7) >> 1)
            number &= 1
            at += 3
        else:
            number, at = read_varint(body, at)
            end = at + number
            number = number < 0
            at += 1
        # Odd numbers are negative ones in zigzag; the attributes byte has been stepped over.
        if end > size or number & 1:
            raise CorruptMessage(f"record before byte {at} ends outside {size} bytes")
        number = body[at]
        if number < 0x80:
            delta = (number >> 1) ^ -(number & 1)
            at += 1
        else:
            delta, at = read_varint(body, at)
            if not -_FAR < delta < _FAR:
                delta = _wrapped(base_timestamp + delta) - base_timestamp
        number = body[at]
        if number < 0x80:
            offset = (number >> 1) ^ -(number & 1)
            at += 1
        elif (more := body[at + 1]) < 0x80:
            number = number & 0x7F | more << 7
            offset = (number >> 1) ^ -(number & 1)
            at += 2
        else:
            offset, at = read_varint(body, at)
        if offset <= previous:
            raise CorruptMessage(f"offset delta {offset} after {previous}")
        previous = offset
        number = body[at]
        key: bytes | None
        if number == 1:
            key = None
            at += 1
        else:
            if number < 0x80:
                length = (number >> 1) ^ -(number & 1)
                at += 1
            else:
                length, at = read_varint(body, at)
            if length < 0:
                raise CorruptMessage(f"key of {length} bytes")
            stop = at + length
            key = body[at:stop]
            at = stop
        number = body[at]
        if number < 0x80:
            length = (number >> 1) ^ -(number & 1)
            at += 1
        elif (more := body[at + 1]) < 0x80:
            number = number & 0x7F | more << 7
            length = (number >> 1) ^ -(number & 1)
            at += 2
        else:
            length, at = read_varint(body, at)
        value: bytes | None
        if length >= 0:
            stop = at + length
            value = body[at:stop]
            at = stop
        elif length == -1:
            value = None
        else:
            raise CorruptMessage(f"value of {length} bytes")
        if body[at]:
            headers, at = _read_headers(body, at, end)
            header_count += len(headers)
            if header_count > MAX_BATCH_HEADERS:
                raise CorruptMessage(f"more than {MAX_BATCH_HEADERS} headers")
        else:
            headers = ()
            at += 1
        if at != end:
            raise CorruptMessage(f"a record ends at byte {end}, its fields at {at}")
        keep(make(Record, (base_offset + offset, base_timestamp + delta, key, value, headers)))
    _check_end(header, previous, at, size)
    return _stamped(records, header)


def _stamped(records: list[Record], header: BatchHeader) -> list[Record]:
    """The records, with the times that they have."""
    if header.timestamp_type is TimestampType.APPEND:
        return [record._replace(timestamp_ms=header.max_timestamp) for record in records]
    if not -_FAR < header.base_timestamp < _FAR:
        return [record._replace(timestamp_ms=_wrapped(record.timestamp_ms)) for record in records]
    return records


def _read_headers(body: bytes, at: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, at = read_varint(body, at)
    if not 0 <= count <= min(end - at, MAX_BATCH_HEADERS):
        raise CorruptMessage(f"{count} headers in {end - at} bytes, limit {MAX_BATCH_HEADERS}")
    headers: list[Header] = []
    for _ in range(count):
        length, at = read_varint(body, at)
        if not 0 <= length <= end - at:
            raise CorruptMessage(f"header name of {length} bytes")
        name = body[at : at + length].decode("utf-8", "surrogateescape")
        length, at = read_varint(body, at + length)
        if not -1 <= length <= end - at:
            raise CorruptMessage(f"header value of {length} bytes")
        if length < 0:
            headers.append((name, None))
        else:
            headers.append((name, body[at : at + length]))
            at += length
    return tuple(headers), at


def _check_end(header: BatchHeader, previous: int, at: int, size: int) -> None:
    if previous > header.last_offset_delta:
        raise CorruptMessage(f"offset delta {previous} above {header.last_offset_delta}")
    if at != size:
        raise CorruptMessage(f"{size - at} bytes after the last record")
