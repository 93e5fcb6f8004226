"""Progress of replicas that others claim: told as it is, and simulated where no node can forge it.

A slot is a replica's number relative to the leader: 0 is the leader, 1.. the other assigned nodes
in assignment order, the rest are vacant. A slot with a node behind it is read-only here: a claim
never moves its offset, its liveness or the ISR. Vacant slots take acknowledgements only while the
cluster has one registered node (replication/DESIGN 8).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import trio

from paceline.types import NodeId
from paceline_node.env import Env
from paceline_node.replication.partition import Partition
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.authorization.authorizer import Authorizer
from paceline_node.services.partitions.partition_access import PartitionAccess
from paceline_node.services.partitions.readable_topic import ReadableTopic


class SlotProgress(NamedTuple):
    """``acked_end``: up to where, exclusive, the slot has the log; ``isr`` are slot numbers."""

    acked_end: int
    high_watermark: int
    isr: tuple[int, ...]
    under_replicated: bool


class SlotsOfTopic:
    """Of a topic that need not exist. ``reads``: its records.
    Methods raise UnknownTopicOrPartition and NotLeader."""

    __slots__ = ("_name", "_records", "reads")

    def __init__(self, name: str, records: PartitionAccess, reads: ReadableTopic) -> None:
        self._name = name
        self._records = records
        self.reads = reads

    def is_hosted(self, number: int, slot: int) -> bool:
        """Whether a node is behind the slot of a partition."""
        return slot < len(_hosted_slots(self._records.leader(self._name, number)))

    async def acknowledge(
        self, number: int, slot: int, end: int, *, wait_s: float
    ) -> SlotProgress | None:
        """Take note that a vacant slot has the log up to ``end``; of a node's slot tell how far it
        is, at most ``end``: a claim that comes true within ``wait_s`` is echoed, a false one
        answered with the truth. None for a slot that is neither."""
        leader = self._records.leader(self._name, number)
        hosted = _hosted_slots(leader)
        if slot < len(hosted):
            acked_end = await _acked(leader, hosted[slot], end, wait_s)
        elif leader.simulation.is_on:
            leader.simulation.acknowledge(slot, end)
            acked_end = end
        else:
            return None
        in_sync = [number for number, node in enumerate(hosted) if node in leader.isr]
        isr = (*in_sync, *leader.simulation.in_sync())
        is_short = len(isr) < leader.config.min_insync_replicas
        return SlotProgress(acked_end, leader.high_watermark, isr, is_short)


class ReplicaSlots:
    """Opens the slots of topics."""

    def __init__(self, env: Env, access: Authorizer, records: PartitionAccess) -> None:
        self._env = env
        self._access = access
        self._records = records

    def open(self, principal: Principal, topic: str) -> SlotsOfTopic:
        """Raises AuthorizationFailed unless ``principal`` may act as a replica."""
        return self._opened(topic, partial(self._access.cluster, principal, Operation.REPLICATE))

    def open_to_read(self, principal: Principal, topic: str) -> SlotsOfTopic:
        """For one who is shown the topic's committed records, and so must be allowed to read it.
        Raises AuthorizationFailed."""
        return self._opened(topic, partial(self._access.topic, principal, Operation.CONSUME, topic))

    def _opened(self, topic: str, ask: Callable[[], None]) -> SlotsOfTopic:
        ask()
        reads = ReadableTopic(topic, self._env, self._records, ask)
        return SlotsOfTopic(topic, self._records, reads)


async def _acked(leader: Partition, node: NodeId, end: int, wait_s: float) -> int:
    claimed = min(end, leader.log_end_offset)
    if leader.acked(node) < claimed:
        arrived = trio.Event()
        token = leader.when_acked(node, claimed, arrived.set)
        with trio.move_on_after(wait_s):
            await arrived.wait()
        leader.cancel(token)
    return min(end, leader.acked(node))


def _hosted_slots(leader: Partition) -> tuple[NodeId, ...]:
    """Nodes by slot: the leader first, then the others in assignment order."""
    registration = leader.registration
    assert registration is not None
    others = tuple(node for node in registration.replicas if node != registration.leader)
    return (registration.leader, *others)
