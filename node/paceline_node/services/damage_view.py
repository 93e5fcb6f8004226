"""What an operator is told of damaged ranges: where, why, what is being done, what ends it."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.types import NO_NODE, NodeId
from paceline_node.replication.partition import Partition
from paceline_node.storage.damage import DamagedRange


def describe(node: NodeId, partitions: Iterable[Partition]) -> tuple[str, ...]:
    """One sentence for each damaged range of these replicas, which ``node`` hosts."""
    return tuple(
        f"{partition} {damaged}; {_outlook(node, partition, damaged)}"
        for partition in partitions
        for damaged in partition.log.damaged
    )


def _outlook(node: NodeId, partition: Partition, damaged: DamagedRange) -> str:
    registration = partition.registration
    give_up = (
        f"give it up with: paceline topic trim {partition.topic} "
        f"--partition {partition.partition} --before {damaged.end}"
    )
    if partition.is_leader:
        return f"no other replica is complete; {give_up}"
    if registration is None or registration.leader == NO_NODE:
        return (
            "waits for a leader to be repaired from; if no complete replica can come back: "
            f"paceline role elect {partition.topic} {partition.partition} --node {node} --unclean"
        )
    if registration.leader in registration.damaged:
        return f"node {registration.leader}, which leads, is damaged too; {give_up}"
    return f"is being repaired from node {registration.leader}"
