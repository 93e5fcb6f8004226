"""Where things are, in Cursus's words: topics by name, leaders by client address."""

from __future__ import annotations

from paceline.types import NO_NODE, NodeId, is_internal_topic
from paceline.wire.cursus.errors import CursusError, partition_not_found, topic_not_found
from paceline.wire.cursus.wildcards import TopicWildcards
from paceline_node.loop_turns import Turns
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.topics.cluster_view import TopicView
from paceline_node.services.topics.topic_service import TopicService
from paceline_node.sliced_work import Work

LISTENER = "cursus"
_NEW_TOPIC_WAIT_S = 0.5


class TopicLookup:
    """Looks up topics and addresses in the metadata as they are here, on node ``node_id``."""

    def __init__(self, node_id: NodeId, topics: TopicService, turns: Turns) -> None:
        self._node_id = node_id
        self._topics = topics
        self._turns = turns

    async def topic(self, name: str) -> TopicView:
        """The topic; one that is being made elsewhere is waited for a moment.
        Raises ``topic_not_found``."""
        topic = await self._topics.await_topic(name, timeout_s=_NEW_TOPIC_WAIT_S)
        if topic is None:
            raise topic_not_found(name)
        return topic

    async def topic_for(self, principal: Principal, operation: Operation, name: str) -> TopicView:
        """As :meth:`topic`, for ``principal`` to do this to it. Raises AuthorizationFailed, too."""
        topic = self._topics.look_up(principal, operation, name)
        return await self.topic(name) if topic is None else topic

    async def with_partition(self, name: str, partition: int) -> TopicView:
        """As :meth:`topic`, for one that has the partition. Raises ``partition_not_found``."""
        topic = await self.topic(name)
        if partition not in topic.partitions:
            raise partition_not_found(partition)
        return topic

    async def matching(self, pattern: str, principal: Principal) -> list[TopicView]:
        """The topics whose names match, in their order, of those that ``principal`` may see."""
        return await self._turns.run(self._matching(TopicWildcards(pattern), principal))

    def _matching(self, wildcards: TopicWildcards, principal: Principal) -> Work[list[TopicView]]:
        found = []
        for topic in list(self._topics.image.topics.values()):
            yield 1
            if (
                not is_internal_topic(topic.name)
                and self._topics.may_see(principal, topic)
                and wildcards.matches(topic.name)
            ):
                found.append(topic)
        return sorted(found, key=lambda topic: topic.name)

    def address(self, node: NodeId) -> str:
        """A node's Cursus address, as its clients are to use it; empty where it has none."""
        broker = self._topics.image.brokers.get(node)
        endpoint = None if broker is None else broker.endpoint(LISTENER)
        return "" if endpoint is None else f"{endpoint.host}:{endpoint.port}"

    def leader(self, topic: str, partition: int) -> str:
        """The address of a partition's leader; empty while there is none."""
        return self.address(self._leader(topic, partition))

    def _leader(self, topic: str, partition: int) -> NodeId:
        found = self._topics.find(topic)
        registration = None if found is None else found.partitions.get(partition)
        return NO_NODE if registration is None else self._topics.leader(registration)

    def redirect(self, topic: str, partition: int) -> CursusError:
        """The refusal that tells which other node leads, or that none does. One that is to lead,
        and has no log for it yet, does not: it was asked."""
        leader = self._leader(topic, partition)
        address = "" if leader == self._node_id else self.address(leader)
        if not address:
            return CursusError("leader_not_available", f"topic={topic} partition={partition}")
        return CursusError("NOT_LEADER", f"LEADER_IS {address}")
