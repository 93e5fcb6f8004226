"""Native requests that may wait: metadata, producer ids, administration, descriptions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from paceline.errors import (
    AuthorizationFailed,
    ErrorCode,
    InvalidTopic,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from paceline.types import NodeId, is_internal_topic
from paceline.wire.frame import Frame
from paceline.wire.message import Message, Packed
from paceline.wire.native import admin, data
from paceline.wire.native import users as users_wire
from paceline.wire.native.api import NativeApi
from paceline.wire.native.exchanges import ADMINISTRATION
from paceline.wire.native.load import LoadAsked
from paceline_node.env import RunBlocking
from paceline_node.loop_turns import Turns
from paceline_node.request_pace import Pace
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.admin.node_loads import LoadViews
from paceline_node.services.admin.node_status import StatusService, broker_info
from paceline_node.services.admin.partition_descriptions import DescriptionService
from paceline_node.services.admin.topic_deletion import TopicDeletion
from paceline_node.services.admin.user_service import UserService
from paceline_node.services.records.corruption_reports import CorruptionReports
from paceline_node.services.records.trim import TrimService
from paceline_node.services.topics.cluster_view import PartitionView, TopicView
from paceline_node.services.topics.reassignments import under_way
from paceline_node.services.topics.topic_service import TopicService
from paceline_node.services.transactions.producer_ids import ProducerIdService
from paceline_node.services.transactions.transaction_service import TransactionService
from paceline_node.sliced_work import Work
from paceline_node.transaction_names import Family, ProducerIdentity, TransactionKey

MAX_METADATA_WAIT_S = 30.0
_MAX_TRIM_S = 60.0
_PRODUCER_EPOCH = 0

_PARTITIONS_PER_UNIT = 8
_INLINE_ITEMS = 500

Handler = Callable[[Frame, Principal], Awaitable[Message | Packed]]


class NativeRequests:
    """Handlers by api number, in :meth:`handlers`."""

    def __init__(
        self,
        topics: TopicService,
        removal: TopicDeletion,
        descriptions: DescriptionService,
        producer_ids: ProducerIdService,
        transactions: TransactionService,
        status: StatusService,
        loads: LoadViews,
        reports: CorruptionReports,
        trimming: TrimService,
        users: UserService,
        turns: Turns,
        run_blocking: RunBlocking,
    ) -> None:
        self._topics = topics
        self._removal = removal
        self._descriptions = descriptions
        self._producer_ids = producer_ids
        self._transactions = transactions
        self._status = status
        self._loads = loads
        self._reports = reports
        self._trimming = trimming
        self._users = users
        self._turns = turns
        self._run_blocking = run_blocking

    def handlers(self) -> dict[int, Handler]:
        """What the native listener serves besides PRODUCE, FETCH, LIST_OFFSETS and METADATA."""
        found: dict[int, Handler] = {
            NativeApi.INIT_PRODUCER: self._init_producer,
            NativeApi.REPORT_CORRUPT: self._examine,
            NativeApi.TRIM_PARTITION: self._trim,
            NativeApi.DESCRIBE_TOPIC: self._describe,
            NativeApi.STATUS: self._report,
            NativeApi.LOAD: self._load,
            NativeApi.LIST_USERS: self._list_users,
            NativeApi.LIST_REASSIGNMENTS: self._list_reassignments,
            NativeApi.STOP_CLUSTER: self._stop_cluster,
        }
        for exchange in ADMINISTRATION:
            found[exchange.api] = self._administer(exchange.request, exchange.response)
        return found

    # --- metadata ---------------------------------------------------------------------------------

    async def metadata(self, frame: Frame, principal: Principal, pace: Pace) -> Message | Packed:
        """All topics, or those named, created where that is wanted; each once, however often it is
        named: an answer may be thousands of times as long as the name."""
        request = data.MetadataRequest.unpack(frame.body)
        if request.min_metadata_offset >= 0:
            wait_s = max(0.0, min(request.timeout_ms / 1000, MAX_METADATA_WAIT_S))
            await self._topics.wait_offset(request.min_metadata_offset, timeout_s=wait_s)
        if request.topics is None:
            await self._turns.next()  # never little, and the turn before may be long ago
            topics = [
                await pace.run(self._info(topic, principal))
                async for topic in pace.each(list(self._topics.image.topics.values()))
                if self._topics.may_see(principal, topic)
            ]
        else:
            create = request.allow_auto_create
            topics = [
                await self._topic(name, principal, pace, create=create)
                async for name in pace.each(dict.fromkeys(request.topics))
            ]
        image = self._topics.image
        reply = data.MetadataReply(
            image.cluster_id,
            self._status.controller,
            image.offset,
            tuple(broker_info(broker) for _, broker in sorted(image.brokers.items())),
            tuple(topics),
        )
        return await self._packed(reply, sum(1 + len(topic.partitions) for topic in topics))

    async def _packed(self, reply: Message, items: int) -> Message | Packed:
        """A reply of many items is packed in a thread."""
        if items <= _INLINE_ITEMS:
            return reply
        return Packed(await self._run_blocking(reply.pack))

    async def _topic(
        self, name: str, principal: Principal, pace: Pace, *, create: bool
    ) -> data.TopicInfo:
        try:
            topic = self._topics.look_up(principal, Operation.DESCRIBE, name)
            if topic is None and create:
                topic = await self._topics.ensure(principal, name, timeout_s=MAX_METADATA_WAIT_S)
            elif topic is None:
                raise UnknownTopicOrPartition(name)
        except (UnknownTopicOrPartition, PolicyViolation):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return data.TopicInfo(name, code, None, ())
        except (AuthorizationFailed, InvalidTopic) as error:
            return data.TopicInfo(name, error.code, None, ())
        return await pace.run(self._info(topic, principal))

    def _info(self, topic: TopicView, principal: Principal) -> Work[data.TopicInfo]:
        configs = self._topics.configs(principal, topic)
        return _topic_info(topic, configs, self._topics.leader)

    # --- partitions -------------------------------------------------------------------------------

    async def _examine(self, frame: Frame, principal: Principal) -> Message:
        claim = data.ReportCorrupt.unpack(frame.body)
        return data.CorruptExamined(await self._reports.examine(principal, claim))

    async def _trim(self, frame: Frame, principal: Principal) -> Message:
        request = data.TrimPartition.unpack(frame.body)
        timeout_s = max(0.0, min(request.timeout_ms / 1000, _MAX_TRIM_S))
        start = await self._trimming.trim(
            principal, request.topic, request.partition, request.offset, timeout_s=timeout_s
        )
        return data.PartitionTrimmed(start)

    # --- producers --------------------------------------------------------------------------------

    async def _init_producer(self, frame: Frame, principal: Principal) -> Message:
        request = data.InitProducer.unpack(frame.body)
        if request.transactional_id is not None:
            key = TransactionKey(Family.KAFKA, request.transactional_id)
            timeout_ms, expected = request.transaction_timeout_ms, None
            if request.expected_id >= 0:
                expected = ProducerIdentity(request.expected_id, request.expected_epoch)
            found = await self._transactions.init(principal, key, timeout_ms, expected=expected)
            return data.ProducerIdentity(*found.identity)
        return data.ProducerIdentity(await self._producer_ids.next_id(principal), _PRODUCER_EPOCH)

    # --- administration ---------------------------------------------------------------------------

    def _administer(self, request: type[Message], response: type[Message]) -> Handler:
        async def handle(frame: Frame, principal: Principal) -> Message:
            wish = request.unpack(frame.body)
            _refuse_internal(wish)
            if isinstance(wish, admin.DeleteTopic):
                return await self._removal.delete(principal, wish.name)
            if isinstance(wish, users_wire.AlterUser | users_wire.DeleteUser):
                return await self._users.change(principal, wish)
            return await self._topics.administer(principal, wish, response)

        return handle

    async def _stop_cluster(self, frame: Frame, principal: Principal) -> Message:
        data.StopCluster.unpack(frame.body)
        self._status.stop_with_cluster(principal)
        return admin.Done(self._topics.image.offset)

    async def _report(self, frame: Frame, principal: Principal) -> Message:
        data.Status.unpack(frame.body)
        return self._status.report(principal)

    async def _load(self, frame: Frame, principal: Principal) -> Message:
        LoadAsked.unpack(frame.body)
        return self._loads.here(principal)

    async def _list_users(self, frame: Frame, principal: Principal) -> Message:
        request = users_wire.ListUsers.unpack(frame.body)
        return users_wire.UsersListed(tuple(self._users.describe(principal, request.names)))

    async def _list_reassignments(self, frame: Frame, principal: Principal) -> Message | Packed:
        request = admin.ListReassignments.unpack(frame.body)
        image = self._topics.overview(principal)
        if request.topics is None:
            topics = list(image.topics.values())
        else:
            found = map(image.find_topic, dict.fromkeys(request.topics))
            topics = [topic for topic in found if topic is not None]
        moves = await self._turns.run(under_way(topics))
        return await self._packed(admin.ReassignmentsListed(image.offset, tuple(moves)), len(moves))

    # --- descriptions -----------------------------------------------------------------------------

    async def _describe(self, frame: Frame, principal: Principal) -> Message | Packed:
        request = data.DescribeTopic.unpack(frame.body)
        reply = await self._descriptions.describe(principal, request)
        return await self._packed(reply, len(reply.partitions))


def _refuse_internal(wish: Message) -> None:
    """Clients neither make nor change the broker's own topics (services/DESIGN 1.4)."""
    if isinstance(wish, admin.CreateTopic) and (wish.internal or is_internal_topic(wish.name)):
        raise PolicyViolation(f"{wish.name}: names that begin with __ are the broker's own")
    if isinstance(wish, admin.DeleteTopic | admin.AddPartitions) and is_internal_topic(wish.name):
        raise PolicyViolation(f"{wish.name}: internal topics cannot be changed")


def _topic_info(
    topic: TopicView,
    configs: Mapping[str, str] | None,
    leader_of: Callable[[PartitionView], NodeId],
) -> Work[data.TopicInfo]:
    partitions = []
    for index, (number, partition) in enumerate(sorted(topic.partitions.items())):
        if index % _PARTITIONS_PER_UNIT == 0:
            yield 1
        leader = leader_of(partition)
        partitions.append(
            data.PartitionInfo(
                number,
                ErrorCode.LEADER_NOT_AVAILABLE if leader < 0 else ErrorCode.NONE,
                leader,
                partition.leader_epoch,
                partition.replicas,
                partition.isr,
            )
        )
    return data.TopicInfo(
        topic.name,
        ErrorCode.NONE,
        topic.topic_id,
        tuple(partitions),
        topic.kind,
        None if configs is None else dict(configs),
    )
