"""Which partitions have not been deleted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from uuid import UUID

from paceline.wire.peer.names import PartitionName
from paceline_node.controller.image import Image

_ANY: Mapping[str, UUID] = MappingProxyType({})


def still_there(
    image: Image, partitions: Iterable[PartitionName], meant: Mapping[str, UUID] = _ANY
) -> list[PartitionName]:
    """Those of ``partitions`` that have not been deleted, with their topic, since; where a topic is
    ``meant``, in that one."""
    found = []
    for where in partitions:
        topic = image.find_topic(where.topic)
        if topic is None or where.partition not in topic.partitions:
            continue
        if meant.get(where.topic, topic.topic_id) == topic.topic_id:
            found.append(where)
    return found
