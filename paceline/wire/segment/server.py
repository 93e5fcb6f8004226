"""The server's side of a connection: bytes in, what is to be done out (DESIGN 2, 3, 4).

Sans-I/O. A driver feeds received bytes to :meth:`ServerConnection.receive` and acts on what it
returns, in order: an Append before an appender's Refusal is still to be stored. It tells an
:class:`Appender` when it is ready, or has failed for reasons of the store; appends that were
passed on before that are the driver's to drop. Block grammar::

    block  := BeginAppendBlock(id, B, N)  region  EndAppendBlock(id, B+L, L)  [tail]
    region := { Event | partial Event | KeepAlive | Padding }  [ open partial ]    <= N wire bytes
    tail   := { Middle | KeepAlive | Padding } End            only if a partial was left open

Whole Events are passed on as runs of their stored bytes, as soon as they are there: a block is a
unit of transport, not of storage. Memory: at most one unfinished message, its size limited before
any of its payload is kept, and one message being put together from pieces.
"""

from __future__ import annotations

import enum
import sys
from uuid import UUID

from paceline.values import dataclass
from paceline.wire.segment.appender import Appender, AppenderState, Refused
from paceline.wire.segment.errors import Fault, ReplyCode, SegmentProtocolError
from paceline.wire.segment.events import walk_events
from paceline.wire.segment.messages import (
    HEADER,
    HEADER_BYTES,
    MAX_PAYLOAD_BYTES,
    BeginAppendBlock,
    Direction,
    EndAppendBlock,
    ErrorMessage,
    Event,
    Hello,
    KeepAlive,
    Padding,
    PartialMessage,
    SegmentMessage,
    SetupAppend,
    check_header,
    decode_payload,
)
from paceline.wire.segment.partials import Assembly

_UUID_BYTES = 16
MAX_RUN_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """``max_event_bytes``: data of one Event; a larger one fails its appender.
    ``max_appenders``: connection ids set up on one connection."""

    max_event_bytes: int = MAX_PAYLOAD_BYTES
    max_appenders: int = 1000


# --- what is to be done ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Requested:
    """A request to be answered: anything that is not part of a block."""

    message: SegmentMessage


@dataclass(frozen=True, slots=True)
class SetUp:
    """A SetupAppend: tell ``appender`` when it is ready or has failed. ``replaced`` was bound to
    the same id before; nothing more will come for it."""

    appender: Appender
    replaced: Appender | None


@dataclass(frozen=True, slots=True)
class Append:
    """Store ``data``, ``count`` whole new Events; the appender's level is ``end`` then. At most
    MAX_RUN_BYTES, or one Event that is larger."""

    appender: Appender
    data: bytes
    count: int
    end: int


@dataclass(frozen=True, slots=True)
class BlockClosed:
    """A block is complete; what was collected may be stored now."""

    appender: Appender


@dataclass(frozen=True, slots=True)
class Refusal:
    """Send ``reply``; the appender, if it is one's, has FAILED."""

    appender: Appender | None
    reply: SegmentMessage


@dataclass(frozen=True, slots=True)
class OtherDialect:
    """The first message asks for another dialect than this one; nothing more is handled.
    ``rest``: what was received behind it."""

    hello: Hello
    rest: bytes


@dataclass(frozen=True, slots=True)
class Violated:
    """A protocol error: say so, close. What came before it stands; nothing more is handled."""

    error: SegmentProtocolError


Step = Requested | SetUp | Append | BlockClosed | Refusal | OtherDialect | Violated


class _Phase(enum.Enum):
    REGION = "region"
    TAIL = "tail"


_IN_REGION = frozenset(
    (Event.TYPE, PartialMessage.TYPE, Padding.TYPE, KeepAlive.TYPE, EndAppendBlock.TYPE)
)
_IN_TAIL = frozenset((PartialMessage.TYPE, Padding.TYPE, KeepAlive.TYPE))


@dataclass(slots=True)
class _Block:
    """An open block. ``room``: wire bytes that may still come in its region. ``stored``: bytes of
    its whole Events so far. ``length``: what EndAppendBlock said, known in the tail."""

    appender: Appender
    offset: int
    room: int
    stored: int = 0
    phase: _Phase = _Phase.REGION
    length: int = 0


class ServerConnection:
    """One connection's state. After a Violated or OtherDialect nothing is taken in any more."""

    def __init__(self, limits: ServerLimits | None = None) -> None:
        self._limits = limits or ServerLimits()
        self._buffer = bytearray()
        self._at = 0
        self._assembly = Assembly()
        self._appenders: dict[UUID, Appender] = {}
        self._block: _Block | None = None
        self._is_first = True
        self._is_over = False
        self._steps: list[Step] = []
        self.has_more = False
        """Whether :meth:`receive` is to be called again, without data."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes received of a message that is not whole yet."""
        return len(self._buffer) + self._assembly.held_bytes

    def receive(
        self, data: bytes | bytearray | memoryview, *, at_most: int = sys.maxsize
    ) -> list[Step]:
        """What the received bytes ask for, in order; of ``at_most`` messages or runs of Events, and
        :attr:`has_more` where others may lie behind them. Never raises: errors are steps."""
        self._steps = []
        self.has_more = False
        if self._is_over:
            return []
        self._buffer += data
        try:
            while not self._is_over and self._advance():
                at_most -= 1
                if not at_most:
                    self.has_more = not self._is_over
                    break
        except SegmentProtocolError as error:
            self._is_over = True
            # Without its traceback, which leads back here: a cycle.
            self._steps.append(Violated(error.with_traceback(None)))
        del self._buffer[: self._at]
        self._at = 0
        return self._steps

    # --- cutting messages out of the stream ------------------------------------------------------

    def _advance(self) -> bool:
        """Handle what lies next in the buffer; False when more must be received first."""
        block = self._block
        if self._take_run(block):
            return True
        if len(self._buffer) - self._at < HEADER_BYTES:
            return False
        message_type, length = HEADER.unpack_from(self._buffer, self._at)
        cls = check_header(message_type, length, Direction.CLIENT)
        self._check_place(message_type)
        if block is not None and block.phase is _Phase.REGION:
            self._check_room(block, message_type, length)
        end = self._at + HEADER_BYTES + length
        if len(self._buffer) < end:
            return False
        with memoryview(self._buffer) as view:
            payload = bytes(view[self._at + HEADER_BYTES : end])
        self._at = end
        if block is not None and message_type != EndAppendBlock.TYPE:
            block.room -= HEADER_BYTES + length  # counts in the region, is of no matter in the tail
        self._handle(cls, payload)
        return True

    def _take_run(self, block: _Block | None) -> bool:
        """Pass on the whole Events that lie next in a block's region, together; whether there were
        any."""
        if block is None or block.phase is not _Phase.REGION or self._assembly.is_open:
            return False
        buffer = self._buffer
        start = at = self._at
        size = len(buffer)
        limit = min(size, at + block.room)
        largest = self._limits.max_event_bytes
        read = HEADER.unpack_from
        count = 0
        while size - at >= HEADER_BYTES:
            kind, length = read(buffer, at)
            if kind or length > largest:
                break
            end = at + HEADER_BYTES + length
            if end > limit or (count and end - start > MAX_RUN_BYTES):
                break
            at = end
            count += 1
        if count:
            with memoryview(buffer) as view:
                run = bytes(view[start:at])
            self._at = at
            block.room -= len(run)
            self._store(block, run, count)
        return count > 0

    def _check_place(self, message_type: int) -> None:
        """Whether a message of this type may come here at all, as its header tells."""
        block = self._block
        if block is None:
            if message_type == Event.TYPE:
                raise SegmentProtocolError(Fault.E25)
            if message_type == EndAppendBlock.TYPE:
                raise SegmentProtocolError(Fault.E26)
        elif block.phase is _Phase.TAIL:
            if message_type not in _IN_TAIL:
                raise SegmentProtocolError(Fault.E24, message_type)
        elif message_type not in _IN_REGION:
            raise SegmentProtocolError(Fault.E23, message_type)
        elif message_type == Event.TYPE and self._assembly.is_open:
            raise SegmentProtocolError(Fault.E15)

    def _check_room(self, block: _Block, message_type: int, length: int) -> None:
        if message_type != EndAppendBlock.TYPE and HEADER_BYTES + length > block.room:
            raise SegmentProtocolError(Fault.E21)

    # --- messages --------------------------------------------------------------------------------

    def _handle(self, cls: type[SegmentMessage], payload: bytes) -> None:
        if cls is PartialMessage:
            self._piece(payload)
        elif cls is Event:
            # Runs take what they can; here comes the one that is larger than this server allows.
            block = self._block
            assert block is not None
            self._store_large(block, payload)
        elif cls is BeginAppendBlock:
            self._begin(payload)
        elif cls is EndAppendBlock:
            self._end(payload)
        elif cls is not Padding:
            self._request(decode_payload(cls, payload))
        self._is_first = False

    def _piece(self, payload: bytes) -> None:
        whole = self._assembly.add(payload)
        if whole is None:
            return
        message_type, length = HEADER.unpack_from(whole)
        cls = check_header(message_type, length, Direction.CLIENT)
        block = self._block
        if block is None:
            self._check_place(message_type)
            self._handle(cls, whole[HEADER_BYTES:])
            return
        if cls is not Event:
            raise SegmentProtocolError(Fault.E15)
        if block.phase is _Phase.TAIL and block.stored + len(whole) != block.length:
            raise SegmentProtocolError(Fault.E22)
        if length > self._limits.max_event_bytes:
            self._store_large(block, whole[HEADER_BYTES:])
        else:
            self._store(block, whole, 1)
        if block.phase is _Phase.TAIL:
            self._close_block(block)

    def _request(self, message: SegmentMessage) -> None:
        if isinstance(message, SetupAppend):
            self._set_up(message)
        elif isinstance(message, Hello) and self._is_first and (message.high or message.low):
            self._is_over = True
            with memoryview(self._buffer) as view:
                rest = bytes(view[self._at :])
            self._steps.append(OtherDialect(message, rest))
        else:
            self._steps.append(Requested(message))

    def _set_up(self, message: SetupAppend) -> None:
        known = self._appenders.get(message.connection_id)
        if known is None and len(self._appenders) >= self._limits.max_appenders:
            text = f"more than {self._limits.max_appenders} appenders on one connection"
            reply = ErrorMessage(
                message.connection_id, message.segment, text, ReplyCode.LIMIT_EXCEEDED
            )
            self._steps.append(Refusal(None, reply))
            return
        appender = Appender(message.connection_id, message.segment)
        self._appenders[message.connection_id] = appender
        self._steps.append(SetUp(appender, known))

    # --- blocks ----------------------------------------------------------------------------------

    def _begin(self, payload: bytes) -> None:
        appender = self._appenders.get(_id_of(payload))
        if appender is None or appender.state is AppenderState.PENDING:
            raise SegmentProtocolError(Fault.E20)
        if self._assembly.is_open:
            raise SegmentProtocolError(Fault.E15)
        message = decode_payload(BeginAppendBlock, payload)
        if message.offset < 0 or message.length < 0:
            raise SegmentProtocolError(Fault.E28)
        self._block = _Block(appender, message.offset, message.length)
        try:
            appender.begin(message.offset)
        except Refused as refused:
            self._steps.append(Refusal(appender, refused.reply))

    def _end(self, payload: bytes) -> None:
        block = self._block
        assert block is not None
        if _id_of(payload) != block.appender.connection_id:
            raise SegmentProtocolError(Fault.E27)
        message = decode_payload(EndAppendBlock, payload)
        length = message.block_length
        if message.offset < 0 or length < 0:
            raise SegmentProtocolError(Fault.E28)
        if message.offset != block.offset + length:
            raise SegmentProtocolError(Fault.E22)
        if self._assembly.is_open:
            block.phase = _Phase.TAIL
            block.length = length
            return
        if length != block.stored:
            raise SegmentProtocolError(Fault.E22)
        self._close_block(block)

    def _close_block(self, block: _Block) -> None:
        self._block = None
        self._steps.append(BlockClosed(block.appender))

    def _store(self, block: _Block, run: bytes, count: int) -> None:
        block.stored += len(run)
        appender = block.appender
        try:
            new = appender.take(run)
        except Refused as refused:
            self._steps.append(Refusal(appender, refused.reply))
            return
        if new:
            assert appender.next is not None
            if len(new) < len(run):
                count = sum(1 for _ in walk_events(new))
            self._steps.append(Append(appender, new, count, appender.next))

    def _store_large(self, block: _Block, data: bytes) -> None:
        block.stored += HEADER_BYTES + len(data)
        appender = block.appender
        if appender.state is AppenderState.FAILED:
            return
        appender.fail()
        text = f"an Event of {len(data)} bytes, at most {self._limits.max_event_bytes}"
        reply = ErrorMessage(
            appender.connection_id, appender.segment, text, ReplyCode.LIMIT_EXCEEDED
        )
        self._steps.append(Refusal(appender, reply))


def _id_of(payload: bytes) -> UUID:
    if len(payload) < _UUID_BYTES:
        raise SegmentProtocolError(Fault.E4)
    return UUID(bytes=payload[:_UUID_BYTES])
