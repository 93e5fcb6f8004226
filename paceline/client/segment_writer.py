"""Appending to a segment: every Event once, whatever becomes of connections and leaders."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Protocol
from uuid import UUID

import trio

from paceline.client.segment_link import Moved, SegmentLink, error_of, moved_to
from paceline.client.segment_resend import ResendBuffer
from paceline.errors import (
    Closed,
    ConnectionLost,
    InvalidRequest,
    NotEnoughReplicas,
    PacelineError,
    RequestTimedOut,
)
from paceline.values import dataclass
from paceline.wire.segment import messages as m
from paceline.wire.segment.client import UNBOUNDED
from paceline.wire.segment.events import frame_events

_BLOCK_BYTES = 1 << 30
"""A block's length has 31 bits: an endless stream begins a new block now and then."""
_KEEP_ALIVE_S = 20.0


class BlockShape(enum.Enum):
    """How a writer's Events travel.

    BURST: a block ends as soon as nothing more is queued, and is stored at once. STREAM: one
    unbounded block goes on; the server stores what it has every few milliseconds.
    """

    BURST = "burst"
    STREAM = "stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentWriterSettings:
    """``buffer_bytes`` bounds what is not acknowledged. ``delivery_timeout_s``: how long no
    acknowledgement may come, while some are due, before the writer gives up."""

    shape: BlockShape = BlockShape.BURST
    buffer_bytes: int = 8 * 1024 * 1024
    delivery_timeout_s: float = 120.0


class Connecting(Protocol):
    """What a writer needs of whoever knows the cluster."""

    async def serve(self, name: str, use: Use, *, timeout_s: float) -> None:
        """Call ``use`` with a link to the segment's leader, again after each lost connection or
        move, until it returns. Raises its other errors, and RequestTimedOut."""


class Use(Protocol):
    async def __call__(self, link: SegmentLink) -> None: ...


class SegmentWriter:
    """Made by :meth:`Segments.writer`; one task runs it, any number append.

    An id that lives longer than this process must not be used by two at once. It goes on behind
    what the cluster has of it; which Events those were is for its owner to know (:attr:`level`).
    """

    def __init__(
        self, connecting: Connecting, name: str, writer: UUID, settings: SegmentWriterSettings
    ) -> None:
        self.name = name
        self.writer = writer
        self._connecting = connecting
        self._settings = settings
        self._buffer = ResendBuffer()
        self._sent = 0
        self._set_up = trio.Event()
        self._changed = trio.Event()
        self._failure: PacelineError | None = None
        self._closing = False

    @property
    def level(self) -> int:
        """Bytes of this writer that are stored for good, as far as told."""
        return self._buffer.acked or 0

    @property
    def position(self) -> int:
        """Bytes of this writer with all that was appended, acknowledged or not."""
        return self._buffer.end

    async def ready(self) -> int:
        """Wait until the writer was set up once; its level. Raises what ended it."""
        while not self._set_up.is_set():
            self._check()
            await self._changed.wait()
        return self.level

    async def append(self, data: bytes) -> None:
        """Queue one Event; waits while the buffer is full. Cancel-safe: queued or not.

        Raises what ended the writer, Closed, LocalProtocolError for an Event above 16 MiB.
        """
        await self.append_all((data,))

    async def append_all(self, events: Iterable[bytes]) -> None:
        """Queue several Events, in order and next to each other in this writer's stream."""
        run = frame_events(events)
        while not self._has_room(len(run)):
            self._check()
            await self._changed.wait()
        self._check()
        if self._closing:
            raise Closed(f"the writer of {self.name!r} was closed")
        if run:
            self._buffer.add(run)
            self._notify()

    def _has_room(self, size: int) -> bool:
        kept = self._buffer.size_bytes
        return kept == 0 or kept + size <= self._settings.buffer_bytes

    async def flush(self) -> None:
        """Wait until everything appended before is stored for good. Raises what ended the
        writer."""
        end = self._buffer.end if self._set_up.is_set() else None
        await self.ready()
        end = self._buffer.end if end is None else end
        while self.level < end:
            self._check()
            await self._changed.wait()

    def close(self) -> None:
        """Take no more Events."""
        self._closing = True
        self._notify()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _notify(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    # --- the task ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write until cancelled. A failure is kept for those who append and flush."""
        try:
            await self._connecting.serve(
                self.name, self._use, timeout_s=self._settings.delivery_timeout_s
            )
        except PacelineError as error:
            self._failure = error
            self._notify()

    async def _use(self, link: SegmentLink) -> None:
        timeout_s = self._settings.delivery_timeout_s
        setup = m.SetupAppend(self.writer, self.name)
        reply = await link.ask(setup, m.AppendSetup, timeout_s=timeout_s)
        self._buffer.resume(reply.level)
        self._sent = reply.level
        self._set_up.set()
        self._notify()
        failure: list[Exception] = []
        async with trio.open_nursery() as nursery:
            for task in (self._send, self._receive):
                nursery.start_soon(self._until_failure, task, link, failure, nursery.cancel_scope)
        if failure:
            raise failure[0]

    async def _until_failure(
        self, task: Use, link: SegmentLink, failure: list[Exception], scope: trio.CancelScope
    ) -> None:
        try:
            await task(link)
        except (PacelineError, Moved) as error:
            failure.append(error)
            scope.cancel()

    async def _send(self, link: SegmentLink) -> None:
        while True:
            if self._sent >= self._buffer.end:
                with trio.move_on_after(_KEEP_ALIVE_S) as scope:
                    await self._changed.wait()
                if scope.cancelled_caught:
                    await link.send(m.encode(m.KeepAlive()))
                continue
            await self._send_block(link)

    async def _send_block(self, link: SegmentLink) -> None:
        start = self._sent
        head = m.encode(m.BeginAppendBlock(self.writer, start, UNBOUNDED))
        while self._sent - start < _BLOCK_BYTES:
            for at, run in self._buffer.from_offset(self._sent):
                self._sent = at + len(run)
                await link.send(head + run if head else run)
                head = b""
            if self._sent < self._buffer.end:
                continue
            if self._settings.shape is BlockShape.BURST or self._closing:
                break
            with trio.move_on_after(_KEEP_ALIVE_S) as scope:
                await self._changed.wait()
            if scope.cancelled_caught:
                await link.send(m.encode(m.KeepAlive()))
        length = self._sent - start
        await link.send(m.encode(m.EndAppendBlock(self.writer, self._sent, length)))

    async def _receive(self, link: SegmentLink) -> None:
        timeout_s = self._settings.delivery_timeout_s
        while True:
            reply = None
            with trio.move_on_after(timeout_s):
                reply = await link.receive()
            match reply:
                case m.DataAppended(_, level):
                    self._buffer.acknowledge(level)
                    self._notify()
                case m.KeepAlive():
                    pass
                case None:
                    if self.level < self._sent:
                        raise RequestTimedOut(
                            f"{self.name}: no acknowledgement within {timeout_s:g} s"
                        )
                case _:
                    self._refused(reply)

    def _refused(self, reply: m.SegmentMessage) -> None:
        if isinstance(reply, m.WrongHost):
            raise moved_to(reply)
        error = error_of(reply)
        if isinstance(error, NotEnoughReplicas):
            raise ConnectionLost(str(error)) from error  # set up again: it will be told the level
        if isinstance(error, InvalidRequest):
            raise InvalidRequest(f"writer {self.writer}: {error}") from error
        raise error
