"""One Cursus connection: what it has negotiated, and the only place that writes to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import field

import trio

from paceline.errors import PacelineError, RemoteProtocolError
from paceline.values import dataclass
from paceline.wire.cursus.frames import FrameReader, framed
from paceline.wire.message import Message
from paceline.wire.native.quotas import QuotaLimit
from paceline_node.client_memory import Holding, Portion
from paceline_node.listeners.cursus.login import CursusLogin
from paceline_node.loop_turns import Turns
from paceline_node.net.deadlines import arrival_s
from paceline_node.net.outbox import Outbox
from paceline_node.security.principals import Principal
from paceline_node.security.quotas import no_quotas
from paceline_node.services.transactions.connection_transactions import ConnectionTransactions

Reply = Sequence[bytes]
"""The bodies of the frames that answer a request, in order; hardly ever more than one."""

Waiting = Callable[[], AbstractAsyncContextManager[None]]
"""What is held while a request waits for records."""

Outcome = Reply | PacelineError
"""What came of one of several requests that were carried out together."""

MAX_UNREAD_ACKS_BYTES = 64 * 1024
"""A client that writes with acks=0 and does not read costs no more than this (DESIGN 5.2)."""
_RECEIVE_BYTES = 256 * 1024
_LAST_WORD_S = 2.0
_PIECE_BYTES = 64 * 1024
_ONE_MORE_UNITS = 4
"""What a request costs that is carried out together with one before."""
_KEPT_FACTOR = 2
"""What the parsed form of a batch and a copy to be forwarded take, of what it unpacks to."""


def text(line: str) -> Reply:
    """A reply of one line."""
    return (line.encode("utf-8", "replace"),)


PeerAnswer = tuple[Message, bytes]
"""What another node is told: a message and its payload."""


@dataclass(slots=True)
class CursusSession:
    """What one connection's requests are judged by. ``features`` are those it has negotiated,
    ``account`` is whom quotas count them for, ``acted`` which transactions they were of.
    ``login`` says who it is; None for what another node has judged."""

    principal: Principal
    features: frozenset[str] = frozenset()
    account: str = ""
    login: CursusLogin | None = None
    acted: ConnectionTransactions = field(default_factory=ConnectionTransactions)

    @property
    def classed(self) -> bool:
        """Whether errors carry their class."""
        return "structured_errors_v1" in self.features


@dataclass(frozen=True, slots=True)
class CursusCall:
    """One request under way. ``deadline`` is when its answer must be out; ``body`` is its frame, to
    be forwarded; ``forwarded`` tells that another node sent it here, so that it goes no further.
    ``redirects``: its client follows when it is told another address. ``waiting``: a forwarded
    one gives up its place among the other node's meanwhile."""

    word: str
    session: CursusSession
    body: bytes
    deadline: float
    forwarded: bool
    redirects: bool = True
    waiting: Waiting = nullcontext

    @property
    def principal(self) -> Principal:
        return self.session.principal


class FrameSource:
    """The frames of a connection, one at a time."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        memory: Holding,
        *,
        max_frame_bytes: int,
        stall_s: float,
        login: CursusLogin | None = None,
    ) -> None:
        self._login = login
        self._max_frame_bytes = max_frame_bytes
        self._stream = stream
        self._memory = memory
        self._stall_s = stall_s
        self._at_work = Portion(memory)
        self._reader = FrameReader(max_frame_bytes=max_frame_bytes)
        self._begun_at: float | None = None
        self._put_back: bytes | None = None
        self._quotas = no_quotas() if login is None else login.client.quotas
        self._turns = Turns() if login is None else login.client.turns

    async def next(self) -> bytes | None:
        """The next body that is not empty, or None at the end of the stream, and where a client
        that has to log in takes too long. Raises RemoteProtocolError for a frame that is too large,
        and for one that has begun and does not arrive within ``stall_s`` and a second for every
        64 KiB. Cancel-safe: nothing is lost. The body before is done with. Who is over a quota
        waits here."""
        if self._login is not None:
            await self._quotas.pace(self._login.client.principal)
        self._at_work.give_all()
        if self._login is not None:
            self._reader.max_frame_bytes = self._login.frame_bytes(self._max_frame_bytes)
        if self._put_back is not None:
            await self._turns.small()
        body, self._put_back = self._put_back, None
        if body is not None:
            self._at_work.set(len(body))
            return body
        while True:
            if self._reader.held_bytes:
                await self._turns.small()
            while (body := self._reader.next_frame()) is not None:
                if body:
                    self._begun_at = None
                    self._reader.feed(b"")  # lets go of what was taken
                    self._memory.arriving(self._reader.held_bytes)
                    self._at_work.set(len(body))
                    self._spend(body)
                    return body
            self._memory.arriving(self._reader.held_bytes)
            data: bytes | bytearray = b""
            with trio.move_on_at(float("inf") if self._login is None else self._login.due):
                data = await self._receive()
            if not data:
                return None
            self._reader.feed(data)

    async def arrived(self) -> bytes | None:
        """The next body, if all of it is here. The one before stays at work."""
        if self._reader.held_bytes:
            await self._turns.small(_ONE_MORE_UNITS)
        with suppress(RemoteProtocolError):  # what is said when it is waited for
            while (body := self._reader.next_frame()) is not None:
                if body:
                    self._at_work.set(self._at_work.held_bytes + len(body))
                    self._spend(body)
                    return body
        return None

    def _spend(self, body: bytes) -> None:
        """What a client sends are records, mostly; so whatever it sends is counted as such."""
        if self._login is not None:
            principal = self._login.client.principal
            self._quotas.spend(principal, QuotaLimit.REQUESTS, 1)
            self._quotas.spend(principal, QuotaLimit.PRODUCE, len(body))

    def put_back(self, body: bytes) -> None:
        """Let the body that was given out last be the next one."""
        self._put_back = body

    def unpacked(self, size: int) -> None:
        """The body that was given out last says so many bytes: they are charged, too."""
        self._at_work.set(self._at_work.held_bytes + _KEPT_FACTOR * size)

    async def _receive(self) -> bytes | bytearray:
        if not self._reader.wanted_bytes:
            return await self._stream.receive_some(_RECEIVE_BYTES)
        await self._memory.room()
        if self._begun_at is None:
            self._begun_at = trio.current_time()
        size = self._reader.held_bytes + self._reader.wanted_bytes
        with trio.move_on_at(self._begun_at + arrival_s(self._stall_s, size)):
            return await self._stream.receive_some(_RECEIVE_BYTES)
        raise RemoteProtocolError("a frame has begun and does not arrive")


class FrameSink(Outbox):
    """Writes frames, whole and in order, from a task of its own: whoever reads the connection can
    go on when the client does not take its answers. Of an answer it takes all, or 64 KiB, in
    ``stall_s``; of what is streamed, in ``stream_stall_s``."""

    def __init__(self, login: CursusLogin, *, stall_s: float, stream_stall_s: float) -> None:
        memory = Portion(login.client.memory)
        super().__init__(memory, stall_s=stall_s, piece_bytes=_PIECE_BYTES)
        self._login = login
        self._answer_stall_s = stall_s
        self._stream_stall_s = stream_stall_s

    async def send(self, reply: Reply) -> None:
        """Queue the frames of a reply and wait until all before and they are sent."""
        await self._say(_joined(reply), self._answer_stall_s)

    async def send_streamed(self, frame: bytes) -> None:
        """As :meth:`send`, for a whole frame of a stream; who is over a quota gets it later."""
        await self._login.client.quotas.pace(self._login.client.principal)
        await self._say(frame, self._stream_stall_s)

    def offer(self, reply: Reply) -> None:
        """Queue a reply that may be dropped when the client does not read."""
        if self.unsent_bytes <= MAX_UNREAD_ACKS_BYTES:
            self.place().put((_joined(reply),))

    async def settle(self) -> None:
        """Let what is queued be sent, but not for long."""
        with trio.move_on_after(_LAST_WORD_S):
            await self.emptied()

    async def _say(self, frames: bytes, stall_s: float) -> None:
        self.stall_s = stall_s
        client = self._login.client
        client.quotas.spend(client.principal, QuotaLimit.FETCH, len(frames))
        self.place().put((frames,))
        await self.emptied()


def _joined(reply: Reply) -> bytes:
    return b"".join([framed(body) for body in reply])
