"""The pravega listener: the controller of the Pravega segment dialect, as gRPC calls over HTTP/2.

A thin driver of ``paceline/wire/pravega/grpc.py``; what the calls do is ``calls.py``'s.
One connection::

    reader:  bytes -> GrpcConnection -> calls, each a task
    flush:   GrpcConnection -> bytes, by whoever has something to say, one at a time

The reader flushes before it reads on, so a client that does not take what it is told is not read:
what waits for it is bounded by what one read can cause.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import structlog
import trio

from paceline.errors import ErrorCode, PacelineError, RemoteProtocolError
from paceline.wire.pravega.controller import SERVICE
from paceline.wire.pravega.grpc import Call, GivenUp, GrpcConnection, GrpcLimits, GrpcStatus
from paceline.wire.pravega.protobuf import ProtoMessage
from paceline_node.client_memory import Portion
from paceline_node.env import Env
from paceline_node.listeners.pravega.login import PravegaLogin
from paceline_node.listeners.serving import Client
from paceline_node.loop_turns import Turns
from paceline_node.net.connection_tasks import connection_tasks
from paceline_node.observe.metrics import OK, Metrics, RequestMeters
from paceline_node.security.principals import Principal

_RECEIVE_BYTES = 64 * 1024
_SLICE_BYTES = 4096
"""Some 25 calls, or 240 pings: what is taken in at a time, for reading HTTP/2 is slow."""
_IDLE_S = 3600.0
"""Clients keep their channels open without a word; one that is gone without one is found then."""
_STALL_S = 30.0
_TAKEN_BYTES = 64 * 1024
_LAST_WORD_S = 1.0

_STATUSES: Mapping[ErrorCode, GrpcStatus] = {
    ErrorCode.AUTHORIZATION_FAILED: GrpcStatus.PERMISSION_DENIED,
    ErrorCode.AUTHENTICATION_FAILED: GrpcStatus.UNAUTHENTICATED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: GrpcStatus.NOT_FOUND,
    ErrorCode.INVALID_REQUEST: GrpcStatus.INVALID_ARGUMENT,
    ErrorCode.INVALID_TOPIC: GrpcStatus.INVALID_ARGUMENT,
    ErrorCode.INVALID_PARTITIONS: GrpcStatus.INVALID_ARGUMENT,
    ErrorCode.OFFSET_OUT_OF_RANGE: GrpcStatus.OUT_OF_RANGE,
    ErrorCode.STORAGE_FULL: GrpcStatus.RESOURCE_EXHAUSTED,
    ErrorCode.POLICY_VIOLATION: GrpcStatus.INVALID_ARGUMENT,
}
"""What is not here is UNAVAILABLE: clients try again."""


class Procedure(NamedTuple):
    """A call that is served: its request's class, and what answers it. What one says that is a
    ``delegation`` depends on what its client has logged in with."""

    request: type[ProtoMessage]
    answer: Callable[[Principal, Any], Awaitable[ProtoMessage]]
    delegation: Callable[[str], ProtoMessage] | None = None


class PravegaListener:
    """Serves controller connections."""

    def __init__(
        self,
        env: Env,
        procedures: Mapping[str, Procedure],
        limits: GrpcLimits,
        metrics: Metrics,
        turns: Turns,
        login: Callable[[Client], PravegaLogin],
    ) -> None:
        self._env = env
        self._login = login
        self._turns = turns
        self._procedures = {SERVICE + name: each for name, each in procedures.items()}
        self._limits = limits
        self._meters = metrics.requests_by(
            "pravega", {SERVICE + name: name.lower() for name in procedures}
        )

    async def serve(self, stream: trio.abc.Stream, client: Client) -> None:
        """Serve one connection to its end; owns and closes ``stream``."""
        async with stream:
            login = self._login(client)
            connection = _Connection(
                self._env,
                self._procedures,
                client,
                self._meters,
                limits=self._limits,
                stream=stream,
                turns=self._turns,
                login=login,
            )
            try:
                await connection.run()
            finally:
                login.close()


class _Connection:
    def __init__(
        self,
        env: Env,
        procedures: Mapping[str, Procedure],
        client: Client,
        meters: RequestMeters[str],
        limits: GrpcLimits,
        stream: trio.abc.Stream,
        turns: Turns,
        login: PravegaLogin,
    ) -> None:
        self._env = env
        self._turns = turns
        self._procedures = procedures
        self._login = login
        self._held = Portion(client.memory)
        self._reading = trio.CancelScope()
        self._sent_mark: int | None = None
        self._meters = meters
        self._stream = stream
        self._grpc = GrpcConnection(limits)
        self._sending = trio.Lock()
        self._running: dict[int, trio.CancelScope] = {}
        self._gate = trio.CapacityLimiter(limits.calls)

    async def run(self) -> None:
        """Serve until the client is gone, is silent for long, takes no answers, or broke the
        protocol."""
        try:
            async with connection_tasks() as nursery:
                await self._flush()
                with self._reading:
                    await self._read(nursery)
                with trio.move_on_after(_LAST_WORD_S):
                    await self._flush()
                nursery.cancel_scope.cancel("the connection is over")
        except* (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            pass
        finally:
            self._grpc.forget()

    async def _read(self, nursery: trio.Nursery) -> None:
        while not self._grpc.is_over:
            data: bytes | bytearray = b""
            with trio.move_on_after(_IDLE_S):
                data = await self._stream.receive_some(_RECEIVE_BYTES)
            if not data:
                return
            await self._turns.small()
            for at in range(0, len(data), _SLICE_BYTES):
                if len(data) > _SLICE_BYTES:
                    await self._turns.next()
                self._take(bytes(data[at : at + _SLICE_BYTES]), nursery)
                self._account()
                await self._flush()

    def _take(self, data: bytes, nursery: trio.Nursery) -> None:
        for step in self._grpc.receive(data):
            match step:
                case Call():
                    nursery.start_soon(self._carry_out, step)
                case GivenUp(number) if number in self._running:
                    self._running[number].cancel("the client has given up the call")

    def _account(self) -> None:
        """Charge what is held, and give a client that opens no window for its answers up in time:
        it has to take all of them, or 64 KiB."""
        grpc = self._grpc
        self._held.set(grpc.held_bytes)
        if not grpc.waiting_bytes:
            self._sent_mark = None
            self._reading.deadline = float("inf")
        elif self._sent_mark is None or grpc.sent_bytes - self._sent_mark >= _TAKEN_BYTES:
            self._sent_mark = grpc.sent_bytes
            self._reading.deadline = trio.current_time() + _STALL_S

    async def _flush(self) -> None:
        async with self._sending:
            while data := self._grpc.data_to_send():
                with trio.fail_after(_STALL_S):
                    await self._stream.send_all(data)

    async def _carry_out(self, call: Call) -> None:
        # The limiter bounds the tasks of calls that were given up and have not ended yet, too.
        async with self._gate:
            with trio.CancelScope() as scope:
                self._running[call.stream] = scope
                try:
                    await self._turns.next()
                    await self._answer(call)
                finally:
                    del self._running[call.stream]
            self._account()
            await self._flush()

    async def _answer(self, call: Call) -> None:
        arrived = self._env.now()
        code = OK
        try:
            who = await self._login.caller(call.authorization)
            procedure = self._procedures.get(call.path)
            if procedure is None:
                text = f"{call.path} is not served"
                self._grpc.refuse(call.stream, GrpcStatus.UNIMPLEMENTED, text)
                code = "unimplemented"
            else:
                request = procedure.request.decode(call.message)
                answer = await procedure.answer(who, request)
                if procedure.delegation is not None:
                    answer = procedure.delegation(self._login.delegation(call.authorization))
                self._grpc.answer(call.stream, answer.encode())
        except RemoteProtocolError as error:
            code = error.code.name.lower()
            self._grpc.refuse(call.stream, GrpcStatus.INVALID_ARGUMENT, str(error))
        except PacelineError as error:
            code = error.code.name.lower()
            status = _STATUSES.get(error.code, GrpcStatus.UNAVAILABLE)
            self._grpc.refuse(call.stream, status, str(error))
        except Exception as error:  # noqa: BLE001  one call's bug must not end the others
            code = "internal"
            structlog.get_logger().error("pravega call failed", call=call.path, exc_info=error)
            self._grpc.refuse(call.stream, GrpcStatus.INTERNAL, "broker failure")
        self._meters[call.path].done(code, self._env.now() - arrived)
