"""Kafka requests about brokers, topics and coordinators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from paceline.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidRequest,
    InvalidTopic,
    PacelineError,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from paceline.types import NO_NODE, NodeId, TopicId, is_internal_topic, is_valid_topic_name
from paceline.wire.kafka import cluster as wire
from paceline.wire.kafka.layout import NOT_ASKED
from paceline_node.listeners.kafka.call import LISTENER, Call
from paceline_node.listeners.kafka.coordinator_errors import CoordinatorApi, coordinator_code
from paceline_node.listeners.kafka.errors import code_of, message_of
from paceline_node.security.principals import CLUSTER, Operation, Resource, ResourceKind
from paceline_node.services.admin.node_status import StatusService
from paceline_node.services.authorization.authorized_operations import AuthorizedOperations
from paceline_node.services.groups.group_service import GroupService
from paceline_node.services.topics.cluster_view import BrokerView, PartitionView, TopicView
from paceline_node.services.topics.topic_service import TopicService
from paceline_node.services.transactions.transaction_service import TransactionService
from paceline_node.sliced_work import Work

_CREATE_S = 10.0
_GROUP_KEY, _TRANSACTION_KEY = 0, 1
_FIRST_BATCHED_LOOK_UP = 4
_PARTITIONS_PER_UNIT = 4


class KafkaCluster:
    """What clients ask before they know whom to ask."""

    def __init__(
        self,
        topics: TopicService,
        groups: GroupService,
        status: StatusService,
        transactions: TransactionService,
        authorized: AuthorizedOperations,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._status = status
        self._transactions = transactions
        self._authorized = authorized

    # --- brokers ----------------------------------------------------------------------------------

    def _brokers(self) -> list[tuple[BrokerView, str, int]]:
        """The live nodes that have this listener, with the address they advertise for it."""
        found: list[tuple[BrokerView, str, int]] = []
        for _, broker in sorted(self._topics.image.brokers.items()):
            endpoint = broker.endpoint(LISTENER)
            if endpoint is not None and not broker.fenced:
                found.append((broker, endpoint.host, endpoint.port))
        return found

    def _controller(self, brokers: Iterable[tuple[BrokerView, str, int]]) -> int:
        """Any node takes administrative requests; clients want to be told one."""
        ids = [broker.node_id for broker, _, _ in brokers]
        active = self._status.controller
        return active if active in ids else min(ids, default=NO_NODE)

    async def describe_cluster(
        self, request: wire.DescribeClusterRequest, call: Call
    ) -> wire.DescribeClusterResponse:
        """The brokers, whom anybody may know who is to reach them."""
        brokers = self._brokers()
        return wire.DescribeClusterResponse(
            error_code=0,
            cluster_id=str(self._topics.image.cluster_id),
            controller_id=self._controller(brokers),
            brokers=tuple(
                wire.DescribeClusterResponseBroker(
                    broker_id=broker.node_id, host=host, port=port, rack=broker.rack or None
                )
                for broker, host, port in brokers
            ),
            cluster_authorized_operations=self._of_cluster(
                call, asked=request.include_cluster_authorized_operations
            ),
        )

    def _of_cluster(self, call: Call, *, asked: bool) -> int:
        return self._authorized.bits(call.principal, CLUSTER) if asked else NOT_ASKED

    # --- metadata ---------------------------------------------------------------------------------

    async def metadata(self, request: wire.MetadataRequest, call: Call) -> wire.MetadataResponse:
        """Brokers, and all topics or those asked for, created where that is wanted."""
        wanted = request.topics
        if wanted is None or (call.version == 0 and not wanted):
            topics = [
                await self._told(topic, request, call)
                async for topic in call.pace.each(list(self._topics.image.topics.values()))
                if self._topics.may_see(call.principal, topic)
            ]
        else:
            topics = [
                await self._asked(each, request, call)
                async for each in call.pace.each(await call.pace.once_each(wanted, _named))
            ]
        brokers = self._brokers()
        return wire.MetadataResponse(
            brokers=tuple(
                wire.MetadataResponseBroker(
                    node_id=broker.node_id, host=host, port=port, rack=broker.rack or None
                )
                for broker, host, port in brokers
            ),
            cluster_id=str(self._topics.image.cluster_id),
            controller_id=self._controller(brokers),
            topics=tuple(topics),
            cluster_authorized_operations=self._of_cluster(
                call, asked=request.include_cluster_authorized_operations
            ),
        )

    async def _told(
        self, topic: TopicView, request: wire.MetadataRequest, call: Call
    ) -> wire.MetadataResponseTopic:
        bits = NOT_ASKED
        if request.include_topic_authorized_operations:
            resource = Resource(ResourceKind.TOPIC, topic.name)
            bits = self._authorized.bits(call.principal, resource)
        return await call.pace.run(_topic(topic, bits, self._topics.leader))

    async def _asked(
        self, asked: wire.MetadataRequestTopic, request: wire.MetadataRequest, call: Call
    ) -> wire.MetadataResponseTopic:
        name = asked.name
        if name is None:
            return await self._by_id(asked, request, call)
        try:
            found = self._topics.look_up(call.principal, Operation.DESCRIBE, name)
            if not is_valid_topic_name(name):
                raise InvalidTopic(name)
            if found is None and (call.version < 4 or request.allow_auto_topic_creation):
                found = await self._topics.ensure(call.principal, name, timeout_s=_CREATE_S)
            if found is None:
                raise UnknownTopicOrPartition(name)
        except PolicyViolation:  # an internal name that does not exist
            return wire.MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name
            )
        except PacelineError as error:
            code = code_of(error)
            if error.retriable and not isinstance(error, UnknownTopicOrPartition):
                code = ErrorCode.LEADER_NOT_AVAILABLE  # clients ask again at that
            return wire.MetadataResponseTopic(error_code=code, name=name)
        return await self._told(found, request, call)

    async def _by_id(
        self, asked: wire.MetadataRequestTopic, request: wire.MetadataRequest, call: Call
    ) -> wire.MetadataResponseTopic:
        found = self._topics.image.topics.get(TopicId(asked.topic_id))
        if found is not None and self._topics.may_see(call.principal, found):
            return await self._told(found, request, call)
        return wire.MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, topic_id=asked.topic_id, name=None
        )

    # --- coordinators -----------------------------------------------------------------------------

    async def find_coordinator(
        self, request: wire.FindCoordinatorRequest, call: Call
    ) -> wire.FindCoordinatorResponse:
        """Who coordinates the groups, or the transactions, named."""
        if call.version >= _FIRST_BATCHED_LOOK_UP:
            return wire.FindCoordinatorResponse(
                coordinators=tuple(
                    [
                        self._coordinator(key, request.key_type, call)
                        async for key in call.pace.each(request.coordinator_keys)
                    ]
                )
            )
        found = self._coordinator(request.key, request.key_type, call)
        return wire.FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )

    def _coordinator(
        self, key: str, key_type: int, call: Call
    ) -> wire.FindCoordinatorResponseCoordinator:
        try:
            if key_type == _TRANSACTION_KEY:
                operation = Operation.DESCRIBE
                broker = self._transactions.coordinator(call.principal, operation, key, LISTENER)
            elif key_type == _GROUP_KEY:
                group = self._groups.open_kafka(call.principal, Operation.DESCRIBE, key)
                broker = group.coordinator(LISTENER)
            else:
                raise InvalidRequest(f"there are no coordinators of kind {key_type}")
            endpoint = broker.endpoint(LISTENER)
            if endpoint is None:
                raise CoordinatorNotAvailable(f"node {broker.node_id} has no such listener")
        except PacelineError as error:
            return wire.FindCoordinatorResponseCoordinator(
                key=key,
                node_id=NO_NODE,
                port=-1,
                error_code=coordinator_code(error, CoordinatorApi.FIND_COORDINATOR),
                error_message=message_of(error),
            )
        return wire.FindCoordinatorResponseCoordinator(
            key=key,
            node_id=broker.node_id,
            host=endpoint.host,
            port=endpoint.port,
            error_code=0,
        )


def _named(asked: wire.MetadataRequestTopic) -> str | UUID:
    """Which topic is asked for; what is said beside a name makes it no other. Each is told once:
    an answer may be thousands of times as long as the name."""
    return asked.topic_id if asked.name is None else asked.name


def _topic(
    topic: TopicView, authorized: int, leader_of: Callable[[PartitionView], NodeId]
) -> Work[wire.MetadataResponseTopic]:
    partitions = []
    for index, (number, registration) in enumerate(sorted(topic.partitions.items())):
        if index % _PARTITIONS_PER_UNIT == 0:
            yield 1
        partitions.append(_partition(number, registration, leader_of(registration)))
    return wire.MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal_topic(topic.name),
        partitions=tuple(partitions),
        topic_authorized_operations=authorized,
    )


def _partition(
    number: int, found: PartitionView, leader: NodeId
) -> wire.MetadataResponseTopicPartition:
    return wire.MetadataResponseTopicPartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader < 0 else 0,
        partition_index=number,
        leader_id=leader,
        leader_epoch=found.leader_epoch,
        replica_nodes=tuple(found.replicas),
        isr_nodes=tuple(found.isr),
    )
