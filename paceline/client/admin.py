"""Administration: topics, roles, voters, status. Any node takes these and finds the controller."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

import trio

from paceline.client.acl_admin import AclAdmin
from paceline.client.fetcher import slices
from paceline.client.group_admin import GroupAdmin
from paceline.client.metadata import Metadata
from paceline.client.offsets import OffsetFinder, Wanted
from paceline.client.pool import ConnectionPool
from paceline.client.position import Position
from paceline.client.quota_admin import QuotaAdmin
from paceline.client.retry import Backoff, may_repeat, may_repeat_once_only, retrying
from paceline.client.settings import ClientSettings
from paceline.client.transaction_admin import TransactionAdmin
from paceline.client.user_admin import UserAdmin
from paceline.errors import (
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    PacelineError,
    UnknownTopicOrPartition,
    error_for,
)
from paceline.types import NO_NODE, Isolation, NodeId, TopicPartition
from paceline.values import dataclass
from paceline.wire.message import Message
from paceline.wire.native import admin
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import (
    BrokerInfo,
    DescribeTopic,
    EffectiveSetting,
    Fetch,
    FetchedPartition,
    FetchPartition,
    MetadataReply,
    MetadataRequest,
    OffsetFound,
    PartitionDescription,
    PartitionInfo,
    PartitionTrimmed,
    Status,
    StatusReply,
    StopCluster,
    TopicDescription,
    TopicInfo,
    TrimPartition,
)
from paceline.wire.native.load import LoadAsked, NodeLoad

ADMIN_WAIT_S = 10.0
"""How long a node may take to carry out an administrative request, forwarding included."""

M = TypeVar("M", bound=Message)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """``controller`` is -1 while none is known."""

    cluster_id: UUID
    controller: NodeId
    metadata_offset: int
    brokers: tuple[BrokerInfo, ...]


class Admin:
    """Reached as ``client.admin``.

    Calls are retried until the operation timeout; what must not happen twice is only retried when
    surely nothing had happened, so such a call may fail with an error of unknown outcome. A change
    is visible to this client's next look-ups when its call returns.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        metadata: Metadata,
        settings: ClientSettings,
        backoff: Backoff,
        rng: random.Random,
    ) -> None:
        self._rng = rng
        self._pool = pool
        self._metadata = metadata
        self._settings = settings
        self._backoff = backoff
        self._offsets = OffsetFinder(pool, metadata, backoff)
        self.groups = GroupAdmin(pool, metadata, settings, backoff)
        self.transactions = TransactionAdmin(pool, metadata, settings, backoff)
        self.acls = AclAdmin(self._request)
        self.users = UserAdmin(self._request)
        self.quotas = QuotaAdmin(self._request)

    # --- looking ----------------------------------------------------------------------------------

    async def refresh_brokers(self) -> None:
        """Learn the brokers' addresses. Raises ConnectionLost when no address answers in time."""
        await self._metadata.refresh([])

    async def describe_cluster(self) -> ClusterDescription:
        """Brokers and controller, as a node sees them now."""
        reply = await self._request(NativeApi.METADATA, MetadataRequest(()), MetadataReply)
        return ClusterDescription(
            reply.cluster_id, reply.controller, reply.metadata_offset, reply.brokers
        )

    async def list_topics(self) -> list[TopicInfo]:
        """All topics by name, internal ones (``__...``) too."""
        await self._metadata.refresh(None)
        return self._metadata.view.topics()

    async def topic(self, name: str) -> TopicInfo:
        """Partitions, leaders, replicas and settings of one topic, fresh.

        Raises UnknownTopicOrPartition.
        """
        await self._metadata.refresh([name])
        return await self._metadata.topic(name)

    async def describe_topic(
        self, name: str, *, settings: bool = False, timeout_s: float | None = None
    ) -> TopicDescription:
        """As :meth:`topic`, with the offsets, sizes and replica progress that only leaders know.
        ``settings``: also with all settings that hold for the topic; where those of the leaders
        differ, the source names the nodes.

        A partition that no leader answers for within ``timeout_s`` (None: the operation timeout)
        carries the error and what metadata know of it.
        """
        wait_s = self._settings.operation_timeout_s if timeout_s is None else timeout_s
        deadline = trio.current_time() + wait_s
        failures = 0
        known: dict[int, PartitionDescription] = {}
        told: dict[NodeId, tuple[EffectiveSetting, ...]] = {}
        errors: list[PacelineError] = []

        async def ask(node: NodeId, request: DescribeTopic) -> None:
            try:
                connection = await self._pool.to_node(node)
                reply = await connection.call(NativeApi.DESCRIBE_TOPIC, request, TopicDescription)
            except PacelineError as error:
                if not error.retriable:
                    errors.append(error)
                return
            known.update((each.partition, each) for each in reply.partitions)
            if reply.settings:
                told[node] = reply.settings

        while True:
            info = await self.topic(name)
            async with trio.open_nursery() as nursery:
                for node, wanted in _by_leader(info, known).items():
                    request = DescribeTopic(name, wanted, settings=settings)
                    nursery.start_soon(ask, node, request)
            for error in errors:
                raise error
            missing = [
                partition
                for partition in info.partitions
                if partition.partition not in known or known[partition.partition].error
            ]
            pause_s = self._backoff.pause_s(failures)
            leaderless = all(partition.leader == NO_NODE for partition in missing)
            if leaderless or trio.current_time() + pause_s >= deadline:
                break
            failures += 1
            await trio.sleep(pause_s)
        partitions = tuple(known.get(each.partition, _unanswered(each)) for each in info.partitions)
        assert info.topic_id is not None
        return TopicDescription(
            name, info.topic_id, partitions, info.kind, info.configs, _merged(told)
        )

    async def list_offsets(
        self,
        topic: str,
        position: Position,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[int, int]:
        """The offset that ``position`` means now in each partition of ``topic``."""
        info = await self.topic(topic)
        offsets = await self._offsets.resolve(
            {TopicPartition(topic, each.partition): position for each in info.partitions},
            isolation,
            timeout_s=self._settings.operation_timeout_s,
        )
        return {at.partition: offset for at, offset in offsets.items()}

    async def find_offsets(
        self,
        wanted: Mapping[TopicPartition, Wanted],
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetFound]:
        """As :meth:`list_offsets`, for any partitions, each by its own rule, with the leader epoch
        in which the answer was given. Raises after the operation timeout what is in the way."""
        return await self._offsets.find(
            wanted, isolation, timeout_s=self._settings.operation_timeout_s
        )

    async def describe_replicas(self, node: NodeId, topic: str) -> TopicDescription:
        """What ``node`` holds of ``topic``, also where it follows. Raises as :meth:`status`."""
        connection = await self._pool.to_node(node)
        return await connection.call(
            NativeApi.DESCRIBE_TOPIC, DescribeTopic(topic, own_replica=True), TopicDescription
        )

    async def read_replica(
        self, node: NodeId, at: TopicPartition, offset: int, max_bytes: int
    ) -> tuple[FetchedPartition, memoryview]:
        """Committed batches from ``offset`` on as they lie on ``node``'s own disk, unchecked; empty
        at the end of what it knows to be committed. Raises as :meth:`status`, and what the node
        answers, among it NotLeader where it holds no replica."""
        request = Fetch(
            0,
            0,
            max_bytes,
            Isolation.READ_UNCOMMITTED,
            (FetchPartition(at.topic, at.partition, offset, max_bytes),),
            own_replica=True,
        )
        connection = await self._pool.to_node(node)
        [(result, batches)] = slices(await connection.call_frame(NativeApi.FETCH, request), [at])
        if result.error:
            raise error_for(result.error, f"node {node}: {at}: {result.message}")
        return result, batches

    async def status(self, node: NodeId | None = None) -> StatusReply:
        """What a node says of itself and its view of the cluster; None = any node that answers.

        Not retried: an unreachable node is news, raised as ConnectionLost.
        """
        if node is None:
            return await self._request(NativeApi.STATUS, Status(), StatusReply)
        connection = await self._pool.to_node(node)
        return await connection.call(NativeApi.STATUS, Status(), StatusReply)

    async def statuses(self) -> dict[NodeId, StatusReply | PacelineError]:
        """Every registered node's status, or why it has none, asked at the same time."""
        return await self._of_each(NativeApi.STATUS, Status(), StatusReply)

    async def loads(self) -> dict[NodeId, NodeLoad | PacelineError]:
        """What every registered node has done since its process began, likewise."""
        return await self._of_each(NativeApi.LOAD, LoadAsked(), NodeLoad)

    async def _of_each(
        self, api: NativeApi, body: Message, reply: type[M]
    ) -> dict[NodeId, M | PacelineError]:
        cluster = await self.describe_cluster()
        answers: dict[NodeId, M | PacelineError] = {}

        async def ask(node: NodeId) -> None:
            try:
                connection = await self._pool.to_node(node)
                answers[node] = await connection.call(api, body, reply)
            except PacelineError as error:
                answers[node] = error

        async with trio.open_nursery() as nursery:
            for broker in cluster.brokers:
                nursery.start_soon(ask, broker.node_id)
        return dict(sorted(answers.items()))

    # --- topics -----------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        assignment: Sequence[Sequence[NodeId]] = (),
        if_not_exists: bool = False,
    ) -> admin.TopicCreated:
        """Create a topic; -1 = the cluster's default. Raises TopicAlreadyExists (not with
        ``if_not_exists`` and the same counts), InvalidTopic, InvalidPartitions,
        InvalidReplicationFactor, InvalidConfig. Repeated by itself while the outcome is unknown: a
        token tells the topic that it made from anybody else's."""
        body = admin.CreateTopic(
            name,
            partitions,
            replication_factor,
            dict(configs or {}),
            assignment=tuple(tuple(replicas) for replicas in assignment),
            if_not_exists=if_not_exists,
            token=UUID(int=self._rng.getrandbits(128), version=4),
        )
        created = await self._request(
            NativeApi.CREATE_TOPIC,
            body,
            admin.TopicCreated,
        )
        await self._catch_up(created.metadata_offset, name)
        return created

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises UnknownTopicOrPartition."""
        done = await self._request(
            NativeApi.DELETE_TOPIC,
            admin.DeleteTopic(name),
            admin.Done,
            may_retry=_unless(UnknownTopicOrPartition, may_repeat_once_only),
        )
        await self._catch_up(done.metadata_offset, name)

    async def alter_topic(self, name: str, configs: Mapping[str, str | None]) -> None:
        """Set (text) or remove (None) settings, all or nothing. Raises InvalidConfig."""
        done = await self._request(
            NativeApi.ALTER_TOPIC,
            admin.AlterTopic(name, dict(configs)),
            admin.Done,
            may_retry=_unless(UnknownTopicOrPartition, may_repeat),
        )
        await self._catch_up(done.metadata_offset, name)

    async def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to ``total`` partitions. Raises InvalidPartitions when it has as many."""
        done = await self._request(
            NativeApi.ADD_PARTITIONS,
            admin.AddPartitions(name, total),
            admin.Done,
            may_retry=_unless(UnknownTopicOrPartition, may_repeat_once_only),
        )
        await self._catch_up(done.metadata_offset, name)

    async def trim(self, at: TopicPartition, before: int | None = None) -> int:
        """Delete the records of a partition below offset ``before``, None: all that are committed.
        Returns the first offset kept, once all in-sync replicas have deleted.

        Raises OffsetOutOfRange beyond the high watermark, PolicyViolation for topics that keep
        their records by other rules, and after the operation timeout what is in the way.
        """
        body = TrimPartition(
            at.topic, at.partition, -1 if before is None else before, int(ADMIN_WAIT_S * 1000)
        )

        async def attempt() -> int:
            leader = await self._metadata.leader(at)
            try:
                connection = await self._pool.to_node(leader.node)
                trimmed = await connection.call(
                    NativeApi.TRIM_PARTITION, body, PartitionTrimmed, wait_s=ADMIN_WAIT_S
                )
            except PacelineError:
                self._metadata.view.doubt(at, leader.epoch)
                raise
            return trimmed.log_start_offset

        return await self._retrying(attempt, may_repeat)

    # --- leadership -------------------------------------------------------------------------------

    async def elect_leader(
        self,
        topic: str,
        partition: int,
        node: NodeId = NO_NODE,
        *,
        pin: bool = False,
        unclean: bool = False,
    ) -> admin.RoleSet:
        """Move leadership to ``node``, -1 = the preferred replica. ``unclean`` may lose records.

        Raises ElectionNotNeeded, EligibleLeadersNotAvailable, NotAReplica.
        """
        body = admin.ElectLeader(topic, partition, node, pin, unclean)
        done = await self._request(NativeApi.ELECT_LEADER, body, admin.RoleSet)
        await self._catch_up(done.metadata_offset, topic)
        return done

    async def set_role(self, topic: str, partition: int, node: NodeId, role: str) -> admin.RoleSet:
        """Mark ``node``'s replica ``leader``, ``follower`` or ``auto`` (controller/DESIGN 8)."""
        body = admin.SetRole(topic, partition, node, role)
        done = await self._request(NativeApi.SET_ROLE, body, admin.RoleSet)
        await self._catch_up(done.metadata_offset, topic)
        return done

    # --- replicas ---------------------------------------------------------------------------------

    async def reassign_partition(self, at: TopicPartition, replicas: Sequence[NodeId]) -> None:
        """Begin to move a partition to ``replicas``, preferred leader first; the move ends when the
        new ones are in sync (:meth:`list_reassignments`).

        Raises InvalidReplicationFactor (unknown nodes, none, or one twice), PolicyViolation (a node
        would hold more partitions than it may).
        """
        if not replicas:
            raise InvalidReplicationFactor(f"{at}: no replicas are named")
        await self._reassign(at, tuple(replicas))

    async def cancel_reassignment(self, at: TopicPartition) -> None:
        """Give up a move under way: the replicas from before stay. Raises NoReassignmentInProgress,
        and InvalidRequest where too few of those are in sync."""
        await self._reassign(at, ())

    async def _reassign(self, at: TopicPartition, replicas: tuple[NodeId, ...]) -> None:
        body = admin.ReassignPartition(at.topic, at.partition, replicas)
        rule = _unless(NoReassignmentInProgress, _unless(UnknownTopicOrPartition, may_repeat))
        done = await self._request(NativeApi.REASSIGN_PARTITION, body, admin.Done, may_retry=rule)
        await self._catch_up(done.metadata_offset, at.topic)

    async def list_reassignments(
        self, topics: Sequence[str] | None = None
    ) -> tuple[admin.Reassignment, ...]:
        """The moves under way, of all topics or of these, as a node knows of them."""
        body = admin.ListReassignments(None if topics is None else tuple(topics))
        reply = await self._request(NativeApi.LIST_REASSIGNMENTS, body, admin.ReassignmentsListed)
        return reply.partitions

    # --- nodes ------------------------------------------------------------------------------------

    async def fence_broker(self, node: NodeId, *, fenced: bool = True) -> None:
        """Keep a broker from leading, or allow it again."""
        await self._request(NativeApi.FENCE_BROKER, admin.FenceBroker(node, fenced), admin.Done)

    async def register_external(self, node: NodeId, host: str, port: int, epoch: int) -> None:
        """Register an id that no Paceline node hosts (V1 ADMIN_REGISTER_BROKER)."""
        body = admin.RegisterExternal(node, host, port, epoch)
        await self._request(NativeApi.REGISTER_EXTERNAL, body, admin.Done)

    async def unregister_broker(self, node: NodeId) -> None:
        """Forget a broker that will not come back, also as a member of the metadata quorum. Raises
        BrokerNotRegistered, and InvalidRequest while it is alive."""
        await self._request(NativeApi.UNREGISTER_BROKER, admin.UnregisterBroker(node), admin.Done)

    async def add_voter(self, node: NodeId, directory_id: UUID | None = None) -> None:
        """Make a node a voter of the metadata quorum. Raises InvalidRequest with the reason."""
        await self._request(NativeApi.ADD_VOTER, admin.AddVoter(node, directory_id), admin.Done)

    async def remove_voter(self, node: NodeId, directory_id: UUID | None = None) -> None:
        """Let a node listen to the metadata quorum only. Raises InvalidRequest with the reason."""
        body = admin.RemoveVoter(node, directory_id)
        await self._request(NativeApi.REMOVE_VOTER, body, admin.Done)

    async def stop_cluster(self) -> dict[NodeId, PacelineError | None]:
        """Tell every registered node that the whole cluster stops; who could not be told."""
        cluster = await self.describe_cluster()
        answers: dict[NodeId, PacelineError | None] = {}

        async def tell(node: NodeId) -> None:
            try:
                connection = await self._pool.to_node(node)
                await connection.call(NativeApi.STOP_CLUSTER, StopCluster(), admin.Done)
            except PacelineError as error:
                answers[node] = error
            else:
                answers[node] = None

        async with trio.open_nursery() as nursery:
            for broker in cluster.brokers:
                nursery.start_soon(tell, broker.node_id)
        return dict(sorted(answers.items()))

    # --- inside -----------------------------------------------------------------------------------

    async def _request(
        self,
        api: NativeApi,
        body: Message,
        reply: type[M],
        *,
        may_retry: Callable[[PacelineError], bool] = may_repeat,
    ) -> M:
        async def attempt() -> M:
            connection = await self._pool.to_any()
            return await connection.call(api, body, reply, wait_s=ADMIN_WAIT_S)

        return await self._retrying(attempt, may_retry)

    async def _retrying(
        self, attempt: Callable[[], Awaitable[T]], may_retry: Callable[[PacelineError], bool]
    ) -> T:
        return await retrying(
            attempt,
            timeout_s=self._settings.operation_timeout_s,
            backoff=self._backoff,
            may_retry=may_retry,
        )

    async def _catch_up(self, metadata_offset: int, topic: str) -> None:
        """Have metadata that include the change this client has just made."""
        self._metadata.expect(metadata_offset)
        await self._metadata.refresh([topic])


def _unless(
    kind: type[PacelineError], rule: Callable[[PacelineError], bool]
) -> Callable[[PacelineError], bool]:
    return lambda error: not isinstance(error, kind) and rule(error)


def _by_leader(
    info: TopicInfo, known: Mapping[int, PartitionDescription]
) -> dict[NodeId, tuple[int, ...]]:
    wanted: dict[NodeId, tuple[int, ...]] = {}
    for each in info.partitions:
        answered = known.get(each.partition)
        if each.leader != NO_NODE and (answered is None or answered.error):
            wanted[each.leader] = (*wanted.get(each.leader, ()), each.partition)
    return wanted


def _merged(
    told: Mapping[NodeId, tuple[EffectiveSetting, ...]],
) -> tuple[EffectiveSetting, ...]:
    """What all leaders say, and of the rest who says it."""
    by_nodes: dict[EffectiveSetting, list[NodeId]] = {}
    for node, settings in sorted(told.items()):
        for each in settings:
            by_nodes.setdefault(each, []).append(node)
    found = [
        each
        if len(nodes) == len(told)
        else EffectiveSetting(each.name, each.value, f"{each.source} {', '.join(map(str, nodes))}")
        for each, nodes in by_nodes.items()
    ]
    return tuple(sorted(found, key=lambda each: each.name))


def _unanswered(info: PartitionInfo) -> PartitionDescription:
    text = str(error_for(info.error, "no leader")) if info.error else "the leader did not answer"
    return PartitionDescription(
        partition=info.partition,
        error=info.error,
        message=text,
        leader=info.leader,
        leader_epoch=info.leader_epoch,
        partition_epoch=-1,
        replicas=info.replicas,
        isr=info.isr,
        log_start_offset=-1,
        high_watermark=-1,
        last_stable_offset=-1,
        log_end_offset=-1,
        size_bytes=-1,
        segment_count=-1,
        progress=(),
    )
