"""A cluster of scripted brokers: real protocol peers over in-memory streams, with a real log each.

Requests are decoded by the same codec as everywhere, batches are validated and kept as bytes,
idempotent producers are recognised by the rules of spec replication 4.4. All nodes see one metadata
state and one log per partition, as if replication were instantaneous; what a test wants to go wrong
it asks for: nodes that die, leaders that move, connections cut before or after a request took
effect, delays, error codes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

import trio
import trio.testing
import trio_websocket

from paceline.client import Endpoint
from paceline.errors import (
    DuplicateSequence,
    ErrorCode,
    FencedLeaderEpoch,
    InvalidProducerEpoch,
    NotLeader,
    OffsetOutOfRange,
    OutOfOrderSequence,
    PacelineError,
    TopicAlreadyExists,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
    error_for,
)
from paceline.types import Isolation, LeaderEpoch, NodeId, OffsetSpec, TopicId
from paceline.wire.batch import BatchHeader, iter_batches, stamp, validate_client_batches
from paceline.wire.frame import Frame, FrameReader, Kind, encode_error, encode_head
from paceline.wire.message import Message
from paceline.wire.native import admin, data
from paceline.wire.native.api import NativeApi
from paceline.wire.peer.control import Address
from paceline.wire.records import decode_records

CLUSTER_ID = UUID(int=7)
PORT = 7400
ASKED = "as the test asked"


@dataclass
class ProducerState:
    epoch: int
    recent: list[tuple[int, int, int]] = field(default_factory=list)  # first seq, last seq, offset

    @property
    def last_sequence(self) -> int:
        return self.recent[-1][1]


class PartitionLog:
    """One partition: leader, epoch, batches."""

    def __init__(self, topic: str, number: int, leader: int) -> None:
        self.topic = topic
        self.number = number
        self.leader = NodeId(leader)
        self.epoch = LeaderEpoch(0)
        self.batches: list[bytearray] = []
        self.log_start = 0
        self.log_end = 0
        self.hw_is_known = True
        self.producers: dict[int, ProducerState] = {}
        self.aborted: tuple[data.AbortedTransaction, ...] = ()
        self.grown = trio.Event()

    def append(self, payload: memoryview) -> tuple[int, int, bool]:
        """Returns base offset, last offset, duplicate."""
        base, last, duplicate = -1, -1, False
        headers = validate_client_batches(payload)
        position = 0
        for header in headers:
            found = self._check_producer(header)
            if found is not None:
                base, last, duplicate = found, found + header.record_count - 1, True
            else:
                first = self._append_one(payload[position : position + header.size_bytes], header)
                base = first if base < 0 else base
                last = self.log_end - 1
            position += header.size_bytes
        return base, last, duplicate

    def _append_one(self, raw: memoryview, header: BatchHeader) -> int:
        batch = bytearray(raw)
        base = self.log_end
        stamp(batch, 0, base, self.epoch)
        self.batches.append(batch)
        self.log_end += header.record_count
        if header.has_producer:
            state = self.producers.get(header.producer_id)
            if state is None or state.epoch != header.producer_epoch:
                state = self.producers[header.producer_id] = ProducerState(header.producer_epoch)
            state.recent.append((header.base_sequence, header.last_sequence, base))
            del state.recent[:-5]
        self.wake()
        return base

    def append_raw(self, batch: bytearray) -> None:
        """A batch that no client sent (control batches)."""
        (_, header), *_ = iter_batches(batch)
        stamp(batch, 0, self.log_end, self.epoch)
        self.batches.append(batch)
        self.log_end += header.last_offset_delta + 1
        self.wake()

    def wake(self) -> None:
        grown, self.grown = self.grown, trio.Event()
        grown.set()

    def _check_producer(self, header: BatchHeader) -> int | None:
        if not header.has_producer:
            return None
        state = self.producers.get(header.producer_id)
        if state is None:
            return None
        if header.producer_epoch < state.epoch:
            raise InvalidProducerEpoch(f"epoch {header.producer_epoch}, known {state.epoch}")
        if header.producer_epoch > state.epoch:
            if header.base_sequence != 0:
                raise OutOfOrderSequence(f"new epoch begins with {header.base_sequence}")
            return None
        for first, last, offset in state.recent:
            if (first, last) == (header.base_sequence, header.last_sequence):
                return offset
        expected = (state.last_sequence + 1) & 0x7FFFFFFF
        if header.base_sequence == expected:
            return None
        if header.base_sequence <= state.last_sequence:
            raise DuplicateSequence(f"sequence {header.base_sequence} was seen")
        raise OutOfOrderSequence(f"sequence {header.base_sequence}, expected {expected}")

    def read(self, offset: int, max_bytes: int) -> tuple[bytes, int]:
        chunks = []
        size = 0
        end = offset
        for batch in self.batches:
            (_, header), *_ = iter_batches(batch)
            if header.next_offset <= offset:
                continue
            if chunks and size + len(batch) > max_bytes:
                break
            chunks.append(bytes(batch))
            size += len(batch)
            end = header.next_offset
        return b"".join(chunks), end

    def values(self) -> list[bytes | None]:
        return [record.value for batch in self.batches for record in decode_records(batch)]


Apply = Callable[["Node", Frame], Awaitable[None]]


@dataclass
class Fault:
    """What to do with the next ``count`` requests of ``api``: see :meth:`Cluster.fault`."""

    api: NativeApi
    count: int
    error: ErrorCode | None
    cut_before: bool
    cut_after: bool
    delay_s: float
    silent: bool
    node: int | None
    skip: int
    corrupt: bool
    hits: int = 0


class Node:
    def __init__(self, node_id: int) -> None:
        self.node_id = NodeId(node_id)
        self.address = (f"node-{node_id}", PORT)
        self.is_up = True
        self.is_deaf = False  # accepts connections and never answers
        self.scopes: set[trio.CancelScope] = set()
        self.requests: list[tuple[NativeApi, Message]] = []


class WebSocketBytes(trio.abc.Stream):
    """A WebSocket as a byte stream: one message a frame each way."""

    def __init__(self, socket: trio_websocket.WebSocketConnection, stream: trio.abc.Stream) -> None:
        self._socket = socket
        self._stream = stream

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._socket.send_message(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        try:
            message = await self._socket.get_message()
        except trio_websocket.ConnectionClosed:
            return b""
        assert isinstance(message, bytes)
        return message

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)


class Cut(Exception):
    """Close the connection."""


class Cluster:
    """Use as a factory of :attr:`dial`; ``nursery`` holds the connections' server sides."""

    def __init__(self, nursery: trio.Nursery, nodes: int = 3) -> None:
        self.nursery = nursery
        self.nodes = {number: Node(number) for number in range(nodes)}
        self.topics: dict[str, list[PartitionLog]] = {}
        self.topic_ids: dict[str, TopicId] = {}
        self.faults: list[Fault] = []
        self.next_producer_id = 1000
        self.auto_create_partitions = 0
        self.metadata_offset = 10
        self.max_in_flight = 64
        self.max_frame_bytes = 64 << 20
        self.version = 1
        self.dials: list[int] = []

    # --- what tests do ----------------------------------------------------------------------------

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

    def kill(self, node: int) -> None:
        """Refuse and cut all connections of a node; its leaderships stay where they are."""
        self.nodes[node].is_up = False
        for scope in list(self.nodes[node].scopes):
            scope.cancel()

    def start(self, node: int) -> None:
        self.nodes[node].is_up = True

    def fault(
        self,
        api: NativeApi,
        *,
        count: int = 1,
        error: ErrorCode | None = None,
        cut_before: bool = False,
        cut_after: bool = False,
        delay_s: float = 0.0,
        silent: bool = False,
        node: int | None = None,
        skip: int = 0,
        corrupt: bool = False,
    ) -> Fault:
        """Spoil the next ``count`` requests after ``skip``: answer ``error`` without effect, cut
        the connection before or after the effect, delay the answer, never answer, or damage the
        answer's payload."""
        fault = Fault(
            api, count, error, cut_before, cut_after, delay_s, silent, node, skip, corrupt
        )
        self.faults.append(fault)
        return fault

    def endpoint(self, node: int = 0) -> Endpoint:
        return Endpoint(f"node-{node}", PORT)

    def bootstrap(self) -> list[Endpoint]:
        return [self.endpoint(node) for node in self.nodes]

    def requests(self, kind: type[Message]) -> list[Any]:
        return [
            message
            for node in self.nodes.values()
            for _, message in node.requests
            if isinstance(message, kind)
        ]

    # --- the network ------------------------------------------------------------------------------

    async def dial(self, endpoint: Endpoint) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        number = int(endpoint.host.removeprefix("node-"))
        node = self.nodes[number]
        if not node.is_up:
            raise ConnectionRefusedError(f"{endpoint} refused")
        self.dials.append(number)
        ours, theirs = trio.testing.memory_stream_pair()
        if endpoint.path is None:
            self.nursery.start_soon(self._serve, node, theirs)
        else:
            self.nursery.start_soon(self._serve_websocket, node, theirs)
        return ours

    async def listen(self, node: int) -> None:
        """Serve a node on a real loopback port; it is advertised from then on."""
        listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
        port = listener.socket.getsockname()[1]
        self.nodes[node].address = ("127.0.0.1", port)
        handler = partial(self._serve, self.nodes[node])
        self.nursery.start_soon(trio.serve_listeners, handler, [listener])

    async def _serve_websocket(self, node: Node, stream: trio.abc.Stream) -> None:
        async with trio.open_nursery() as nursery:
            request = await trio_websocket.wrap_server_stream(nursery, stream)  # type: ignore[arg-type]
            socket = await request.accept()
            await self._serve(node, WebSocketBytes(socket, stream))
            nursery.cancel_scope.cancel()

    async def _serve(self, node: Node, stream: trio.abc.Stream) -> None:
        reader = FrameReader()
        with trio.CancelScope() as scope:
            node.scopes.add(scope)
            try:
                async with trio.open_nursery() as nursery:
                    lock = trio.Lock()
                    while not node.is_deaf:
                        chunk = await stream.receive_some(65536)
                        if not chunk:
                            break
                        reader.feed(chunk)
                        while (frame := reader.next_frame()) is not None:
                            await self._take(node, frame, stream, nursery, lock)
                    if node.is_deaf:
                        await trio.sleep_forever()
                    nursery.cancel_scope.cancel()
            except* (Cut, trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            finally:
                node.scopes.discard(scope)
                await trio.aclose_forcefully(stream)
        await trio.aclose_forcefully(stream)

    def _fault_for(self, node: Node, api: int) -> Fault | None:
        for fault in self.faults:
            if fault.api != api or fault.count == 0 or fault.node not in (None, node.node_id):
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            fault.count -= 1
            fault.hits += 1
            return fault
        return None

    async def _take(
        self,
        node: Node,
        frame: Frame,
        stream: trio.abc.Stream,
        nursery: trio.Nursery,
        lock: trio.Lock,
    ) -> None:
        """The effect of a request happens here, in order of arrival; its answer may come later."""
        api = NativeApi(frame.api)
        fault = self._fault_for(node, api)
        if fault is not None and fault.cut_before:
            raise Cut
        request = REQUESTS[api].unpack(frame.body)
        node.requests.append((api, request))
        try:
            if fault is not None and fault.error is not None:
                reply, payload = self._refuse(request, fault.error)
            elif isinstance(request, data.Fetch):
                nursery.start_soon(self._long_poll, node, frame, request, stream, lock, fault)
                return
            else:
                reply, payload = HANDLERS[api](self, node, request, frame.payload), b""
        except PacelineError as error:
            answer = encode_error(frame.api, frame.correlation, error)
        else:
            head = encode_head(
                Kind.RESPONSE, frame.api, frame.correlation, reply.pack(), len(payload)
            )
            answer = head + payload
        if fault is not None and fault.cut_after:
            raise Cut
        if fault is not None and fault.silent:
            return
        nursery.start_soon(self._answer, stream, lock, answer, fault.delay_s if fault else 0.0)

    async def _answer(
        self, stream: trio.abc.Stream, lock: trio.Lock, answer: bytes, delay_s: float
    ) -> None:
        if delay_s:
            await trio.sleep(delay_s)
        async with lock:
            await stream.send_all(answer)

    async def _long_poll(
        self,
        node: Node,
        frame: Frame,
        request: data.Fetch,
        stream: trio.abc.Stream,
        lock: trio.Lock,
        fault: Fault | None,
    ) -> None:
        deadline = trio.current_time() + request.max_wait_ms / 1000
        while True:
            reply, payload = self._fetch(node, request)
            if payload or trio.current_time() >= deadline or any(r.error for r in reply.partitions):
                break
            logs = [self._find(each.topic, each.partition) for each in request.partitions]
            with trio.move_on_at(deadline):
                async with trio.open_nursery() as nursery:
                    for log in logs:
                        nursery.start_soon(_first_of, log, nursery)
        if fault is not None and fault.corrupt and payload:
            payload = payload[:-2] + bytes([payload[-2] ^ 1]) + payload[-1:]
        head = encode_head(Kind.RESPONSE, frame.api, frame.correlation, reply.pack(), len(payload))
        await self._answer(stream, lock, head + payload, fault.delay_s if fault else 0.0)

    # --- requests ---------------------------------------------------------------------------------

    def _find(self, topic: str, partition: int) -> PartitionLog:
        logs = self.topics.get(topic)
        if logs is None or partition >= len(logs):
            raise UnknownTopicOrPartition(f"{topic}/{partition}")
        return logs[partition]

    def _leading(self, node: Node, topic: str, partition: int, epoch: int) -> PartitionLog:
        log = self._find(topic, partition)
        if log.leader != node.node_id:
            raise NotLeader(f"{topic}/{partition}: leader is {log.leader}")
        if epoch not in (-1, log.epoch):
            kind = FencedLeaderEpoch if epoch < log.epoch else UnknownLeaderEpoch
            raise kind(f"{topic}/{partition}: epoch {epoch}, mine {log.epoch}")
        return log

    def _refuse(self, request: Message, code: ErrorCode) -> tuple[Message, bytes]:
        if isinstance(request, data.Produce):
            return data.ProduceReply(
                tuple(
                    _produce_error(each, code, "as the test asked") for each in request.partitions
                )
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

    def _fetch(self, node: Node, request: data.Fetch) -> tuple[data.FetchReply, bytes]:
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
        if request.name in self.topics and not request.if_not_exists:
            raise TopicAlreadyExists(request.name)
        existed = request.name in self.topics
        if not existed:
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


async def _first_of(log: PartitionLog, nursery: trio.Nursery) -> None:
    await log.grown.wait()
    nursery.cancel_scope.cancel()


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
    NativeApi.STATUS: data.Status,
    NativeApi.STOP_CLUSTER: data.StopCluster,
    NativeApi.UNREGISTER_BROKER: admin.UnregisterBroker,
    NativeApi.FENCE_BROKER: admin.FenceBroker,
}

HANDLERS: dict[NativeApi, Callable[..., Message]] = {
    NativeApi.HELLO: Cluster.hello,
    NativeApi.METADATA: Cluster.metadata,
    NativeApi.PRODUCE: Cluster.produce,
    NativeApi.LIST_OFFSETS: Cluster.list_offsets,
    NativeApi.INIT_PRODUCER: Cluster.init_producer,
    NativeApi.CREATE_TOPIC: Cluster.create_topic,
    NativeApi.DELETE_TOPIC: Cluster.delete_topic,
    NativeApi.ALTER_TOPIC: Cluster.done,
    NativeApi.ADD_PARTITIONS: Cluster.done,
    NativeApi.DESCRIBE_TOPIC: Cluster.describe,
    NativeApi.ELECT_LEADER: Cluster.elect,
    NativeApi.STATUS: Cluster.status,
    NativeApi.STOP_CLUSTER: Cluster.done,
    NativeApi.UNREGISTER_BROKER: Cluster.done,
    NativeApi.FENCE_BROKER: Cluster.done,
}
