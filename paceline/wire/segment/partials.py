"""Messages cut into pieces, and put together again (DESIGN 2)."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.wire.segment.errors import Fault, SegmentProtocolError
from paceline.wire.segment.messages import (
    HEADER,
    HEADER_BYTES,
    MAX_PAYLOAD_BYTES,
    PartialKind,
    PartialMessage,
    encode,
)

_MAX_MESSAGE_BYTES = HEADER_BYTES + MAX_PAYLOAD_BYTES


class Assembly:
    """The pieces of at most one message. What is not complete when a connection ends is lost."""

    def __init__(self) -> None:
        self._pieces: bytearray | None = None

    @property
    def is_open(self) -> bool:
        """Whether a message has begun and its end has not come."""
        return self._pieces is not None

    @property
    def held_bytes(self) -> int:
        """Bytes of the pieces that have come."""
        return 0 if self._pieces is None else len(self._pieces)

    def add(self, payload: bytes) -> bytes | None:
        """Take in a PartialMessage's payload; the whole message, header and all, at its end.

        Raises E10 to E14, and E3 as soon as more has come than a message may have.
        """
        if not payload or payload[0] not in tuple(PartialKind):
            raise SegmentProtocolError(Fault.E10)
        kind = PartialKind(payload[0])
        if kind is PartialKind.BEGIN:
            if self._pieces is not None:
                raise SegmentProtocolError(Fault.E11)
            self._pieces = bytearray()
        elif self._pieces is None:
            raise SegmentProtocolError(Fault.E12)
        if len(self._pieces) + len(payload) - 1 > _MAX_MESSAGE_BYTES:
            raise SegmentProtocolError(Fault.E3)
        self._pieces += memoryview(payload)[1:]
        if kind is not PartialKind.END:
            return None
        whole, self._pieces = bytes(self._pieces), None
        if len(whole) < HEADER_BYTES:
            raise SegmentProtocolError(Fault.E13)
        message_type, length = HEADER.unpack_from(whole)
        if length != len(whole) - HEADER_BYTES:
            raise SegmentProtocolError(Fault.E13)
        if message_type == PartialMessage.TYPE:
            raise SegmentProtocolError(Fault.E14)
        return whole


def cut(message: bytes, piece_bytes: int) -> Iterator[bytes]:
    """An encoded message as PartialMessages with ``piece_bytes`` of data each, at least two."""
    first = min(piece_bytes, max(0, len(message) - 1))
    yield encode(PartialMessage(PartialKind.BEGIN, message[:first]))
    at = first
    while len(message) - at > piece_bytes:
        yield encode(PartialMessage(PartialKind.MIDDLE, message[at : at + piece_bytes]))
        at += piece_bytes
    yield encode(PartialMessage(PartialKind.END, message[at:]))
