"""Frames over a byte stream. Only here and in ``websocket.py`` does the client touch sockets.

Exactly one task sends and one receives. Both raise ConnectionLost when the other side is gone;
cancelling a send leaves the transport unusable, cancelling a receive does not.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from paceline.client.endpoint import Endpoint
from paceline.errors import AuthenticationFailed, ConnectionLost, PacelineError, Unreachable
from paceline.wire.frame import Frame
from paceline.wire.framebuffer import FrameBuffer

Bytes = bytes | bytearray | memoryview
Dial = Callable[[Endpoint], Awaitable[trio.abc.Stream]]
"""Opens a byte stream to an endpoint. Raises OSError."""

_RECORD_BYTES = 16 * 1024  # of TLS, at most
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
            raise ConnectionLost(f"sending failed: {text_of(error)}") from error

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
                raise _lost("receiving", error) from error
            if count == 0:
                raise ConnectionLost("closed by the other side")
            self._buffer.received(count)

    async def _fill(self, targets: list[memoryview]) -> int:
        if self._socket is not None:
            if len(targets) == 1:
                return await self._socket.recv_into(targets[0])
            received = await self._socket.recvmsg_into(targets)
            return received[0]
        size = sum(map(len, targets))
        if isinstance(self._stream, trio.SSLStream):
            size = min(size, _RECORD_BYTES)  # it clears as much memory as it is asked for
        data = await self._stream.receive_some(size)
        rest = memoryview(data)
        for target in targets:
            part, rest = rest[: len(target)], rest[len(target) :]
            target[: len(part)] = part
        return len(data)

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)


_NOBODY = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH})
_NO_SUCH_FAMILY = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


def dial_error(where: Endpoint, error: OSError) -> ConnectionLost:
    """Unreachable where dialling failed because nothing takes connections there; ConnectionLost for
    what may pass, such as a name server that does not answer or a lack of descriptors here."""
    error = _cause_of(error)
    if isinstance(error, socket.gaierror):  # its numbers are none of errno
        is_nobody = error.errno == socket.EAI_NONAME
        reason = error.strerror or text_of(error)
    else:
        is_nobody = error.errno in _NOBODY
        # By the number, because trio puts the address, which the caller names, into the text.
        reason = os.strerror(error.errno) if error.errno else error.strerror or text_of(error)
    kind = Unreachable if is_nobody else ConnectionLost
    return kind(f"{where}: {reason.lower()}", was_sent=False)


def _cause_of(error: OSError) -> OSError:
    """Trio groups what the system said about each address of a host. What may pass stands for all;
    an address of a family that this machine lacks (::1 of localhost, often) for none but itself."""
    cause = error.__cause__
    if not isinstance(cause, BaseExceptionGroup):
        return error
    causes = [each for each in cause.exceptions if isinstance(each, OSError)]
    causes.sort(key=lambda each: (each.errno in _NO_SUCH_FAMILY, each.errno in _NOBODY))
    return causes[0] if causes else error


def text_of(error: BaseException) -> str:
    """What an error says, or at least what it is."""
    return str(error) or str(error.__cause__ or "") or type(error).__name__


def _lost(what: str, error: Exception) -> PacelineError:
    refusal = refusal_of(error.__cause__)
    if refusal is not None:
        return AuthenticationFailed(refusal)
    return ConnectionLost(f"{what} failed: {text_of(error)}")


def refusal_of(error: BaseException | None) -> str | None:
    """What a node says against the client's certificate, or that it shows none; None where an error
    is something else. In TLS 1.3 that comes behind the handshake."""
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    if reason is None or "ALERT" not in reason:
        return None
    if not any(word in reason for word in ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")):
        return None
    said = reason.partition("ALERT_")[2].lower().replace("_", " ")
    return f"the node refuses this client ({said})"
