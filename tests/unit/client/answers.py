"""What scripted brokers answer: one metadata state, one log per partition, shared by all nodes."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import trio

from paceline.errors import (
    ErrorCode,
    FencedLeaderEpoch,
    NotLeader,
    OffsetOutOfRange,
    PacelineError,
    TopicAlreadyExists,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
    error_for,
)
from paceline.types import Isolation, LeaderEpoch, NodeId, OffsetSpec, TopicId
from paceline.wire.message import Message
from paceline.wire.native import admin, data
from paceline.wire.native.api import NativeApi
from paceline.wire.peer.control import Address
from paceline.wire.records import decode_records
from tests.unit.client.partition_log import PartitionLog

CLUSTER_ID = UUID(int=7)
PORT = 7400
ASKED = "as the test asked"


class Node:
    def __init__(self, node_id: int) -> None:
        self.node_id = NodeId(node_id)
        self.address = (f"node-{node_id}", PORT)
        self.is_up = True
        self.is_deaf = False  # accepts connections and never answers
        self.scopes: set[trio.CancelScope] = set()
        self.requests: list[tuple[NativeApi, Message]] = []


class Answers:
    """The state of the cluster, and the handlers that :data:`HANDLERS` names."""

    def __init__(self, nodes: int) -> None:
        self.nodes = {number: Node(number) for number in range(nodes)}
        self.topics: dict[str, list[PartitionLog]] = {}
        self.topic_ids: dict[str, TopicId] = {}
        self.next_producer_id = 1000
        self.auto_create_partitions = 0
        self.metadata_offset = 10
        self.max_in_flight = 64
        self.max_frame_bytes = 64 << 20
        self.version = 1
        self.damaged: set[int] = set()
        self.elects = True
        self.tokens: dict[str, UUID | None] = {}

    def create(self, topic: str, partitions: int = 1) -> list[PartitionLog]:
        count = len(self.nodes)
        self.metadata_offset += 1
        self.topic_ids[topic] = TopicId(UUID(int=100 + self.metadata_offset))
        logs = [PartitionLog(topic, number, number % count) for number in range(partitions)]
        self.topics[topic] = logs
        return logs

    def move(self, topic: str, partition: int, leader: int) -> None:
        """Elect ``leader`` (-1: none)."""
        log = self.topics[topic][partition]
        log.leader = NodeId(leader)
        log.epoch = LeaderEpoch(log.epoch + 1)
        log.wake()

    def find(self, topic: str, partition: int) -> PartitionLog:
        logs = self.topics.get(topic)
        if logs is None or partition >= len(logs):
            raise UnknownTopicOrPartition(f"{topic}/{partition}")
        return logs[partition]

    def _leading(self, node: Node, topic: str, partition: int, epoch: int) -> PartitionLog:
        log = self.find(topic, partition)
        if log.leader != node.node_id:
            raise NotLeader(f"{topic}/{partition}: leader is {log.leader}")
        if epoch not in (-1, log.epoch):
            kind = FencedLeaderEpoch if epoch < log.epoch else UnknownLeaderEpoch
            raise kind(f"{topic}/{partition}: epoch {epoch}, mine {log.epoch}")
        return log

    def refuse(self, request: Message, code: ErrorCode) -> tuple[Message, bytes]:
        if isinstance(request, data.Produce):
            return data.ProduceReply(
                tuple(_produce_error(each, code, ASKED) for each in request.partitions)
            ), b""
        if isinstance(request, data.Fetch):
            return data.FetchReply(
                tuple(_fetch_error(each, code, ASKED) for each in request.partitions)
            ), b""

        raise error_for(code, ASKED)

    def hello(self, node: Node, request: data.Hello, payload: memoryview) -> Message:
        return data.HelloReply(
            self.version, CLUSTER_ID, node.node_id, self.max_frame_bytes, self.max_in_flight
        )

    def metadata(self, node: Node, request: data.MetadataRequest, payload: memoryview) -> Message:
        names = sorted(self.topics) if request.topics is None else request.topics
        for name in names:
            if (
                name not in self.topics
                and request.allow_auto_create
                and self.auto_create_partitions
            ):
                self.create(name, self.auto_create_partitions)
        return data.MetadataReply(
            CLUSTER_ID,
            NodeId(0),
            self.metadata_offset,
            tuple(
                data.BrokerInfo(
                    each.node_id,
                    (
                        Address("native", *each.address),
                        Address("http", *each.address),
                    ),
                )
                for each in self.nodes.values()
            ),
            tuple(self._topic_info(name) for name in names),
        )

    def _topic_info(self, name: str) -> data.TopicInfo:
        logs = self.topics.get(name)
        if logs is None:
            return data.TopicInfo(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, ())
        nodes = tuple(NodeId(number) for number in self.nodes)
        return data.TopicInfo(
            name,
            0,
            self.topic_ids[name],
            tuple(
                data.PartitionInfo(
                    log.number,
                    ErrorCode.LEADER_NOT_AVAILABLE if log.leader < 0 else 0,
                    log.leader,
                    log.epoch,
                    nodes,
                    nodes,
                )
                for log in logs
            ),
        )

    def produce(self, node: Node, request: data.Produce, payload: memoryview) -> Message:
        results = []
        position = 0
        for each in request.partitions:
            part = payload[position : position + each.records_bytes]
            position += each.records_bytes
            try:
                log = self._leading(node, each.topic, each.partition, each.current_leader_epoch)
                base, last, duplicate = log.append(part)
            except PacelineError as error:
                results.append(_produce_error(each, error.code, str(error)))
            else:
                results.append(
                    data.ProducedPartition(
                        each.topic,
                        each.partition,
                        0,
                        "",
                        base,
                        last,
                        log.epoch,
                        log.log_end,
                        log.log_start,
                        duplicate,
                    )
                )
        return data.ProduceReply(tuple(results))

    def fetch(self, node: Node, request: data.Fetch) -> tuple[data.FetchReply, bytes]:
        results = []
        payload = b""
        for each in request.partitions:
            try:
                log = self._leading(node, each.topic, each.partition, each.current_leader_epoch)
                if not log.log_start <= each.offset <= log.log_end:
                    raise OffsetOutOfRange(
                        f"offset {each.offset} outside {log.log_start}..{log.log_end}"
                    )
            except PacelineError as error:
                results.append(_fetch_error(each, error.code, str(error)))
                continue
            room = request.max_bytes - len(payload)
            chunk, end = log.read(each.offset, min(room, each.max_bytes))
            if payload and len(chunk) > room:
                chunk, end = b"", each.offset
            payload += chunk
            results.append(
                data.FetchedPartition(
                    each.topic,
                    each.partition,
                    0,
                    "",
                    log.epoch,
                    log.log_end,
                    log.log_end,
                    log.log_start,
                    len(chunk),
                    log.aborted if request.isolation is Isolation.READ_COMMITTED else (),
                    next_offset=end,
                )
            )
        return data.FetchReply(tuple(results)), payload

    def list_offsets(self, node: Node, request: data.ListOffsets, payload: memoryview) -> Message:
        return data.ListOffsetsReply(
            tuple(self._offset_found(node, each) for each in request.partitions)
        )

    def _offset_found(self, node: Node, each: data.OffsetQuery) -> data.OffsetFound:
        code, offset, stamp_ms = 0, -1, -1
        text = ""
        epoch = LeaderEpoch(-1)
        try:
            log = self._leading(node, each.topic, each.partition, each.current_leader_epoch)
            epoch = log.epoch
            if each.spec == OffsetSpec.EARLIEST:
                offset = log.log_start
            elif not log.hw_is_known:
                code = ErrorCode.OFFSET_NOT_AVAILABLE
            elif each.spec == OffsetSpec.LATEST:
                offset = log.log_end
            else:
                for batch in log.batches:
                    for record in decode_records(batch):
                        if offset < 0 and record.timestamp_ms >= each.spec:
                            offset, stamp_ms = record.offset, record.timestamp_ms
        except PacelineError as error:
            code, text = error.code, str(error)
        return data.OffsetFound(each.topic, each.partition, code, text, offset, stamp_ms, epoch)

    def init_producer(self, node: Node, request: data.InitProducer, payload: memoryview) -> Message:
        self.next_producer_id += 1
        return data.ProducerIdentity(self.next_producer_id, 0)

    def create_topic(self, node: Node, request: admin.CreateTopic, payload: memoryview) -> Message:
        repeated = request.token is not None and self.tokens.get(request.name) == request.token
        if request.name in self.topics and not (repeated or request.if_not_exists):
            raise TopicAlreadyExists(request.name)
        existed = request.name in self.topics and not repeated
        self.tokens.setdefault(request.name, request.token)
        if request.name not in self.topics:
            self.create(request.name, max(1, request.partitions))
        return admin.TopicCreated(
            self.topic_ids[request.name],
            len(self.topics[request.name]),
            3,
            self.metadata_offset,
            1,
            existed,
        )

    def delete_topic(self, node: Node, request: admin.DeleteTopic, payload: memoryview) -> Message:
        if self.topics.pop(request.name, None) is None:
            raise UnknownTopicOrPartition(request.name)
        self.metadata_offset += 1
        return admin.Done(self.metadata_offset)

    def elect(self, node: Node, request: admin.ElectLeader, payload: memoryview) -> Message:
        self.metadata_offset += 1
        self.move(request.topic, request.partition, request.node)
        log = self.topics[request.topic][request.partition]
        return admin.RoleSet(log.leader, log.epoch, self.metadata_offset)

    def describe(self, node: Node, request: data.DescribeTopic, payload: memoryview) -> Message:
        logs = self.topics.get(request.topic)
        if logs is None:
            raise UnknownTopicOrPartition(request.topic)
        nodes = tuple(NodeId(number) for number in self.nodes)
        return data.TopicDescription(
            request.topic,
            self.topic_ids[request.topic],
            tuple(
                data.PartitionDescription(
                    log.number,
                    0 if log.leader == node.node_id else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    "",
                    log.leader,
                    log.epoch,
                    1,
                    nodes,
                    nodes,
                    log.log_start,
                    log.log_end,
                    log.log_end,
                    log.log_end,
                    sum(map(len, log.batches)),
                    1,
                    tuple(
                        data.ReplicaProgress(each, True, log.log_end, log.log_end) for each in nodes
                    ),
                )
                for log in logs
                if not request.partitions or log.number in request.partitions
            ),
            settings=_settings(node.node_id) if request.settings else (),
        )

    def status(self, node: Node, request: data.Status, payload: memoryview) -> Message:
        nodes = tuple(NodeId(number) for number in self.nodes)
        return data.StatusReply(
            node.node_id,
            CLUSTER_ID,
            "scripted",
            "running",
            (),
            "leader" if node.node_id == 0 else "follower",
            1,
            NodeId(0),
            nodes,
            self.metadata_offset,
            self.metadata_offset,
            (),
            len(self.topics),
            sum(map(len, self.topics.values())),
            0,
            0,
            0,
            0,
            0,
            False,
            1,
        )

    def examine(self, node: Node, request: data.ReportCorrupt, payload: memoryview) -> Message:
        """Damage is found where :attr:`damaged` says so; another node leads then, unless
        :attr:`elects` says that nobody is elected yet."""
        self._leading(node, request.topic, request.partition, request.current_leader_epoch)
        damaged = request.offset in self.damaged
        if damaged:
            self.damaged.remove(request.offset)
        if damaged and self.elects:
            self.move(request.topic, request.partition, (node.node_id + 1) % len(self.nodes))
        return data.CorruptExamined(damaged)

    def done(self, node: Node, request: Message, payload: memoryview) -> Message:
        return admin.Done(self.metadata_offset)


def _produce_error(
    each: data.ProducePartition, code: ErrorCode, text: str
) -> data.ProducedPartition:
    return data.ProducedPartition(
        each.topic, each.partition, code, text, -1, -1, LeaderEpoch(-1), -1, -1
    )


def _fetch_error(each: data.FetchPartition, code: ErrorCode, text: str) -> data.FetchedPartition:
    return data.FetchedPartition(
        each.topic, each.partition, code, text, LeaderEpoch(-1), -1, -1, -1, 0
    )


REQUESTS: dict[NativeApi, type[Message]] = {
    NativeApi.HELLO: data.Hello,
    NativeApi.METADATA: data.MetadataRequest,
    NativeApi.PRODUCE: data.Produce,
    NativeApi.FETCH: data.Fetch,
    NativeApi.LIST_OFFSETS: data.ListOffsets,
    NativeApi.INIT_PRODUCER: data.InitProducer,
    NativeApi.CREATE_TOPIC: admin.CreateTopic,
    NativeApi.DELETE_TOPIC: admin.DeleteTopic,
    NativeApi.ALTER_TOPIC: admin.AlterTopic,
    NativeApi.ADD_PARTITIONS: admin.AddPartitions,
    NativeApi.DESCRIBE_TOPIC: data.DescribeTopic,
    NativeApi.ELECT_LEADER: admin.ElectLeader,
    NativeApi.REPORT_CORRUPT: data.ReportCorrupt,
    NativeApi.STATUS: data.Status,
    NativeApi.STOP_CLUSTER: data.StopCluster,
    NativeApi.UNREGISTER_BROKER: admin.UnregisterBroker,
    NativeApi.FENCE_BROKER: admin.FenceBroker,
}

HANDLERS: dict[NativeApi, Callable[..., Message]] = {
    NativeApi.HELLO: Answers.hello,
    NativeApi.METADATA: Answers.metadata,
    NativeApi.PRODUCE: Answers.produce,
    NativeApi.LIST_OFFSETS: Answers.list_offsets,
    NativeApi.INIT_PRODUCER: Answers.init_producer,
    NativeApi.CREATE_TOPIC: Answers.create_topic,
    NativeApi.DELETE_TOPIC: Answers.delete_topic,
    NativeApi.ALTER_TOPIC: Answers.done,
    NativeApi.ADD_PARTITIONS: Answers.done,
    NativeApi.DESCRIBE_TOPIC: Answers.describe,
    NativeApi.ELECT_LEADER: Answers.elect,
    NativeApi.REPORT_CORRUPT: Answers.examine,
    NativeApi.STATUS: Answers.status,
    NativeApi.STOP_CLUSTER: Answers.done,
    NativeApi.UNREGISTER_BROKER: Answers.done,
    NativeApi.FENCE_BROKER: Answers.done,
}


def _settings(node: NodeId) -> tuple[data.EffectiveSetting, ...]:
    """Node 0 has a setting of its own."""
    own = ("7", "node") if node == 0 else ("8", "default")
    return (
        data.EffectiveSetting("flush.mode", "group", "topic"),
        data.EffectiveSetting("segment.ms", *own),
    )
