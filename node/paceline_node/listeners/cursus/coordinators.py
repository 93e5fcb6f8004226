"""The way to whoever coordinates: served here, told elsewhere, or sent on (services/DESIGN 3.1).

Clients that follow are told the coordinator's address; for those that cannot, another node sends
the command on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from paceline.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    NotLeader,
)
from paceline.types import NodeId
from paceline.wire.cursus import replies
from paceline.wire.cursus.errors import CursusError
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.cursus import CursusFrame
from paceline_node.env import Env
from paceline_node.listeners.cursus.session import CursusCall, Reply, text
from paceline_node.listeners.cursus.topic_lookup import LISTENER, TopicLookup
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.services.topics.cluster_view import BrokerView

T = TypeVar("T")
COORDINATOR_WAIT_S = 2.5
ANSWER_S = 0.2
"""Left of a call's time, so that its answer can still go out."""
_NOT_HERE = (NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable)


class Coordinators:
    """Coordinators are the leaders of internal topics' partitions."""

    def __init__(self, env: Env, places: TopicLookup, routing: LeaderRouting) -> None:
        self._env = env
        self._places = places
        self._routing = routing

    def until(self, call: CursusCall) -> float:
        """How long a coordinator is waited for."""
        return min(self._env.now() + COORDINATOR_WAIT_S, call.deadline - ANSWER_S)

    def left_s(self, call: CursusCall) -> float:
        """How long a command may take."""
        return max(0.0, call.deadline - ANSWER_S - self._env.now())

    async def serve(
        self,
        topic: str,
        number: int,
        call: CursusCall,
        here: Callable[[], Awaitable[T]],
        there: Callable[[NodeId], Awaitable[T]],
        *,
        until: float,
    ) -> T:
        """What ``here`` answers, where this node coordinates, or for clients that cannot follow
        ``there``. Raises NotLeader when nobody does until then, ``NOT_COORDINATOR``, and what those
        two raise."""

        async def at_home() -> T:
            try:
                return await here()
            except _NOT_HERE as error:
                raise NotLeader(str(error)) from error

        async def away(node: NodeId) -> T:
            if call.redirects:
                raise self._elsewhere(node)
            return await there(node)

        return await self._routing.on_leader(
            topic, number, here=at_home, there=None if call.forwarded else away, until=until
        )

    def _elsewhere(self, node: NodeId) -> CursusError:
        host, _, port = self._places.address(node).rpartition(":")
        if not host:
            return CursusError("coordinator_not_available", f"coordinator_id={node}")
        return CursusError("NOT_COORDINATOR", f"host={host} port={port}")

    def here(self) -> CursusError:
        """The refusal that has a client ask this node again."""
        return self._elsewhere(self._routing.node_id)

    async def forward(self, node: NodeId, call: CursusCall) -> Reply:
        """Another node's answer to the client's frame. Raises as :meth:`LeaderRouting.ask`."""
        budget_s = self.left_s(call)
        ask = CursusFrame(int(budget_s * 1000), call.session.classed)
        frame = await self._routing.ask(
            node, PeerApi.CURSUS_FRAME, ask, call.body, budget_s=budget_s
        )
        return (bytes(frame.payload),)


def told_where(broker: BrokerView, kind: str) -> Reply:
    """The answer of FIND_COORDINATOR."""
    endpoint = broker.endpoint(LISTENER)
    assert endpoint is not None
    line = replies.ok(
        coordinator_id=broker.node_id,
        coordinator_type=kind,
        host=endpoint.host,
        port=endpoint.port,
    )
    return text(line)
