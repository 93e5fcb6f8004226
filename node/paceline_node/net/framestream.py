"""Frames over a byte stream: one reader, one writer task, a bounded outbox.

A lone frame goes straight to the socket. When another was sent just before, it lies in an outbox
until the single writer task takes it, joined with whatever else is there by then, so that many
small frames cost one system call. Sending is synchronous and never interleaves: a role check, an
append and the answer need no await between them. A peer that does
not read is bounded twice: :meth:`FrameStream.drain` makes a polite sender wait, and an outbox over
its hard limit ends the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import trio

from paceline.errors import ConnectionLost, CorruptMessage, PacelineError, RemoteProtocolError
from paceline.values import dataclass
from paceline.wire.frame import DEFAULT_MAX_FRAME_BYTES, Frame, encode_error, encode_head
from paceline.wire.framebuffer import FrameBuffer
from paceline.wire.message import Message, Packed
from paceline_node.client_memory import Holding, Portion
from paceline_node.env import Bytes
from paceline_node.net.deadlines import arrival_s
from paceline_node.net.frame_bursts import Burst
from paceline_node.net.transport import FilePart, advance, ended_early, transport_for, unreadable

Chunk = Bytes | FilePart
"""A piece of a frame: bytes (views must be contiguous, of format B) or a range of a file. What it
refers to must not change until it is sent."""

Payload = Chunk | tuple[Chunk, ...]
"""What follows a frame's header; a tuple is sent as one."""

_GATHER_BYTES = 1024 * 1024
_DIRECT_BYTES = 256 * 1024
_READ_BYTES = (
    32 * 1024
)  # a smaller file range is read at once and leaves in one piece with its head
_JOIN_S = 0.00005  # frames closer than this are joined; waking the writer costs about half of it
_GATHER_COUNT = 512
_CLOSE_S = 1.0
_BELIEVED_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """Bytes in the outbox: ``drain_bytes`` is where :meth:`FrameStream.drain` starts to wait,
    ``max_bytes`` where the connection is given up."""

    drain_bytes: int = 4 * 1024 * 1024
    max_bytes: int = 256 * 1024 * 1024


@runtime_checkable
class MessageStream(Protocol):
    """A stream of messages, which are as large as frames are allowed to be."""

    def allow_messages_of(self, size: int) -> None:
        """Change that, for messages yet to come."""


class FrameStream:
    """Frames both ways over one trio stream, which it owns and closes.

    Run :meth:`run_writer` in the connection's nursery; call :meth:`receive` from one task.
    ``name`` says in errors who is on the other side. Frames sent while ``burst`` is open leave
    together at its end. ``memory`` is charged with what a client has sent of a large frame and with
    what it has not taken; such a frame must arrive within ``stall_s`` and a second for every
    64 KiB, and of what is written to it a MiB be taken in ``stall_s``. Without ``memory`` (nodes,
    which have proved who they are) a frame gets its memory at once.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        *,
        name: str,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        outbox: OutboxLimits | None = None,
        burst: Burst | None = None,
        memory: Holding | None = None,
        stall_s: float = float("inf"),
    ) -> None:
        self.name = name
        self._memory = memory
        self._unsent = None if memory is None else Portion(memory)
        self._shared = None if memory is None else Portion(memory)
        self._stall_s = stall_s
        self._begun_at: float | None = None  # when the rest of a large frame was first waited for
        self._stream = stream
        self._transport = transport_for(stream)
        believed = max_frame_bytes if memory is None else _BELIEVED_BYTES
        self._buffer = FrameBuffer(max_frame_bytes=max_frame_bytes, believed_bytes=believed)
        self._limits = outbox or OutboxLimits()
        self._burst = burst or Burst()
        self._outbox: deque[Chunk] = deque()
        self._queued_bytes = 0
        self._accepted_bytes = 0
        self._started_bytes = 0
        self._direct_at = -1.0  # when a frame last went straight to the socket
        self._writing = False  # the writer has taken chunks: others must not overtake them
        self._finishing = False
        self._failure: str | None = None
        self._writer_idle = trio.lowlevel.ParkingLot()
        self._drainers = trio.lowlevel.ParkingLot()
        self._writer_scope = trio.CancelScope()
        self.received_count = 0  # receives that brought bytes; keepalive watches it move

    # --- state ------------------------------------------------------------------------------------

    @property
    def queued_bytes(self) -> int:
        """Bytes accepted by :meth:`send` and not yet handed to the kernel."""
        return self._queued_bytes

    @property
    def is_open(self) -> bool:
        """Whether :meth:`send` would be accepted."""
        return self._failure is None and not self._finishing

    def position(self) -> int:
        """Where in the outgoing byte stream the next :meth:`send` begins."""
        return self._accepted_bytes

    def may_have_sent(self, position: int) -> bool:
        """Whether a byte at or after ``position`` may have reached the other side."""
        return self._started_bytes > position

    def allow_frames_of(self, max_frame_bytes: int) -> None:
        """Change the limit for frames yet to come (it is small until the peer is known)."""
        self._buffer.max_frame_bytes = max_frame_bytes
        if isinstance(self._stream, MessageStream):
            self._stream.allow_messages_of(max_frame_bytes)

    # --- sending ----------------------------------------------------------------------------------

    def send(self, *chunks: Chunk) -> None:
        """Send one or more whole frames; never blocks, never interleaves with another send. What
        the kernel does not take at once is queued.

        Raises ConnectionLost (``was_sent`` False) when the stream has ended, or when the outbox is
        over its hard limit, which ends it.
        """
        if not self.is_open:
            raise ConnectionLost(self._failure or f"{self.name}: closing", was_sent=False)
        size = total_size(chunks)
        if self._queued_bytes and self._queued_bytes + size > self._limits.max_bytes:
            self.abort(f"{self.name}: does not read, {self._queued_bytes} bytes are unsent")
            raise ConnectionLost(str(self._failure), was_sent=False)
        try:
            pieces: Sequence[Chunk] = [_read_if_small(chunk) for chunk in chunks]
            kept = self._burst.keep(self)
            if not kept and not self._queued_bytes and size <= _DIRECT_BYTES:
                pieces = self._send_directly(pieces, size)
        except (OSError, trio.ClosedResourceError) as error:
            self.abort(f"{self.name}: {_told(error)}")
            return
        self._accepted_bytes += size
        if pieces:
            self._outbox.extend(pieces)
            self._queued_bytes += total_size(pieces)
            self._hold(pieces, 1)
            if not kept:
                self._writer_idle.unpark()

    def depart(self) -> None:
        """Send what a burst kept back; what the kernel does not take at once is the writer's."""
        if self._failure is None and not self._writing:
            batch, size = self._take_chunks()
            try:
                sent = self._transport.send_now(batch) if batch else 0
            except (OSError, trio.ClosedResourceError) as error:
                self.abort(f"{self.name}: {_told(error)}")
                return
            self._started_bytes += sent
            self._queued_bytes -= sent
            self._hold(batch, -1)
            if sent < size:
                rest = batch[advance(batch, 0, sent) :]
                self._outbox.extendleft(reversed(rest))
                self._hold(rest, 1)
        if self._outbox:
            self._writer_idle.unpark()

    def _send_directly(self, pieces: Sequence[Chunk], size: int) -> Sequence[Chunk]:
        """Give the pieces to the kernel if nothing was sent just before; returns what is left."""
        now = trio.current_time()
        if now - self._direct_at < _JOIN_S:
            return pieces
        chunks: list[Bytes] = []
        for piece in pieces:
            if isinstance(piece, FilePart):
                return pieces
            chunks.append(piece)
        sent = self._transport.send_now(chunks)
        if not sent:
            return pieces
        self._direct_at = now
        self._started_bytes += sent
        return [] if sent == size else chunks[advance(chunks, 0, sent) :]

    def send_frame(
        self,
        kind: int,
        api: int,
        correlation: int,
        body: Message | Packed | None,
        payload: Payload = (),
    ) -> None:
        """Queue one frame. As :meth:`send`."""
        chunks = chunks_of(payload)
        packed = [] if body is None else body.pack()
        self.send(encode_head(kind, api, correlation, packed, total_size(chunks)), *chunks)

    def send_error(self, request: Frame, error: PacelineError) -> None:
        """Queue the ERROR frame that answers ``request``. As :meth:`send`."""
        self.send(encode_error(request.api, request.correlation, error))

    async def drain(self) -> None:
        """Wait until the outbox is below ``drain_bytes``; returns at once (no checkpoint) when it
        is, or when the stream has ended. Cancel-safe."""
        while self._queued_bytes > self._limits.drain_bytes and self._failure is None:
            await self._drainers.park()

    def finish(self) -> None:
        """Send what is queued, then close; further sends are refused. Does not wait."""
        self._finishing = True
        self._writer_idle.unpark()

    def abort(self, reason: str) -> None:
        """End at once: queued bytes are dropped, a blocked receive raises ConnectionLost with
        ``reason``. Idempotent: the first reason stays."""
        if self._failure is None:
            self._failure = reason
        self._writer_scope.cancel()
        self._drainers.unpark_all()

    async def run_writer(self) -> None:
        """Write the outbox until the stream ends, then close it; run it exactly once, in a task.

        Never raises for a broken connection: that is kept for :meth:`receive` and :meth:`send`.
        """
        try:
            with self._writer_scope:
                await self._write()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.abort(f"{self.name}: {_told(error)}")
        finally:
            if self._failure is None:
                self._failure = f"{self.name}: closed by this side"
            self._outbox.clear()
            self._drainers.unpark_all()
            # Closing wakes a receiver; shielded and bounded, since it may be us who is cancelled.
            with trio.move_on_after(_CLOSE_S, shield=True):
                await trio.aclose_forcefully(self._stream)

    async def _write(self) -> None:
        since_checkpoint = 0
        while True:
            if not self._outbox:
                if self._finishing:
                    return
                since_checkpoint = 0
                await self._writer_idle.park()
                continue
            if since_checkpoint > _GATHER_BYTES:
                since_checkpoint = 0
                await trio.lowlevel.checkpoint()
            since_checkpoint += await self._write_some()
            if self._queued_bytes <= self._limits.drain_bytes:
                self._drainers.unpark_all()

    async def _write_some(self) -> int:
        """Send the head of the outbox: a file range, or as many byte chunks as go together."""
        head = self._outbox[0]
        if isinstance(head, FilePart):
            self._outbox.popleft()
            if head.size > _GATHER_BYTES:
                rest = head.size - _GATHER_BYTES
                self._outbox.appendleft(FilePart(head.file, head.position + _GATHER_BYTES, rest))
                head = FilePart(head.file, head.position, _GATHER_BYTES)
            self._started_bytes += head.size
            self._writing = True
            with self._patience(head.size):
                await self._transport.send_file(head)
            self._writing = False
            self._queued_bytes -= head.size
            return head.size
        batch, size = self._take_chunks()
        self._started_bytes += size
        self._writing = True
        with self._patience(size):
            await self._transport.send(batch)
        self._writing = False
        self._queued_bytes -= size
        self._hold(batch, -1)
        return size

    @contextmanager
    def _patience(self, size: int) -> Iterator[None]:
        """Around writing so many bytes; who does not take them in time is given up."""
        with trio.move_on_after(self._stall_s * max(1.0, size / _GATHER_BYTES)) as scope:
            yield
        if scope.cancelled_caught:
            raise trio.BrokenResourceError("the other side does not take what it is sent")

    def _hold(self, pieces: Sequence[Chunk], sign: int) -> None:
        """Charge what lies in memory until it is sent, or what was charged back."""
        if self._unsent is not None:
            size = sum(len(piece) for piece in pieces if not isinstance(piece, FilePart))
            self._unsent.set(self._unsent.held_bytes + sign * size)

    def _take_chunks(self) -> tuple[list[Bytes], int]:
        """The byte chunks at the head of the outbox, as many as go together, and their bytes."""
        batch: list[Bytes] = []
        size = 0
        while self._outbox and size < _GATHER_BYTES and len(batch) < _GATHER_COUNT:
            chunk = self._outbox[0]
            if isinstance(chunk, FilePart):
                break
            self._outbox.popleft()
            batch.append(chunk)
            size += len(chunk)
        return batch, size

    # --- receiving --------------------------------------------------------------------------------

    async def receive(self) -> Frame | None:
        """The next frame; None when the other side closed between frames.

        Not a checkpoint while frames are buffered. Raises ConnectionLost when the connection
        breaks, RemoteProtocolError when the bytes are no frames; the stream is of no further use
        then. Cancel-safe: a frame is either returned or still there.
        """
        while True:
            frame = self._buffer.next_frame()
            if frame is not None:
                self._arrived()
                return frame
            try:
                count = await self._receive_some()
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
                reason = self._failure or f"{self.name}: {_told(error)}"
                raise ConnectionLost(reason) from error
            if count == 0:
                if self._buffer.is_between_frames:
                    return None
                raise RemoteProtocolError(f"{self.name}: stream ended inside a frame")
            self.received_count += 1
            self._buffer.received(count)
            if self._memory is not None and self._shared is not None:
                self._memory.arriving(self._buffer.arriving_bytes, self._buffer.filled_bytes)
                self._shared.set(self._buffer.grown_bytes)

    @property
    def last_frame_bytes(self) -> int:
        """Size of the frame that was given out last."""
        return self._buffer.last_frame_bytes

    async def _receive_some(self) -> int:
        """As the transport; a client's large frame is bounded in time and by the node's memory."""
        if self._memory is None or not self._buffer.arriving_bytes:
            return await self._transport.receive_into(self._buffer.targets())
        await self._memory.room()
        if self._begun_at is None:
            self._begun_at = trio.current_time()
        due = self._begun_at + arrival_s(self._stall_s, self._buffer.wanted_bytes)
        with trio.move_on_at(due):
            return await self._transport.receive_into(self._buffer.targets())
        raise ConnectionLost(f"{self.name}: a frame has begun and does not arrive")

    def _arrived(self) -> None:
        if self._begun_at is not None and self._memory is not None:
            self._begun_at = None
            self._memory.arriving(self._buffer.arriving_bytes, self._buffer.filled_bytes)

    def receive_buffered(self) -> Frame | None:
        """A frame that has arrived already, or None: for handling a burst as one."""
        frame = self._buffer.next_frame()
        if frame is not None:
            self._arrived()
        return frame


def chunks_of(payload: Payload) -> tuple[Chunk, ...]:
    """The pieces of a payload; none when it is empty."""
    if isinstance(payload, tuple):
        return payload
    return (payload,) if isinstance(payload, FilePart) or len(payload) else ()


def total_size(chunks: Sequence[Chunk]) -> int:
    """Bytes that the chunks stand for."""
    size = 0
    for chunk in chunks:
        size += chunk.size if isinstance(chunk, FilePart) else len(chunk)
    return size


def _read_if_small(chunk: Chunk) -> Chunk:
    if not isinstance(chunk, FilePart) or chunk.size > _READ_BYTES:
        return chunk
    try:
        data = chunk.file.pread(chunk.size, chunk.position)
    except CorruptMessage as error:
        raise unreadable(error) from error
    if data is None:
        return chunk
    if len(data) != chunk.size:
        raise ended_early(chunk.file, chunk.position + len(data))
    return data


def _told(error: BaseException) -> str:
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    return str(cause) or "connection closed"
