"""One outgoing connection to one node for one lane: connect, authenticate, ask, reconnect."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol

import structlog
import trio

from paceline.errors import (
    ConnectionLost,
    PacelineError,
    RemoteProtocolError,
    RequestTimedOut,
)
from paceline.types import NodeId
from paceline.values import dataclass
from paceline.wire.frame import DEFAULT_MAX_FRAME_BYTES, Frame, Kind
from paceline.wire.message import Message
from paceline.wire.peer.api import PeerApi
from paceline_node.bare_errors import bare
from paceline_node.env import Env
from paceline_node.net.connection_limit import address_of
from paceline_node.net.deadlines import Deadline, Deadlines
from paceline_node.net.framestream import Chunk, FrameStream, total_size
from paceline_node.net.tls_handshake import HandshakeFailed
from paceline_node.peers.auth import Identity, Initiator, Lane, Secret
from paceline_node.peers.channel import Channel, PeerTls
from paceline_node.peers.handshake import initiate

Done = Callable[[Frame | PacelineError], None]
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LinkTiming:
    """Seconds. A link that had lasted ``steady_s`` is reconnected at once when it breaks;
    otherwise, and after each failed attempt, the pause doubles from ``backoff_min_s`` to
    ``backoff_max_s``, times a random factor of 0.5 to 1. A link unused for ``idle_s`` is not
    reconnected before its next use. A silent link is pinged every ``ping_s`` and given up after
    three unanswered ones (a host that vanished sends no end of stream)."""

    connect_timeout_s: float = 2.0
    handshake_timeout_s: float = 3.0
    backoff_min_s: float = 0.05
    backoff_max_s: float = 1.0
    steady_s: float = 1.0
    idle_s: float = 30.0
    ping_s: float = 4.0


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """Bytes: of one frame; queued by calls while a connection is being made; in the outbox beyond
    which one-way frames are dropped."""

    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    waiting_bytes: int = 16 * 1024 * 1024
    post_bytes: int = 8 * 1024 * 1024


class LinkState(enum.Enum):
    RESTING = "resting"  # not connected, no attempt before the next use or the end of a pause
    CONNECTING = "connecting"
    OPEN = "open"


class LinkOwner(Protocol):
    """What a link tells the one who keeps it."""

    def link_connected(self, address: str) -> None:
        """Somebody listens at a node's address, which resolves to ``address``."""

    def link_opened(self, link: Link) -> None: ...

    def link_refused(self, link: Link) -> None:
        """A connection attempt was refused: nobody listens at the node's address."""


@dataclass(slots=True)
class _Call:
    api: int
    body: Message | None
    payload: tuple[Chunk, ...]
    size: int
    done: Done
    deadline: Deadline
    position: int = -1  # where its frame begins in the stream; -1 while it waits for a connection


@dataclass(frozen=True, slots=True)
class LinkContext:
    """What all links of a node share."""

    env: Env
    identity: Identity
    secret: Secret
    timing: LinkTiming
    limits: LinkLimits
    deadlines: Deadlines
    owner: LinkOwner
    tls: PeerTls | None = None


class Link:
    """Calls are answered through their ``done`` callback, exactly once, never inside
    :meth:`submit`; callbacks are synchronous and must not raise."""

    def __init__(self, context: LinkContext, node: NodeId, lane: Lane, address: Address) -> None:
        self.node = node
        self.lane = lane
        self.address = address
        self.state = LinkState.CONNECTING
        self._context = context
        self._frames: FrameStream | None = None
        self._calls: dict[int, _Call] = {}
        self._waiting_bytes = 0
        self._correlation = 0
        self._failure: PacelineError | None = None
        self._failed_attempts = 0
        self._used_at = trio.current_time()
        self._wake = trio.lowlevel.ParkingLot()
        self._kicked = False
        self._scope = trio.CancelScope()
        self._silent_rounds = 0
        self._heard_count = 0
        self._log = structlog.get_logger(component="peers", peer=node, lane=lane.value)

    @property
    def is_open(self) -> bool:
        return self.state is LinkState.OPEN

    @property
    def queued_bytes(self) -> int:
        """Bytes waiting to be sent."""
        return self._waiting_bytes + (self._frames.queued_bytes if self._frames else 0)

    # --- asking -----------------------------------------------------------------------------------

    def submit(
        self,
        api: int,
        body: Message | None,
        payload: tuple[Chunk, ...],
        timeout_s: float,
        done: Done,
    ) -> int:
        """Send a request; returns its correlation id (for :meth:`forget`).

        Raises ConnectionLost with ``was_sent`` False when the link is down and rests, or too much
        waits already. Later ``done`` gets the RESPONSE frame or a typed error.
        """
        self._use()
        if self.state is LinkState.RESTING:
            raise _before_sending(self._failure or ConnectionLost(f"{self}: not connected"))
        size = total_size(payload)
        if self.state is LinkState.CONNECTING and (
            self._waiting_bytes and self._waiting_bytes + size > self._context.limits.waiting_bytes
        ):
            raise ConnectionLost(f"{self}: too much waits for a connection", was_sent=False)
        self._correlation = correlation = self._correlation % 0xFFFFFFFF + 1  # 0 is the ping's
        deadline = self._context.deadlines.after(
            timeout_s, lambda: self._expired(correlation, timeout_s)
        )
        call = _Call(api, body, payload, size, done, deadline)
        if self._frames is None:
            self._waiting_bytes += size
        else:
            try:
                self._transmit(self._frames, correlation, call)
            except ConnectionLost:
                deadline.cancel()
                raise
        self._calls[correlation] = call
        return correlation

    def forget(self, correlation: int) -> None:
        """Nobody waits for this answer any more: ``done`` will not be called."""
        call = self._take(correlation)
        if call is not None:
            call.deadline.cancel()

    def post(self, api: int, body: Message | None, payload: tuple[Chunk, ...]) -> bool:
        """Queue a one-way frame; False when it was dropped (link down or its outbox full)."""
        self._use()
        frames = self._frames
        if frames is None or frames.queued_bytes > self._context.limits.post_bytes:
            return False
        try:
            frames.send_frame(Kind.ONE_WAY, api, 0, body, payload)
        except ConnectionLost:
            return False
        return True

    # --- keeping the connection -------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the link until :meth:`close` or cancellation; then every call has failed."""
        try:
            with self._scope:
                while True:
                    await self._connect_and_serve()
                    await self._rest()
        finally:
            self.state = LinkState.RESTING
            self._fail_calls(ConnectionLost(f"{self}: closed by this side", was_sent=False))

    def close(self) -> None:
        """End the link for good."""
        self._scope.cancel()

    def kick(self, address: Address | None = None) -> None:
        """Try to connect at once if the link is down; with ``address`` to a new place."""
        if address is not None:
            self.address = address
        self._used_at = trio.current_time()
        # An attempt under way may have come too early: the next one follows it at once.
        self._kicked = self.state is LinkState.CONNECTING
        self._wake_up()

    def check_silence(self) -> None:
        """One round of keepalive: ping when nothing came since the last round."""
        frames = self._frames
        if frames is None:
            return
        if frames.received_count != self._heard_count:
            self._heard_count = frames.received_count
            self._silent_rounds = 0
            return
        self._silent_rounds += 1
        if self._silent_rounds > 3:
            frames.abort(f"{self}: silent for {4 * self._context.timing.ping_s:g} s")
        elif frames.queued_bytes <= self._context.limits.post_bytes and frames.is_open:
            # Its answer is counted by the stream; the correlation belongs to no call.
            frames.send_frame(Kind.REQUEST, PeerApi.PING, 0, None)

    def __str__(self) -> str:
        return f"link to node {self.node} ({self.lane.value}, {self.address[0]}:{self.address[1]})"

    async def _connect_and_serve(self) -> None:
        self.state = LinkState.CONNECTING
        connected = await self._connect()
        encrypted = None if connected is None else await self._encrypted(connected)
        if encrypted is None:
            return
        stream, channel = encrypted
        frames = FrameStream(
            stream, name=str(self), max_frame_bytes=self._context.limits.max_frame_bytes
        )
        opened_at = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(frames.run_writer)
            try:
                await self._handshake(frames, channel)
                opened_at = trio.current_time()
                await self._read(frames)
            except PacelineError as error:
                self._ended(error)
            except trio.TooSlowError:
                self._ended(ConnectionLost(f"{self}: no handshake in time", was_sent=False))
            nursery.cancel_scope.cancel()
        steady_s = self._context.timing.steady_s
        if opened_at is not None and trio.current_time() - opened_at >= steady_s:
            self._failed_attempts = 0
        else:
            self._failed_attempts += 1

    async def _connect(self) -> trio.abc.Stream | None:
        host, port = self.address
        try:
            with trio.fail_after(self._context.timing.connect_timeout_s):
                stream = await self._context.env.net.connect(host, port)
            self._context.owner.link_connected(address_of(stream))
            return stream
        except ConnectionRefusedError:
            self._failed_attempts += 1
            self._ended(ConnectionLost(f"{self}: connection refused", was_sent=False))
            self._context.owner.link_refused(self)
        except trio.TooSlowError:
            self._failed_attempts += 1
            self._ended(ConnectionLost(f"{self}: no connection in time", was_sent=False))
        except OSError as error:
            self._failed_attempts += 1
            self._ended(ConnectionLost(f"{self}: {error}", was_sent=False))
        return None

    async def _encrypted(
        self, stream: trio.abc.Stream
    ) -> tuple[trio.abc.Stream, Channel | None] | None:
        """The connection as the nodes of this cluster use it; None where that failed."""
        tls = self._context.tls
        if tls is None:
            return stream, None
        try:
            return await tls.dial(stream)
        except HandshakeFailed as error:
            self._failed_attempts += 1
            self._ended(ConnectionLost(f"{self}: {error}", was_sent=False))
        return None

    async def _handshake(self, frames: FrameStream, channel: Channel | None) -> None:
        context = self._context
        initiator = Initiator(
            context.identity,
            context.secret,
            target=self.node,
            lane=self.lane,
            nonces=context.env.rng.randbytes,
            channel=channel,
        )
        with trio.fail_after(context.timing.handshake_timeout_s):
            await initiate(frames, initiator)
        self._failure = None
        self._frames = frames
        self._heard_count = self._silent_rounds = 0
        self.state = LinkState.OPEN
        self._waiting_bytes = 0
        self._log.debug("peer link open")
        for correlation, call in list(self._calls.items()):
            self._transmit(frames, correlation, call)
        context.owner.link_opened(self)

    async def _read(self, frames: FrameStream) -> None:
        while True:
            frame = await frames.receive()
            if frame is None:
                raise ConnectionLost(f"{self}: closed by the other side")
            if frame.kind not in (Kind.RESPONSE, Kind.ERROR):
                raise RemoteProtocolError(f"{self}: a {frame.kind} frame where answers belong")
            call = self._take(frame.correlation)
            if call is None:
                continue  # answered too late, a ping, or forgotten
            call.deadline.cancel()
            call.done(frame if frame.kind == Kind.RESPONSE else _error_of(frame))

    async def _rest(self) -> None:
        """Pause before the next attempt; none after a steady connection."""
        timing = self._context.timing
        kicked, self._kicked = self._kicked, False
        if self._failed_attempts and not kicked:
            self.state = LinkState.RESTING
            doublings = min(self._failed_attempts - 1, 16)
            pause_s = min(timing.backoff_max_s, timing.backoff_min_s * 2**doublings)
            with trio.move_on_after(pause_s * (0.5 + self._context.env.rng.random() / 2)):
                await self._wake.park()
            if trio.current_time() - self._used_at > timing.idle_s:
                await self._wake.park()

    # --- bookkeeping ------------------------------------------------------------------------------

    def _use(self) -> None:
        now = trio.current_time()
        if now - self._used_at > self._context.timing.idle_s:
            self._wake_up()
        self._used_at = now

    def _wake_up(self) -> None:
        if self.state is LinkState.RESTING:
            self.state = LinkState.CONNECTING
            self._wake.unpark_all()

    def _transmit(self, frames: FrameStream, correlation: int, call: _Call) -> None:
        call.position = frames.position()
        frames.send_frame(Kind.REQUEST, call.api, correlation, call.body, call.payload)

    def _take(self, correlation: int) -> _Call | None:
        call = self._calls.pop(correlation, None)
        if call is not None and call.position < 0:
            self._waiting_bytes -= call.size
        return call

    def _expired(self, correlation: int, timeout_s: float) -> None:
        call = self._take(correlation)
        if call is None:
            return
        if call.position < 0:
            text = f"{self}: not connected within {timeout_s:g} s"
            call.done(ConnectionLost(text, was_sent=False))
        else:
            call.done(RequestTimedOut(f"{self}: no answer within {timeout_s:g} s"))

    def _ended(self, error: PacelineError) -> None:
        """The connection, or the attempt at one, is over."""
        if str(error) != str(self._failure):
            expected = isinstance(error, ConnectionLost)
            (self._log.info if expected else self._log.warning)("peer link down", reason=str(error))
        self._failure = bare(error)
        self.state = LinkState.CONNECTING
        self._fail_calls(error)

    def _fail_calls(self, error: PacelineError) -> None:
        # All state changes first: a callback may ask again at once.
        frames, self._frames = self._frames, None
        calls, self._calls = self._calls, {}
        self._waiting_bytes = 0
        for call in calls.values():
            call.deadline.cancel()
            if frames is not None and call.position >= 0:
                was_sent = frames.may_have_sent(call.position)
                call.done(ConnectionLost(str(error), was_sent=was_sent))
            else:
                call.done(_before_sending(error))


def _before_sending(error: PacelineError) -> PacelineError:
    """A fresh copy of why the link is down, for a request of which nothing was sent."""
    if isinstance(error, ConnectionLost):
        return ConnectionLost(str(error), was_sent=False)
    return type(error)(str(error))


def _error_of(frame: Frame) -> PacelineError:
    try:
        frame.raise_for_error()
    except PacelineError as error:
        return error
    raise AssertionError("an ERROR frame raises")
