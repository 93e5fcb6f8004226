"""V1 ADMIN_* commands over the real controller (DESIGN 4.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from paceline.errors import TopicAlreadyExists
from paceline.types import NO_NODE, NodeId
from paceline.wire.message import Message
from paceline.wire.native import admin
from paceline.wire.v1 import replies, requests
from paceline.wire.v1.errors import bad_request
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.topics.cluster_view import ClusterView, PartitionView, TopicView
from paceline_node.services.topics.topic_service import TopicService

AdminRequest = (
    requests.AdminCreateTopic
    | requests.AdminRegisterBroker
    | requests.AdminBrokerHeartbeat
    | requests.AdminSetPartitionLeader
    | requests.AdminFenceBroker
    | requests.AdminUnfenceBroker
    | requests.AdminReconcileBrokerHealth
    | requests.AdminElectTopicLeaders
    | requests.AdminGetMetadata
)
_LISTENER = "v1"
_CONTROLLER_WAIT_S = 3.5
"""Less than a request may take in all, so that who waited in vain is told so (DESIGN 4.1)."""
M = TypeVar("M", bound=Message)


class V1Admin:
    """Answers ADMIN_* with payloads; raises V1Error or the controller's typed errors."""

    def __init__(self, topics: TopicService) -> None:
        self._topics = topics

    async def _administer(self, principal: Principal, request: Message, response: type[M]) -> M:
        return await self._topics.administer(
            principal, request, response, timeout_s=_CONTROLLER_WAIT_S
        )

    async def handle(self, request: AdminRequest, principal: Principal) -> bytes:
        """The payload of the OK line."""
        match request:
            case requests.AdminCreateTopic():
                return await self._create_topic(request, principal)
            case requests.AdminRegisterBroker():
                return await self._register_broker(request, principal)
            case requests.AdminBrokerHeartbeat(broker_id):
                return await self._heartbeat(broker_id, principal)
            case requests.AdminSetPartitionLeader():
                return await self._set_leader(request, principal)
            case requests.AdminFenceBroker(broker_id):
                return await self._fence(broker_id, principal, fenced=True)
            case requests.AdminUnfenceBroker(broker_id):
                return await self._fence(broker_id, principal, fenced=False)
            case requests.AdminReconcileBrokerHealth(timeout_ms):
                wish = admin.ReconcileExternal(timeout_ms)
                done = await self._administer(principal, wish, admin.Reconciled)
                return replies.reconcile_payload(done.count)
            case requests.AdminElectTopicLeaders(topic):
                return await self._elect(topic, principal)
            case requests.AdminGetMetadata():
                image = self._topics.overview(principal)
                seen = {topic.name for topic in self._topics.visible(principal)}
                return _metadata(image, [name for name in image.topic_ids if name in seen])

    async def _create_topic(
        self, request: requests.AdminCreateTopic, principal: Principal
    ) -> bytes:
        wish = admin.CreateTopic(
            request.topic, request.partitions, request.replication_factor, if_not_exists=True
        )
        try:
            created = await self._administer(principal, wish, admin.TopicCreated)
        except TopicAlreadyExists:
            raise bad_request("topic already exists") from None
        return replies.create_topic_payload(
            topic=request.topic,
            partitions=created.partitions,
            replication_factor=created.replication_factor,
            term=created.term,
            index=created.metadata_offset,
        )

    async def _register_broker(
        self, request: requests.AdminRegisterBroker, principal: Principal
    ) -> bytes:
        wish = admin.RegisterExternal(
            NodeId(request.broker_id), request.host, request.port, request.epoch or 0
        )
        done = await self._administer(principal, wish, admin.Done)
        host, port = request.host, request.port
        broker = self._topics.image.brokers.get(NodeId(request.broker_id))
        if broker is not None and (real := broker.endpoint(_LISTENER)) is not None:
            host, port = real.host, real.port
        return replies.register_broker_payload(
            broker_id=request.broker_id,
            host=host,
            port=port,
            term=done.term,
            index=done.metadata_offset,
        )

    async def _heartbeat(self, broker_id: int, principal: Principal) -> bytes:
        wish = admin.RegisterExternal(NodeId(broker_id), "", 0, 0)
        done = await self._administer(principal, wish, admin.Done)
        return replies.broker_heartbeat_payload(
            broker_id=broker_id, term=done.term, index=done.metadata_offset
        )

    async def _fence(self, broker_id: int, principal: Principal, *, fenced: bool) -> bytes:
        done = await self._administer(
            principal, admin.FenceBroker(NodeId(broker_id), fenced), admin.Done
        )
        return replies.fence_payload(
            broker_id=broker_id, fenced=fenced, term=done.term, index=done.metadata_offset
        )

    async def _set_leader(
        self, request: requests.AdminSetPartitionLeader, principal: Principal
    ) -> bytes:
        """An orderly move to a real node in the real ISR; the ISR a caller claims is not believed.

        On a lone node, where other ids are external, it marks and unmarks the node instead and
        echoes the list, as the original does.
        """
        topic = self._to_be_moved(request.topic, principal)
        image = self._topics.image
        partition = _existing_partition(topic, request.partition)
        lone = len(image.brokers) == 1
        leader = NodeId(request.leader_id)
        if leader in image.brokers:
            role = admin.SetRole(request.topic, request.partition, leader, "leader")
        elif lone and (leader == NO_NODE or leader in image.externals):
            me = partition.replicas[0]
            role = admin.SetRole(request.topic, request.partition, me, "follower")
        else:
            raise bad_request("not a replica")
        done = await self._administer(principal, role, admin.RoleSet)
        topic = _existing(self._topics.find(request.topic), request.topic)
        now = _existing_partition(topic, request.partition)
        return replies.partition_leader_payload(
            topic=request.topic,
            partition=request.partition,
            leader=request.leader_id if lone else now.leader,
            isr=request.isr if lone else now.isr,
            term=done.term,
            index=done.metadata_offset,
        )

    async def _elect(self, name: str, principal: Principal) -> bytes:
        """First unfenced in-sync replica for partitions without a working leader: what the
        controller does by itself, so usually nothing is left to change."""
        topic = self._to_be_moved(name, principal)
        changes = 0
        for number, partition in sorted(topic.partitions.items()):
            if partition.leader >= 0 or not partition.isr:
                continue
            wish = admin.ElectLeader(name, number, partition.isr[0])
            await self._administer(principal, wish, admin.RoleSet)
            changes += 1
        return replies.elect_payload(topic=name, elected_changes=changes)

    def _to_be_moved(self, name: str, principal: Principal) -> TopicView:
        """The topic, for one who may move its leaderships."""
        return _existing(self._topics.look_up(principal, Operation.MOVE_LEADER, name), name)


def _existing(topic: TopicView | None, name: str) -> TopicView:
    if topic is None:
        raise bad_request(f"topic not found: {name}")
    return topic


def _existing_partition(topic: TopicView, number: int) -> PartitionView:
    if number < 0:
        raise bad_request("partition must be >= 0")
    partition = topic.partitions.get(number)
    if partition is None:
        raise bad_request(f"partition not found: topic={topic.name} partition={number}")
    return partition


def _metadata(image: ClusterView, topics: Sequence[str]) -> bytes:
    fenced = [node for node, broker in image.brokers.items() if broker.operator_fenced]
    fenced += [node for node, external in image.externals.items() if external.fenced]
    return replies.metadata_payload(
        topics=[name for name in topics if not name.startswith("__")],
        brokers=[*image.brokers, *image.externals],
        fenced=fenced,
    )
