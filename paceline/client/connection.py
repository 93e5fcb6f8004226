"""One conversation with one node: pipelined requests, answers matched by correlation.

Three tasks serve a connection: one writes what :meth:`Connection.post` queued, one reads answers
and calls their handlers, one watches deadlines. A connection with an overdue answer, a bad frame
or a broken stream ends, and every unanswered request gets ConnectionLost, whose ``was_sent`` tells
whether bytes of it may have left. Deciding what to do next is the caller's business.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

import trio

from paceline.client.endpoint import DEFAULT_PORT, Endpoint
from paceline.client.settings import ClientSettings
from paceline.client.single_error_nursery import open_scope
from paceline.client.transport import Bytes, Dial, StreamTransport, Transport, dial_error
from paceline.errors import (
    AuthenticationFailed,
    ConnectionLost,
    MessageTooLarge,
    PacelineError,
    RemoteProtocolError,
    UnsupportedVersion,
)
from paceline.login import ClientLogin, log_in
from paceline.version import __version__
from paceline.wire.frame import Frame, Kind, encode_head
from paceline.wire.message import Message
from paceline.wire.native.api import PROTOCOL_VERSION, NativeApi
from paceline.wire.native.data import Hello, HelloReply
from paceline.wire.native.quotas import throttle_of
from paceline.wire.native.users import Authenticate, Authenticated

M = TypeVar("M", bound=Message)
Answer = Frame | PacelineError
Handler = Callable[[Answer], None]

SOFTWARE = f"paceline-python {__version__}"
OUTBOX_BYTES = 8 * 1024 * 1024
"""Above this much unsent data :attr:`Connection.has_room` is False."""

_OF_DATA = (NativeApi.PRODUCE, NativeApi.FETCH)
_LOGIN_SHARE = 0.8
"""After this part of a log-in's time it is repeated."""
_LOGIN_WAIT_S = 10.0
"""How long a node may make a client wait whose address others guess from."""

NO_LISTENER = f"no native listener (port {DEFAULT_PORT} by default)"
"""What an address probably is where something listens that does not greet as a node does."""


class _Pending:
    """A request not yet answered. ``handler`` None: its caller has gone."""

    __slots__ = ("deadline", "handler", "written")

    def __init__(self, handler: Handler, deadline: float) -> None:
        self.handler: Handler | None = handler
        self.deadline = deadline
        self.written = False


class _Waiter:
    """Turns one handler call into something to await."""

    __slots__ = ("answer", "event")

    def __init__(self) -> None:
        self.event = trio.Event()
        self.answer: Answer | None = None

    def set(self, answer: Answer) -> None:
        self.answer = answer
        self.event.set()


class Connection:
    """Use :meth:`run` from a nursery's ``start``; it returns when the connection has ended.

    ``on_change`` is called, synchronously, when the connection ends and when it has room again.
    Handlers are called synchronously from the reading task and must not raise.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        settings: ClientSettings,
        dial: Dial,
        *,
        cluster_id: UUID | None,
        on_change: Callable[[], None],
    ) -> None:
        self.endpoint = endpoint
        self.hello: HelloReply | None = None
        self.lost: PacelineError | None = None
        self._settings = settings
        self._dial = dial
        self._login = settings.login or endpoint.login or ClientLogin.from_environ()
        self._lifetime_s = 0.0
        self._is_encrypted = False
        self._cluster_id = cluster_id
        self._on_change = on_change
        self._pending: dict[int, _Pending] = {}
        self._correlation = 0
        self._outbox: list[tuple[_Pending, Sequence[Bytes]]] = []
        self._outbox_bytes = 0
        self._held_until = math.inf
        """When more data is welcome again; infinite where it is now."""
        self._wake = trio.Event()
        self._watch = trio.CancelScope()
        self._scope = trio.CancelScope()

    @property
    def is_open(self) -> bool:
        return self.hello is not None and self.lost is None

    @property
    def has_room(self) -> bool:
        """Whether more PRODUCE and FETCH are welcome; :meth:`post` works anyway, and queues."""
        return (
            self.is_open
            and self._held_until == math.inf
            and self._outbox_bytes < OUTBOX_BYTES
            and len(self._pending) < self.max_in_flight
        )

    @property
    def max_in_flight(self) -> int:
        """Unanswered requests that the node takes, 0 before it has said so."""
        return 0 if self.hello is None else self.hello.max_in_flight

    # --- requests ---------------------------------------------------------------------------------

    def post(
        self,
        api: NativeApi,
        body: list[Any],
        handler: Handler,
        *,
        wait_s: float,
        payload: Sequence[Bytes] = (),
    ) -> int:
        """Queue a request; ``handler`` is called once with its answer. Returns the correlation.

        ``wait_s`` is how long the request itself allows the node to wait before answering; the
        request timeout comes on top. Raises ConnectionLost (nothing sent) when the connection has
        ended, MessageTooLarge when the node would refuse the frame.
        """
        if self.lost is not None or self.hello is None:
            raise ConnectionLost(f"{self.endpoint}: {self.lost}", was_sent=False)
        correlation = self._next_correlation()
        size = sum(map(len, payload))
        head = encode_head(Kind.REQUEST, api, correlation, body, size)
        if len(head) + size > self.hello.max_frame_bytes:
            raise MessageTooLarge(
                f"{self.endpoint}: request of {len(head) + size} bytes, "
                f"the node takes {self.hello.max_frame_bytes}"
            )
        deadline = trio.current_time() + wait_s + self._settings.request_timeout_s
        pending = _Pending(handler, deadline)
        self._pending[correlation] = pending
        self._outbox.append((pending, (head, *payload)))
        self._outbox_bytes += len(head) + size
        self._wake.set()
        if deadline < self._watch.deadline:
            self._watch.deadline = deadline
        return correlation

    def _next_correlation(self) -> int:
        while True:
            self._correlation = (self._correlation + 1) & 0xFFFFFFFF
            if self._correlation not in self._pending:
                return self._correlation

    async def call(
        self, api: NativeApi, body: Message, reply: type[M], *, wait_s: float = 0.0
    ) -> M:
        """Send a request and wait for its reply. Raises the error it is answered with.

        Cancelling leaves the connection usable; the request may still be carried out.
        """
        return reply.unpack((await self.call_frame(api, body, wait_s=wait_s)).body)

    async def call_frame(
        self,
        api: NativeApi,
        body: Message,
        *,
        wait_s: float = 0.0,
        payload: Sequence[Bytes] = (),
    ) -> Frame:
        """As :meth:`call`, for a request or a reply with a payload."""
        waiter = _Waiter()
        correlation = self.post(api, body.pack(), waiter.set, wait_s=wait_s, payload=payload)
        try:
            await waiter.event.wait()
        finally:
            pending = self._pending.get(correlation)
            if pending is not None:
                pending.handler = None
        answer = waiter.answer
        assert answer is not None
        if isinstance(answer, PacelineError):
            raise answer
        return answer

    def close(self) -> None:
        """End the connection; unanswered requests get ConnectionLost."""
        self._end(ConnectionLost("closed on this side"))

    # --- life -------------------------------------------------------------------------------------

    async def run(
        self, *, task_status: trio.TaskStatus[Connection] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Connect, shake hands, report ``started``, serve until the connection ends.

        Before ``started`` failures are raised (ConnectionLost, AuthenticationFailed ...);
        afterwards the reason is in :attr:`lost`.
        """
        transport: Transport | None = None
        try:
            with self._scope:
                async with open_scope() as nursery:
                    transport = await self._open(nursery)
                    task_status.started(self)
                    nursery.start_soon(self._guard, self._read, transport)
                    nursery.start_soon(self._guard, self._write, transport)
                    if self._lifetime_s:
                        nursery.start_soon(self._guard, self._stay_logged_in, transport)
                    await self._watch_deadlines()
        finally:
            self._end(ConnectionLost("the client ends"))
            if transport is not None:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                    await transport.aclose()

    async def _open(self, nursery: trio.Nursery) -> Transport:
        timeout_s = self._settings.connect_timeout_s
        missing, why = "connection", ""
        with trio.move_on_after(timeout_s):
            try:
                stream = await self._dial(self.endpoint)
            except OSError as error:
                raise dial_error(self.endpoint, error) from error
            missing, why = "greeting", f": it stands still, or is {NO_LISTENER}"
            try:
                self._is_encrypted = isinstance(stream, trio.SSLStream)
                transport = await self._wrap(stream, nursery)
                self.hello = await self._shake_hands(transport)
            except BaseException:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                    await trio.aclose_forcefully(stream)
                raise
            return transport
        raise ConnectionLost(f"{self.endpoint}: no {missing} in {timeout_s} s{why}", was_sent=False)

    async def _wrap(self, stream: trio.abc.Stream, nursery: trio.Nursery) -> Transport:
        limit = self._settings.max_frame_bytes
        if self.endpoint.path is None:
            return StreamTransport(stream, max_frame_bytes=limit)
        # Here, not above: most clients speak TCP, and loading it took a third of their start.
        from paceline.client.websocket import WebSocketTransport

        return await WebSocketTransport.open(stream, self.endpoint, nursery, max_frame_bytes=limit)

    async def _shake_hands(self, transport: Transport) -> HelloReply:
        hello = Hello(
            PROTOCOL_VERSION,
            PROTOCOL_VERSION,
            self._settings.client_id,
            SOFTWARE,
            self._cluster_id,
        )
        head = encode_head(Kind.REQUEST, NativeApi.HELLO, 0, hello.pack(), 0)
        try:
            await transport.send([[head]])
            frame = await transport.receive()
        except ConnectionLost as error:
            # A greeting has no effect that could be repeated.
            said = f"{self.endpoint}: {error} before it greeted: it stops, or is {NO_LISTENER}"
            raise ConnectionLost(said, was_sent=False) from error
        except AuthenticationFailed as error:
            raise AuthenticationFailed(f"{self.endpoint}: {error}") from error
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{self.endpoint}: {NO_LISTENER}: {error}") from error
        frame.raise_for_error()
        reply = HelloReply.unpack(frame.body)
        if reply.version != PROTOCOL_VERSION:
            raise UnsupportedVersion(f"{self.endpoint}: speaks version {reply.version}")
        await self._first_log_in(transport, reply)
        return reply

    # --- logging in -------------------------------------------------------------------------------

    async def _first_log_in(self, transport: Transport, hello: HelloReply) -> None:
        if self._login is None:
            if hello.mechanisms:
                raise AuthenticationFailed(
                    f"{self.endpoint}: the node wants a log-in ({', '.join(hello.mechanisms)}): "
                    "name a user and a file with the password"
                )
            return

        async def ask(request: Authenticate) -> Authenticated:
            head = encode_head(Kind.REQUEST, NativeApi.AUTHENTICATE, 0, request.pack(), 0)
            await transport.send([[head]])
            frame = await transport.receive()
            frame.raise_for_error()
            return Authenticated.unpack(frame.body)

        await self._log_in(self._login, ask)

    async def _log_in(
        self, login: ClientLogin, ask: Callable[[Authenticate], Awaitable[Authenticated]]
    ) -> None:
        async def say(mechanism: str, data: bytes) -> bytes:
            answer = await ask(Authenticate(mechanism, data))
            self._lifetime_s = answer.lifetime_ms / 1000
            return answer.data

        try:
            in_thread = trio.to_thread.run_sync
            await log_in(login, say, in_thread, is_encrypted=self._is_encrypted)
        except ConnectionLost:
            raise
        except PacelineError as error:  # whatever it is, without a log-in nothing else goes on
            raise AuthenticationFailed(f"{self.endpoint}: {login.username}: {error}") from error

    async def _stay_logged_in(self, _transport: Transport) -> None:
        """Log in again before the node wants it."""
        assert self._login is not None

        async def ask(request: Authenticate) -> Authenticated:
            return await self.call(
                NativeApi.AUTHENTICATE, request, Authenticated, wait_s=_LOGIN_WAIT_S
            )

        while self._lifetime_s:
            await trio.sleep(self._lifetime_s * _LOGIN_SHARE)
            await self._log_in(self._login, ask)

    async def _guard(self, work: Callable[[Transport], Any], transport: Transport) -> None:
        try:
            await work(transport)
        except (AuthenticationFailed, ConnectionLost, RemoteProtocolError) as error:
            self._end(error)

    async def _write(self, transport: Transport) -> None:
        while True:
            while not self._outbox:
                self._wake = trio.Event()
                await self._wake.wait()
            batch, self._outbox = self._outbox, []
            size = self._outbox_bytes
            for pending, _ in batch:
                pending.written = True
            await transport.send([pieces for _, pieces in batch])
            self._outbox_bytes -= size
            self._on_change()

    async def _read(self, transport: Transport) -> None:
        while True:
            frame = await transport.receive()
            pending = self._pending.pop(frame.correlation, None)
            if pending is None:
                raise RemoteProtocolError(f"answer to unknown request {frame.correlation}")
            if frame.api in _OF_DATA and frame.kind == Kind.RESPONSE:
                self._hold(throttle_of(frame.body) / 1000)
            was_full = len(self._pending) + 1 == self.max_in_flight
            if pending.handler is not None:
                pending.handler(_answer(frame))
            if was_full:
                self._on_change()

    def _hold(self, seconds: float) -> None:
        """The node reads no more data of ours for so long: what was sent now would only wait
        there, and before what is not data."""
        if seconds <= 0:
            return
        self._held_until = trio.current_time() + seconds
        self._watch.deadline = min(self._watch.deadline, self._held_until)

    async def _watch_deadlines(self) -> None:
        while True:
            now = trio.current_time()
            first = min((each.deadline for each in self._pending.values()), default=math.inf)
            if first <= now:
                self._end(ConnectionLost("no answer in time"))
                return
            if self._held_until <= now:
                self._held_until = math.inf
                self._on_change()
            first = min(first, self._held_until)
            with trio.CancelScope(deadline=first) as self._watch:
                await trio.sleep_forever()

    def _end(self, reason: PacelineError) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        self._scope.cancel()
        pending, self._pending = self._pending, {}
        self._outbox = []
        for each in pending.values():
            if each.handler is not None:
                each.handler(ConnectionLost(f"{self.endpoint}: {reason}", was_sent=each.written))
        self._on_change()


def _answer(frame: Frame) -> Answer:
    if frame.kind == Kind.RESPONSE:
        return frame
    try:
        frame.raise_for_error()
    except PacelineError as error:
        return error
    return RemoteProtocolError(f"frame of kind {frame.kind} in place of an answer")
