"""The client's side of a connection: replies out of bytes, blocks out of Events.

Sans-I/O. Replies may come in pieces (DESIGN 2); there are no request ids, so who asked what
is the caller's to know.
"""

from __future__ import annotations

from uuid import UUID

from paceline.wire.segment.events import frame_events
from paceline.wire.segment.messages import (
    HEADER,
    HEADER_BYTES,
    BeginAppendBlock,
    Direction,
    EndAppendBlock,
    Padding,
    PartialMessage,
    SegmentMessage,
    check_header,
    decode_payload,
    encode,
)
from paceline.wire.segment.partials import Assembly

UNBOUNDED = 0x7FFFFFFF
"""A block's length that sets no limit."""


class ReplyReader:
    """Cuts received bytes into replies; linear in its input however it is split."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._assembly = Assembly()

    def receive(self, data: bytes | bytearray | memoryview) -> list[SegmentMessage]:
        """All replies that are whole now. Raises SegmentProtocolError; those before it are lost
        then, which is what their senders must expect of a connection."""
        self._buffer += data
        replies: list[SegmentMessage] = []
        while (reply := self._next()) is not None:
            if not isinstance(reply, Padding | PartialMessage):
                replies.append(reply)
        del self._buffer[: self._at]
        self._at = 0
        return replies

    def _next(self) -> SegmentMessage | None:
        if len(self._buffer) - self._at < HEADER_BYTES:
            return None
        message_type, length = HEADER.unpack_from(self._buffer, self._at)
        cls = check_header(message_type, length, Direction.SERVER)
        end = self._at + HEADER_BYTES + length
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:
            payload = bytes(view[self._at + HEADER_BYTES : end])
        self._at = end
        if cls is not PartialMessage:
            return decode_payload(cls, payload)
        whole = self._assembly.add(payload)
        if whole is None:
            return PartialMessage(payload[0], b"")
        message_type, length = HEADER.unpack_from(whole)
        return decode_payload(
            check_header(message_type, length, Direction.SERVER), whole[HEADER_BYTES:]
        )


def closed_block(connection_id: UUID, offset: int, events: list[bytes]) -> bytes:
    """A whole block of ``events`` of an appender that has stored ``offset`` bytes before, with
    exact lengths, as the strictest reader of the protocol expects it."""
    run = frame_events(events)
    return b"".join(
        (
            encode(BeginAppendBlock(connection_id, offset, len(run))),
            run,
            encode(EndAppendBlock(connection_id, offset + len(run), len(run))),
        )
    )
