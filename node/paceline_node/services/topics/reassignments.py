"""Which partitions are being moved (controller/DESIGN 10), for those who only look."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.wire.native.admin import Reassignment
from paceline_node.services.topics.cluster_view import PartitionView, TopicView
from paceline_node.sliced_work import Work

_PARTITIONS_PER_UNIT = 32


def is_moving(partition: PartitionView) -> bool:
    """Whether replicas are being added or are to leave."""
    return bool(partition.adding or partition.removing)


def under_way(topics: Iterable[TopicView]) -> Work[list[Reassignment]]:
    """The moves under way in these topics, by topic and partition."""
    found = []
    for topic in topics:
        yield 1
        for index, (number, partition) in enumerate(topic.partitions.items()):
            if index % _PARTITIONS_PER_UNIT == _PARTITIONS_PER_UNIT - 1:
                yield 1
            if is_moving(partition):
                found.append(
                    Reassignment(
                        topic.name,
                        number,
                        partition.leader,
                        partition.replicas,
                        partition.isr,
                        partition.adding,
                        partition.removing,
                    )
                )
    found.sort(key=lambda each: (each.topic, each.partition))
    return found
