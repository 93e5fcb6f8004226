"""WebSocket as a byte stream of frames, or as messages of text.

Where frames travel over WebSocket each binary message carries exactly one (``wire/frame.py``). The
handlers of the native protocol know byte streams only: :class:`WebSocketStream` cuts what they send
into frames, one message each, and gives them the bytes of the messages that arrive.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
import trio_websocket

from paceline.wire.frame import LENGTH_BYTES
from paceline_node.client_memory import Holding, Portion
from paceline_node.http.talk import Caller, Talk
from paceline_node.net.connection_tasks import connection_tasks
from paceline_node.net.deadlines import arrival_s
from paceline_node.security.sessions import Login

_CLOSE_S = 1.0
_MUCH_BYTES = 64 * 1024
_COPIES = 3
"""Of a message that is being sent: its parts, the whole, and what the library makes of it."""
_FIRST_BYTES = 128 * 1024
"""Of messages before anybody has said how large they may be: one of the native protocol's first
frames, and what has come behind it."""


class ReplayStream(trio.abc.Stream):
    """A stream whose first bytes were read already."""

    def __init__(self, first: bytes, stream: trio.abc.Stream) -> None:
        self._first = first
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._first:
            await trio.lowlevel.checkpoint()
            size = len(self._first) if max_bytes is None else max_bytes
            data, self._first = self._first[:size], self._first[size:]
            return data
        return await self._stream.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


class ChargedStream(trio.abc.Stream):
    """The bytes below a WebSocket. What has come of messages that nobody has taken is charged to
    ``memory``: the library puts pieces together, and keeps what is whole. Where more than 64 KiB
    are there, the rest must come within ``stall_s`` and a second for every 64 KiB."""

    def __init__(self, stream: trio.abc.Stream, memory: Holding, stall_s: float) -> None:
        self._stream = stream
        self._memory = memory
        self._waiting = Portion(memory)
        self._stall_s = stall_s
        self._begun_at = trio.current_time()
        self.max_bytes: float = float("inf")
        """Of messages that nobody has taken; more is as if the stream had ended."""

    def taken(self, size: int) -> None:
        """A message of so many bytes is no longer the library's. What is left that is not much was
        heads and pings."""
        left = self._waiting.held_bytes - size
        self._waiting.set(left if left > _MUCH_BYTES else 0)
        self._begun_at = trio.current_time()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        held_bytes = self._waiting.held_bytes
        if held_bytes <= _MUCH_BYTES:
            data = await self._stream.receive_some(max_bytes)
            if not held_bytes:
                self._begun_at = trio.current_time()
        else:
            await self._memory.room()
            due = self._begun_at + arrival_s(self._stall_s, held_bytes)
            data = b""  # as if it had ended
            with trio.move_on_at(due):
                data = await self._stream.receive_some(max_bytes)
        self._waiting.set(self._waiting.held_bytes + len(data))
        return data if self._waiting.held_bytes <= self.max_bytes else b""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


class WebSocketStream(trio.abc.Stream):
    """A WebSocket's binary messages, each one frame, as a byte stream.

    A text message, or one that is not exactly one frame, breaks the stream. So does a large one,
    until :meth:`allow_messages_of` says how large they may be.
    """

    def __init__(
        self,
        websocket: trio_websocket.WebSocketConnection,
        below: ChargedStream,
        memory: Holding,
    ) -> None:
        self._websocket = websocket
        self._below = below
        self._sending = Portion(memory)
        below.max_bytes = _FIRST_BYTES
        self._incoming = memoryview(b"")
        self._outgoing = bytearray()

    def allow_messages_of(self, size: int) -> None:
        """Let larger messages come. How large at most, the library looks at."""
        self._below.max_bytes = float("inf") if size > _FIRST_BYTES else _FIRST_BYTES

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if not self._incoming:
            try:
                message = await self._websocket.get_message()
            except trio_websocket.ConnectionClosed:
                return b""
            self._below.taken(len(message))
            self._incoming = memoryview(_one_frame(message))
        size = len(self._incoming) if max_bytes is None else max_bytes
        data = bytes(self._incoming[:size])
        self._incoming = self._incoming[size:]
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """What is put together to a message is charged until the client has taken it: of a native
        answer only pieces are in memory, of this one all."""
        await self._sending.grow(_COPIES * len(data))
        self._outgoing += data
        while True:
            size = LENGTH_BYTES + int.from_bytes(self._outgoing[:LENGTH_BYTES], "big")
            if len(self._outgoing) < max(size, LENGTH_BYTES):
                self._sending.set(_COPIES * len(self._outgoing))
                return
            frame = bytes(self._outgoing[:size])
            del self._outgoing[:size]
            try:
                await self._websocket.send_message(frame)
            except trio_websocket.ConnectionClosed as error:
                raise trio.BrokenResourceError("the WebSocket is closed") from error

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        with trio.move_on_after(_CLOSE_S):
            await self._websocket.aclose()


def _one_frame(message: str | bytes) -> bytes:
    if isinstance(message, str):
        raise trio.BrokenResourceError("a text message where binary ones belong")
    said = int.from_bytes(message[:LENGTH_BYTES], "big")
    if len(message) < LENGTH_BYTES or said != len(message) - LENGTH_BYTES:
        raise trio.BrokenResourceError(
            f"a message of {len(message)} bytes is not exactly one frame"
        )
    return message


class TextMessages:
    """A WebSocket's messages of text. Whoever takes nothing for ``send_s`` is as good as gone."""

    def __init__(
        self,
        websocket: trio_websocket.WebSocketConnection,
        below: ChargedStream,
        memory: Holding,
        send_s: float,
    ) -> None:
        self._websocket = websocket
        self._below = below
        self._sending = Portion(memory)
        self._send_s = send_s
        below.max_bytes = _FIRST_BYTES

    async def receive(self) -> str | None:
        """The next one; None: there will be none."""
        try:
            message = await self._websocket.get_message()
        except trio_websocket.ConnectionClosed:
            return None
        self._below.taken(len(message))
        return message if isinstance(message, str) else None

    async def send(self, text: str) -> None:
        """Send one. Raises BrokenResourceError."""
        await self._sending.grow(_COPIES * len(text))
        try:
            with trio.move_on_after(self._send_s) as scope:
                await self._websocket.send_message(text)
        except trio_websocket.ConnectionClosed as error:
            raise trio.BrokenResourceError("the WebSocket is closed") from error
        finally:
            self._sending.give_all()
        if scope.cancelled_caught:
            raise trio.BrokenResourceError("the browser does not read")


Converse = Callable[[trio_websocket.WebSocketConnection, ChargedStream], Awaitable[None]]


def framed(
    handler: Callable[[trio.abc.Stream, str, Login, Holding], Awaitable[None]],
    name: str,
    login: Login,
    memory: Holding,
) -> Converse:
    """Have frames served."""

    async def converse(websocket: trio_websocket.WebSocketConnection, below: ChargedStream) -> None:
        await handler(WebSocketStream(websocket, below, memory), name, login, memory)

    return converse


def spoken(talk: Talk, caller: Caller, send_s: float) -> Converse:
    """Have text served."""

    async def converse(websocket: trio_websocket.WebSocketConnection, below: ChargedStream) -> None:
        await talk(TextMessages(websocket, below, caller.memory, send_s), caller)

    return converse


async def serve_websocket(
    stream: trio.abc.Stream,
    converse: Converse,
    memory: Holding,
    *,
    max_message_bytes: int,
    handshake_s: float,
    stall_s: float,
) -> None:
    """Finish the upgrade on ``stream``, whose first bytes are the request, and have it served.

    A handshake that fails or is too slow, and a client that goes away, end quietly; the stream is
    the caller's to close.
    """
    below = ChargedStream(stream, memory, stall_s)
    try:
        async with connection_tasks() as nursery:
            websocket = None
            with trio.move_on_after(handshake_s):
                websocket = await _accept(nursery, below, max_message_bytes)
            if websocket is not None:
                try:
                    await converse(websocket, below)
                finally:
                    with trio.move_on_after(_CLOSE_S, shield=True):
                        await websocket.aclose()
            nursery.cancel_scope.cancel()
    except* (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # of the library's reader, or of a reset in the handshake


async def _accept(
    nursery: trio.Nursery, stream: trio.abc.Stream, max_message_bytes: int
) -> trio_websocket.WebSocketConnection | None:
    try:
        request = await trio_websocket.wrap_server_stream(
            nursery, stream, message_queue_size=4, max_message_size=max_message_bytes
        )
        return await request.accept()
    except (trio_websocket.HandshakeError, trio_websocket.ConnectionClosed):
        return None
