"""The Pravega dialect's server side of a connection: requests out of bytes.

Sans-I/O. Requests are whole messages, one after the other; none of them spans others, unlike the
blocks of the seed dialect (``server.py``). Memory: one unfinished message, its size limited on its
header, before any of its payload is kept.
"""

from __future__ import annotations

import sys

from paceline.values import dataclass
from paceline.wire.segment import pravega_messages as pravega
from paceline.wire.segment.errors import Fault, SegmentProtocolError
from paceline.wire.segment.framing import (
    HEADER,
    HEADER_BYTES,
    MAX_PAYLOAD_BYTES,
    Direction,
    SegmentMessage,
    check_in,
    decode_payload,
)

_REQUEST_ID_BYTES = 8


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A request of the original that is not served; refuse it as ``operation``."""

    request_id: int
    operation: str


Request = SegmentMessage | Unsupported


class RequestReader:
    """Cuts received bytes into requests."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self.fault: SegmentProtocolError | None = None
        """Why nothing more is taken in."""
        self.has_more = False
        """Whether :meth:`receive` is to be called again, without data."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes received of a request that is not whole yet."""
        return len(self._buffer)

    def receive(
        self, data: bytes | bytearray | memoryview, *, at_most: int = sys.maxsize
    ) -> list[Request]:
        """The requests that are whole now, in order; ``at_most`` so many, and :attr:`has_more`
        where others may lie behind them. Never raises: what is behind a violation of the protocol
        is dropped, and :attr:`fault` is set."""
        self.has_more = False
        if self.fault is not None:
            return []
        self._buffer += data
        requests: list[Request] = []
        try:
            while (request := self._next()) is not None:
                requests.append(request)
                if len(requests) == at_most:
                    self.has_more = True
                    break
        except SegmentProtocolError as error:
            self.fault = error.with_traceback(None)  # that leads back here: a cycle
        del self._buffer[: self._at]
        self._at = 0
        return requests

    def _next(self) -> Request | None:
        if len(self._buffer) - self._at < HEADER_BYTES:
            return None
        message_type, length = HEADER.unpack_from(self._buffer, self._at)
        operation = pravega.UNSUPPORTED.get(message_type)
        if operation is None:
            cls = check_in(pravega.MESSAGES, message_type, length, Direction.CLIENT)
        elif length > MAX_PAYLOAD_BYTES:
            raise SegmentProtocolError(Fault.E3)
        end = self._at + HEADER_BYTES + length
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:
            payload = bytes(view[self._at + HEADER_BYTES : end])
        self._at = end
        if operation is None:
            return decode_payload(cls, payload)
        if length < _REQUEST_ID_BYTES:
            raise SegmentProtocolError(Fault.E4)
        return Unsupported(
            int.from_bytes(payload[:_REQUEST_ID_BYTES], "big", signed=True), operation
        )
