"""The peer listener: authenticates nodes and hands their frames to handlers.

Handlers are registered by api number. A *call* is async and returns its answer; it runs in a task
of the session, a bounded number at a time, and is cancelled when the connection ends. A *direct*
handler is synchronous: for one-way frames, and for requests that are answered later through the
session (parked fetches, forwarded produce), without a task per request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from uuid import UUID

import structlog
import trio

from paceline.errors import (
    AuthorizationFailed,
    ConnectionLost,
    InternalError,
    InvalidRequest,
    NotLeader,
    PacelineError,
    RemoteProtocolError,
    Throttled,
)
from paceline.types import NodeId
from paceline.values import dataclass
from paceline.wire.frame import DEFAULT_MAX_FRAME_BYTES, Frame, Kind
from paceline.wire.message import Message
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.hello import MAX_HANDSHAKE_FRAME_BYTES
from paceline_node.env import Env
from paceline_node.net.accepting import AcceptGate, contained, serve
from paceline_node.net.connection_limit import address_of
from paceline_node.net.framestream import Chunk, FrameStream, OutboxLimits, Payload
from paceline_node.net.tls_handshake import HandshakeFailed
from paceline_node.observe.rate_limited_log import RateLimitedLog
from paceline_node.peers.auth import Acceptor, Identity, Lane, Peer, Secret
from paceline_node.peers.channel import Channel, PeerTls
from paceline_node.peers.handshake import accept
from paceline_node.peers.strangers import Strangers
from paceline_node.settings.counts import PEER_CONNECTIONS, UNPROVED

_REFUSAL_S = 1.0


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """``calls_per_session``: async handlers of one session at a time; further frames wait unread.
    ``waiting_per_session``: those that have given up their place for a long wait.
    ``silent_s``: a session from which nothing came for that long (peers ping) is ended.
    ``strangers``: connections that have not proved yet to be a node's; one more ends another."""

    max_connections: int = PEER_CONNECTIONS.bound
    strangers: int = UNPROVED.bound
    calls_per_session: int = 64
    waiting_per_session: int = 16_384
    handshake_timeout_s: float = 3.0
    silent_s: float = 30.0
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES


class Session:
    """An authenticated connection from another node, as handlers see it."""

    def __init__(self, peer: Peer, frames: FrameStream) -> None:
        self._identity = peer
        self._frames = frames

    @property
    def peer(self) -> NodeId:
        """The node on the other side, as it proved."""
        return self._identity.node_id

    @property
    def directory_id(self) -> UUID:
        """The data directory of the node on the other side."""
        return self._identity.directory_id

    @property
    def start(self) -> tuple[int, UUID]:
        """Which start of that directory its process is: count and incarnation."""
        return self._identity.boot_seq, self._identity.incarnation_id

    @property
    def lane(self) -> Lane:
        return self._identity.lane

    @property
    def is_open(self) -> bool:
        return self._frames.is_open

    @property
    def queued_bytes(self) -> int:
        return self._frames.queued_bytes

    def send(self, *chunks: Chunk) -> None:
        """Queue whole frames; dropped when the connection has ended, as its end tells the peer."""
        if self._frames.is_open:
            try:
                self._frames.send(*chunks)
            except ConnectionLost:
                return

    def respond(self, request: Frame, body: Message | None, payload: Payload = b"") -> None:
        """Answer ``request``; dropped when the connection has ended."""
        try:
            self._frames.send_frame(Kind.RESPONSE, request.api, request.correlation, body, payload)
        except ConnectionLost:
            return

    def fail(self, request: Frame, error: PacelineError) -> None:
        """Answer ``request`` with an error; dropped when the connection has ended."""
        try:
            self._frames.send_error(request, error)
        except ConnectionLost:
            return

    def abort(self, reason: str) -> None:
        """End the connection at once."""
        self._frames.abort(reason)


class Shaking:
    """A connection in its TLS handshake."""

    def __init__(self, scope: trio.CancelScope) -> None:
        self._scope = scope

    def abort(self, reason: str) -> None:
        self._scope.cancel(reason)


class Slot:
    """A call's place among those of its session that are at work."""

    def __init__(self, slots: trio.Semaphore, waiting: trio.CapacityLimiter) -> None:
        self._slots = slots
        self._waiting = waiting
        self._is_held = True

    @asynccontextmanager
    async def given_up(self) -> AsyncIterator[None]:
        """Around a long wait for something new: meanwhile another call may have the place. Raises
        Throttled when too many wait already."""
        try:
            self._waiting.acquire_on_behalf_of_nowait(self)
        except trio.WouldBlock:
            raise Throttled("too many long polls of one node wait here") from None
        self.release()
        try:
            yield
        finally:
            self._waiting.release_on_behalf_of(self)
        await self._slots.acquire()
        self._is_held = True

    def release(self) -> None:
        """The call is done, or waits; idempotent."""
        if self._is_held:
            self._is_held = False
            self._slots.release()


CallHandler = Callable[[Session, Frame], Awaitable[tuple[Message, Payload]]]
PatientHandler = Callable[[Session, Frame, Slot], Awaitable[tuple[Message, Payload]]]
DirectHandler = Callable[[Session, Frame], None]
SessionCallback = Callable[[Session], None]


class PeerServer:
    """``on_open`` and ``on_close`` are called for each authenticated session, synchronously; they
    must not raise."""

    def __init__(
        self,
        env: Env,
        identity: Identity,
        secret: Secret,
        *,
        limits: ServerLimits | None = None,
        on_open: SessionCallback | None = None,
        on_close: SessionCallback | None = None,
        tls: PeerTls | None = None,
    ) -> None:
        self._tls = tls
        self._env = env
        self._identity = identity
        self._secret = secret
        self._limits = limits or ServerLimits()
        self._calls: dict[int, PatientHandler] = {}
        self._direct: dict[int, DirectHandler] = {PeerApi.PING: _answer_ping}
        self._is_complete = False
        self._sessions: dict[Session, None] = {}  # in the order they came
        self._unproved = Strangers(self._limits.strangers)
        self._log = structlog.get_logger(component="peers", node=identity.node_id)
        self._strangers = RateLimitedLog(component="peers", node=identity.node_id)
        self.on_open = on_open
        self.on_close = on_close

    def register(self, api: int, handler: CallHandler) -> None:
        """Answer requests of ``api`` with ``await handler(session, frame)``; a PacelineError it
        raises becomes an ERROR frame."""
        assert api not in self._calls, f"two handlers for api {api}"
        assert api not in self._direct, f"two handlers for api {api}"

        async def call(session: Session, frame: Frame, _: Slot) -> tuple[Message, Payload]:
            return await handler(session, frame)

        self._calls[api] = call

    def register_patient(self, api: int, handler: PatientHandler) -> None:
        """As :meth:`register`, for a handler that may wait for long for something new: it gives up
        its slot then. Else so many long polls would keep every other call of the node waiting."""
        assert api not in self._calls, f"two handlers for api {api}"
        assert api not in self._direct, f"two handlers for api {api}"
        self._calls[api] = handler

    def register_direct(self, api: int, handler: DirectHandler) -> None:
        """Give requests and one-way frames of ``api`` to ``handler(session, frame)``, in order of
        arrival. It answers through the session, now or later; a PacelineError it raises answers a
        request."""
        assert api not in self._calls, f"two handlers for api {api}"
        assert api not in self._direct, f"two handlers for api {api}"
        self._direct[api] = handler

    def complete(self) -> None:
        """All that this node will ever answer is registered. Until then a request for anything
        else was not carried out and may be made again: the node is starting."""
        self._is_complete = True

    def expect_nodes(self, hosts: Iterable[str]) -> None:
        """Where the cluster says that its nodes are; replaces what was said before. A crowd from
        elsewhere keeps out nobody who comes from there."""
        self._unproved.expect(hosts)

    def reached_node(self, address: str) -> None:
        """This node has reached another one at ``address``, which may come from there as well."""
        self._unproved.met(address)

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The authenticated sessions, oldest first."""
        return tuple(self._sessions)

    async def run(
        self,
        listeners: Sequence[trio.abc.Listener[trio.abc.Stream]],
        *,
        gate: AcceptGate | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept and serve nodes until cancelled; closes the listeners and all sessions.

        Give it no descriptor gate: the reserve that client listeners leave is for peers.
        """
        async with trio.open_nursery() as nursery:
            await nursery.start(
                partial(
                    serve,
                    listeners,
                    self.handle,
                    max_connections=self._limits.max_connections,
                    gate=gate,
                )
            )
            task_status.started()

    async def handle(self, stream: trio.abc.Stream) -> None:
        """Serve one connection to its end. Never raises for what the other side does."""
        address = address_of(stream)
        if self._tls is None:
            await self._converse(stream, None, address)
            return
        encrypted = await self._encrypted(self._tls, stream, address)
        if encrypted is not None:
            await self._converse(*encrypted, address)

    async def _encrypted(
        self, tls: PeerTls, stream: trio.abc.Stream, address: str
    ) -> tuple[trio.abc.Stream, Channel] | None:
        async with contained("peer", address, self._strangers):
            with trio.CancelScope() as scope, self._unproved.entered(Shaking(scope), address):
                try:
                    return await tls.accept(stream)
                except HandshakeFailed as error:
                    self._strangers.warning(
                        "peer refused", cause=error.cause, reason=str(error), address=address
                    )
        return None

    async def _converse(
        self, stream: trio.abc.Stream, channel: Channel | None, address: str
    ) -> None:
        frames = FrameStream(
            stream, name="peer", max_frame_bytes=MAX_HANDSHAKE_FRAME_BYTES, outbox=OutboxLimits()
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(frames.run_writer)
            session = await self._admit(frames, channel, address)
            if session is not None:
                await self._serve(session, frames)
                nursery.cancel_scope.cancel()
            elif frames.is_open:
                nursery.cancel_scope.cancel()
            else:
                # The refusal is on its way out; a peer that does not read it does not keep us.
                nursery.cancel_scope.deadline = trio.current_time() + _REFUSAL_S

    async def _admit(
        self, frames: FrameStream, channel: Channel | None, address: str
    ) -> Session | None:
        peer: Peer | None = None
        # Anybody can come this far: not even a bug may let a stranger end the node.
        async with contained("peer", frames.name, self._strangers):
            with self._unproved.entered(frames, address):
                peer = await self._handshake(frames, channel)
        if peer is None:
            return None
        self._unproved.met(address)
        frames.name = f"node {peer.node_id} ({peer.lane.value})"
        frames.allow_frames_of(self._limits.max_frame_bytes)
        return Session(peer, frames)

    async def _handshake(self, frames: FrameStream, channel: Channel | None) -> Peer | None:
        acceptor = Acceptor(
            self._identity, self._secret, nonces=self._env.rng.randbytes, channel=channel
        )
        try:
            with trio.fail_after(self._limits.handshake_timeout_s):
                return await accept(frames, acceptor)
        except trio.TooSlowError:
            self._strangers.warning("peer refused", cause="silent", reason="no handshake in time")
        except ConnectionLost:
            pass
        except PacelineError as error:
            self._strangers.warning("peer refused", cause=type(error).__name__, reason=str(error))
        return None

    async def _serve(self, session: Session, frames: FrameStream) -> None:
        self._sessions[session] = None
        reason = "closed by the other side"
        try:
            if self.on_open is not None:
                self.on_open(session)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_silence, frames)
                try:
                    await self._read(session, frames, nursery)
                except (ConnectionLost, RemoteProtocolError) as error:
                    reason = str(error)
                nursery.cancel_scope.cancel()
        finally:
            del self._sessions[session]
            self._log.debug("peer session ended", peer=session.peer, reason=reason)
            # Handlers may still hold the session: from here on what they send is dropped.
            frames.abort(reason)
            if self.on_close is not None:
                self.on_close(session)

    async def _read(self, session: Session, frames: FrameStream, nursery: trio.Nursery) -> None:
        slots = trio.Semaphore(self._limits.calls_per_session)
        waiting = trio.CapacityLimiter(self._limits.waiting_per_session)
        while (frame := await frames.receive()) is not None:
            if frame.kind not in (Kind.REQUEST, Kind.ONE_WAY):
                raise RemoteProtocolError(f"{frames.name}: a {frame.kind} frame, not a request")
            call = self._calls.get(frame.api) if frame.kind == Kind.REQUEST else None
            if call is not None and self._may_ask(session, frame):
                await slots.acquire()
                nursery.start_soon(self._answer, session, frame, call, Slot(slots, waiting))
            else:
                self._hand_over(session, frame)
            # A peer that does not read its answers is not read either.
            await frames.drain()

    def _may_ask(self, session: Session, frame: Frame) -> bool:
        return session.lane is not Lane.JOIN or frame.api in (PeerApi.JOIN_CLUSTER, PeerApi.PING)

    def _hand_over(self, session: Session, frame: Frame) -> None:
        handler = self._direct.get(frame.api)
        try:
            if not self._may_ask(session, frame):
                raise AuthorizationFailed(f"api {frame.api} is refused to a joining node")
            if handler is None and not self._is_complete:
                raise NotLeader(f"node {self._identity.node_id} is starting; it leads nothing yet")
            if handler is None:
                raise InvalidRequest(f"api {frame.api} is not served on the peer listener")
            handler(session, frame)
        except PacelineError as error:
            if frame.kind == Kind.REQUEST:
                session.fail(frame, error)
            else:
                self._log.warning("one-way frame refused", peer=session.peer, reason=str(error))

    async def _answer(
        self, session: Session, frame: Frame, handler: PatientHandler, slot: Slot
    ) -> None:
        try:
            body, payload = await handler(session, frame, slot)
        except PacelineError as error:
            session.fail(frame, error)
        except Exception as error:  # noqa: BLE001  one request's bug must not end the session
            self._log.error("peer request failed", api=frame.api, exc_info=error)
            session.fail(frame, InternalError(f"api {frame.api}: {type(error).__name__}"))
        else:
            session.respond(frame, body, payload)
        finally:
            slot.release()

    async def _watch_silence(self, frames: FrameStream) -> None:
        seen = -1
        while frames.received_count != seen:
            seen = frames.received_count
            await trio.sleep(self._limits.silent_s)
        frames.abort(f"{frames.name}: silent for {self._limits.silent_s:g} s")


def _answer_ping(session: Session, frame: Frame) -> None:
    session.respond(frame, None)
