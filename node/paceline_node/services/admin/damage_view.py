"""What an operator is told of damaged ranges: where, why, what is being done, what ends it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping

from paceline.health import Damage
from paceline.types import NO_NODE, NodeId
from paceline.wire.native.status_details import RangeStanding
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.replication.partition import Partition, PartitionKey
from paceline_node.storage.damage import DamagedRange

_GIVEN_UP = "the log start lies behind it; the file goes with its segment"
UNKNOWN = -1
"""An end of which nobody here knows."""


class State(enum.Enum):
    """What becomes of a lost range. Values are what operators see."""

    DAMAGED = "damaged"
    REPAIRING = "repairing"
    INCOMPLETE = "incomplete"
    GIVEN_UP = "given-up"


def describe(
    node: NodeId, partitions: Iterable[Partition], lost_ends: Mapping[PartitionKey, int]
) -> tuple[Damage, ...]:
    """One sentence for each damaged range of these replicas, which ``node`` hosts, for each of them
    that has lost its end or all of it or is not enough to lead, and for each leader that lacks what
    they know to be committed. ``lost_ends``: how far lost logs are known to have reached."""
    return tuple(found for each in partitions for found in _damage(node, each, lost_ends))


def _damage(
    node: NodeId, partition: Partition, lost_ends: Mapping[PartitionKey, int]
) -> Iterator[Damage]:
    for damaged in partition.log.damaged:
        state, outlook = _outlook(node, partition, damaged)
        yield Damage(f"{partition} {damaged}; {outlook}", state is State.REPAIRING)
    for each in _lacking(node, partition, lost_ends):
        to = "" if each.end == UNKNOWN else f"..{each.end - 1}"
        yield Damage(
            f"{partition} offsets {each.start}{to or ' and on'}: {each.reason}",
            each.state == State.REPAIRING.value,
        )
    follower = partition.replica.follower
    if follower is not None and follower.leader_lacks:
        sentence = (
            f"{partition}: node {follower.leader}, which leads, lacks committed records, which end "
            f"at {partition.high_watermark} here; nothing is cut, and node {node} asks to lead"
        )
        yield Damage(sentence, is_repaired=False)


def ranges(
    node: NodeId, partitions: Iterable[Partition], lost_ends: Mapping[PartitionKey, int]
) -> tuple[RangeStanding, ...]:
    """All that these replicas lost, also what was given up and is still on disk, and for those that
    lead, what operators gave up by electing them."""
    return tuple(each for partition in partitions for each in _ranges(node, partition, lost_ends))


def _ranges(
    node: NodeId, partition: Partition, lost_ends: Mapping[PartitionKey, int]
) -> Iterator[RangeStanding]:
    start = partition.log_start_offset
    for segment in partition.log.segments:
        for hole in segment.holes:
            if hole.end <= start:
                yield _standing(partition, hole.start, hole.end, State.GIVEN_UP, _GIVEN_UP)
    yield from _given_up(partition)
    for damaged in partition.log.damaged:
        state, outlook = _outlook(node, partition, damaged)
        reason = f"{damaged.reason}; {outlook}"
        yield _standing(partition, damaged.start, damaged.end, state, reason)
    yield from _lacking(node, partition, lost_ends)


def _given_up(partition: Partition) -> Iterator[RangeStanding]:
    """What an unclean election gave up; told until the log start has passed the place."""
    log, registration = partition.log, partition.registration
    if registration is None or not partition.is_leader:
        return
    for epoch in registration.given_up:
        begins = (each.start for each in log.epochs.entries if each.epoch >= epoch)
        start = next(begins, log.log_end_offset)
        if start >= partition.log_start_offset:
            yield _standing(
                partition,
                start,
                UNKNOWN,
                State.GIVEN_UP,
                f"in leader epoch {epoch} an operator let a replica lead that was not complete "
                f"(paceline role elect --unclean): what others had from offset {start} on is gone",
            )


def _lacking(
    node: NodeId, partition: Partition, lost_ends: Mapping[PartitionKey, int]
) -> Iterator[RangeStanding]:
    """A replica that has lost its end, or all of it, or was not complete when the leader went."""
    registration, end = partition.registration, partition.log_end_offset
    if registration is None or registration.leader == node or partition.log.damaged:
        return
    if node in registration.damaged:
        known_end = lost_ends.get(partition.key, UNKNOWN)
        is_empty = end == partition.log_start_offset
        what = "the whole log is missing" if is_empty else "the log's end is missing"
        if registration.leader == NO_NODE:
            state, outlook = State.DAMAGED, _without_leader(node, partition, registration)
        else:
            state, outlook = State.REPAIRING, f"is filled from node {registration.leader}"
        known_end = known_end if known_end > end else UNKNOWN
        yield _standing(partition, end, known_end, state, f"{what}; {outlook}")
    elif registration.leader == NO_NODE and node not in (*registration.isr, *registration.elr):
        what = f"this replica was not in sync and ends at offset {end}"
        outlook = _without_leader(node, partition, registration)
        yield _standing(partition, end, UNKNOWN, State.INCOMPLETE, f"{what}; {outlook}")


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


def _without_leader(node: NodeId, partition: Partition, registration: PartitionRegistration) -> str:
    """What a partition without a leader waits for, and what an operator can do."""
    complete = sorted({*registration.isr, *registration.elr})
    sound = [each for each in registration.replicas if each not in registration.damaged]
    # Of those that were complete last, one that is damaged is worth less than one that is behind.
    best = next(iter(sorted(sound, key=lambda each: each not in registration.lkelr)), node)
    named = ", ".join(f"node {each}" for each in complete)
    waits = f"waits for {named}, complete" if complete else "no replica is complete"
    chosen = node if node in sound else best
    return (
        f"{waits}; if none can come back with all it had, give up what only others had with: "
        f"paceline role elect {partition.topic} {partition.partition} --node {chosen} --unclean"
    )
