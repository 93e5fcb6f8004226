"""What all nodes have done since their processes began, as any of them shows it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import trio

from paceline.errors import PacelineError
from paceline.types import NodeId
from paceline.wire.frame import Frame
from paceline.wire.native.load import LoadAsked, NodeLoad
from paceline.wire.peer.api import PeerApi
from paceline_node.client_connections import Connections
from paceline_node.env import Env
from paceline_node.observe.metrics import Metrics
from paceline_node.peers.server import PeerServer, Session
from paceline_node.security.principals import Principal
from paceline_node.services.admin.node_status import StatusService
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.services.topics.topic_service import TopicService

_ANSWER_S = 2.0


class LoadAnswer(NamedTuple):
    """What was heard of a node; None with the ``reason`` of its silence."""

    node: NodeId
    told: NodeLoad | None
    reason: str = ""


class HeldBytes(Protocol):
    """The account of what is held on behalf of clients."""

    @property
    def held_bytes(self) -> int: ...


class LoadViews:
    """Asks the other nodes, and answers them."""

    def __init__(
        self,
        env: Env,
        status: StatusService,
        topics: TopicService,
        routing: LeaderRouting,
        metrics: Metrics,
        connections: Connections,
    ) -> None:
        self._env = env
        self._began = env.now()
        self._status = status
        self._topics = topics
        self._routing = routing
        self._metrics = metrics
        self._connections = connections
        self.memory: HeldBytes | None = None
        """Of the node's clients, once it serves any."""

    def register(self, server: PeerServer) -> None:
        """Answer other nodes."""
        server.register(PeerApi.NODE_LOAD, self._serve)

    async def all(self, principal: Principal) -> list[LoadAnswer]:
        """Of all registered nodes, by id. Raises AuthorizationFailed."""
        self._status.permit(principal)
        answers: dict[NodeId, LoadAnswer] = {}

        async def ask(node: NodeId) -> None:
            try:
                answers[node] = LoadAnswer(node, await self._of(node))
            except PacelineError as error:
                answers[node] = LoadAnswer(node, None, str(error))

        async with trio.open_nursery() as nursery:
            for node in self._topics.image.brokers:
                nursery.start_soon(ask, node)
        return [answers[node] for node in sorted(answers)]

    def here(self, principal: Principal) -> NodeLoad:
        """Of this node. Raises AuthorizationFailed."""
        self._status.permit(principal)
        return self._here()

    async def _of(self, node: NodeId) -> NodeLoad:
        if node == self._routing.node_id:
            return self._here()
        frame = await self._routing.ask(
            node, PeerApi.NODE_LOAD, LoadAsked(), budget_s=_ANSWER_S, changes_nothing=True
        )
        return NodeLoad.unpack(frame.body)

    async def _serve(self, _session: Session, frame: Frame) -> tuple[NodeLoad, bytes]:
        LoadAsked.unpack(frame.body)
        return self._here(), b""

    def _here(self) -> NodeLoad:
        traffic = self._metrics.traffic()
        return NodeLoad(
            uptime_ms=int((self._env.now() - self._began) * 1000),
            appended_records=int(traffic.appended_records),
            appended_bytes=int(traffic.appended_bytes),
            fetched_records=int(traffic.fetched_records),
            fetched_bytes=int(traffic.fetched_bytes),
            requests=int(traffic.requests),
            connections=self._connections.count,
            client_memory_bytes=0 if self.memory is None else self.memory.held_bytes,
            bounds_us=tuple([round(each * 1_000_000) for each in traffic.bounds_s]),
            writes=tuple(traffic.writes),
            syncs=tuple(traffic.syncs),
        )
