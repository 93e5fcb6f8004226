"""Protocol buffers, as far as the controller's messages need them.

A message is a run of fields, each behind a varint ``number << 3 | wire type``::

    0  varint        int32, int64 (two's complement in 64 bits), bool, enum
    1  64 bits       double, little-endian
    2  length        varint size, then bytes: string, message, packed numbers
    5  32 bits       skipped

Fields that have their default are left out, unknown ones skipped; of one that comes twice the last
counts, and nobody looks into the others: parts of a message that comes twice are not merged, which
no real client asks for. A message has 2,000 fields at most: a stranger's call of 64 KB could have
32,000, whose reading would keep the event loop. A class lists its fields' numbers and kinds in
``FIELDS``, in the order of its attributes. Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple, Self

from paceline.errors import RemoteProtocolError
from paceline.values import dataclass

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10
_MAX_FIELDS = 2000
_DOUBLE = struct.Struct("<d")
_SIGN = 1 << 63
_MASK = (1 << 64) - 1


class Kind(NamedTuple):
    """How values of a field travel. ``is_many``: the attribute is a tuple."""

    wire_type: int
    write: Callable[[Any], bytes]
    read: Callable[[Any], Any]
    is_many: bool = False


@dataclass(frozen=True, slots=True)
class ProtoMessage:
    """Base of all messages; every attribute has its default."""

    FIELDS: ClassVar[tuple[tuple[int, Kind], ...]] = ()

    def encode(self) -> bytes:
        """The message's bytes."""
        parts: list[bytes] = []
        for name, default, (number, kind) in _slots(type(self)):
            value = getattr(self, name)
            for each in value if kind.is_many else (value,):
                if kind.is_many or each != default:
                    data = kind.write(each)
                    size = write_varint(len(data)) if kind.wire_type == _LENGTH else b""
                    parts += (write_varint(number << 3 | kind.wire_type), size, data)
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        """The message of ``data``. Raises RemoteProtocolError."""
        slots = {number: (name, kind) for name, _, (number, kind) in _slots(cls)}
        found: dict[str, Any] = {}
        repeated: dict[str, list[Any]] = {}
        for count, (number, wire_type, raw) in enumerate(_fields(memoryview(data))):
            if count == _MAX_FIELDS:
                raise RemoteProtocolError(f"{cls.__name__}: more than {_MAX_FIELDS} fields")
            if number not in slots:
                continue
            name, kind = slots[number]
            if wire_type != kind.wire_type:
                raise RemoteProtocolError(f"{cls.__name__}.{name}: wire type {wire_type}")
            if kind.is_many:
                repeated.setdefault(name, []).append(kind.read(raw))
            else:
                found[name] = kind, raw
        values = {name: kind.read(raw) for name, (kind, raw) in found.items()}
        return cls(**values, **{name: tuple(many) for name, many in repeated.items()})


def _slots(cls: type[ProtoMessage]) -> Iterator[tuple[str, Any, tuple[int, Kind]]]:
    """(attribute, default, number and kind) of every field."""
    for attribute, field in zip(fields(cls), cls.FIELDS, strict=True):
        yield attribute.name, attribute.default, field


def write_varint(value: int) -> bytes:
    """``value`` in groups of seven bits, the lowest first."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for count in range(_MAX_VARINT_BYTES):
        if at + count >= len(data):
            break
        byte = data[at + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value & _MASK, at + count + 1
    raise RemoteProtocolError(f"byte {at}: a number that does not end")


def _fields(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """(number, wire type, raw value) of each field."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        wire_type = tag & 7
        if wire_type == _VARINT:
            value, at = _read_varint(data, at)
            yield tag >> 3, wire_type, value
            continue
        if wire_type == _LENGTH:
            size, at = _read_varint(data, at)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise RemoteProtocolError(f"field {tag >> 3}: wire type {wire_type} is not used")
        if size > len(data) - at:
            raise RemoteProtocolError(f"field {tag >> 3}: {size} bytes, {len(data) - at} are there")
        yield tag >> 3, wire_type, data[at : at + size]
        at += size


def _signed(value: int) -> int:
    return value - (1 << 64) if value & _SIGN else value


def _text(raw: memoryview) -> str:
    try:
        return bytes(raw).decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("a string that is not UTF-8") from None


def _double(raw: memoryview) -> float:
    value: float = _DOUBLE.unpack(raw)[0]
    return value


def message(cls: type[ProtoMessage]) -> Kind:
    """A field that holds a message."""
    return Kind(_LENGTH, ProtoMessage.encode, cls.decode)


def many(kind: Kind) -> Kind:
    """A repeated field; numbers are not packed, which every reader understands."""
    return kind._replace(is_many=True)


INT = Kind(_VARINT, lambda value: write_varint(value & _MASK), _signed)
BOOL = Kind(_VARINT, lambda value: write_varint(int(value)), bool)
STRING = Kind(_LENGTH, str.encode, _text)
DOUBLE = Kind(_FIXED64, _DOUBLE.pack, _double)
