"""Message sets, the record format before batches: read from old producers, written for old readers.

    message set   { offset i64 | size i32 | message }*                 no count; ends with the bytes
    message       crc u32 | magic i8 | attributes i8 | timestamp i64 (magic 1) | key | value
    key, value    i32 length (-1 null) | bytes

The crc is CRC-32 (zlib's) of everything from magic on. Attribute bits 0 to 2 are the codec (0 none,
1 gzip, 2 snappy, 3 lz4), bit 3 (magic 1) says that the broker set the timestamp. A compressed
message has a null key and a message set for its value, whose messages are not compressed again.
Offsets that producers send mean nothing: the broker assigns them.

Nothing is stored in this form: logs hold batches. lz4 of magic 0 had a wrong checksum in its frame
header by tradition, and such frames are refused.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator

from paceline.errors import CorruptMessage
from paceline.wire.compression import MAX_DECOMPRESSED_BYTES, decompress
from paceline.wire.records import Record

_ENTRY = struct.Struct(">qi")
_HEAD = struct.Struct(">Ibb")
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_CODEC_BITS = 0b111
_LAST_CODEC = 3
_CRC_SIZE = 4


def read_message_set(data: memoryview, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """The records of a message set, compressed ones within ``max_bytes`` of output in all.

    Record offsets count from 0; a magic 0 message has the timestamp -1. Raises CorruptMessage and
    UnsupportedCompression. Decompression may take long: large sets belong into a thread.
    """
    records: list[Record] = []
    room = max_bytes
    for at, message in _messages(data):
        codec, record = _read_message(message, at)
        if codec == 0:
            records.append(record._replace(offset=len(records)))
            continue
        if record.key is not None or record.value is None:
            raise CorruptMessage(f"message at byte {at}: compressed, but with a key or no value")
        inner = decompress(codec, record.value, max_bytes=room)
        room -= len(inner)
        for inner_at, inner_message in _messages(memoryview(inner)):
            inner_codec, inner_record = _read_message(inner_message, inner_at)
            if inner_codec:
                raise CorruptMessage(f"message at byte {at}: compressed twice")
            records.append(inner_record._replace(offset=len(records)))
    return records


def _messages(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    position = 0
    while position < len(data):
        start = position + _ENTRY.size
        if start > len(data):
            raise CorruptMessage(f"message at byte {position}: its head is cut short")
        size = _ENTRY.unpack_from(data, position)[1]
        if not 0 <= size <= len(data) - start:
            raise CorruptMessage(
                f"message at byte {position}: {size} bytes announced, {len(data) - start} are left"
            )
        yield position, data[start : start + size]
        position = start + size


def _read_message(message: memoryview, at: int) -> tuple[int, Record]:
    try:
        crc, magic, attributes = _HEAD.unpack_from(message)
        position = _HEAD.size
        timestamp = -1
        if magic == 1:
            (timestamp,) = _TIMESTAMP.unpack_from(message, position)
            position += _TIMESTAMP.size
        elif magic != 0:
            raise CorruptMessage(f"message at byte {at}: magic {magic}, expected 0 or 1")
        if crc != zlib.crc32(message[_CRC_SIZE:]):
            raise CorruptMessage(f"message at byte {at}: its checksum is wrong")
        key, position = _read_bytes(message, position, at)
        value, position = _read_bytes(message, position, at)
    except struct.error:
        raise CorruptMessage(f"message at byte {at}: {len(message)} bytes are too few") from None
    if position != len(message):
        raise CorruptMessage(f"message at byte {at}: {len(message) - position} bytes too many")
    codec = attributes & _CODEC_BITS
    if codec > _LAST_CODEC:
        raise CorruptMessage(f"message at byte {at}: this format has no codec {codec}")
    return codec, Record(timestamp_ms=max(timestamp, -1), key=key, value=value)


def _read_bytes(message: memoryview, position: int, at: int) -> tuple[bytes | None, int]:
    (size,) = _LENGTH.unpack_from(message, position)
    position += _LENGTH.size
    if size == -1:
        return None, position
    if not 0 <= size <= len(message) - position:
        raise CorruptMessage(
            f"message at byte {at}: {size} bytes announced, {len(message) - position} are left"
        )
    return bytes(message[position : position + size]), position + size


def write_message_set(records: Iterable[Record], *, magic: int, max_bytes: int) -> bytes:
    """Whole messages, uncompressed, with the records' own offsets: as many as ``max_bytes`` hold,
    and the first in any case. Headers of records are left out: the format has none."""
    out = bytearray()
    for record in records:
        message = _message(record, magic)
        if out and len(out) + _ENTRY.size + len(message) > max_bytes:
            break
        out += _ENTRY.pack(record.offset, len(message))
        out += message
    return bytes(out)


def _message(record: Record, magic: int) -> bytes:
    body = bytearray((magic, 0))
    if magic == 1:
        body += _TIMESTAMP.pack(record.timestamp_ms)
    for part in (record.key, record.value):
        body += _LENGTH.pack(-1 if part is None else len(part))
        body += part or b""
    return zlib.crc32(body).to_bytes(_CRC_SIZE, "big") + body
