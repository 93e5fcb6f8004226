"""One connection to a segment listener: bytes out, replies in."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

import trio

from paceline.client.endpoint import Endpoint
from paceline.client.settings import ClientSettings
from paceline.client.transport import Dial
from paceline.errors import (
    ConnectionLost,
    InternalError,
    InvalidProducerEpoch,
    InvalidRequest,
    InvalidTopic,
    NotEnoughReplicas,
    OffsetOutOfRange,
    PacelineError,
    RemoteProtocolError,
    RequestTimedOut,
    SegmentSealed,
    Throttled,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from paceline.wire.segment import messages as m
from paceline.wire.segment.client import ReplyReader
from paceline.wire.segment.errors import ReplyCode

M = TypeVar("M", bound=m.SegmentMessage)

_RECEIVE_BYTES = 256 * 1024
_BY_CODE: dict[int, type[PacelineError]] = {
    ReplyCode.ILLEGAL_ARGUMENT: InvalidRequest,
    ReplyCode.PROTOCOL_ERROR: RemoteProtocolError,
    ReplyCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    ReplyCode.NOT_ENOUGH_REPLICAS: NotEnoughReplicas,
    ReplyCode.FENCED: InvalidProducerEpoch,
    ReplyCode.TIMEOUT: RequestTimedOut,
    ReplyCode.LIMIT_EXCEEDED: Throttled,
    ReplyCode.INVALID_NAME: InvalidTopic,
}


class Moved(Exception):
    """Another node leads the segment; ``where`` is its listener, None while nobody is known."""

    def __init__(self, where: Endpoint | None) -> None:
        super().__init__(str(where))
        self.where = where


class SegmentLink:
    """A connection for one user: a writer, a reader, or one request."""

    def __init__(self, stream: trio.abc.Stream, name: str) -> None:
        self._stream = stream
        self._name = name
        self._reader = ReplyReader()
        self._replies: deque[m.SegmentMessage] = deque()

    async def send(self, data: bytes) -> None:
        """Send encoded messages. Raises ConnectionLost."""
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionLost(f"{self._name}: {error}") from error

    async def receive(self) -> m.SegmentMessage:
        """The next reply. Raises ConnectionLost, RemoteProtocolError."""
        while not self._replies:
            try:
                data = await self._stream.receive_some(_RECEIVE_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise ConnectionLost(f"{self._name}: {error}") from error
            if not data:
                raise ConnectionLost(f"{self._name}: the other side has closed")
            self._replies.extend(self._reader.receive(data))
        return self._replies.popleft()

    async def ask(self, request: m.SegmentMessage, kind: type[M], *, timeout_s: float) -> M:
        """The answer to ``request``, for a link that nobody else uses meanwhile.

        Raises Moved, what :func:`error_of` makes of an error reply, and ConnectionLost, also when
        nothing comes within ``timeout_s``.
        """
        with trio.move_on_after(timeout_s):
            await self.send(m.encode(request))
            return await self._expect(kind)
        raise ConnectionLost(f"{self._name}: no answer within {timeout_s:g} s")

    async def more(self, kind: type[M], *, timeout_s: float) -> M:
        """A further answer to the same request. Raises as :meth:`ask`."""
        with trio.move_on_after(timeout_s):
            return await self._expect(kind)
        raise ConnectionLost(f"{self._name}: no answer within {timeout_s:g} s")

    async def _expect(self, kind: type[M]) -> M:
        while True:
            reply = await self.receive()
            if isinstance(reply, kind):
                return reply
            if isinstance(reply, m.WrongHost):
                raise moved_to(reply)
            if not isinstance(reply, m.KeepAlive | m.DataAppended):
                raise error_of(reply)

    async def close(self) -> None:
        """Close without waiting for the other side."""
        await trio.aclose_forcefully(self._stream)


def error_of(reply: m.SegmentMessage) -> PacelineError:
    """A reply that is not what was asked for, as an error."""
    match reply:
        case m.NoSuchSegment(segment):
            return UnknownTopicOrPartition(f"there is no segment {segment!r}")
        case m.SegmentIsSealed(segment):
            return SegmentSealed(f"segment {segment!r} is sealed")
        case m.SegmentAlreadyExists(segment):
            return TopicAlreadyExists(f"segment {segment!r} exists already")
        case m.SegmentIsTruncated(segment, start):
            return OffsetOutOfRange(f"segment {segment!r} begins at byte {start}")
        case m.InvalidConnectionOffset(_, expected):
            return InvalidRequest(f"the appender's next byte is {expected}")
        case m.ErrorMessage(_, segment, message, code):
            return _BY_CODE.get(code, InternalError)(f"{segment}: {message}")
    return RemoteProtocolError(f"unexpected {type(reply).__name__}")


def moved_to(reply: m.WrongHost) -> Moved:
    """Where to go on."""
    return Moved(_endpoint(reply.correct_host))


def _endpoint(host_port: str) -> Endpoint | None:
    host, colon, port = host_port.rpartition(":")
    if not colon or not port.isdecimal():
        return None
    return Endpoint(host.removeprefix("[").removesuffix("]"), int(port))


async def open_link(endpoint: Endpoint, dial: Dial, settings: ClientSettings) -> SegmentLink:
    """A new connection; the caller closes it. Raises ConnectionLost when it cannot be made."""
    stream: trio.abc.Stream | None = None
    try:
        with trio.move_on_after(settings.connect_timeout_s):
            stream = await dial(endpoint)
    except OSError as error:
        raise ConnectionLost(f"{endpoint}: {error}", was_sent=False) from error
    if stream is None:
        raise ConnectionLost(
            f"{endpoint}: not connected within {settings.connect_timeout_s:g} s", was_sent=False
        )
    return SegmentLink(stream, str(endpoint))
