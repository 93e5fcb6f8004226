"""Produce, read and offsets: this node's partitions, for those who may use them.

A service asks :meth:`PartitionAccess.permit` once for a topic, then works on the
:class:`~paceline_node.replication.partition.Partition` that :meth:`PartitionAccess.leader` gives
it: one call for a request, none for a record.
"""

from __future__ import annotations

from typing import NamedTuple

from paceline.errors import (
    AuthorizationFailed,
    NotLeader,
    PacelineError,
    PolicyViolation,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from paceline.types import NO_EPOCH, NO_NODE, LeaderEpoch, NodeId, TopicId, is_internal_topic
from paceline_node.bare_errors import bare
from paceline_node.replication.hosted_partitions import HostedPartitions
from paceline_node.replication.partition import Partition
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.authorization.authorizer import Authorizer
from paceline_node.services.topics.topic_service import TopicService

LOG = "log"
"""The kind of topic that any protocol writes records to."""


class Refused(NamedTuple):
    """A part of a request that was not done, or of which nobody can tell, as ``error`` says. The
    leader and its epoch, -1 where they are not known or of no use to whoever asked."""

    error: PacelineError
    leader: NodeId = NO_NODE
    leader_epoch: LeaderEpoch = NO_EPOCH


class PartitionAccess:
    """Finds partitions for the data path."""

    def __init__(self, access: Authorizer, table: HostedPartitions, topics: TopicService) -> None:
        self._access = access
        self._table = table
        self._topics = topics

    def permit(self, principal: Principal, operation: Operation, topic: str) -> None:
        """Raise AuthorizationFailed unless ``principal`` may ``CONSUME`` from or ``DESCRIBE`` (see
        offsets of) a topic."""
        self._access.topic(principal, operation, topic)

    def admit_producer(self, principal: Principal, topic: str) -> None:
        """Raise AuthorizationFailed unless ``principal`` may write to a topic, which need not
        exist; PolicyViolation for one that takes no records from clients: internal ones, and those
        whose kind has a protocol of its own (DESIGN 1.4)."""
        self._access.topic(principal, Operation.PRODUCE, topic)
        found = self._topics.find(topic)
        if found is not None and found.kind != LOG:
            raise PolicyViolation(
                f"topic {topic} is of kind {found.kind}: it takes no records, only what the "
                "protocol of its kind writes"
            )
        if is_internal_topic(topic):
            raise PolicyViolation(f"{topic}: internal topics take no records from clients")

    def hosted(self, topic: str, number: int) -> Partition | None:
        """The replica of a partition on this node, whatever its role."""
        return self._table.get(topic, number)

    def leader(
        self,
        topic: str,
        number: int,
        *,
        current_leader_epoch: int = NO_EPOCH,
        topic_id: TopicId | None = None,
    ) -> Partition:
        """A partition hosted here, which refuses by itself what only its leader does.

        Raises UnknownTopicOrPartition, NotLeader (not hosted here), UnknownTopicId where another
        topic has the name than the client means, if it says so, and, unless the client's epoch is
        -1, FencedLeaderEpoch or UnknownLeaderEpoch.
        """
        partition = self._table.get(topic, number)
        if partition is None:
            self._topics.partition(topic, number)
            raise NotLeader(f"{topic}/{number}: not hosted on this node")
        if topic_id is not None and partition.topic_id != topic_id:
            raise UnknownTopicId(f"{topic}: its id is {partition.topic_id} here, not {topic_id}")
        partition.check_epoch(current_leader_epoch)
        return partition

    def refusal(self, error: PacelineError, topic: str, number: int) -> Refused:
        """What to tell of a part that ``error`` has ended: the leader and its epoch as the metadata
        here have them, -1 when nobody is known, to those who may not use the topic, and to those
        who mean another topic of that name: epochs of the two say nothing of each other."""
        bare(error)  # it may wait long for the other parts
        if isinstance(error, AuthorizationFailed | UnknownTopicId):
            return Refused(error)
        try:
            registration = self._topics.partition(topic, number)
        except UnknownTopicOrPartition:
            return Refused(error)
        return Refused(error, self._topics.leader(registration), registration.leader_epoch)
