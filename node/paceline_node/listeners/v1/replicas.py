"""V1 REPLICA_FETCH, BROKER_FETCH and BROKER_REPLICA_ACK over
``services/records/replica_slots.py``."""

from __future__ import annotations

from collections.abc import Callable

from paceline.errors import NotLeader, RequestTimedOut
from paceline.wire.v1.errors import V1Code, V1Error, bad_request
from paceline.wire.v1.replies import (
    MessageList,
    broker_fetch_payload,
    broker_replica_ack_payload,
    replica_fetch_payload,
)
from paceline.wire.v1.requests import BrokerFetch, BrokerReplicaAck, ReplicaFetch
from paceline_node.env import Env
from paceline_node.listeners.v1.errors import no_leader_here, unreachable
from paceline_node.listeners.v1.records import V1Records
from paceline_node.listeners.v1.routing import Call, Router
from paceline_node.services.partitions.readable_topic import ReadableReplica
from paceline_node.services.records.replica_slots import ReplicaSlots, SlotProgress

_FETCH_BYTES = 1024 * 1024


class V1Replicas:
    """Reports, and on a lone node simulates, replica progress."""

    def __init__(
        self,
        env: Env,
        slots: ReplicaSlots,
        records: V1Records,
        router: Router,
        *,
        leader_wait_s: float,
        status_wait_s: float = 0.5,
    ) -> None:
        self._env = env
        self._slots = slots
        self._records = records
        self._router = router
        self._leader_wait_s = leader_wait_s
        self._status_wait_s = status_wait_s

    async def replica_fetch(self, request: ReplicaFetch, call: Call) -> bytes:
        def payload(progress: SlotProgress) -> bytes:
            return replica_fetch_payload(
                replica=request.replica_id,
                acked_offset=progress.acked_end - 1,
                hw=progress.high_watermark - 1,
                isr=progress.isr,
                under_replicated=progress.under_replicated,
            )

        return await self._acknowledge(
            call, request.topic, request.partition, request.replica_id, request.offset, payload
        )

    async def broker_replica_ack(self, request: BrokerReplicaAck, call: Call) -> bytes:
        def payload(progress: SlotProgress) -> bytes:
            return broker_replica_ack_payload(
                topic=request.topic,
                partition=request.partition,
                follower=request.follower_id,
                acked_offset=progress.acked_end - 1,
                hw=progress.high_watermark - 1,
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
        payload: Callable[[SlotProgress], bytes],
    ) -> bytes:
        slots = self._slots.open(call.principal, topic)
        await self._check(call, topic, partition, slot)
        if not call.forwarded and self._router.is_marked_follower(topic, partition):
            raise not_leader_here()

        async def here() -> bytes:
            wait_s = self._status_wait_s
            found = await slots.acknowledge(partition, slot, offset + 1, wait_s=wait_s)
            if found is None:
                raise bad_request("replica id not configured")
            return payload(found)

        try:
            return await self._router.on_leader(
                call, topic, partition, here, until=self._env.now() + self._leader_wait_s
            )
        except NotLeader:
            if call.forwarded:
                raise
            raise not_leader_here() from None
        except RequestTimedOut:
            raise unreachable(topic, partition) from None

    async def _check(self, call: Call, topic: str, partition: int, slot: int) -> None:
        """Raises V1Error where the topic has no such partition or slot."""
        found = await self._records.ensure_for_reading(topic, call)
        if partition not in found.partitions:
            raise bad_request("invalid partition")
        if not 1 <= slot < found.replication_factor:
            raise bad_request("invalid replica id")

    async def broker_fetch(self, request: BrokerFetch, call: Call) -> bytes:
        """Records for a follower outside the cluster: committed ones only, and none for a slot
        that a node holds (DESIGN 4.5)."""
        topic, partition, slot = request.topic, request.partition, request.follower_id
        slots = self._slots.open_to_read(call.principal, topic)
        await self._check(call, topic, partition, slot)
        marked = self._router.is_marked_follower(topic, partition)
        if marked and not call.forwarded:
            raise no_leader_here()

        async def here() -> bytes:
            if slots.is_hosted(partition, slot):
                raise V1Error(V1Code.NOT_AUTHORIZED, "reserved for the inter-broker listener")
            return await self._records_for(slots.reads.leader(partition), request)

        try:
            return await self._router.on_leader(
                call, topic, partition, here, until=self._env.now() + self._leader_wait_s
            )
        except NotLeader:
            if call.forwarded:
                raise
            raise no_leader_here() from None
        except RequestTimedOut:
            raise unreachable(topic, partition) from None

    async def _records_for(self, replica: ReadableReplica, request: BrokerFetch) -> bytes:
        messages = MessageList(max_records=request.max_messages, max_bytes=_FETCH_BYTES)
        end = await self._records.collect(replica, max(0, request.offset), messages)
        return broker_fetch_payload(
            topic=request.topic,
            partition=request.partition,
            follower=request.follower_id,
            hw=end - 1,
            records=messages,
        )


def not_leader_here() -> V1Error:
    return bad_request("partition is not leader")
