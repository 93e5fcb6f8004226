"""Produce, read and offsets: this node's partitions, for those who may use them.

A listener asks :meth:`RecordService.permit` once for a topic, then works on the
:class:`~paceline_node.replication.partition.Partition` that :meth:`RecordService.leader` gives it:
one call for a request, none for a record.
"""

from __future__ import annotations

from paceline.errors import (
    AuthorizationFailed,
    NotLeader,
    PacelineError,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from paceline.types import NO_EPOCH, NO_NODE, LeaderEpoch, NodeId
from paceline_node.replication.partition import Partition
from paceline_node.replication.table import PartitionTable
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.access import Access
from paceline_node.services.topics import TopicService

LOG = "log"
"""The kind of topic that any protocol writes records to."""


class RecordService:
    """Finds partitions for the data path."""

    def __init__(self, access: Access, table: PartitionTable, topics: TopicService) -> None:
        self._access = access
        self._table = table
        self._topics = topics

    def permit(self, principal: Principal, operation: Operation, topic: str) -> None:
        """Raise AuthorizationFailed unless ``principal`` may ``PRODUCE`` to, ``CONSUME`` from or
        ``DESCRIBE`` (see offsets of) a topic; PolicyViolation for ``PRODUCE`` to a topic whose kind
        has a protocol of its own (SETTLED P6, P7)."""
        self._access.topic(principal, operation, topic)
        if operation is Operation.PRODUCE:
            found = self._topics.find(topic)
            if found is not None and found.kind != LOG:
                raise PolicyViolation(
                    f"topic {topic} is of kind {found.kind}: it takes no records, only what the "
                    "protocol of its kind writes"
                )

    def permit_replica(self, principal: Principal) -> None:
        """Raise AuthorizationFailed unless ``principal`` may act as a replica."""
        self._access.cluster(principal, Operation.REPLICATE)

    def hosted(self, topic: str, number: int) -> Partition | None:
        """The replica of a partition on this node, whatever its role."""
        return self._table.get(topic, number)

    def leader(self, topic: str, number: int, *, current_leader_epoch: int = NO_EPOCH) -> Partition:
        """A partition hosted here, which refuses by itself what only its leader does.

        Raises UnknownTopicOrPartition, NotLeader (not hosted here), and, unless the client's epoch
        is -1, FencedLeaderEpoch or UnknownLeaderEpoch.
        """
        partition = self._table.get(topic, number)
        if partition is None:
            self._topics.partition(topic, number)
            raise NotLeader(f"{topic}/{number}: not hosted on this node")
        partition.check_epoch(current_leader_epoch)
        return partition

    def leader_to_tell(
        self, error: PacelineError, topic: str, number: int
    ) -> tuple[NodeId, LeaderEpoch]:
        """The leader and its epoch as the metadata here have them, for an answer that says
        ``error``; -1 when nobody is known, and to those who may not use the topic."""
        if isinstance(error, AuthorizationFailed):
            return NO_NODE, NO_EPOCH
        try:
            registration = self._topics.partition(topic, number)
        except UnknownTopicOrPartition:
            return NO_NODE, NO_EPOCH
        return registration.leader, registration.leader_epoch
