"""Messages of the seed dialect: types, layouts, bytes (spec segment 2 and 3).

All numbers are big-endian; every message begins with the same eight bytes::

    0            4                8
    +------------+----------------+---------------------
    | i32 type   | u32 length     | payload: ``length`` bytes, less than 2**24
    +------------+----------------+---------------------

    string   u16 byte count, then modified UTF-8 (``text.py``)
    UUID     16 bytes, RFC 4122 order
    bool     1 byte, anything but 0 is true
    flags    1 byte: 0x80 at tail, 0x40 at end of segment; the other bits are ignored
    data     the rest of the payload

A payload that is shorter than its fields is an error; bytes behind the last field of a message
without ``data`` are ignored, since that is how fields were added over time. Replies carry no
request id: they are matched by type and segment.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar
from uuid import UUID

from paceline.errors import LocalProtocolError
from paceline.wire.segment.faults import Fault, SegmentProtocolError
from paceline.wire.segment.text import decode_text, encode_text

HEADER_BYTES = 8
HEADER = struct.Struct(">iI")
MAX_PAYLOAD_BYTES = 0xFFFFFF
"""Largest payload we accept. We send 8 bytes less at most, as real Pravega counts the header."""
NO_ID = UUID(int=0)

_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_COUNT = struct.Struct(">H")


class Direction(enum.Flag):
    """Who may send a message."""

    CLIENT = enum.auto()
    SERVER = enum.auto()


class ReadFlags(enum.IntFlag):
    """Where a SegmentRead ends."""

    NONE = 0
    TAIL = 0x80
    END = 0x40


class PartialKind(enum.IntEnum):
    """Which piece of a message a PartialMessage carries."""

    BEGIN = 0
    MIDDLE = 1
    END = 2


# --- fields ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Field:
    """How one field is written, and read from (payload, position) with the position behind it."""

    write: Callable[[Any], bytes]
    read: Callable[[bytes, int], tuple[Any, int]]


def _read_uuid(data: bytes, at: int) -> tuple[UUID, int]:
    if len(data) - at < 16:
        raise SegmentProtocolError(Fault.E4)
    return UUID(bytes=data[at : at + 16]), at + 16


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _unpack(_COUNT, data, at)
    at += _COUNT.size
    if len(data) - at < size:
        raise SegmentProtocolError(Fault.E4)
    return decode_text(data[at : at + size]), at + size


def _unpack(layout: struct.Struct, data: bytes, at: int) -> tuple[int, ...]:
    if len(data) - at < layout.size:
        raise SegmentProtocolError(Fault.E4)
    return layout.unpack_from(data, at)


def _write_string(text: str) -> bytes:
    encoded = encode_text(text)
    return _COUNT.pack(len(encoded)) + encoded


def _read_byte(data: bytes, at: int) -> tuple[int, int]:
    if len(data) <= at:
        raise SegmentProtocolError(Fault.E4)
    return data[at], at + 1


def _read_bool(data: bytes, at: int) -> tuple[bool, int]:
    value, at = _read_byte(data, at)
    return value != 0, at


def _read_flags(data: bytes, at: int) -> tuple[ReadFlags, int]:
    value, at = _read_byte(data, at)
    return ReadFlags(value & (ReadFlags.TAIL | ReadFlags.END)), at


def _number(layout: struct.Struct) -> _Field:
    def read(data: bytes, at: int) -> tuple[int, int]:
        return _unpack(layout, data, at)[0], at + layout.size

    return _Field(layout.pack, read)


_UUID = _Field(lambda value: value.bytes, _read_uuid)
_STRING = _Field(_write_string, _read_string)
_I64 = _number(_LONG)
_I32 = _number(_INT)
_BYTE = _Field(lambda value: bytes((value,)), _read_byte)
_BOOL = _Field(lambda value: b"\x01" if value else b"\x00", _read_bool)
_FLAGS = _Field(lambda value: bytes((int(value),)), _read_flags)
_DATA = _Field(bytes, lambda data, at: (data[at:], len(data)))


# --- messages ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SegmentMessage:
    """Base of all messages; ``LAYOUT`` lists the fields' codecs in order."""

    TYPE: ClassVar[int]
    FROM: ClassVar[Direction]
    LAYOUT: ClassVar[tuple[_Field, ...]] = ()


_BOTH = Direction.CLIENT | Direction.SERVER


@dataclass(frozen=True, slots=True)
class Hello(SegmentMessage):
    """Versions spoken; (0, 0) is the seed dialect."""

    TYPE = -127
    FROM = _BOTH
    LAYOUT = (_I32, _I32)
    high: int
    low: int


@dataclass(frozen=True, slots=True)
class PartialMessage(SegmentMessage):
    """A piece of a message (spec segment 4); ``kind`` as received, maybe no PartialKind."""

    TYPE = -2
    FROM = _BOTH
    LAYOUT = (_BYTE, _DATA)
    kind: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Padding(SegmentMessage):
    """Fills a block; ignored."""

    TYPE = -1
    FROM = _BOTH
    LAYOUT = (_DATA,)
    data: bytes


@dataclass(frozen=True, slots=True)
class Event(SegmentMessage):
    """What is appended; stored with its header. Only inside a block."""

    TYPE = 0
    FROM = Direction.CLIENT
    LAYOUT = (_DATA,)
    data: bytes


@dataclass(frozen=True, slots=True)
class SetupAppend(SegmentMessage):
    TYPE = 1
    FROM = Direction.CLIENT
    LAYOUT = (_UUID, _STRING)
    connection_id: UUID
    segment: str


@dataclass(frozen=True, slots=True)
class AppendSetup(SegmentMessage):
    """``level``: bytes of this appender that are stored; 0 for a new one."""

    TYPE = 2
    FROM = Direction.SERVER
    LAYOUT = (_STRING, _UUID, _I64)
    segment: str
    connection_id: UUID
    level: int


@dataclass(frozen=True, slots=True)
class BeginAppendBlock(SegmentMessage):
    """``offset``: stored bytes of the appender before the block. ``length``: the most wire bytes
    that may come before EndAppendBlock."""

    TYPE = 3
    FROM = Direction.CLIENT
    LAYOUT = (_UUID, _I64, _I32)
    connection_id: UUID
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class EndAppendBlock(SegmentMessage):
    """``offset``: the appender's stored bytes with this block. ``block_length``: those of the
    block, the Event finished behind this message included."""

    TYPE = 4
    FROM = Direction.CLIENT
    LAYOUT = (_UUID, _I64, _I32)
    connection_id: UUID
    offset: int
    block_length: int


@dataclass(frozen=True, slots=True)
class DataAppended(SegmentMessage):
    """All bytes of the appender before ``level`` are committed."""

    TYPE = 5
    FROM = Direction.SERVER
    LAYOUT = (_UUID, _I64)
    connection_id: UUID
    level: int


@dataclass(frozen=True, slots=True)
class ReadSegment(SegmentMessage):
    TYPE = 6
    FROM = Direction.CLIENT
    LAYOUT = (_STRING, _I64, _I32)
    segment: str
    offset: int
    suggested_length: int


@dataclass(frozen=True, slots=True)
class SegmentRead(SegmentMessage):
    TYPE = 7
    FROM = Direction.SERVER
    LAYOUT = (_STRING, _I64, _FLAGS, _DATA)
    segment: str
    offset: int
    flags: ReadFlags
    data: bytes


@dataclass(frozen=True, slots=True)
class _OfSegment(SegmentMessage):
    """A message that holds a segment's name and nothing else."""

    LAYOUT = (_STRING,)
    segment: str


@dataclass(frozen=True, slots=True)
class GetStreamSegmentInfo(_OfSegment):
    TYPE = 8
    FROM = Direction.CLIENT


@dataclass(frozen=True, slots=True)
class StreamSegmentInfo(SegmentMessage):
    """``length`` is the readable end, ``start_offset`` the first byte that is still kept."""

    TYPE = 9
    FROM = Direction.SERVER
    LAYOUT = (_STRING, _BOOL, _BOOL, _BOOL, _I64, _I64, _I64)
    segment: str
    exists: bool
    is_sealed: bool
    is_deleted: bool
    last_modified_ms: int
    length: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class CreateSegment(_OfSegment):
    TYPE = 20
    FROM = Direction.CLIENT


@dataclass(frozen=True, slots=True)
class SegmentCreated(_OfSegment):
    TYPE = 21
    FROM = Direction.SERVER


@dataclass(frozen=True, slots=True)
class CreateBatch(SegmentMessage):
    """A stub of the original, as the three after it; never supported."""

    TYPE = 22
    FROM = Direction.CLIENT


@dataclass(frozen=True, slots=True)
class BatchCreated(SegmentMessage):
    TYPE = 23
    FROM = Direction.SERVER


@dataclass(frozen=True, slots=True)
class MergeBatch(SegmentMessage):
    TYPE = 24
    FROM = Direction.CLIENT


@dataclass(frozen=True, slots=True)
class BatchMerged(SegmentMessage):
    TYPE = 25
    FROM = Direction.SERVER


@dataclass(frozen=True, slots=True)
class SealSegment(_OfSegment):
    TYPE = 26
    FROM = Direction.CLIENT


@dataclass(frozen=True, slots=True)
class SegmentSealed(_OfSegment):
    TYPE = 27
    FROM = Direction.SERVER


@dataclass(frozen=True, slots=True)
class DeleteSegment(_OfSegment):
    TYPE = 28
    FROM = Direction.CLIENT


@dataclass(frozen=True, slots=True)
class SegmentDeleted(_OfSegment):
    TYPE = 29
    FROM = Direction.SERVER


@dataclass(frozen=True, slots=True)
class TruncateSegment(SegmentMessage):
    TYPE = 38
    FROM = Direction.CLIENT
    LAYOUT = (_STRING, _I64)
    segment: str
    offset: int


@dataclass(frozen=True, slots=True)
class SegmentTruncated(_OfSegment):
    TYPE = 39
    FROM = Direction.SERVER


@dataclass(frozen=True, slots=True)
class WrongHost(SegmentMessage):
    """``correct_host``: ``host:port`` of the leader's listener, empty while nobody is known."""

    TYPE = 50
    FROM = Direction.SERVER
    LAYOUT = (_STRING, _STRING)
    segment: str
    correct_host: str


@dataclass(frozen=True, slots=True)
class SegmentIsSealed(_OfSegment):
    TYPE = 51
    FROM = Direction.SERVER


@dataclass(frozen=True, slots=True)
class SegmentAlreadyExists(_OfSegment):
    TYPE = 52
    FROM = Direction.SERVER


@dataclass(frozen=True, slots=True)
class NoSuchSegment(_OfSegment):
    TYPE = 53
    FROM = Direction.SERVER


@dataclass(frozen=True, slots=True)
class NoSuchBatch(SegmentMessage):
    TYPE = 54
    FROM = Direction.SERVER
    LAYOUT = (_STRING,)
    batch: str


@dataclass(frozen=True, slots=True)
class InvalidConnectionOffset(SegmentMessage):
    TYPE = 55
    FROM = Direction.SERVER
    LAYOUT = (_UUID, _I64)
    connection_id: UUID
    expected_offset: int


@dataclass(frozen=True, slots=True)
class SegmentIsTruncated(SegmentMessage):
    TYPE = 56
    FROM = Direction.SERVER
    LAYOUT = (_STRING, _I64)
    segment: str
    start_offset: int


@dataclass(frozen=True, slots=True)
class OperationUnsupported(SegmentMessage):
    TYPE = 57
    FROM = Direction.SERVER
    LAYOUT = (_STRING,)
    operation: str


@dataclass(frozen=True, slots=True)
class ErrorMessage(SegmentMessage):
    """``connection_id`` is zero and ``segment`` empty where the error concerns none."""

    TYPE = 61
    FROM = Direction.SERVER
    LAYOUT = (_UUID, _STRING, _STRING, _I32)
    connection_id: UUID
    segment: str
    message: str
    error_code: int


@dataclass(frozen=True, slots=True)
class KeepAlive(SegmentMessage):
    TYPE = 100
    FROM = _BOTH
    LAYOUT = (_DATA,)
    data: bytes = b""


MESSAGES: dict[int, type[SegmentMessage]] = {
    cls.TYPE: cls
    for cls in (
        Hello,
        PartialMessage,
        Padding,
        Event,
        SetupAppend,
        AppendSetup,
        BeginAppendBlock,
        EndAppendBlock,
        DataAppended,
        ReadSegment,
        SegmentRead,
        GetStreamSegmentInfo,
        StreamSegmentInfo,
        CreateSegment,
        SegmentCreated,
        CreateBatch,
        BatchCreated,
        MergeBatch,
        BatchMerged,
        SealSegment,
        SegmentSealed,
        DeleteSegment,
        SegmentDeleted,
        TruncateSegment,
        SegmentTruncated,
        WrongHost,
        SegmentIsSealed,
        SegmentAlreadyExists,
        NoSuchSegment,
        NoSuchBatch,
        InvalidConnectionOffset,
        SegmentIsTruncated,
        OperationUnsupported,
        ErrorMessage,
        KeepAlive,
    )
}
"""Every message of the dialect by its type."""


def check_header(message_type: int, length: int, sender: Direction) -> type[SegmentMessage]:
    """The class of a message that ``sender`` announces. Raises E1, E2 or E3, before its payload
    is received."""
    cls = MESSAGES.get(message_type)
    if cls is None:
        raise SegmentProtocolError(Fault.E1, message_type)
    if sender not in cls.FROM:
        raise SegmentProtocolError(Fault.E2, message_type)
    if length > MAX_PAYLOAD_BYTES:
        raise SegmentProtocolError(Fault.E3)
    return cls


def decode_payload(cls: type[SegmentMessage], payload: bytes) -> SegmentMessage:
    """The message of that class. Raises E4 or E5."""
    values = []
    at = 0
    for field in cls.LAYOUT:
        value, at = field.read(payload, at)
        values.append(value)
    return cls(*values)


def encode(message: SegmentMessage) -> bytes:
    """Header and payload. Raises LocalProtocolError for what no message can hold."""
    names = [field.name for field in fields(message)]
    try:
        payload = b"".join(
            field.write(getattr(message, name))
            for field, name in zip(message.LAYOUT, names, strict=True)
        )
    except struct.error as error:
        raise LocalProtocolError(f"{message}: {error}") from None
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise LocalProtocolError(
            f"{type(message).__name__}: {len(payload)} bytes, at most {MAX_PAYLOAD_BYTES}"
        )
    return HEADER.pack(message.TYPE, len(payload)) + payload
