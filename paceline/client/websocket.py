"""Frames over a WebSocket. Loaded when the first WebSocket is opened: most clients never do.

As for any transport, exactly one task sends and one receives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import trio
import trio_websocket

from paceline.client.endpoint import Endpoint
from paceline.client.transport import JOIN_BYTES, Bytes, text_of
from paceline.errors import ConnectionLost, RemoteProtocolError
from paceline.wire.frame import LENGTH_BYTES, Frame, decode


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
            raise ConnectionLost(f"WebSocket refused: {text_of(error)}", was_sent=False) from error
        return cls(socket, stream)

    async def send(self, frames: Sequence[Sequence[Bytes]]) -> None:
        try:
            for pieces in frames:
                await self._websocket.send_message(b"".join(pieces))
        except (trio_websocket.ConnectionClosed, trio.BrokenResourceError, OSError) as error:
            raise ConnectionLost(f"sending failed: {text_of(error)}") from error

    async def receive(self) -> Frame:
        try:
            message = await self._websocket.get_message()
        except trio_websocket.ConnectionClosed as error:
            raise ConnectionLost(f"closed by the other side: {text_of(error)}") from error
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
