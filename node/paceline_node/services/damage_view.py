"""What an operator is told of damaged ranges: where, why, what is being done, what ends it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator

from paceline.types import NO_NODE, NodeId
from paceline.wire.native.data import RangeStanding
from paceline_node.replication.partition import Partition
from paceline_node.storage.damage import DamagedRange

_GIVEN_UP = "the log start lies behind it; the file goes with its segment"


class State(enum.Enum):
    """What becomes of a lost range. Values are what operators see."""

    DAMAGED = "damaged"
    REPAIRING = "repairing"
    GIVEN_UP = "given-up"


def describe(node: NodeId, partitions: Iterable[Partition]) -> tuple[str, ...]:
    """One sentence for each damaged range of these replicas, which ``node`` hosts, and for each
    leader that lacks what they know to be committed."""
    return tuple(sentence for each in partitions for sentence in _sentences(node, each))


def _sentences(node: NodeId, partition: Partition) -> Iterator[str]:
    for damaged in partition.log.damaged:
        yield f"{partition} {damaged}; {_outlook(node, partition, damaged)[1]}"
    follower = partition.replica.follower
    if follower is not None and follower.leader_lacks:
        yield (
            f"{partition}: node {follower.leader}, which leads, lacks committed records, which end "
            f"at {partition.high_watermark} here; nothing is cut, and node {node} asks to lead"
        )


def ranges(node: NodeId, partitions: Iterable[Partition]) -> tuple[RangeStanding, ...]:
    """All ranges that these replicas lost, also those that were given up and are still on disk."""
    return tuple(each for partition in partitions for each in _ranges(node, partition))


def _ranges(node: NodeId, partition: Partition) -> Iterator[RangeStanding]:
    start = partition.log_start_offset
    for segment in partition.log.segments:
        for hole in segment.holes:
            if hole.end <= start:
                yield _standing(partition, hole.start, hole.end, State.GIVEN_UP, _GIVEN_UP)
    for damaged in partition.log.damaged:
        state, outlook = _outlook(node, partition, damaged)
        reason = f"{damaged.reason}; {outlook}"
        yield _standing(partition, damaged.start, damaged.end, state, reason)


def _standing(
    partition: Partition, start: int, end: int, state: State, reason: str
) -> RangeStanding:
    return RangeStanding(partition.topic, partition.partition, start, end, state.value, reason)


def _outlook(node: NodeId, partition: Partition, damaged: DamagedRange) -> tuple[State, str]:
    registration = partition.registration
    give_up = (
        f"give it up with: paceline topic trim {partition.topic} "
        f"--partition {partition.partition} --before {damaged.end}"
    )
    if partition.is_leader:
        return State.DAMAGED, f"no other replica is complete; {give_up}"
    if registration is None or registration.leader == NO_NODE:
        return State.DAMAGED, (
            "waits for a leader to be repaired from; if no complete replica can come back: "
            f"paceline role elect {partition.topic} {partition.partition} --node {node} --unclean"
        )
    leader = registration.leader
    if leader in registration.damaged:
        return State.DAMAGED, f"node {leader}, which leads, is damaged too; {give_up}"
    return State.REPAIRING, f"is being repaired from node {leader}"
