"""Messages of the seed dialect: types and layouts (DESIGN 1).

::

    flags    1 byte: 0x80 at tail, 0x40 at end of segment; the other bits are ignored
    Java     u16 byte count, then modified UTF-8 (all kinds of fields: ``fields.py``)

Replies carry no request id: they are matched by type and segment. How messages are framed, and the
Pravega dialect's messages: ``framing.py``, ``pravega_messages.py``.
"""

from __future__ import annotations

import enum
from typing import Annotated
from uuid import UUID

from paceline.values import dataclass
from paceline.wire.segment.fields import BYTE, Bool, Byte, Data, Field, Id, Int, Java, Long
from paceline.wire.segment.framing import BOTH, CLIENT, SERVER, check_in, message, table_of
from paceline.wire.segment.framing import HEADER as HEADER
from paceline.wire.segment.framing import HEADER_BYTES as HEADER_BYTES
from paceline.wire.segment.framing import MAX_PAYLOAD_BYTES as MAX_PAYLOAD_BYTES
from paceline.wire.segment.framing import Direction as Direction
from paceline.wire.segment.framing import SegmentMessage as SegmentMessage
from paceline.wire.segment.framing import decode_payload as decode_payload
from paceline.wire.segment.framing import encode as encode

NO_ID = UUID(int=0)


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


def _read_flags(data: bytes, at: int) -> tuple[ReadFlags, int]:
    value, at = BYTE.read(data, at)
    return ReadFlags(value & (ReadFlags.TAIL | ReadFlags.END)), at


Flags = Annotated[ReadFlags, Field(lambda value: bytes((int(value),)), _read_flags)]


@message(-127, BOTH)
class Hello(SegmentMessage):
    """Versions spoken; (0, 0) is the seed dialect."""

    high: Int
    low: Int


@message(-2, BOTH)
class PartialMessage(SegmentMessage):
    """A piece of a message (DESIGN 2); ``kind`` as received, maybe no PartialKind."""

    kind: Byte
    data: Data


@message(-1, BOTH)
class Padding(SegmentMessage):
    """Fills a block; ignored."""

    data: Data


@message(0, CLIENT)
class Event(SegmentMessage):
    """What is appended; stored with its header. Only inside a block."""

    data: Data


@message(1, CLIENT)
class SetupAppend(SegmentMessage):
    connection_id: Id
    segment: Java


@message(2, SERVER)
class AppendSetup(SegmentMessage):
    """``level``: bytes of this appender that are stored; 0 for a new one."""

    segment: Java
    connection_id: Id
    level: Long


@message(3, CLIENT)
class BeginAppendBlock(SegmentMessage):
    """``offset``: stored bytes of the appender before the block. ``length``: the most wire bytes
    that may come before EndAppendBlock."""

    connection_id: Id
    offset: Long
    length: Int


@message(4, CLIENT)
class EndAppendBlock(SegmentMessage):
    """``offset``: the appender's stored bytes with this block. ``block_length``: those of the
    block, the Event finished behind this message included."""

    connection_id: Id
    offset: Long
    block_length: Int


@message(5, SERVER)
class DataAppended(SegmentMessage):
    """All bytes of the appender before ``level`` are committed."""

    connection_id: Id
    level: Long


@message(6, CLIENT)
class ReadSegment(SegmentMessage):
    segment: Java
    offset: Long
    suggested_length: Int


@message(7, SERVER)
class SegmentRead(SegmentMessage):
    segment: Java
    offset: Long
    flags: Flags
    data: Data


@dataclass(frozen=True, slots=True)
class _OfSegment(SegmentMessage):
    """A message that holds a segment's name and nothing else."""

    segment: Java


@message(8, CLIENT)
class GetStreamSegmentInfo(_OfSegment):
    pass


@message(9, SERVER)
class StreamSegmentInfo(SegmentMessage):
    """``length`` is the readable end, ``start_offset`` the first byte that is still kept."""

    segment: Java
    exists: Bool
    is_sealed: Bool
    is_deleted: Bool
    last_modified_ms: Long
    length: Long
    start_offset: Long


@message(20, CLIENT)
class CreateSegment(_OfSegment):
    pass


@message(21, SERVER)
class SegmentCreated(_OfSegment):
    pass


@message(22, CLIENT)
class CreateBatch(SegmentMessage):
    """A stub of the original, as the three after it; never supported."""


@message(23, SERVER)
class BatchCreated(SegmentMessage):
    pass


@message(24, CLIENT)
class MergeBatch(SegmentMessage):
    pass


@message(25, SERVER)
class BatchMerged(SegmentMessage):
    pass


@message(26, CLIENT)
class SealSegment(_OfSegment):
    pass


@message(27, SERVER)
class SegmentSealed(_OfSegment):
    pass


@message(28, CLIENT)
class DeleteSegment(_OfSegment):
    pass


@message(29, SERVER)
class SegmentDeleted(_OfSegment):
    pass


@message(38, CLIENT)
class TruncateSegment(SegmentMessage):
    segment: Java
    offset: Long


@message(39, SERVER)
class SegmentTruncated(_OfSegment):
    pass


@message(50, SERVER)
class WrongHost(SegmentMessage):
    """``correct_host``: ``host:port`` of the leader's listener, empty while nobody is known."""

    segment: Java
    correct_host: Java


@message(51, SERVER)
class SegmentIsSealed(_OfSegment):
    pass


@message(52, SERVER)
class SegmentAlreadyExists(_OfSegment):
    pass


@message(53, SERVER)
class NoSuchSegment(_OfSegment):
    pass


@message(54, SERVER)
class NoSuchBatch(SegmentMessage):
    batch: Java


@message(55, SERVER)
class InvalidConnectionOffset(SegmentMessage):
    connection_id: Id
    expected_offset: Long


@message(56, SERVER)
class SegmentIsTruncated(SegmentMessage):
    segment: Java
    start_offset: Long


@message(57, SERVER)
class OperationUnsupported(SegmentMessage):
    operation: Java


@message(61, SERVER)
class ErrorMessage(SegmentMessage):
    """``connection_id`` is zero and ``segment`` empty where the error concerns none."""

    connection_id: Id
    segment: Java
    message: Java
    error_code: Int


@message(100, BOTH)
class KeepAlive(SegmentMessage):
    data: Data = b""


MESSAGES = table_of(list(globals().values()))
"""Every message of the dialect by its type."""


def check_header(message_type: int, length: int, sender: Direction) -> type[SegmentMessage]:
    """The class of a message that ``sender`` announces. Raises E1, E2 or E3, before its payload
    is received."""
    return check_in(MESSAGES, message_type, length, sender)
