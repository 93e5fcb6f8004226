"""Fields of segment messages: how each kind is written and read.

::

    Byte Int Long   1, 4, 8 bytes, big-endian; a byte is unsigned
    Bool            1 byte, anything but 0 is true
    Id              a UUID: 16 bytes, RFC 4122 order
    Java            u16 byte count, then modified UTF-8 (``text.py``): strings of the seed dialect
    Text            u16 byte count, then UTF-8: strings of the Pravega dialect
    Data            the rest of the payload
    Blob            i32 byte count, then the bytes
    Key             i32 size of what follows, Blob, i64 version
    Value           i32 size of what follows, Blob
    Longs Keys Entries   i32 count, then that many; an entry is a Key and a Value

A message class names these as the types of its fields (``framing.py``). Counts are checked against
the bytes that are there before anything is made of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from paceline.values import dataclass
from paceline.wire.segment.errors import Fault, SegmentProtocolError
from paceline.wire.segment.text import decode_text, encode_text

_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_COUNT = struct.Struct(">H")
_UUID_BYTES = 16


@dataclass(frozen=True, slots=True)
class Field:
    """How one field is written, and read from (payload, position) with the position behind it.

    Reading raises SegmentProtocolError; writing raises struct.error for what does not fit.
    """

    write: Callable[[Any], bytes]
    read: Callable[[bytes, int], tuple[Any, int]]


class TableKey(NamedTuple):
    """A key of a table segment, and its version (``pravega_messages.py`` names special ones)."""

    data: bytes
    version: int


TableEntry = tuple[TableKey, bytes]


def _slice(data: bytes, at: int, size: int) -> bytes:
    if size < 0 or len(data) - at < size:
        raise SegmentProtocolError(Fault.E4)
    return data[at : at + size]


def _unpack(layout: struct.Struct, data: bytes, at: int) -> int:
    if len(data) - at < layout.size:
        raise SegmentProtocolError(Fault.E4)
    value: int = layout.unpack_from(data, at)[0]
    return value


def _number(layout: struct.Struct) -> Field:
    def read(data: bytes, at: int) -> tuple[int, int]:
        return _unpack(layout, data, at), at + layout.size

    return Field(layout.pack, read)


def _read_uuid(data: bytes, at: int) -> tuple[UUID, int]:
    return UUID(bytes=_slice(data, at, _UUID_BYTES)), at + _UUID_BYTES


def _read_bool(data: bytes, at: int) -> tuple[bool, int]:
    return _slice(data, at, 1) != b"\0", at + 1


def _string(encode: Callable[[str], bytes], decode: Callable[[bytes], str]) -> Field:
    def write(text: str) -> bytes:
        encoded = encode(text)
        return _COUNT.pack(len(encoded)) + encoded

    def read(data: bytes, at: int) -> tuple[str, int]:
        size = _unpack(_COUNT, data, at)
        at += _COUNT.size
        return decode(_slice(data, at, size)), at + size

    return Field(write, read)


def _decode_utf8(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise SegmentProtocolError(Fault.E5) from None


def _write_blob(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _read_blob(data: bytes, at: int) -> tuple[bytes, int]:
    size = _unpack(_INT, data, at)
    at += _INT.size
    return _slice(data, at, size), at + size


def _write_key(key: TableKey) -> bytes:
    size = _INT.size + len(key.data) + _LONG.size
    return _INT.pack(size) + _write_blob(key.data) + _LONG.pack(key.version)


def _read_key(data: bytes, at: int) -> tuple[TableKey, int]:
    size = _unpack(_INT, data, at)
    key, at = _read_blob(data, at + _INT.size)
    if size != _INT.size + len(key) + _LONG.size:
        raise SegmentProtocolError(Fault.E4)
    return TableKey(key, _unpack(_LONG, data, at)), at + _LONG.size


def _write_value(value: bytes) -> bytes:
    return _INT.pack(_INT.size + len(value)) + _write_blob(value)


def _read_value(data: bytes, at: int) -> tuple[bytes, int]:
    size = _unpack(_INT, data, at)
    value, at = _read_blob(data, at + _INT.size)
    if size != _INT.size + len(value):
        raise SegmentProtocolError(Fault.E4)
    return value, at


def _write_entry(entry: TableEntry) -> bytes:
    return _write_key(entry[0]) + _write_value(entry[1])


def _read_entry(data: bytes, at: int) -> tuple[TableEntry, int]:
    key, at = _read_key(data, at)
    value, at = _read_value(data, at)
    return (key, value), at


def _many(one: Field) -> Field:
    """Counted items, each of at least one byte: so a count never asks for more than is there."""

    def write(items: Sequence[Any]) -> bytes:
        return _INT.pack(len(items)) + b"".join(map(one.write, items))

    def read(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        count = _unpack(_INT, data, at)
        at += _INT.size
        if not 0 <= count <= len(data) - at:
            raise SegmentProtocolError(Fault.E4)
        items = []
        for _ in range(count):
            item, at = one.read(data, at)
            items.append(item)
        return tuple(items), at

    return Field(write, read)


BYTE = Field(lambda value: bytes((value,)), lambda data, at: (_slice(data, at, 1)[0], at + 1))
_I64 = _number(_LONG)

Byte = Annotated[int, BYTE]
Int = Annotated[int, _number(_INT)]
Long = Annotated[int, _I64]
Bool = Annotated[bool, Field(lambda value: b"\x01" if value else b"\x00", _read_bool)]
Id = Annotated[UUID, Field(lambda value: value.bytes, _read_uuid)]
Java = Annotated[str, _string(encode_text, decode_text)]
Text = Annotated[str, _string(str.encode, _decode_utf8)]
Data = Annotated[bytes, Field(bytes, lambda data, at: (data[at:], len(data)))]
Blob = Annotated[bytes, Field(_write_blob, _read_blob)]
Longs = Annotated[tuple[int, ...], _many(_I64)]
Keys = Annotated[tuple[TableKey, ...], _many(Field(_write_key, _read_key))]
Entries = Annotated[tuple[TableEntry, ...], _many(Field(_write_entry, _read_entry))]
