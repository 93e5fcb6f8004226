"""Consult and Register: how consumers find their coordinator and put themselves in its hands.

They come over the Kafka listener (DESIGN 7); Produce and Fetch go on beside them until a
connection registers, from when on only the coordinator asks (``driven_channel.py``).
"""

from __future__ import annotations

from typing import NamedTuple

import trio

from paceline.errors import (
    AuthorizationFailed,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidRequest,
    PacelineError,
    RemoteProtocolError,
    UnsupportedVersion,
)
from paceline.types import NodeId
from paceline.wire.coordinator.codec import Ask, Header, read_request, response_frame
from paceline.wire.coordinator.messages import (
    Broker,
    ConsultRequest,
    ConsultResponse,
    PositionsResponse,
    RegisterRequest,
    RegisterResponse,
)
from paceline_node.client_memory import Portion
from paceline_node.listeners.kafka.call import LISTENER
from paceline_node.listeners.kafka.driven_channel import ConsumerChannel
from paceline_node.listeners.kafka.errors import code_of
from paceline_node.listeners.kafka.frames import FrameReader
from paceline_node.listeners.serving import Client, member_host
from paceline_node.net.transport import Transport
from paceline_node.observe.metrics import OK, Metrics, code_label
from paceline_node.observe.rate_limited_log import RateLimitedLog
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.groups.group_service import GroupService
from paceline_node.services.groups.open_driven_group import OpenDrivenGroup
from paceline_node.services.topics.topic_service import TopicService

_REQUEST_BYTES_MAX = 1024 * 1024


class Asked(NamedTuple):
    """A request as it came: its header, its frame, and where in it the body begins."""

    header: Header
    frame: memoryview
    start: int


class CoordinatorRequests:
    """Answers Consult, and serves consumers once they have registered."""

    def __init__(
        self,
        node_id: NodeId,
        groups: GroupService,
        topics: TopicService,
        metrics: Metrics,
    ) -> None:
        self._sender = f"coordinator-{node_id}"
        self._log = RateLimitedLog()
        self._groups = groups
        self._topics = topics
        names = {Ask.CONSULT: "consult", Ask.REGISTER: "register"}
        self._meters = metrics.requests_by("coordinator", names)

    def _counted(self, ask: Ask, error: int, arrived: float) -> None:
        label = code_label(error) if error else OK
        self._meters[ask].done(label, trio.current_time() - arrived)

    # --- Consult ----------------------------------------------------------------------------------

    def consult(self, asked: Asked, principal: Principal) -> bytearray:
        """Who coordinates, and who is there: from this node's metadata, without asking another."""
        arrived = trio.current_time()
        header = asked.header
        error, body = 0, ConsultResponse()
        try:
            request = read_request(*asked)
            assert isinstance(request, ConsultRequest)
            if request.group_id is not None:
                self._groups.open_driven(principal, Operation.DESCRIBE, request.group_id)
            body = self._coordinator()
        except UnsupportedVersion as refusal:
            self._counted(Ask.CONSULT, code_of(refusal), arrived)
            return response_frame(header, code_of(refusal), None)
        except CoordinatorNotAvailable as refusal:
            error = code_of(refusal)
        except RemoteProtocolError:
            error = ErrorCode.INVALID_REQUEST
        except AuthorizationFailed:
            error = ErrorCode.UNKNOWN_SERVER_ERROR
        self._counted(Ask.CONSULT, error, arrived)
        return response_frame(header, error, body)

    def _coordinator(self) -> ConsultResponse:
        coordinator, epoch = self._groups.driving(LISTENER)
        if coordinator.fenced:
            raise CoordinatorNotAvailable(f"node {coordinator.node_id} is not alive")
        brokers = []
        for _, broker in sorted(self._topics.image.brokers.items()):
            endpoint = broker.endpoint(LISTENER)
            if endpoint is not None and not broker.fenced:
                # The registration names the incarnation, as the time of start did in 0.8.
                creator = f"{endpoint.host}-{broker.broker_epoch}"
                brokers.append(
                    Broker(
                        creator_id=creator,
                        id=broker.node_id,
                        host=endpoint.host,
                        port=endpoint.port,
                    )
                )
        return ConsultResponse(
            coordinator_id=coordinator.node_id,
            brokers=tuple(brokers),
            coordinator_epoch=epoch,
        )

    # --- Register ---------------------------------------------------------------------------------

    async def serve(
        self, transport: Transport, share: Portion, asked: Asked, client: Client
    ) -> None:
        """Serve a consumer from its registration to its end. Raises RemoteProtocolError and what
        the transport raises."""
        arrived = trio.current_time()
        header = asked.header
        try:
            request = read_request(*asked)
            assert isinstance(request, RegisterRequest)
            if len(asked.frame) > _REQUEST_BYTES_MAX:
                raise InvalidRequest(f"a registration of {len(asked.frame)} bytes")
        except (InvalidRequest, RemoteProtocolError) as error:
            self._counted(Ask.REGISTER, ErrorCode.INVALID_REQUEST, arrived)
            await self._refuse(transport, header, error, ErrorCode.INVALID_REQUEST, client)
            return
        group: OpenDrivenGroup | None = None

        def answered(channel: ConsumerChannel, error: int, body: PositionsResponse | None) -> None:
            assert group is not None, "nobody is asked who has not registered"
            try:
                self._opened(request, client)  # it may have been allowed to no more since
            except AuthorizationFailed:
                channel.end()
                return
            group.answered(request.consumer_id, channel, error, body)

        channel = ConsumerChannel(
            transport,
            share,
            header,
            self._sender,
            lambda topic: self._groups.may_read(client.principal, topic),
            answered,
        )
        try:
            group = self._opened(request, client)
            name = header.client_id or client.name
            host = member_host(client.principal)
            told = await group.register(request, header.version, name, host, channel)
        except PacelineError as error:
            self._counted(Ask.REGISTER, code_of(error), arrived)
            if header.version == 0 and isinstance(error, CoordinatorLoadInProgress):
                await _hold(transport, share, request.heartbeat_interval_ms / 1000)
            else:
                await self._refuse(transport, header, error, code_of(error), client)
        else:
            self._counted(Ask.REGISTER, 0, arrived)
            await channel.run(_response(header, request, told.coordinator_epoch, told.generation))
        finally:
            if group is not None:
                group.closed(request.consumer_id, channel)

    def _opened(self, request: RegisterRequest, client: Client) -> OpenDrivenGroup:
        """The group, for a consumer of it. Raises AuthorizationFailed."""
        group = self._groups.open_driven(client.principal, Operation.JOIN_GROUP, request.group_id)
        if request.auto_commit:
            self._groups.open_driven(client.principal, Operation.COMMIT_OFFSETS, request.group_id)
        return group

    async def _refuse(
        self,
        transport: Transport,
        header: Header,
        error: PacelineError,
        code: int,
        client: Client,
    ) -> None:
        """Version 1 is told; who has nothing to be told with is closed."""
        self._log.info(
            "consumer refused", cause=error.code.name, peer=client.name, error=str(error)
        )
        if header.version > 0:
            await transport.send([response_frame(header, code, None)])


def _response(
    header: Header, request: RegisterRequest, epoch: int, generation: int
) -> bytearray | None:
    """The seed's version has none: its first ping says the same."""
    if header.version == 0:
        return None
    body = RegisterResponse(
        coordinator_epoch=epoch,
        generation=generation,
        consumer_id=request.consumer_id,
        heartbeat_interval_ms=request.heartbeat_interval_ms,
        max_heartbeat_retries=request.max_heartbeat_retries,
    )
    return response_frame(header, 0, body)


async def _hold(transport: Transport, share: Portion, seconds: float) -> None:
    """Keep a consumer waiting that cannot be told to come again (DESIGN 7)."""
    with trio.move_on_after(min(max(seconds, 0.0), 300.0)):
        frames = FrameReader(transport, share, max_bytes=0, stall_s=0.0, chunk_bytes=16)
        await frames.begin()
