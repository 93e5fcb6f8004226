"""Moving bytes over one connection: scatter, gather and sendfile where there is a plain socket.

A driver module: the only place beside ``network.py`` that works on descriptors. A
:class:`SocketTransport` reads and writes a TCP socket directly, which saves trio's own per-call
checks and joins on the hot path; a :class:`StreamTransport` does the same over any trio stream
(TLS, WebSocket adapters, the simulator's network).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Protocol

import trio

from paceline.errors import CorruptMessage
from paceline.values import dataclass
from paceline_node.env import Bytes, ReadableFile
from paceline_node.net.disconnects import ClientStream, Disconnects

_JOIN_BYTES = 64 * 1024
_READ_BYTES = 1024 * 1024  # a piece of a file: read, sent or probed at once
_IOV_COUNT = 512
_RECORD_BYTES = 16 * 1024  # of TLS, at most
_ENCRYPTED_BYTES = 256 * 1024  # at once: 0.1 to 0.3 ms
_COLD = frozenset({errno.EAGAIN, errno.EINTR})
_GONE = frozenset({errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.ETIMEDOUT, errno.EBADF})


@dataclass(frozen=True, slots=True)
class FilePart:
    """``size`` bytes of ``file`` from ``position``, to be sent as they are. The file must stay
    open, and the range unchanged, until it is sent."""

    file: ReadableFile
    position: int
    size: int


class Transport(Protocol):
    """One task may receive and one may send at the same time. All methods raise
    trio.BrokenResourceError, trio.ClosedResourceError or OSError when the connection is gone."""

    async def receive_into(self, targets: Sequence[memoryview]) -> int:
        """Fill the targets in order with what has arrived, at least one byte; 0 is the end of the
        stream. Always a checkpoint; cancelled, it has consumed nothing."""

    async def send(self, chunks: Sequence[Bytes]) -> None:
        """Send all chunks in order. Not a checkpoint when the kernel takes them at once;
        cancelled, an unknown part is sent and the connection is of no further use."""

    async def send_file(self, part: FilePart) -> None:
        """Send a range of a file; as :meth:`send`. A file that ends early is an OSError."""

    def send_now(self, chunks: Sequence[Bytes]) -> int:
        """Send what the kernel takes at once, without waiting; how many bytes that were."""


def transport_for(stream: trio.abc.Stream) -> Transport:
    """The fastest transport for ``stream``. The stream stays the caller's to close."""
    if isinstance(stream, ClientStream):
        return SocketTransport(stream.plain, stream.leaving)
    if isinstance(stream, trio.SocketStream):
        return SocketTransport(stream)
    if isinstance(stream, trio.SSLStream):
        return EncryptedTransport(stream)
    return StreamTransport(stream)


class StreamTransport:
    """Any trio stream."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    def send_now(self, chunks: Sequence[Bytes]) -> int:
        return 0  # a trio stream sends by awaiting only

    async def receive_into(self, targets: Sequence[memoryview]) -> int:
        data = await self._stream.receive_some(sum(map(len, targets)))
        view = memoryview(data)
        for target in targets:
            size = min(len(target), len(view))
            target[:size] = view[:size]
            view = view[size:]
            if not view:
                break
        return len(data)

    async def send(self, chunks: Sequence[Bytes]) -> None:
        small: list[Bytes] = []
        small_bytes = 0
        for chunk in chunks:
            size = len(chunk)
            if small and small_bytes + size > _JOIN_BYTES:
                await self._stream.send_all(b"".join(small))
                small, small_bytes = [], 0
            if size > _JOIN_BYTES:
                await self._stream.send_all(chunk)
            else:
                small.append(chunk)
                small_bytes += size
        if small:
            await self._stream.send_all(b"".join(small))

    async def send_file(self, part: FilePart) -> None:
        position, end = part.position, part.position + part.size
        while position < end:
            data = await _read_to_send(part.file, min(_READ_BYTES, end - position), position)
            await self._stream.send_all(data)
            position += len(data)


class EncryptedTransport(StreamTransport):
    """TLS. A read brings one TLS record at most, so the library is given no more room, which it
    would clear each time; and what is sent is encrypted in pieces, with others' turns between."""

    async def receive_into(self, targets: Sequence[memoryview]) -> int:
        first = targets[0]
        return await super().receive_into((first[:_RECORD_BYTES],) if first else targets)

    async def send(self, chunks: Sequence[Bytes]) -> None:
        for chunk in chunks:
            if len(chunk) > _ENCRYPTED_BYTES:
                break
        else:
            await super().send(chunks)
            return
        for chunk in chunks:
            view = memoryview(chunk)
            for at in range(0, len(view), _ENCRYPTED_BYTES):
                await super().send((view[at : at + _ENCRYPTED_BYTES],))


class SocketTransport:
    """A plain TCP (or Unix) socket: ``readv``, ``writev`` and ``sendfile`` on its descriptor. With
    ``leaving``, its end is told when there is a turn."""

    def __init__(self, stream: trio.SocketStream, leaving: Disconnects | None = None) -> None:
        self._socket = stream.socket
        self._leaving = leaving
        self._more = False  # the last receive filled all targets: more is likely there

    def _fd(self) -> int:
        # Asked anew each time: after a close the number may belong to another connection.
        fd = self._socket.fileno()
        if fd < 0:
            raise trio.ClosedResourceError("the socket is closed")
        return fd

    async def receive_into(self, targets: Sequence[memoryview]) -> int:
        if self._more:
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.wait_readable(self._fd())
        while True:
            fd = self._fd()
            broken: OSError | None = None
            count = 0
            try:
                count = os.readv(fd, targets)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(fd)
                continue
            except OSError as error:
                broken = error.with_traceback(None)
            if count == 0:
                await self._turn_to_leave()
            if broken is not None:
                try:
                    raise broken
                finally:
                    del broken  # a cycle otherwise (``bare_errors.py``)
            self._more = count == sum(map(len, targets))
            return count

    async def _turn_to_leave(self) -> None:
        if self._leaving is not None:
            await self._leaving.turn()

    async def send(self, chunks: Sequence[Bytes]) -> None:
        pending = list(chunks)
        first = 0
        while first < len(pending):
            fd = self._fd()
            try:
                sent = os.writev(fd, pending[first : first + _IOV_COUNT])
            except BlockingIOError:
                await trio.lowlevel.wait_writable(fd)
                continue
            first = advance(pending, first, sent)

    def send_now(self, chunks: Sequence[Bytes]) -> int:
        try:
            return os.writev(self._fd(), chunks[:_IOV_COUNT])
        except BlockingIOError:
            return 0

    async def send_file(self, part: FilePart) -> None:
        position, end = part.position, part.position + part.size
        while position < end:
            size = min(_READ_BYTES, end - position)
            source = part.file.fileno()
            if source is None or not is_cached(source, position, size):
                # sendfile would wait for the disk with the whole event loop behind it.
                data = await _read_to_send(part.file, size, position)
                await self.send((data,))
                position += len(data)
                continue
            fd = self._fd()
            try:
                sent = os.sendfile(fd, source, position, size)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(fd)
                continue
            except OSError as error:
                if error.errno in _GONE:
                    raise
                sent = 0
            if sent == 0:  # the file's fault, it seems; reading it tells those whose file it is
                data = await _read_to_send(part.file, size, position)
                await self.send((data,))
                sent = len(data)
            position += sent


async def read_part(file: ReadableFile, size: int, position: int) -> bytes:
    """Up to ``size`` bytes in a thread; an end of file there is an OSError. Raises CorruptMessage
    where the disk has lost them."""
    data = await file.read(size, position)
    if not data:
        raise ended_early(file, position)
    return data


def ended_early(file: ReadableFile, position: int) -> OSError:
    return OSError(errno.EIO, f"file ends at {position} while a range of it is sent", file.path)


async def _read_to_send(file: ReadableFile, size: int, position: int) -> bytes:
    try:
        return await read_part(file, size, position)
    except CorruptMessage as error:
        raise unreadable(error) from error


def unreadable(error: CorruptMessage) -> OSError:
    """The failure of a connection in the middle of an answer whose rest cannot be read."""
    return OSError(errno.EIO, str(error))


def advance(pending: list[Bytes], first: int, sent: int) -> int:
    """Index of the first chunk not wholly sent; that chunk is cut to its rest in place."""
    while first < len(pending):
        size = len(pending[first])
        if sent < size:
            if sent:
                pending[first] = memoryview(pending[first])[sent:]
            return first
        sent -= size
        first += 1
    return first


def is_cached(fd: int, position: int, size: int) -> bool:
    """Whether both ends of the range are in the page cache; where that cannot be told, yes."""
    if not hasattr(os, "RWF_NOWAIT"):
        return True
    probe = bytearray(1)
    try:
        for place in (position, position + size - 1):
            if os.preadv(fd, [probe], place, os.RWF_NOWAIT) == 0:
                return False  # beyond the end: the threaded read reports it
    except OSError as error:
        # EOPNOTSUPP: a file system without the question (tmpfs) is memory anyway.
        return error.errno not in _COLD
    return True
