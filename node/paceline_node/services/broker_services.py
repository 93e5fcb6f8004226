"""The services as one object: everything a listener may ask of this broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from paceline.health import Exposure
from paceline.types import NodeId
from paceline.values import dataclass
from paceline_node.controller.client import ControllerClient
from paceline_node.controller.lifecycle import Lifecycle
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import Env
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.limits import GroupLimits
from paceline_node.loop_turns import Turns
from paceline_node.net.deadlines import Deadlines
from paceline_node.replication.hosted_partitions import HostedPartitions
from paceline_node.security.principals import Policy
from paceline_node.security.producer_ids import ProducerIds
from paceline_node.security.quotas import ClientQuotas
from paceline_node.services.admin.acl_service import AclService
from paceline_node.services.admin.node_status import Certificates, QuorumView, StatusService
from paceline_node.services.admin.partition_roles import RoleService
from paceline_node.services.admin.quota_service import QuotaService
from paceline_node.services.admin.user_service import UserService
from paceline_node.services.authorization.authorized_operations import AuthorizedOperations
from paceline_node.services.authorization.authorizer import Authorizer
from paceline_node.services.groups.group_service import GroupService
from paceline_node.services.partitions.partition_access import PartitionAccess
from paceline_node.services.records.corruption_reports import CorruptionReports
from paceline_node.services.records.fetch import FetchLimits, FetchService
from paceline_node.services.records.list_offsets import OffsetService
from paceline_node.services.records.produce import ProduceService
from paceline_node.services.records.trim import TrimService
from paceline_node.services.segments.segment_service import SegmentService
from paceline_node.services.topics.topic_service import TopicService
from paceline_node.services.transactions.producer_ids import ProducerIdService
from paceline_node.services.transactions.transaction_endings import TransactionEndings
from paceline_node.services.transactions.transaction_offsets import TransactionOffsets
from paceline_node.services.transactions.transaction_rpc import TransactionRpc
from paceline_node.services.transactions.transaction_service import TransactionService
from paceline_node.services.transactions.transactional_produce import TransactionalProduce
from paceline_node.state_machines.topic import StateTopic
from paceline_node.transactions.engine import TransactionEngine


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """This broker, as all that serve its clients know it. ``software``: what it says it is;
    ``topic_defaults``: its values for what topics do not set; ``cluster_key``: what all nodes
    derive from the cluster's secret, and nobody else knows; ``session_valid``: whether this node
    has a session with a controller."""

    env: Env
    cluster_id: UUID
    node_id: NodeId
    software: str
    store: MetadataStore
    controller: ControllerClient
    table: HostedPartitions
    lifecycle: Lifecycle
    policy: Policy
    deadlines: Deadlines
    turns: Turns
    topic_defaults: Callable[[], Mapping[str, str]]
    cluster_key: bytes
    session_valid: Callable[[], bool]

    def is_cut_off(self, node: NodeId) -> bool:
        """Whether ``node`` is this one, and what the metadata here say of it may be old."""
        return node == self.node_id and not self.session_valid()


@dataclass(frozen=True, slots=True)
class GroupParts:
    """What of groups runs beside the listeners."""

    machines: StateTopic[GroupEngine]
    limits: GroupLimits
    commit_s: float


@dataclass(frozen=True, slots=True)
class TransactionParts:
    """What of transactions runs beside the listeners."""

    machines: StateTopic[TransactionEngine]
    endings: TransactionEndings
    rpc: TransactionRpc
    produce: TransactionalProduce
    commit_s: float


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """Every method that does or tells something takes the principal it is done for, and puts it to
    the policy first (DESIGN 1.1)."""

    records: PartitionAccess
    produce: ProduceService
    fetch: FetchService
    offsets: OffsetService
    topics: TopicService
    roles: RoleService
    producer_ids: ProducerIdService
    status: StatusService
    groups: GroupService
    transactions: TransactionService
    transaction_offsets: TransactionOffsets
    segments: SegmentService
    corruption_reports: CorruptionReports
    trimming: TrimService
    acls: AclService
    users: UserService
    quotas: QuotaService
    client_quotas: ClientQuotas
    authorized: AuthorizedOperations
    access: Authorizer
    turns: Turns

    @classmethod
    def over(
        cls,
        broker: BrokerParts,
        groups: GroupParts,
        transactions: TransactionParts,
        *,
        quorum: Callable[[], QuorumView],
        stop_with_cluster: Callable[[], None],
        loop_delay: Callable[[], float],
        certificates: Certificates | None = None,
        exposures: Callable[[], Sequence[Exposure]] = tuple,
    ) -> BrokerServices:
        """The services of a node made of these parts."""
        env, node_id, store, turns = broker.env, broker.node_id, broker.store, broker.turns
        controller, table, lifecycle = broker.controller, broker.table, broker.lifecycle
        access = _access(broker)
        topics = _topics(broker, access)
        records = PartitionAccess(access, table, topics)
        ids = ProducerIds(broker.cluster_key)
        producer_ids = ProducerIdService(
            node_id, controller, lambda: lifecycle.broker_epoch, access, ids
        )
        client_quotas = ClientQuotas(env.now, lambda: store.image.configs)
        group_service = _group_service(broker, groups, access)
        coordinator = TransactionService(
            env,
            store,
            transactions.machines,
            transactions.endings,
            producer_ids,
            access,
            turns,
            commit_s=transactions.commit_s,
        )
        return cls(
            records=records,
            produce=ProduceService(
                *(env, records, coordinator, transactions.produce, turns, producer_ids.permit),
                client_quotas,
            ),
            fetch=FetchService(env, records, broker.deadlines, FetchLimits(), turns, client_quotas),
            offsets=OffsetService(records, turns),
            topics=topics,
            roles=RoleService(env, node_id, store, controller, table, access),
            producer_ids=producer_ids,
            status=StatusService(
                *(env, node_id, broker.software, store, table, lifecycle, access),
                quorum=quorum,
                stop_with_cluster=stop_with_cluster,
                loop_delay=loop_delay,
                certificates=certificates,
                exposures=exposures,
            ),
            groups=group_service,
            transactions=coordinator,
            transaction_offsets=TransactionOffsets(group_service, coordinator, transactions.rpc),
            segments=SegmentService(env, node_id, access, table, topics),
            corruption_reports=CorruptionReports(env, records),
            trimming=TrimService(access, records, topics),
            authorized=AuthorizedOperations(access),
            acls=AclService(store, topics, access, broker.policy),
            users=UserService(store, topics, access, broker.policy),
            quotas=QuotaService(store, topics, access),
            client_quotas=client_quotas,
            access=access,
            turns=turns,
        )


def _topics(broker: BrokerParts, access: Authorizer) -> TopicService:
    return TopicService(
        broker.env,
        broker.store,
        broker.controller,
        access,
        auto_create=True,
        is_cut_off=broker.is_cut_off,
        defaults=broker.topic_defaults,
    )


def _group_service(broker: BrokerParts, groups: GroupParts, access: Authorizer) -> GroupService:
    return GroupService(
        *(broker.env, broker.store, groups.machines, access, groups.limits, broker.turns),
        commit_s=groups.commit_s,
    )


def _access(broker: BrokerParts) -> Authorizer:
    store = broker.store

    def configs(name: str) -> Mapping[str, str]:
        topic = store.image.find_topic(name)
        return {} if topic is None else topic.configs

    return Authorizer(broker.policy, configs, is_guarded=lambda: store.image.is_guarded)
