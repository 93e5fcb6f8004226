"""What messages of both segment dialects have in common: header, classes, bytes (DESIGN 1.2).

All numbers are big-endian; every message begins with the same eight bytes::

    0            4                8
    +------------+----------------+---------------------
    | i32 type   | u32 length     | payload: ``length`` bytes, less than 2**24
    +------------+----------------+---------------------

A payload that is shorter than its fields is an error; bytes behind the last field of a message
without ``Data`` are ignored, since that is how fields were added over time.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import ClassVar, TypeVar, dataclass_transform, get_type_hints

from paceline.errors import LocalProtocolError
from paceline.values import dataclass
from paceline.wire.segment.errors import Fault, SegmentProtocolError
from paceline.wire.segment.fields import Field

HEADER_BYTES = 8
HEADER = struct.Struct(">iI")
MAX_PAYLOAD_BYTES = 0xFFFFFF
"""Largest payload we accept. We send 8 bytes less at most, as real Pravega counts the header."""


class Direction(enum.Flag):
    """Who may send a message."""

    CLIENT = enum.auto()
    SERVER = enum.auto()


Layout = tuple[tuple[str, Field], ...]
"""Names and codecs of a message's fields, in order."""
CLIENT, SERVER, BOTH = Direction.CLIENT, Direction.SERVER, Direction.CLIENT | Direction.SERVER


@dataclass(frozen=True, slots=True)
class SegmentMessage:
    """Base of all messages. Fields travel in the order and with the types of the class; made by
    :func:`message`."""

    TYPE: ClassVar[int]
    FROM: ClassVar[Direction]
    LAYOUT: ClassVar[Layout]


class _WhenFirstUsed:
    """Finds a class's layout when that is first asked for. A process sends few of a hundred kinds
    of messages, and to find the layouts of all was a tenth of a node's start."""

    def __get__(self, instance: SegmentMessage | None, owner: type[SegmentMessage]) -> Layout:
        owner.LAYOUT = _layout(owner)
        return owner.LAYOUT


SegmentMessage.LAYOUT = _WhenFirstUsed()  # type: ignore[assignment]
M = TypeVar("M", bound=SegmentMessage)
MessageTable = Mapping[int, type[SegmentMessage]]
"""The messages of one dialect by type."""


@dataclass_transform(frozen_default=True)
def message(number: int, sender: Direction) -> Callable[[type[M]], type[M]]:
    """A class decorator: message type ``number``, which ``sender`` may send."""

    def make(cls: type[M]) -> type[M]:
        made = dataclass(frozen=True, slots=True)(cls)
        made.TYPE = number
        made.FROM = sender
        return made

    return make


def table_of(classes: Iterable[object]) -> MessageTable:
    """Every message among ``classes`` by its type."""
    found = [
        each
        for each in classes
        if isinstance(each, type) and issubclass(each, SegmentMessage) and hasattr(each, "TYPE")
    ]
    table = {each.TYPE: each for each in found}
    assert len(table) == len(set(found)), "two messages of one type"
    return table


def _layout(cls: type[SegmentMessage]) -> Layout:
    hints = get_type_hints(cls, include_extras=True)
    return tuple((field.name, hints[field.name].__metadata__[0]) for field in fields(cls))


def check_in(
    table: MessageTable, message_type: int, length: int, sender: Direction
) -> type[SegmentMessage]:
    """The class of a message that ``sender`` announces. Raises E1, E2 or E3, before its payload
    is received."""
    cls = table.get(message_type)
    if cls is None:
        raise SegmentProtocolError(Fault.E1, message_type)
    if sender not in cls.FROM:
        raise SegmentProtocolError(Fault.E2, message_type)
    if length > MAX_PAYLOAD_BYTES:
        raise SegmentProtocolError(Fault.E3)
    return cls


def decode_payload(cls: type[M], payload: bytes) -> M:
    """The message of that class. Raises E4 or E5."""
    values = []
    at = 0
    for _, field in cls.LAYOUT:
        value, at = field.read(payload, at)
        values.append(value)
    return cls(*values)


def encode(message: SegmentMessage) -> bytes:
    """Header and payload. Raises LocalProtocolError for what no message can hold."""
    try:
        payload = b"".join(field.write(getattr(message, name)) for name, field in message.LAYOUT)
    except struct.error as error:
        raise LocalProtocolError(f"{message}: {error}") from None
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise LocalProtocolError(
            f"{type(message).__name__}: {len(payload)} bytes, at most {MAX_PAYLOAD_BYTES}"
        )
    return HEADER.pack(message.TYPE, len(payload)) + payload
