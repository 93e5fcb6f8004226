"""Where things are, in Cursus's words: topics by name, leaders by client address."""

from __future__ import annotations

import re

from paceline.types import NodeId, is_internal_topic
from paceline.wire.cursus.errors import CursusError, partition_not_found, topic_not_found
from paceline_node.controller.image import TopicImage
from paceline_node.services.topics import TopicService

LISTENER = "cursus"
_NEW_TOPIC_WAIT_S = 0.5


def is_pattern(topic: str) -> bool:
    """Whether a topic's name holds wildcards."""
    return "*" in topic or "?" in topic


class Places:
    """Looks up topics and addresses in the metadata as they are here."""

    def __init__(self, topics: TopicService) -> None:
        self._topics = topics

    async def topic(self, name: str) -> TopicImage:
        """The topic; one that is being made elsewhere is waited for a moment (spec cursus 8.3).
        Raises ``topic_not_found``."""
        topic = await self._topics.await_topic(name, timeout_s=_NEW_TOPIC_WAIT_S)
        if topic is None:
            raise topic_not_found(name)
        return topic

    async def with_partition(self, name: str, partition: int) -> TopicImage:
        """As :meth:`topic`, for one that has the partition. Raises ``partition_not_found``."""
        topic = await self.topic(name)
        if partition not in topic.partitions:
            raise partition_not_found(partition)
        return topic

    def matching(self, pattern: str) -> list[TopicImage]:
        """The topics whose names match, in their order."""
        parts = re.split(r"([*?])", pattern)
        wild = {"*": ".*", "?": "."}
        found = re.compile("".join(wild.get(part, re.escape(part)) for part in parts))
        return sorted(
            (
                topic
                for topic in self._topics.image.topics.values()
                if not is_internal_topic(topic.name) and found.fullmatch(topic.name)
            ),
            key=lambda topic: topic.name,
        )

    def address(self, node: NodeId) -> str:
        """A node's Cursus address, as its clients are to use it; empty where it has none."""
        broker = self._topics.image.brokers.get(node)
        endpoint = None if broker is None else broker.endpoint(LISTENER)
        return "" if endpoint is None else f"{endpoint.host}:{endpoint.port}"

    def leader(self, topic: str, partition: int) -> str:
        """The address of a partition's leader; empty while there is none."""
        found = self._topics.find(topic)
        registration = None if found is None else found.partitions.get(partition)
        return "" if registration is None else self.address(registration.leader)

    def redirect(self, topic: str, partition: int) -> CursusError:
        """The refusal that tells who leads, or that nobody does."""
        address = self.leader(topic, partition)
        if not address:
            return CursusError("leader_not_available", f"topic={topic} partition={partition}")
        return CursusError("NOT_LEADER", f"LEADER_IS {address}")
