"""How many partitions a node may hold a replica of: each broker says so when it registers.

Each costs files, memory and work on that node, whoever asked for it; so who asks for more than the
nodes can hold is refused before anything is made. The broker's own topics are not counted against.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from paceline.errors import PolicyViolation
from paceline.types import NodeId
from paceline_node.controller.image import Image


def check(what: str, image: Image, added: Iterable[Sequence[NodeId]]) -> None:
    """Raise PolicyViolation if these replica lists, one per new or moved partition, are more than
    some node may hold. A node of an older version, which did not say, may hold any number."""
    more = Counter(node for replicas in added for node in replicas)
    bounded = {
        node: broker.most_partitions
        for node, broker in image.brokers.items()
        if node in more and broker.most_partitions > 0
    }
    if not bounded:
        return
    held = Counter(node for partition in image.partitions() for node in partition.replicas)
    for node, most in sorted(bounded.items()):
        if held[node] + more[node] > most:
            raise PolicyViolation(
                f"{what}: node {node} holds {held[node]} partitions, {more[node]} more are too "
                f"many: it may hold {most} (limits.partitions); ask for fewer, or add nodes"
            )
