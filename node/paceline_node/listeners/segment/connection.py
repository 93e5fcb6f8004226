"""One connection of the segment protocol: reading, doing what is read, writing.

::

    reader:  bytes -> ServerConnection -> steps: appends at once, requests as tasks beside it
    writer:  SegmentOutbox -> bytes

Back-pressure is TCP's: the reader does not receive while too much is received and not committed,
or while too many replies are untaken (DESIGN 8.1).
"""

from __future__ import annotations

import enum
from functools import partial

import trio

from paceline.wire.segment import messages as m
from paceline.wire.segment.errors import ReplyCode
from paceline.wire.segment.pravega_messages import NEWEST_VERSION, OLDEST_VERSION, speaks
from paceline.wire.segment.server import (
    Append,
    BlockClosed,
    OtherDialect,
    Refusal,
    Requested,
    ServerConnection,
    SetUp,
    Step,
    Violated,
)
from paceline_node.client_memory import Holding
from paceline_node.env import Env
from paceline_node.listeners.segment.appends import Appends
from paceline_node.listeners.segment.concurrent_requests import ConcurrentRequests
from paceline_node.listeners.segment.limits import ConnectionLimits, Inflight, NodeBudget
from paceline_node.listeners.segment.login import BEFORE_LOGIN_BYTES, LOGIN_S
from paceline_node.listeners.segment.outbox import SegmentOutbox
from paceline_node.listeners.segment.requests import SegmentRequests
from paceline_node.listeners.serving import let_read
from paceline_node.loop_turns import Turns
from paceline_node.net.connection_tasks import connection_tasks
from paceline_node.net.deadlines import Deadlines
from paceline_node.net.transport import transport_for
from paceline_node.observe.metrics import RequestMeters
from paceline_node.security.principals import Principal, Proof
from paceline_node.services.segments.segment_service import SegmentService

_RECEIVE_BYTES = 256 * 1024
_MESSAGES_AT_ONCE = 200
"""Done before others have their turn: the smallest messages are eight bytes."""
_MAX_ADMIN_REQUESTS = 64
_SETTLE_S = 1.0
_UNSUPPORTED = {m.CreateBatch: "createBatch", m.MergeBatch: "mergeBatch"}


class _End(enum.Enum):
    """How a connection ended: the client says no more, or the last thing to say is an error."""

    SILENCE = "silence"
    FAULT = "fault"


class SegmentConnection:
    """Serves one client to the connection's end."""

    def __init__(
        self,
        env: Env,
        turns: Turns,
        segments: SegmentService,
        principal: Principal,
        deadlines: Deadlines,
        limits: ConnectionLimits,
        budget: NodeBudget,
        meters: RequestMeters[str],
        memory: Holding,
        account: str = "",
        must_log_in: bool = False,
    ) -> None:
        self._is_stranger = must_log_in and principal.proof is Proof.NONE
        self._due = trio.current_time() + LOGIN_S if self._is_stranger else float("inf")
        self._memory = memory
        self._turns = turns
        self._limits = limits
        self._budget = budget
        self._inflight = Inflight(limits, budget, memory)
        self._writers = segments.writers
        self._machine = ServerConnection(limits.protocol)
        self._outbox = SegmentOutbox(
            memory,
            limit_bytes=limits.reply_queue,
            stall_s=limits.idle_s,
            cut_bytes=limits.piece_bytes,
        )
        self._appends = Appends(
            segments,
            deadlines,
            self._outbox,
            append_timeout_s=limits.times.append_s,
            inflight=self._inflight,
            account=account,
        )
        self._requests = SegmentRequests(
            env, segments, principal, self._outbox, self._appends, limits.times, meters
        )
        self._beside = ConcurrentRequests(self._inflight.look_again)
        self._reads = trio.Semaphore(limits.reads)
        self._admin = trio.Semaphore(_MAX_ADMIN_REQUESTS)
        self._set_ups = trio.Semaphore(limits.protocol.max_appenders)

    async def run(self, stream: trio.abc.Stream) -> OtherDialect | None:
        """Serve ``stream``; the caller closes it. Returns when the client is gone, is idle for too
        long, takes nothing, or broke the protocol and was told so; or, with nothing said yet, the
        Hello of a client that speaks the Pravega dialect."""
        other: OtherDialect | None = None
        self._budget.join(self._inflight)
        try:
            other = await self._converse(stream)
        except* (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, OSError):
            pass
        finally:
            self._appends.close()
            self._budget.leave(self._inflight)
            self._outbox.close()
        return other

    async def _converse(self, stream: trio.abc.Stream) -> OtherDialect | None:
        async with connection_tasks() as nursery:
            nursery.start_soon(self._outbox.run, transport_for(stream))
            end = await self._read(stream, nursery)
            if not isinstance(end, OtherDialect):
                with trio.move_on_after(_SETTLE_S):
                    # A client that has said all it had to may still listen.
                    await (self._outbox.emptied() if end is _End.FAULT else self._settled())
            nursery.cancel_scope.cancel()
        if isinstance(end, OtherDialect):
            return end
        if end is _End.FAULT:
            await let_read(stream)
        return None

    async def _settled(self) -> None:
        self._requests.hurry()
        while self._beside.count or not self._appends.is_settled:
            await self._inflight.moved()
        await self._outbox.emptied()

    # --- reading ----------------------------------------------------------------------------------

    async def _read(self, stream: trio.abc.Stream, nursery: trio.Nursery) -> _End | OtherDialect:
        """Read until the end, and say how it came."""
        while True:
            await self._outbox.room()
            await self._inflight.capacity()
            data: bytes | bytearray = b""
            self._memory.arriving(self._machine.buffered_bytes)
            await self._memory.room()
            with trio.move_on_at(min(trio.current_time() + self._limits.idle_s, self._due)):
                data = await stream.receive_some(_RECEIVE_BYTES)
            if not data:
                return _End.SILENCE
            await self._turns.small()
            steps = self._machine.receive(data, at_most=_MESSAGES_AT_ONCE)
            await self._turns.small(len(steps))
            end = await self._take(steps, nursery)
            while end is None and self._machine.has_more:
                await self._turns.next()
                steps = self._machine.receive(b"", at_most=_MESSAGES_AT_ONCE)
                end = await self._take(steps, nursery)
            if end is not None:
                return end

    async def _take(self, steps: list[Step], nursery: trio.Nursery) -> _End | OtherDialect | None:
        """Do what the client asks for; how the connection ends, where it is to."""
        for step in steps:
            match step:
                case Violated(error):
                    self._outbox.send(
                        m.ErrorMessage(m.NO_ID, "", str(error), ReplyCode.PROTOCOL_ERROR)
                    )
                    return _End.FAULT
                case OtherDialect(hello) if speaks(hello.high, hello.low):
                    return step
                case OtherDialect():
                    # Our own range of versions, as the original answers before it closes.
                    self._outbox.send(m.Hello(NEWEST_VERSION, OLDEST_VERSION))
                    return _End.FAULT
                case _ if self._is_stranger:
                    text = "this listener wants a certificate of who speaks this dialect"
                    self._outbox.send(m.ErrorMessage(m.NO_ID, "", text, ReplyCode.UNSPECIFIED))
                    return _End.FAULT
                case _:
                    await self._do(step, nursery)
        if self._is_stranger and self._machine.buffered_bytes > BEFORE_LOGIN_BYTES:
            return _End.FAULT
        return None

    async def _do(self, step: Step, nursery: trio.Nursery) -> None:
        match step:
            case Append():
                self._appends.take(step)
            case BlockClosed(appender):
                self._appends.block_closed(appender)
            case Refusal(appender, reply):
                if appender is not None:
                    self._appends.refused(appender)
                self._outbox.send(reply)
            case SetUp(appender, replaced):
                if replaced is not None:
                    self._appends.unbind(replaced)
                work = partial(self._requests.set_up, step, self._writers.arrived())
                await self._beside.start(nursery, self._set_ups, (SetUp, appender.segment), work)
            case Requested(message):
                await self._request(message, nursery)

    async def _request(self, message: m.SegmentMessage, nursery: trio.Nursery) -> None:
        kind = type(message)
        if isinstance(message, m.KeepAlive):
            self._outbox.send(message)
        elif isinstance(message, m.Hello):
            self._outbox.send(m.Hello(0, 0))
        elif kind in _UNSUPPORTED:
            self._outbox.send(m.OperationUnsupported(_UNSUPPORTED[kind]))
        else:
            segment: str = getattr(message, "segment")  # noqa: B009  every other request has one
            gate = self._reads if isinstance(message, m.ReadSegment) else self._admin
            await self._beside.start(
                nursery, gate, (kind, segment), lambda: self._requests.answer(message)
            )
