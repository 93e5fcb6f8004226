"""One connection of the Pravega segment dialect (DESIGN 8.5).

::

    reader:  bytes -> RequestReader -> appends in order, everything else as tasks beside it
    writer:  SegmentOutbox -> bytes

Back-pressure is TCP's, as in the seed dialect (``connection.py``).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import trio

from paceline.wire.segment import pravega_messages as w
from paceline.wire.segment.errors import ReplyCode, SegmentProtocolError
from paceline.wire.segment.framing import SegmentMessage
from paceline.wire.segment.requests import Request, RequestReader, Unsupported
from paceline_node.env import Env
from paceline_node.listeners.segment.concurrent_requests import ConcurrentRequests
from paceline_node.listeners.segment.limits import ConnectionLimits, Inflight, NodeBudget
from paceline_node.listeners.segment.login import BEFORE_LOGIN_BYTES, SegmentLogin
from paceline_node.listeners.segment.outbox import SegmentOutbox
from paceline_node.listeners.segment.pravega_appends import Append, PravegaAppends
from paceline_node.listeners.segment.pravega_requests import PravegaRequests, identity_of
from paceline_node.listeners.segment.pravega_tables import TableRequests
from paceline_node.listeners.segment.transient_budget import TransientBudget, TransientPart
from paceline_node.listeners.serving import let_read
from paceline_node.loop_turns import Turns
from paceline_node.net.connection_tasks import connection_tasks
from paceline_node.net.transport import transport_for
from paceline_node.observe.metrics import RequestMeters
from paceline_node.observe.rate_limited_log import RateLimitedLog
from paceline_node.services.segments.segment_service import SegmentService

_RECEIVE_BYTES = 256 * 1024
_MESSAGES_AT_ONCE = 200
"""Done before others have their turn: the smallest messages are eight bytes."""
_MAX_REQUESTS = 64
_SETTLE_S = 1.0


class PravegaServices(NamedTuple):
    """What every connection of the dialect works with."""

    env: Env
    turns: Turns
    segments: SegmentService
    tables: TableRequests
    budget: NodeBudget
    transients: TransientBudget
    meters: RequestMeters[str]
    log: RateLimitedLog


class PravegaConnection:
    """Serves one client, which has said Hello already, to the connection's end."""

    def __init__(
        self, services: PravegaServices, login: SegmentLogin, limits: ConnectionLimits
    ) -> None:
        client = login.client
        self._login = login
        self._memory = client.memory
        self._turns = services.turns
        self._limits = limits
        self._budget = services.budget
        self._inflight = Inflight(limits, services.budget, client.memory)
        self._writers = services.segments.writers
        self._reader = RequestReader()
        self._outbox = SegmentOutbox(
            client.memory, limit_bytes=limits.reply_queue, stall_s=limits.idle_s, cut_bytes=0
        )
        self._over = trio.CancelScope()
        self._appends = PravegaAppends(
            services.segments,
            TransientPart(services.transients, client.memory),
            append_timeout_s=limits.times.append_s,
            max_event_bytes=limits.protocol.max_event_bytes,
            max_appenders=limits.protocol.max_appenders,
            say=self._outbox.send,
            end=self._over.cancel,
            inflight=self._inflight,
            account=lambda: login.client.account,
        )
        self._requests = PravegaRequests(
            env=services.env,
            segments=services.segments,
            tables=services.tables,
            who=lambda: login.client.principal,
            outbox=self._outbox,
            appends=self._appends,
            times=limits.times,
            meters=services.meters,
            log=services.log,
            end=self._over.cancel,
        )
        self._beside = ConcurrentRequests(self._inflight.look_again)
        self._gate = trio.Semaphore(_MAX_REQUESTS)

    async def run(self, stream: trio.abc.Stream, rest: bytes) -> None:
        """Serve ``stream``, of which ``rest`` was received already; the caller closes it. Returns
        when the client is gone, or is better gone: it then comes back and sets up anew."""
        self._budget.join(self._inflight)
        self._outbox.send(w.Hello(w.NEWEST_VERSION, w.OLDEST_VERSION))
        try:
            async with connection_tasks() as nursery:
                nursery.start_soon(self._outbox.run, transport_for(stream))
                with self._over:
                    await self._serve(stream, rest, nursery)
                with trio.move_on_after(_SETTLE_S):
                    await self._outbox.emptied()
                nursery.cancel_scope.cancel("the connection is over")
            if self._reader.fault is not None:
                await let_read(stream)
        except* (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, OSError):
            pass
        finally:
            self._appends.close()
            self._budget.leave(self._inflight)
            self._outbox.close()

    async def _serve(self, stream: trio.abc.Stream, rest: bytes, nursery: trio.Nursery) -> None:
        data: bytes | bytearray = rest
        try:
            while True:
                await self._turns.small()
                for request in self._reader.receive(data, at_most=_MESSAGES_AT_ONCE):
                    await self._turns.small(1)
                    await self._do(request, nursery)
                while self._reader.has_more:
                    await self._turns.next()
                    for request in self._reader.receive(b"", at_most=_MESSAGES_AT_ONCE):
                        await self._do(request, nursery)
                if self._reader.fault is not None:
                    self._violated(self._reader.fault)
                    return
                await self._outbox.room()
                await self._inflight.capacity()
                data = b""
                self._memory.arriving(self._reader.buffered_bytes)
                await self._memory.room()
                if self._login.is_missing and self._reader.buffered_bytes > BEFORE_LOGIN_BYTES:
                    break
                with trio.move_on_after(min(self._limits.idle_s, self._login.left_s)):
                    data = await stream.receive_some(_RECEIVE_BYTES)
                if not data:
                    break
        except SegmentProtocolError as error:
            self._violated(error)
            return
        # A client that has said all it had to may still listen.
        self._requests.hurry()
        with trio.move_on_after(_SETTLE_S):
            while self._beside.count or self._inflight.bytes:
                await self._inflight.moved()

    def _violated(self, error: SegmentProtocolError) -> None:
        self._outbox.send(w.ErrorMessage(0, "", str(error), ReplyCode.PROTOCOL_ERROR))

    async def _do(self, request: Request, nursery: trio.Nursery) -> None:
        match request:
            case Unsupported(request_id, operation):
                self._outbox.send(w.OperationUnsupported(request_id, operation))
            case w.Hello():
                self._outbox.send(w.Hello(w.NEWEST_VERSION, w.OLDEST_VERSION))
            case w.KeepAlive():
                self._outbox.send(request)
            case w.AppendBlockEnd() | w.ConditionalBlockEnd() | w.ConditionalAppend():
                await self._append(request)
            case _:
                await self._ask(request, nursery)

    async def _ask(self, request: SegmentMessage, nursery: trio.Nursery) -> None:
        request_id, _ = identity_of(request)
        token: str = getattr(request, "token")  # noqa: B009  every such request has one
        refusal = self._login.refusal(request_id, token)
        if refusal is not None:
            self._outbox.send(refusal)
        elif isinstance(request, w.CreateTransientSegment):
            self._requests.create_transient(request)
        else:
            await self._start(request, nursery)

    async def _append(self, request: Append) -> None:
        await self._inflight.capacity()
        await self._appends.append(request)

    async def _start(self, request: SegmentMessage, nursery: trio.Nursery) -> None:
        """Answer ``request`` beside the reader, which waits while too many are being answered."""
        turn = self._writers.arrived()
        _, segment = identity_of(request)
        work = partial(self._requests.answer, request, turn)
        await self._beside.start(nursery, self._gate, (type(request), segment), work)
