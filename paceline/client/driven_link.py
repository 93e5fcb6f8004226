"""One connection to a node's Kafka listener: frames of four bytes of size and that many."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from paceline.client.endpoint import Endpoint
from paceline.client.transport import Dial, text_of
from paceline.errors import ConnectionLost, RemoteProtocolError
from paceline.wire.coordinator.codec import Header, Response, read_response, request_frame
from paceline.wire.kafka import apis
from paceline.wire.kafka.apis import APIS, RequestHeader
from paceline.wire.kafka.layout import Struct

_SIZE_BYTES = 4
_RECEIVE_BYTES = 64 * 1024
_FRAME_BYTES_MAX = 64 * 1024 * 1024


class DrivenLink:
    """Used by one task at a time. All methods raise ConnectionLost and RemoteProtocolError."""

    def __init__(self, stream: trio.abc.Stream, name: str) -> None:
        self._stream = stream
        self._name = name
        self._buffer = bytearray()

    async def send(self, frame: bytes | bytearray) -> None:
        """Send a whole frame."""
        try:
            await self._stream.send_all(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise ConnectionLost(f"{self._name}: sending failed: {text_of(error)}") from error

    async def receive(self) -> memoryview:
        """The next frame, without its size. Cancelling loses nothing."""
        while True:
            size = int.from_bytes(self._buffer[:_SIZE_BYTES], "big", signed=True)
            if len(self._buffer) >= _SIZE_BYTES:
                if not 0 <= size <= _FRAME_BYTES_MAX:
                    raise RemoteProtocolError(f"{self._name}: a frame of {size} bytes")
                end = _SIZE_BYTES + size
                if len(self._buffer) >= end:
                    frame = bytes(self._buffer[_SIZE_BYTES:end])
                    del self._buffer[:end]
                    return memoryview(frame)
            await self._fill()

    async def read_ahead(self) -> None:
        """Keep what comes for :meth:`receive` until cancelled: who waits for something else learns
        by it that the connection has ended. Cancelling loses nothing."""
        while len(self._buffer) < _RECEIVE_BYTES:
            await self._fill()
        await trio.sleep_forever()

    async def _fill(self) -> None:
        try:
            data = await self._stream.receive_some(_RECEIVE_BYTES)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise ConnectionLost(f"{self._name}: receiving failed: {text_of(error)}") from error
        if not data:
            raise ConnectionLost(f"{self._name}: closed by the other side")
        self._buffer += data

    async def ask(self, header: Header, body: Struct) -> Response:
        """The answer to a request of the coordinator protocol."""
        await self.send(request_frame(header, body))
        return read_response(header, await self.receive())

    async def ask_kafka(self, header: RequestHeader, request: Struct) -> Struct:
        """The answer to a request of the Kafka protocol."""
        await self.send(apis.request_frame(header, request))
        frame = await self.receive()
        return apis.read_response(frame, _SIZE_BYTES, APIS[header.key], header.version)


@asynccontextmanager
async def dialled(dial: Dial, endpoint: Endpoint, *, timeout_s: float) -> AsyncIterator[DrivenLink]:
    """A link to a listener, closed at the end. Raises ConnectionLost."""
    try:
        with trio.fail_after(timeout_s):
            stream = await dial(endpoint)
    except (OSError, trio.TooSlowError) as error:
        text = f"{endpoint}: connecting failed: {text_of(error)}"
        raise ConnectionLost(text, was_sent=False) from error
    try:
        yield DrivenLink(stream, str(endpoint))
    finally:
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(stream)
