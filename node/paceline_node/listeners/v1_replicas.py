"""V1 REPLICA_FETCH, BROKER_FETCH and BROKER_REPLICA_ACK: replica progress that nobody can forge.

A slot is a replica's number relative to the leader: 0 is the leader, 1.. the other assigned nodes
in assignment order, the rest are vacant. A slot with a node behind it is read-only here: a client
line never moves its offset, its liveness or the ISR. Vacant slots take acknowledgements only while
the cluster has one registered node (spec v1 9).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import trio

from paceline.errors import NotLeader, RequestTimedOut
from paceline.types import NodeId
from paceline.wire.v1.errors import V1Code, V1Error, bad_request
from paceline.wire.v1.replies import (
    MessageList,
    broker_fetch_payload,
    broker_replica_ack_payload,
    replica_fetch_payload,
)
from paceline.wire.v1.requests import BrokerFetch, BrokerReplicaAck, ReplicaFetch
from paceline_node.env import Env
from paceline_node.listeners.v1_errors import NO_LEADER_HERE, unreachable
from paceline_node.listeners.v1_records import V1Records
from paceline_node.listeners.v1_routing import Call, Router
from paceline_node.replication.partition import Partition
from paceline_node.services.records import RecordService

NOT_LEADER_HERE = bad_request("partition is not leader")
_FETCH_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Progress:
    """Offsets inclusive, as V1 shows them; ``isr`` are slot numbers."""

    acked_offset: int
    hw: int
    isr: tuple[int, ...]
    under_replicated: bool


class V1Replicas:
    """Reports, and on a lone node simulates, replica progress."""

    def __init__(
        self,
        env: Env,
        service: RecordService,
        records: V1Records,
        router: Router,
        *,
        leader_wait_s: float = 2.0,
        status_wait_s: float = 0.5,
    ) -> None:
        self._env = env
        self._service = service
        self._records = records
        self._router = router
        self._leader_wait_s = leader_wait_s
        self._status_wait_s = status_wait_s

    async def replica_fetch(self, request: ReplicaFetch, call: Call) -> bytes:
        def payload(progress: _Progress) -> bytes:
            return replica_fetch_payload(
                replica=request.replica_id,
                acked_offset=progress.acked_offset,
                hw=progress.hw,
                isr=progress.isr,
                under_replicated=progress.under_replicated,
            )

        return await self._acknowledge(
            call, request.topic, request.partition, request.replica_id, request.offset, payload
        )

    async def broker_replica_ack(self, request: BrokerReplicaAck, call: Call) -> bytes:
        def payload(progress: _Progress) -> bytes:
            return broker_replica_ack_payload(
                topic=request.topic,
                partition=request.partition,
                follower=request.follower_id,
                acked_offset=progress.acked_offset,
                hw=progress.hw,
                isr=progress.isr,
                under_replicated=progress.under_replicated,
            )

        return await self._acknowledge(
            call,
            request.topic,
            request.partition,
            request.follower_id,
            request.acked_offset,
            payload,
        )

    async def _acknowledge(
        self,
        call: Call,
        topic: str,
        partition: int,
        slot: int,
        offset: int,
        payload: Callable[[_Progress], bytes],
    ) -> bytes:
        await self._check(call, topic, partition, slot)
        if not call.forwarded and self._router.is_marked_follower(topic, partition):
            raise NOT_LEADER_HERE

        async def here(local: Partition) -> bytes:
            return payload(await self._progress(local, slot, offset))

        try:
            return await self._router.on_leader(
                call, topic, partition, here, until=self._env.now() + self._leader_wait_s
            )
        except NotLeader:
            if call.forwarded:
                raise
            raise NOT_LEADER_HERE from None
        except RequestTimedOut:
            raise unreachable(topic, partition) from None

    async def _check(self, call: Call, topic: str, partition: int, slot: int) -> None:
        self._service.permit_replica(call.principal)
        found = await self._records.ensure_for_reading(topic, call)
        if partition not in found.partitions:
            raise bad_request("invalid partition")
        if not 1 <= slot < found.replication_factor:
            raise bad_request("invalid replica id")

    async def _progress(self, local: Partition, slot: int, offset: int) -> _Progress:
        hosted = _hosted_slots(local)
        if slot < len(hosted):
            acked = await self._real_acked(local, hosted[slot], offset)
        elif local.simulation.is_on:
            local.simulation.acknowledge(slot, offset + 1)
            acked = offset
        else:
            raise bad_request("replica id not configured")
        in_sync = [number for number, node in enumerate(hosted) if node in local.isr]
        isr = (*in_sync, *local.simulation.in_sync())
        return _Progress(
            acked,
            local.high_watermark - 1,
            isr,
            len(isr) < local.config.min_insync_replicas,
        )

    async def _real_acked(self, local: Partition, node: NodeId, offset: int) -> int:
        """The node's true position, at most what the caller claims; a claim that comes true within
        the wait is echoed, a false one is answered with the truth (spec v1 9.1 rule 4)."""
        claimed = min(offset + 1, local.log_end_offset)
        if local.acked(node) < claimed:
            arrived = trio.Event()
            token = local.when_acked(node, claimed, arrived.set)
            with trio.move_on_after(self._status_wait_s):
                await arrived.wait()
            local.cancel(token)
        return min(offset, local.acked(node) - 1)

    async def broker_fetch(self, request: BrokerFetch, call: Call) -> bytes:
        """Records for a follower outside the cluster: committed ones only, and none for a slot
        that a node holds (spec v1 9.3)."""
        await self._check(call, request.topic, request.partition, request.follower_id)
        marked = self._router.is_marked_follower(request.topic, request.partition)
        if marked and not call.forwarded:
            raise NO_LEADER_HERE

        async def here(local: Partition) -> bytes:
            if request.follower_id < len(_hosted_slots(local)):
                raise V1Error(V1Code.NOT_AUTHORIZED, "reserved for the inter-broker listener")
            return await self._records_for(local, request)

        try:
            return await self._router.on_leader(
                call,
                request.topic,
                request.partition,
                here,
                until=self._env.now() + self._leader_wait_s,
            )
        except NotLeader:
            if call.forwarded:
                raise
            raise NO_LEADER_HERE from None
        except RequestTimedOut:
            raise unreachable(request.topic, request.partition) from None

    async def _records_for(self, local: Partition, request: BrokerFetch) -> bytes:
        messages = MessageList(max_records=request.max_messages, max_bytes=_FETCH_BYTES)
        end = await self._records.collect(local, max(0, request.offset), messages)
        return broker_fetch_payload(
            topic=request.topic,
            partition=request.partition,
            follower=request.follower_id,
            hw=end - 1,
            records=messages,
        )


def _hosted_slots(local: Partition) -> tuple[NodeId, ...]:
    """Nodes by slot: the leader first, then the others in assignment order."""
    registration = local.registration
    assert registration is not None
    others = tuple(node for node in registration.replicas if node != registration.leader)
    return (registration.leader, *others)
