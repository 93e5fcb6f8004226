"""Frames over a byte stream or a WebSocket: the only place of the client that touches sockets.

Exactly one task sends and one receives. Both raise ConnectionLost when the other side is gone;
cancelling a send leaves the transport unusable, cancelling a receive does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio
import trio_websocket

from paceline.client.endpoint import Endpoint
from paceline.errors import ConnectionLost, RemoteProtocolError
from paceline.wire.frame import LENGTH_BYTES, Frame, decode
from paceline.wire.framebuffer import FrameBuffer

Bytes = bytes | bytearray | memoryview
Dial = Callable[[Endpoint], Awaitable[trio.abc.Stream]]
"""Opens a byte stream to an endpoint. Raises OSError."""

JOIN_BYTES = 64 * 1024
"""Pieces are joined into one write up to this size: a copy is cheaper than a system call."""


class Transport(Protocol):
    async def send(self, frames: Sequence[Sequence[Bytes]]) -> None:
        """Send whole frames, each given in pieces, in order."""

    async def receive(self) -> Frame:
        """The next frame. Raises ConnectionLost at the end, RemoteProtocolError on bad bytes."""

    async def aclose(self) -> None:
        """Close without waiting for the other side."""


async def dial_tcp(endpoint: Endpoint) -> trio.abc.Stream:
    """A TCP connection with TCP_NODELAY (trio's default). Raises OSError."""
    return await trio.open_tcp_stream(endpoint.host, endpoint.port)


class StreamTransport:
    """Frames on a trio stream. Large payloads are neither joined before sending nor copied after
    receiving."""

    def __init__(self, stream: trio.abc.Stream, *, max_frame_bytes: int) -> None:
        self._stream = stream
        self._socket = stream.socket if isinstance(stream, trio.SocketStream) else None
        self._buffer = FrameBuffer(max_frame_bytes=max_frame_bytes)

    async def send(self, frames: Sequence[Sequence[Bytes]]) -> None:
        try:
            small: list[Bytes] = []
            size = 0
            for pieces in frames:
                for piece in pieces:
                    if len(piece) >= JOIN_BYTES:
                        await self._send_joined(small)
                        small, size = [], 0
                        await self._stream.send_all(piece)
                        continue
                    small.append(piece)
                    size += len(piece)
                    if size >= JOIN_BYTES:
                        await self._send_joined(small)
                        small, size = [], 0
            await self._send_joined(small)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise ConnectionLost(f"sending failed: {_text(error)}") from error

    async def _send_joined(self, pieces: list[Bytes]) -> None:
        if pieces:
            await self._stream.send_all(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    async def receive(self) -> Frame:
        while True:
            frame = self._buffer.next_frame()
            if frame is not None:
                return frame
            try:
                count = await self._fill(self._buffer.targets())
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
                raise ConnectionLost(f"receiving failed: {_text(error)}") from error
            if count == 0:
                raise ConnectionLost("closed by the other side")
            self._buffer.received(count)

    async def _fill(self, targets: list[memoryview]) -> int:
        if self._socket is not None:
            if len(targets) == 1:
                return await self._socket.recv_into(targets[0])
            received = await self._socket.recvmsg_into(targets)
            return received[0]
        data = await self._stream.receive_some(sum(map(len, targets)))
        rest = memoryview(data)
        for target in targets:
            part, rest = rest[: len(target)], rest[len(target) :]
            target[: len(part)] = part
        return len(data)

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)


class WebSocketTransport:
    """One frame a binary message, its length word included."""

    def __init__(self, socket: trio_websocket.WebSocketConnection, stream: trio.abc.Stream) -> None:
        self._websocket = socket
        self._stream = stream
        self._received: deque[Frame] = deque()

    @classmethod
    async def open(
        cls,
        stream: trio.abc.Stream,
        endpoint: Endpoint,
        nursery: trio.Nursery,
        *,
        max_frame_bytes: int,
    ) -> WebSocketTransport:
        """Shake hands on ``stream``; the WebSocket's reader runs in ``nursery``."""
        try:
            socket = await trio_websocket.wrap_client_stream(
                nursery,
                stream,  # type: ignore[arg-type]  # any stream will do; only sockets are declared
                f"{endpoint.host}:{endpoint.port}",
                endpoint.path or "/",
                max_message_size=max_frame_bytes + LENGTH_BYTES,
                receive_buffer_size=JOIN_BYTES,
            )
        except trio_websocket.HandshakeError as error:
            raise ConnectionLost(f"WebSocket refused: {_text(error)}", was_sent=False) from error
        return cls(socket, stream)

    async def send(self, frames: Sequence[Sequence[Bytes]]) -> None:
        try:
            for pieces in frames:
                await self._websocket.send_message(b"".join(pieces))
        except (trio_websocket.ConnectionClosed, trio.BrokenResourceError, OSError) as error:
            raise ConnectionLost(f"sending failed: {_text(error)}") from error

    async def receive(self) -> Frame:
        try:
            message = await self._websocket.get_message()
        except trio_websocket.ConnectionClosed as error:
            raise ConnectionLost(f"closed by the other side: {_text(error)}") from error
        if isinstance(message, str):
            raise RemoteProtocolError("a WebSocket text message; frames are binary")
        if (
            len(message) < LENGTH_BYTES
            or int.from_bytes(message[:LENGTH_BYTES], "big") != len(message) - LENGTH_BYTES
        ):
            raise RemoteProtocolError(f"a WebSocket message of {len(message)} bytes is no frame")
        return decode(memoryview(message)[LENGTH_BYTES:])

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
