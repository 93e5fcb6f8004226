"""All nodes of the cluster, as any of them shows them: each says itself how it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

import trio

from paceline.documents.nodes import UNREACHABLE, NodeAnswer, shown_state
from paceline.errors import PacelineError
from paceline.types import NodeId
from paceline.wire.frame import Frame
from paceline.wire.native.data import Status, StatusReply
from paceline.wire.peer.api import PeerApi
from paceline_node.controller.image import Broker
from paceline_node.loop_turns import Turns
from paceline_node.peers.server import PeerServer, Session
from paceline_node.security.principals import Principal
from paceline_node.services.admin.node_status import StatusService
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.services.topics.topic_service import TopicService
from paceline_node.settings.addresses import kind_of_endpoint

_ANSWER_S = 2.0


class NodesView(NamedTuple):
    """What all registered nodes say, by id, and their addresses by protocol, which all have."""

    cluster_id: UUID
    answers: tuple[NodeAnswer, ...]
    listeners: Mapping[int, Mapping[str, str]]


class NodeViews:
    """Asks the other nodes, and answers them."""

    def __init__(
        self, status: StatusService, topics: TopicService, routing: LeaderRouting, turns: Turns
    ) -> None:
        self._turns = turns
        self._status = status
        self._topics = topics
        self._routing = routing

    def register(self, server: PeerServer) -> None:
        """Answer other nodes."""
        server.register(PeerApi.NODE_STATUS, self._serve)

    async def all(self, principal: Principal) -> NodesView:
        """All nodes. Raises AuthorizationFailed."""
        self._status.permit(principal)
        image = self._topics.image
        answers: dict[int, NodeAnswer] = {}

        async def ask(node: NodeId) -> None:
            is_drained = image.brokers[node].operator_fenced
            answers[node] = await self._answer(node, is_drained=is_drained)

        async with trio.open_nursery() as nursery:
            for node in image.brokers:
                nursery.start_soon(ask, node)
        return NodesView(
            image.cluster_id,
            tuple(answers[node] for node in sorted(answers)),
            {node: _listeners(broker) for node, broker in image.brokers.items()},
        )

    async def _answer(self, node: NodeId, *, is_drained: bool) -> NodeAnswer:
        try:
            told = await self._report(node)
        except PacelineError as error:
            return NodeAnswer(node, UNREACHABLE, None, str(error))
        return NodeAnswer(node, shown_state(told.state, is_drained=is_drained), told)

    async def _report(self, node: NodeId) -> StatusReply:
        if node == self._routing.node_id:
            return await self._turns.run(self._status.reporting())
        frame = await self._routing.ask(
            node, PeerApi.NODE_STATUS, Status(), budget_s=_ANSWER_S, changes_nothing=True
        )
        return StatusReply.unpack(frame.body)

    async def _serve(self, _session: Session, frame: Frame) -> tuple[StatusReply, bytes]:
        Status.unpack(frame.body)
        return await self._turns.run(self._status.reporting()), b""


def _listeners(broker: Broker) -> dict[str, str]:
    return {
        kind_of_endpoint(each.name): _address(each.host, each.port) for each in broker.endpoints
    }


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
