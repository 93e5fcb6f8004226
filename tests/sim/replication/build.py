"""Registrations, brokers and fetch exchanges for tests of replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from paceline.types import BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, TopicId
from paceline.wire.peer.replica import FetchedPartition, FetchPartition
from paceline_cluster.sim.replicas.simlog import SimLog
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.replication.fetch_checks import ACCEPTED, FollowerIdentity
from paceline_node.replication.follower import FetchOutcome
from paceline_node.replication.replica import Replica

TOPIC = TopicId(UUID(int=7))


@dataclass(frozen=True, slots=True)
class SimBrokerView:
    """What a metadata image says of one broker."""

    broker_epoch: BrokerEpoch
    directory_id: UUID
    fenced: bool = False
    in_controlled_shutdown: bool = False


def broker(node: int, epoch: int = 10, *, fenced: bool = False) -> SimBrokerView:
    return SimBrokerView(BrokerEpoch(epoch), UUID(int=100 + node), fenced)


def brokers(count: int = 3) -> dict[NodeId, SimBrokerView]:
    return {NodeId(node): broker(node) for node in range(count)}


def identity(node: int, epoch: int = 10) -> FollowerIdentity:
    return FollowerIdentity(NodeId(node), BrokerEpoch(epoch), UUID(int=100 + node))


def registration(
    leader: int = 0,
    leader_epoch: int = 1,
    partition_epoch: int = 1,
    *,
    isr: Sequence[int] = (0, 1, 2),
    replicas: Sequence[int] = (0, 1, 2),
    min_isr: int = 2,
) -> PartitionRegistration:
    return PartitionRegistration(
        TOPIC,
        0,
        tuple(map(NodeId, replicas)),
        tuple(map(NodeId, isr)),
        (),
        (),
        NodeId(leader),
        LeaderEpoch(leader_epoch),
        PartitionEpoch(partition_epoch),
        min_isr,
        len(replicas),
    )


def next_registration(before: PartitionRegistration, **changes: object) -> PartitionRegistration:
    """``before`` with the changes and the next partition epoch."""
    epoch = PartitionEpoch(before.partition_epoch + 1)
    return replace(before, partition_epoch=epoch, **changes)  # type: ignore[arg-type]


def log_of(replica: Replica) -> SimLog:
    assert isinstance(replica.log, SimLog)
    return replica.log


def answer_fetch(
    leader: Replica,
    node: int,
    position: FetchPartition,
    *,
    now: float = 0.0,
    broker_epoch: int = 10,
    count: int = 1000,
) -> tuple[FetchedPartition, bytes]:
    """The leader's whole handling of one fetch (replication/DESIGN 3.3), with up to ``count``
    records."""
    check = leader.on_fetch(identity(node, broker_epoch), position, now)
    leader.advance()
    records = b""
    if check is ACCEPTED:
        records = log_of(leader).read(position.fetch_offset, count)
    end = log_of(leader).log_end_offset
    return leader.answer(position, check, len(records), end), records


def fetch_once(
    leader: Replica,
    follower: Replica,
    *,
    nonce: int = 1,
    now: float = 0.0,
    flush: bool = True,
    count: int = 1000,
) -> FetchOutcome:
    """One whole round: request, answer, and (unless told otherwise) the follower's flush."""
    position = follower.start_fetch(nonce, 1024)
    assert position is not None
    answer, records = answer_fetch(leader, follower.me, position, now=now, count=count)
    outcome = follower.on_fetched(nonce, answer, memoryview(records))
    if flush:
        log_of(follower).flush()
    return outcome
