"""The Cursus listener: frames in, frames out, one request of a connection at a time.

Requests of some kinds are carried out together where several have arrived one behind the other:
each would have waited for a write of its own.

While a connection streams, its next frame ends the stream and is a request like any other. Answers
go out in the order of the requests; those to acks=0 may be dropped when the client does not read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol, Self, TypeVar, cast

import structlog
import trio

from paceline.errors import PacelineError, RemoteProtocolError, RequestTimedOut
from paceline.types import Acks, Compression, NodeId
from paceline.values import dataclass
from paceline.wire.cursus import requests
from paceline.wire.cursus.batch import CursusBatch, record_bytes
from paceline.wire.cursus.commands import INTERNAL, Command, parse_command
from paceline.wire.cursus.compression import CursusCompressor, codec_of
from paceline.wire.cursus.errors import ERROR_CLASSES, CursusError
from paceline.wire.cursus.frames import MAX_FRAME_BYTES
from paceline.wire.cursus.inbound import CommandText, read_frame
from paceline.wire.cursus.replies import ok, refusal_of
from paceline.wire.cursus.requests import Request
from paceline.wire.frame import Frame
from paceline.wire.message import Message
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.cursus import CursusFrame, CursusReply
from paceline_node.bare_errors import bare
from paceline_node.client_memory import ClientMemory
from paceline_node.env import Env
from paceline_node.listeners.cursus.consume import CursusConsume
from paceline_node.listeners.cursus.errors import as_cursus
from paceline_node.listeners.cursus.login import CursusLogin
from paceline_node.listeners.cursus.produce import BATCH, CursusProduce
from paceline_node.listeners.cursus.session import (
    CursusCall,
    CursusSession,
    FrameSink,
    FrameSource,
    Outcome,
    PeerAnswer,
    Reply,
    Waiting,
    text,
)
from paceline_node.listeners.cursus.streams import StreamTable
from paceline_node.listeners.serving import Client, forwarded
from paceline_node.net.connection_tasks import connection_tasks
from paceline_node.net.transport import Transport, transport_for
from paceline_node.observe.metrics import OK, Metrics
from paceline_node.security.authentication import Authenticator
from paceline_node.security.principals import node_principal
from paceline_node.settings.cursus import CursusSettings as CursusDefaults
from paceline_node.settings.limits import LimitSettings

REQUEST_BUDGET_S = 4.0
"""Every reply is out within this, for clients give up after 5 s (DESIGN 5.1)."""
_THREAD_BYTES = 128 * 1024
"""A frame above this is parsed in a thread, and so is every compressed one, which may be as large
as can be once it is unpacked (services/DESIGN 4.2)."""
_TIMED_OUT = ("request_timed_out", 'reason="outcome unknown"')
_VERSION = 1
_RECORD_BYTES = 300
"""What a record takes besides its bytes, once it is appended."""

_RUN_REQUESTS = 64
_RUN_BYTES = 128 * 1024
"""Of requests that are carried out together: the loop is held for so many at a time."""

Handler = Callable[[Request, CursusCall], Awaitable[Reply]]
RunHandler = Callable[[Sequence[Request], CursusCall], Awaitable[Sequence[Outcome]]]
PeerHandler = Callable[[NodeId, Frame, Waiting], Awaitable[PeerAnswer]]
"""Answers another node, whose place among the waiting ones it may give up."""
R = TypeVar("R", bound=Request)


class Asked(Protocol):
    """What another node asks: a message that says how much time there is."""

    @property
    def budget_ms(self) -> int:
        """Of the request, what is left."""

    @classmethod
    def unpack(cls, values: Sequence[object]) -> Self:
        """As :meth:`Message.unpack`."""


Q = TypeVar("Q", bound=Asked)


@dataclass(frozen=True, slots=True)
class CursusSettings:
    """``commands`` are the words that are served. ``compressors`` are tried on frames that are
    otherwise nothing; ``idle_s`` None: a connection may be silent for ever. ``stall_s``,
    ``stream_stall_s``: within what frames that have begun must arrive, and what is sent be
    taken."""

    commands: frozenset[str]
    features: tuple[str, ...]
    compressors: Sequence[CursusCompressor] = ()
    idle_s: float | None = None
    max_frame_bytes: int = MAX_FRAME_BYTES
    stall_s: float = LimitSettings().stall_ms / 1000
    stream_stall_s: float = CursusDefaults().stream_stall_ms / 1000


class CursusListener:
    """Serves Cursus connections, and the frames that other nodes forward."""

    def __init__(
        self,
        env: Env,
        settings: CursusSettings,
        produce: CursusProduce,
        reads: CursusConsume,
        metrics: Metrics,
        memory: ClientMemory,
        authenticator: Authenticator,
        is_closed: Callable[[], bool],
    ) -> None:
        self._authenticator = authenticator
        self._is_closed = is_closed
        self._env = env
        self._settings = settings
        self._memory = memory
        self._produce = produce
        self._reads = reads
        self._streams = StreamTable.empty()
        self._words = settings.commands | INTERNAL
        names = {word: word.lower() for word in (*self._words, BATCH)}
        self._meters = metrics.requests_by("cursus", names)
        self._handlers: dict[type, Handler] = {}
        self._runs: dict[type, tuple[RunHandler, Callable[[Request], object]]] = {}
        self.asked: dict[PeerApi, PeerHandler] = {}
        self.serve_requests(requests.Publish, produce.publish)
        self.serve_requests(requests.Consume, reads.consume)
        self.serve_requests(requests.ProtocolInfo, self._protocol_info)
        self.serve_requests(requests.Negotiate, self._negotiate)
        self.serve_requests(requests.Auth, self._auth)
        self.serve_requests(requests.Help, self._help)

    @property
    def stream_count(self) -> int:
        """Streams being pushed now."""
        return self._streams.count

    def serve_requests(
        self, kind: type[R], handler: Callable[[R, CursusCall], Awaitable[Reply]]
    ) -> None:
        """Let ``handler`` answer requests of a kind."""
        self._handlers[kind] = cast(Handler, handler)

    def serve_runs(
        self,
        kind: type[R],
        handler: Callable[[Sequence[R], CursusCall], Awaitable[Sequence[Outcome]]],
        together: Callable[[R], object],
    ) -> None:
        """Let ``handler`` answer requests of a kind, those together that arrived one behind the
        other and are alike in ``together``."""

        async def alone(request: R, call: CursusCall) -> Reply:
            [outcome] = await handler([request], call)
            if isinstance(outcome, PacelineError):
                try:
                    raise outcome
                finally:
                    del outcome
            return outcome

        self.serve_requests(kind, alone)
        self._runs[kind] = cast(RunHandler, handler), cast(Callable[[Request], object], together)

    # --- connections ------------------------------------------------------------------------------

    async def serve(self, stream: trio.abc.Stream, client: Client) -> None:
        """Serve one connection to its end; owns and closes ``stream``. A broken connection is the
        client's affair and ends quietly."""
        login = CursusLogin(self._authenticator, self._is_closed, client)
        session = CursusSession(client.principal, account=client.account, login=login)
        settings = self._settings
        source = FrameSource(
            stream,
            client.memory,
            max_frame_bytes=settings.max_frame_bytes,
            stall_s=settings.stall_s,
            login=login,
        )
        sink = FrameSink(login, stall_s=settings.stall_s, stream_stall_s=settings.stream_stall_s)
        try:
            async with stream, connection_tasks() as nursery:
                nursery.start_soon(_write, sink, transport_for(stream), nursery.cancel_scope)
                try:
                    await self._converse(session, login, source, sink)
                except* (trio.BrokenResourceError, trio.ClosedResourceError):
                    pass  # as it is, or wrapped by the tasks of a stream
                finally:
                    login.close()
                await sink.settle()
                nursery.cancel_scope.cancel("the connection ended")
        finally:
            sink.close()

    async def _converse(
        self, session: CursusSession, login: CursusLogin, source: FrameSource, sink: FrameSink
    ) -> None:
        body = await self._next_frame(source)
        while body is not None:
            arrived = self._env.now()
            found = await self._understand(body, session, source, sink)
            if isinstance(found, Command) and isinstance(found.request, requests.Exit):
                await sink.send(text(ok()))
                return
            if isinstance(found, Command) and isinstance(found.request, requests.Stream):
                call = self._call(found, session, body, arrived)
                with trio.move_on_at(login.ends_at) as lifetime:
                    body = await self._stream(found.request, call, source, sink)
                if lifetime.cancelled_caught:
                    return
                continue
            if isinstance(found, Command) and type(found.request) in self._runs:
                run = await self._run_of(found, source)
                call = self._call(found, session, body, arrived)
                answers = await self._answers_to_run(run, call)
                await sink.send([body for reply in answers for body in reply])
            elif found is not None:
                await self._answer(found, session, body, arrived, sink)
            body = await self._next_frame(source)

    async def _next_frame(self, source: FrameSource) -> bytes | None:
        """The next body; None at the end, after too long a silence, and where a frame is too large
        to be received."""
        idle_s = self._settings.idle_s
        limit_s = float("inf") if idle_s is None else idle_s
        with trio.move_on_after(limit_s), suppress(RemoteProtocolError):
            return await source.next()
        return None

    async def _understand(
        self, body: bytes, session: CursusSession, source: FrameSource, sink: FrameSink
    ) -> CursusBatch | Command | None:
        """What a frame says; None when it was refused."""
        assert session.login is not None
        try:
            session.login.admit(body)
            found, size = await self._parse(body)
            source.unpacked(size)
            await _identify(found, session)
            return found
        except CursusError as error:
            await sink.send(text(error.line(classed=session.classed)))
            return None

    async def _parse(self, body: bytes) -> tuple[CursusBatch | Command, int]:
        """What a frame says, and how many bytes that is, unpacked."""
        words, compressors = self._words, self._settings.compressors
        if len(body) <= _THREAD_BYTES and codec_of(body) is Compression.NONE:
            try:
                return _command_or_batch(read_frame(body, words)), len(body)
            except CursusError:
                if not compressors:
                    raise
        # How much it unpacks to is not known before; few threads do it at a time.
        found, size = await self._env.host.run_blocking(
            lambda: _weighed(read_frame(body, words, compressors))
        )
        return _command_or_batch(found), size

    async def _answer(
        self,
        found: CursusBatch | Command,
        session: CursusSession,
        body: bytes,
        arrived: float,
        sink: FrameSink,
    ) -> None:
        reply = await self._reply(found, self._call(found, session, body, arrived))
        if isinstance(found, CursusBatch) and found.acks is Acks.NONE:
            sink.offer(reply)
        else:
            await sink.send(reply)

    async def _run_of(self, first: Command, source: FrameSource) -> list[Request]:
        """The request, and those that have arrived behind it to be carried out with it."""
        together = self._runs[type(first.request)][1]
        run, size = [first.request], 0
        while len(run) < _RUN_REQUESTS and size < _RUN_BYTES:
            await trio.lowlevel.checkpoint()
            if (body := await source.arrived()) is None:
                break
            command = self._plain_command(body)
            if (
                command is None
                or command.credentials is not None
                or type(command.request) is not type(first.request)
                or together(command.request) != together(first.request)
            ):
                source.put_back(body)
                break
            source.unpacked(len(body))
            run.append(command.request)
            size += len(body)
        return run

    def _plain_command(self, body: bytes) -> Command | None:
        """The command that a small frame is, and nothing else."""
        if len(body) > _THREAD_BYTES or codec_of(body) is not Compression.NONE:
            return None
        try:
            found = _command_or_batch(read_frame(body, self._words))
        except CursusError:
            return None
        return found if isinstance(found, Command) else None

    def _call(
        self,
        found: CursusBatch | Command,
        session: CursusSession,
        body: bytes,
        arrived: float,
        *,
        budget_s: float = REQUEST_BUDGET_S,
        forwarded: bool = False,
    ) -> CursusCall:
        word, redirects = BATCH, False
        if isinstance(found, Command):
            word, redirects = found.word, not found.positional
        return CursusCall(word, session, body, arrived + budget_s, forwarded, redirects)

    async def _reply(self, found: CursusBatch | Command, call: CursusCall) -> Reply:
        """The answer, whatever happens."""
        topic = found.topic if isinstance(found, CursusBatch) else _topic(found.request)

        async def alone() -> list[Outcome]:
            return [await self._carry_out(found, call)]

        [reply] = await self._replies(alone, 1, call, topic)
        return reply

    async def _answers_to_run(self, run: Sequence[Request], call: CursusCall) -> list[Reply]:
        """As :meth:`_reply`, for each of several."""
        handler, _ = self._runs[type(run[0])]

        async def all_together() -> Sequence[Outcome]:
            with trio.move_on_at(call.deadline):
                return await handler(run, call)
            raise CursusError(*_TIMED_OUT)

        return await self._replies(all_together, len(run), call, _topic(run[0]))

    async def _replies(
        self,
        carry_out: Callable[[], Awaitable[Sequence[Outcome]]],
        count: int,
        call: CursusCall,
        topic: str,
    ) -> list[Reply]:
        outcomes: Sequence[Outcome]
        try:
            outcomes = await carry_out()
        except PacelineError as error:
            outcomes = [bare(error)] * count
        except Exception as error:  # noqa: BLE001  one request's bug must not end the connection
            structlog.get_logger().error("cursus request failed", command=call.word, exc_info=error)
            outcomes = [CursusError("broker_error", f"command={call.word}")] * count
        return [self._counted(each, call, topic) for each in outcomes]

    def _counted(self, outcome: Outcome, call: CursusCall, topic: str) -> Reply:
        if not isinstance(outcome, PacelineError):
            self._count(call, OK)
            return outcome
        refusal = refusal_of(call.word, as_cursus(outcome, call.word, topic))
        self._count(call, refusal.word.lower())
        return text(refusal.line(classed=call.session.classed))

    def _count(self, call: CursusCall, code: str) -> None:
        took_s = self._env.now() - (call.deadline - REQUEST_BUDGET_S)
        self._meters[call.word].done(code, took_s)

    async def _carry_out(self, found: CursusBatch | Command, call: CursusCall) -> Reply:
        with trio.move_on_at(call.deadline):
            if isinstance(found, CursusBatch):
                return await self._produce.batch(found, call)
            handler = self._handlers.get(type(found.request))
            if handler is None:
                # STREAM and EXIT are the connection's own; another node cannot carry them out.
                raise CursusError("unknown_command", f'command="{found.word}"')
            return await handler(found.request, call)
        raise CursusError(*_TIMED_OUT)

    # --- streams ----------------------------------------------------------------------------------

    async def _stream(
        self, request: requests.Stream, call: CursusCall, source: FrameSource, sink: FrameSink
    ) -> bytes | None:
        """Push until the client sends its next frame, which is returned, or ends the connection.
        When the stream ends by itself the connection is ready for commands again."""
        try:
            stream = await self._reads.stream(request.place, call, sink)
        except PacelineError as error:
            refusal = bare(as_cursus(error, call.word, request.place.topic))
            self._count(call, refusal.word.lower())
            await sink.send(text(refusal.line(classed=call.session.classed)))
            return await self._next_frame(source)
        self._count(call, OK)
        self._streams.enter(stream)
        try:
            async with connection_tasks() as nursery:
                nursery.start_soon(stream.run)
                try:
                    # A reader of a stream is silent: it is not idle.
                    body = await source.next()
                except RemoteProtocolError:
                    body = None
                if body is None:
                    nursery.cancel_scope.cancel("the connection ended")
                stream.abandon()
        finally:
            self._streams.leave(stream)
        return body

    # --- between nodes ----------------------------------------------------------------------------

    async def serve_forwarded(
        self, sender: NodeId, frame: Frame, waiting: Waiting
    ) -> tuple[Message, bytes]:
        """Answer a frame that another node forwarded (PeerApi.CURSUS_FRAME).

        Raises NotLeader when nothing was done and the sender may look elsewhere; every other
        refusal is Cursus's own and final.
        """
        ask = CursusFrame.unpack(frame.body)
        budget_s = min(ask.budget_ms / 1000, REQUEST_BUDGET_S)
        features = frozenset({"structured_errors_v1"} if ask.classed else ())
        peer = node_principal(sender)
        principal = replace(peer, source=ask.account)
        call_session = CursusSession(principal, features, ask.account or str(principal))
        async with forwarded(self._memory, sender, len(frame.payload)):
            body = bytes(frame.payload)
            try:
                found, _ = await self._parse(body)
                call = self._call(
                    found, call_session, body, self._env.now(), budget_s=budget_s, forwarded=True
                )
                call = replace(call, waiting=waiting)
                reply = await self._carry_out(found, call)
            except CursusError as error:
                reply = text(error.line(classed=ask.classed))
            return CursusReply(), reply[0]

    def serve_asked(
        self, api: PeerApi, kind: type[Q], handler: Callable[[Q, CursusCall], Awaitable[PeerAnswer]]
    ) -> None:
        """Let ``handler`` answer what other nodes ask for their clients."""

        async def answer(sender: NodeId, frame: Frame, waiting: Waiting) -> PeerAnswer:
            ask = kind.unpack(frame.body)
            budget_s = min(ask.budget_ms / 1000, REQUEST_BUDGET_S)
            session = CursusSession(node_principal(sender))
            deadline = self._env.now() + budget_s
            call = CursusCall(api.name, session, b"", deadline, True, False, waiting)
            with trio.move_on_at(deadline):
                return await handler(ask, call)
            raise RequestTimedOut("the answer takes too long")

        self.asked[api] = answer

    # --- the session's own commands ---------------------------------------------------------------

    async def _protocol_info(self, _: requests.ProtocolInfo, call: CursusCall) -> Reply:
        line = ok(
            protocol="cursus",
            min_version=_VERSION,
            max_version=_VERSION,
            default_version=_VERSION,
            features=",".join(self._settings.features),
            error_classes=",".join(ERROR_CLASSES),
        )
        return text(line)

    async def _negotiate(self, request: requests.Negotiate, call: CursusCall) -> Reply:
        if request.version != _VERSION:
            detail = f"requested={request.version} min={_VERSION} max={_VERSION}"
            raise CursusError("UNSUPPORTED_PROTOCOL_VERSION", detail, always_classed=True)
        known = self._settings.features
        wanted = known if request.features is None else request.features
        enabled = sorted(set(wanted) & set(known))
        unsupported = sorted(set(wanted) - set(known))
        if unsupported and request.required:
            detail = f"features={','.join(unsupported)}"
            raise CursusError("UNSUPPORTED_FEATURE", detail, always_classed=True)
        call.session.features = frozenset(enabled)
        fields = {"enabled": ",".join(enabled), "unsupported": ",".join(unsupported)}
        return text(ok(protocol_version=_VERSION, **fields))

    async def _auth(self, request: requests.Auth, call: CursusCall) -> Reply:
        return text(ok(principal=request.credentials.principal, authenticated=True))

    async def _help(self, _: requests.Help, call: CursusCall) -> Reply:
        return text(ok(commands=",".join(sorted(self._settings.commands))))


async def _identify(found: CursusBatch | Command, session: CursusSession) -> None:
    """Credentials on a command, AUTH or any other, are the connection's from then on."""
    login = session.login
    assert login is not None
    word = BATCH
    if isinstance(found, Command):
        word = found.word
        if found.credentials is not None:
            await login.identify(found.credentials)
    login.require(word)
    session.principal, session.account = login.client.principal, login.client.account


def _command_or_batch(found: CursusBatch | CommandText) -> CursusBatch | Command:
    return found if isinstance(found, CursusBatch) else parse_command(found)


def _weighed(found: CursusBatch | CommandText) -> tuple[CursusBatch | CommandText, int]:
    """What was read, and about how many bytes that takes."""
    if not isinstance(found, CursusBatch):
        return found, len(found.rest)
    records = found.records
    return found, record_bytes(records) + _RECORD_BYTES * len(records)


async def _write(sink: FrameSink, transport: Transport, connection: trio.CancelScope) -> None:
    """Send what the connection says; without a writer there is no point in reading on."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, OSError):
        await sink.run(transport)
    connection.cancel("the connection takes no more answers")


def _topic(request: Request) -> str:
    place = getattr(request, "place", request)
    return str(getattr(place, "topic", ""))
