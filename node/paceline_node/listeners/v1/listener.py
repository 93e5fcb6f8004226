"""The V1 listener: lines in, lines out, one request of a connection at a time (DESIGN 4.1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar, cast

import structlog
import trio

from paceline.errors import NotLeader, PacelineError, PreferredLeaderNotAvailable
from paceline.types import NodeId, is_internal_topic
from paceline.values import dataclass
from paceline.wire.frame import Frame
from paceline.wire.message import Message
from paceline.wire.native.quotas import QuotaLimit
from paceline.wire.peer.v1_line import V1Answer, V1Line
from paceline.wire.v1 import requests
from paceline.wire.v1.commands import COMMANDS, parse_request
from paceline.wire.v1.envelope import UNREADABLE_ID, Envelope, NotV1, parse_envelope
from paceline.wire.v1.errors import (
    LINE_TOO_LONG,
    LINE_TOO_SLOW,
    LineTooLong,
    V1Code,
    V1Error,
    bad_request,
)
from paceline.wire.v1.lines import LineReader
from paceline.wire.v1.replies import error_line, ok_line, role_payload
from paceline.wire.v1.text import decode, encode
from paceline_node.bare_errors import bare
from paceline_node.client_memory import ClientMemory, Holding, Portion
from paceline_node.env import Env
from paceline_node.listeners.serving import Client, forwarded, let_read, send_to
from paceline_node.listeners.v1.admin import AdminRequest, V1Admin
from paceline_node.listeners.v1.errors import as_v1, outcome_unknown
from paceline_node.listeners.v1.groups import V1GroupRequests
from paceline_node.listeners.v1.records import V1Records
from paceline_node.listeners.v1.replicas import V1Replicas
from paceline_node.listeners.v1.routing import Call
from paceline_node.net.deadlines import arrival_s
from paceline_node.observe.metrics import OK, Metrics
from paceline_node.security.principals import node_principal
from paceline_node.services.admin.partition_roles import RoleService
from paceline_node.settings.limits import LimitSettings

REQUEST_BUDGET_S = 4.0
"""Every reply is out within this, for SDKs give up after 5 s (DESIGN 4.1)."""
_RECEIVE_BYTES = 64 * 1024
_THREAD_CHARACTERS = 32 * 1024
"""Longer lines are read in a thread: a MiB of them takes 0.1 s."""
_PRODUCE = "PRODUCE"
_READS = frozenset({"CONSUME", "BROKER_FETCH"})
_KEPT_FACTOR = 3
"""What a line takes while it is carried out: as a line, as what was read out of it, forwarded."""
_ADMIN = (
    requests.AdminCreateTopic,
    requests.AdminRegisterBroker,
    requests.AdminBrokerHeartbeat,
    requests.AdminSetPartitionLeader,
    requests.AdminFenceBroker,
    requests.AdminUnfenceBroker,
    requests.AdminReconcileBrokerHealth,
    requests.AdminElectTopicLeaders,
    requests.AdminGetMetadata,
    requests.SetPartitionRole,
)
R = TypeVar("R", bound=requests.Request)


@dataclass(frozen=True, slots=True)
class V1Settings:
    """``admin_commands`` returns ``allow``, ``loopback`` or ``deny`` (DESIGN 4.2); it is asked for
    each such command, as the setting may change while the node runs. ``stall_s``: in which a line
    that has begun must end (and a second for every 64 KiB of it), and a client take what it is
    sent, or 64 KiB of it. Between lines it may be silent for ever."""

    max_line_bytes: int
    admin_commands: Callable[[], str]
    stall_s: float = LimitSettings().stall_ms / 1000


class _Lines:
    """The lines of a connection, one at a time."""

    def __init__(self, stream: trio.abc.Stream, memory: Holding, settings: V1Settings) -> None:
        self._stream = stream
        self._memory = memory
        self._stall_s = settings.stall_s
        self._reader = LineReader(max_line_bytes=settings.max_line_bytes)
        self._is_over = False

    async def next(self) -> bytes | None:
        """The next line, or None at the end. Raises LineTooLong, and TooSlowError for a line that
        has begun and does not end."""
        reader, begun_at = self._reader, trio.current_time()
        while (line := reader.next_line()) is None:
            if self._is_over:
                return reader.finish()
            self._memory.arriving(reader.held_bytes)
            await self._memory.room()
            due = float("inf")
            if reader.held_bytes:
                due = begun_at + arrival_s(self._stall_s, reader.held_bytes)
            with trio.fail_at(due):
                data = await self._stream.receive_some(_RECEIVE_BYTES)
            if not reader.held_bytes:
                begun_at = trio.current_time()
            reader.feed(data)
            self._is_over = not data
        self._memory.arriving(reader.held_bytes)
        return line


class V1Listener:
    """Serves V1 connections, and the lines that other nodes forward."""

    def __init__(
        self,
        env: Env,
        settings: V1Settings,
        records: V1Records,
        replicas: V1Replicas,
        admin: V1Admin,
        roles: RoleService,
        groups: V1GroupRequests,
        metrics: Metrics,
        memory: ClientMemory,
    ) -> None:
        self._env = env
        self._memory = memory
        self._settings = settings
        self._records = records
        self._replicas = replicas
        self._admin = admin
        self._roles = roles
        self._meters = metrics.requests_by("v1", {name: name.lower() for name in COMMANDS})
        self._handlers: dict[type, Callable[[requests.Request, Call], Awaitable[bytes]]] = {}
        self._on(requests.Produce, records.produce)
        self._on(requests.Consume, records.consume)
        self._on(requests.Join, groups.join)
        self._on(requests.Sync, groups.sync)
        self._on(requests.Heartbeat, groups.heartbeat)
        self._on(requests.Leave, groups.leave)
        self._on(requests.Commit, groups.commit)
        self._on(requests.CommittedOffset, groups.committed)
        self._on(requests.ReplicaFetch, replicas.replica_fetch)
        self._on(requests.BrokerFetch, replicas.broker_fetch)
        self._on(requests.BrokerReplicaAck, replicas.broker_replica_ack)
        self._on(requests.SetPartitionRole, self._set_role)

    def _on(self, kind: type[R], handler: Callable[[R, Call], Awaitable[bytes]]) -> None:
        self._handlers[kind] = cast(Callable[[requests.Request, Call], Awaitable[bytes]], handler)

    # --- connections ------------------------------------------------------------------------------

    async def serve(self, stream: trio.abc.Stream, client: Client) -> None:
        """Serve one connection to its end; owns and closes ``stream``. A broken connection is the
        client's affair and ends quietly."""
        async with stream:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._converse(stream, client)

    async def _converse(self, stream: trio.abc.Stream, client: Client) -> None:
        source = _Lines(stream, client.memory, self._settings)
        at_work = Portion(client.memory)
        try:
            while (line := await source.next()) is not None:
                at_work.set(_KEPT_FACTOR * len(line))
                await client.quotas.pace(client.principal)
                await client.turns.small()
                reply = await self._reply(line, client)
                at_work.set(len(reply))
                await send_to(stream, reply, self._settings.stall_s)
                at_work.give_all()
        except LineTooLong:
            last_word = error_line(UNREADABLE_ID, bad_request(LINE_TOO_LONG))
        except trio.TooSlowError:
            last_word = error_line(UNREADABLE_ID, bad_request(LINE_TOO_SLOW))
        except NotV1 as error:
            last_word = error_line(UNREADABLE_ID, error)
        else:
            return
        await send_to(stream, last_word, self._settings.stall_s)
        await let_read(stream)

    async def _reply(self, line: bytes, client: Client) -> bytes:
        """The answer. Raises NotV1 for a line after which there is no way on."""
        arrived = self._env.now()
        try:
            envelope = parse_envelope(line)
        except V1Error as error:
            self._count("", arrived, error.reason.lower())
            if isinstance(error, NotV1):
                raise
            return error_line(UNREADABLE_ID, error)
        command = envelope.command
        client.quotas.spend(client.principal, QuotaLimit.REQUESTS, 1)
        if command == _PRODUCE:
            client.quotas.spend(client.principal, QuotaLimit.PRODUCE, len(line))
        call = Call(
            command,
            encode(envelope.args),
            arrived + REQUEST_BUDGET_S,
            client.principal,
            forwarded=False,
        )
        try:
            request = await self._parsed(envelope)
            self._check_admin_commands(request, client)
            payload = await self._serve_request(request, call)
        except PacelineError as error:
            return self._refused(envelope, arrived, as_v1(error))
        except Exception as error:  # noqa: BLE001  one request's bug must not end the connection
            structlog.get_logger().error("v1 request failed", command=command, exc_info=error)
            return self._refused(envelope, arrived, V1Error(V1Code.INTERNAL, "broker failure"))
        self._count(command, arrived, OK)
        if command in _READS:
            client.quotas.spend(client.principal, QuotaLimit.FETCH, len(payload))
        return ok_line(envelope.correlation, payload)

    def _refused(self, envelope: Envelope, arrived: float, refusal: V1Error) -> bytes:
        self._count(envelope.command, arrived, refusal.reason.lower())
        return error_line(envelope.correlation, refusal)

    def _count(self, command: str, arrived: float, code: str) -> None:
        self._meters[command].done(code, self._env.now() - arrived)

    async def _parsed(self, envelope: Envelope) -> requests.Request:
        if len(envelope.args) <= _THREAD_CHARACTERS:
            return self._parse(envelope)
        return await self._env.host.run_blocking(partial(self._parse, envelope))

    def _parse(self, envelope: Envelope) -> requests.Request:
        request = parse_request(envelope.command, envelope.args)
        if type(request) not in self._handlers and not isinstance(request, _ADMIN):
            raise V1Error(V1Code.UNKNOWN_COMMAND, "unsupported command")
        return request

    def _check_admin_commands(self, request: requests.Request, client: Client) -> None:
        if not isinstance(request, _ADMIN):
            return
        policy = self._settings.admin_commands()
        if policy == "allow" or (policy == "loopback" and client.is_loopback):
            return
        raise V1Error(V1Code.NOT_AUTHORIZED, "admin commands disabled")

    # --- requests ---------------------------------------------------------------------------------

    async def _serve_request(self, request: requests.Request, call: Call) -> bytes:
        with trio.move_on_at(call.deadline):
            handler = self._handlers.get(type(request))
            if handler is not None:
                return await handler(request, call)
            return await self._admin.handle(cast(AdminRequest, request), call.principal)
        raise outcome_unknown()

    async def _set_role(self, request: requests.SetPartitionRole, call: Call) -> bytes:
        roles = self._roles.open(call.principal, request.topic)
        topic = await self._records.ensure(request.topic, call)
        if request.partition < 0:
            raise bad_request("partition must be >= 0")
        if request.partition not in topic.partitions:
            raise bad_request(
                f"partition not found: topic={request.topic} partition={request.partition}"
            )
        try:
            result = await roles.set(request.partition, request.role.value)
        except PreferredLeaderNotAvailable:
            if self._roles.is_in_sync(request.topic, request.partition):
                raise
            raise bad_request("replica is not in sync") from None
        return role_payload(
            topic=request.topic,
            partition=request.partition,
            role=request.role,
            hw=result.high_watermark - 1,
        )

    async def serve_forwarded(self, sender: NodeId, frame: Frame) -> tuple[Message, bytes]:
        """Answer a line that another node forwarded (PeerApi.V1_LINE).

        Raises NotLeader, and NotEnoughReplicas, when nothing was done and the sender may look
        elsewhere; every other refusal is V1's own and final.
        """
        line = V1Line.unpack(frame.body)
        budget_s = min(line.budget_ms / 1000, REQUEST_BUDGET_S)
        call = Call(
            line.command,
            line.args,
            self._env.now() + budget_s,
            node_principal(sender),
            forwarded=True,
        )
        try:
            if len(line.args) <= _THREAD_CHARACTERS:
                request = parse_request(line.command, decode(line.args))
            else:
                request = await self._env.host.run_blocking(
                    lambda: parse_request(line.command, decode(line.args))
                )
            topic = getattr(request, "topic", None)
            if topic is None or is_internal_topic(topic):
                raise bad_request("not a request that is forwarded")
            async with forwarded(self._memory, sender, len(line.args)):
                payload = await self._serve_request(request, call)
        except PacelineError as error:
            if isinstance(error, NotLeader) or error.code.name == "NOT_ENOUGH_REPLICAS":
                raise
            refusal = bare(as_v1(error))
            return V1Answer(refusal.reason.value, refusal.message.encode()), b""
        return V1Answer("", payload), b""
