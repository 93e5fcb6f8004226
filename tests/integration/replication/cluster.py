"""Several replica managers in one process: real sockets and disks, one metadata authority.

The authority is the controller's own pure decision function over one image, applied to every
node's store at once (or later, where a test holds a node's metadata back).
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import trio

from paceline.errors import ConnectionLost, PacelineError
from paceline.types import Acks, BrokerEpoch, NodeId
from paceline.wire.batch import build_batch, validate_client_batches
from paceline.wire.message import Message
from paceline.wire.native import admin
from paceline.wire.peer import control
from paceline.wire.records import Record
from paceline_node.controller import request_handlers
from paceline_node.controller.context import Context, ControllerSettings, Position
from paceline_node.controller.image import Image
from paceline_node.controller.liveness import Sessions
from paceline_node.controller.metadata_records import PartitionRegistration, encode_record
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import Disk, Env, RealHost
from paceline_node.net.network import RealNetwork
from paceline_node.observe.metrics import Metrics
from paceline_node.peers.auth import Identity, Secret
from paceline_node.peers.links import PeerLinks
from paceline_node.peers.server import PeerServer
from paceline_node.replication.fetcher import FetchSettings
from paceline_node.replication.hosted_partitions import refs
from paceline_node.replication.log_directory import OpenedLogs
from paceline_node.replication.maintenance import MaintenanceSettings
from paceline_node.replication.manager import (
    ReplicaManager,
    ReplicationIdentity,
    ReplicationSettings,
)
from paceline_node.replication.partition import Partition, ProduceResult
from paceline_node.settings.flush_mode import FlushMode
from paceline_node.storage import layout
from paceline_node.storage.disk import RealDisk

CLUSTER = UUID(int=99)
SECRET = Secret(bytes(range(32)))
LOOPBACK = "127.0.0.1"
HANG_S = 60.0
"""Nothing here takes this long; it bounds a hang."""
M = TypeVar("M", bound=Message)

SETTINGS = ReplicationSettings(
    lag_max_s=1.0,
    fetch=FetchSettings(max_wait_s=0.1, backoff_min_s=0.02, backoff_max_s=0.2),
    maintenance=MaintenanceSettings(checkpoint_s=0.5, min_free_bytes=0),
)


@dataclass
class Authority:
    """One image, changed by the controller's decisions."""

    image: Image = field(default_factory=lambda: Image.bootstrap(CLUSTER))
    stores: dict[NodeId, MetadataStore] = field(default_factory=dict)
    sessions: Sessions = field(default_factory=lambda: Sessions(1e9))
    log: list[tuple[int, list[bytes]]] = field(default_factory=list)

    def decide(self, sender: NodeId | None, request: Message) -> Message:
        rng = random.Random(self.image.offset)
        context = Context(
            self.image,
            0.0,
            0,
            ControllerSettings(internal_topics=()),
            self.sessions,
            lambda: UUID(int=rng.getrandbits(128), version=4),
        )
        outcome = request_handlers.handle(sender, request, context)
        index = self.image.offset
        if outcome.records:
            index += 1
            self.image = self.image.apply(index, outcome.records)
            self.log.append((index, [encode_record(record) for record in outcome.records]))
            for store in self.stores.values():
                self._feed(store)
        return outcome.reply(Position(index, 1))

    def attach(self, node: NodeId, store: MetadataStore) -> None:
        self.stores[node] = store
        store.install(Image.bootstrap(CLUSTER).to_snapshot(), 1)
        self._feed(store)

    def _feed(self, store: MetadataStore) -> None:
        for index, records in self.log:
            if index > store.image.offset:
                store.apply(index, 1, records)


class DirectController:
    """``ControllerCalls`` of one node, to the authority in this process."""

    def __init__(self, authority: Authority, node: NodeId) -> None:
        self._authority = authority
        self._node = node
        self.cut = False

    async def call(self, request: Message, response: type[M], *, timeout_s: float) -> M:
        await trio.lowlevel.checkpoint()
        if self.cut:
            raise ConnectionLost("cut off from the controller")
        reply = self._authority.decide(self._node, request)
        assert isinstance(reply, response)
        return reply


@dataclass
class TestNode:
    """One running node."""

    __test__ = False
    node_id: NodeId
    root: Path
    manager: ReplicaManager
    links: PeerLinks
    server: PeerServer
    controller: DirectController
    disk: Disk
    address: tuple[str, int]
    scope: trio.CancelScope
    stopped: trio.Event
    boot_seq: int
    broker_epoch: BrokerEpoch
    failures: list[OSError]

    def partition(self, topic: str, number: int = 0) -> Partition:
        found = self.manager.table.get(topic, number)
        assert found is not None, f"{topic}/{number} is not on node {self.node_id}"
        return found


class TestCluster:
    """Start, stop and address nodes; create topics; wait with a bound. ``floors`` are the weaker
    flush modes that were written down, while ``hold_floor`` is set."""

    __test__ = False

    def __init__(self, root: Path, nursery: trio.Nursery, settings: ReplicationSettings) -> None:
        self.authority = Authority()
        self.nodes: dict[int, TestNode] = {}
        self.floors: list[FlushMode] = []
        self.hold_floor = trio.Event()
        self.hold_floor.set()
        self._root = root
        self._nursery = nursery
        self._settings = settings
        self._starts: dict[int, int] = {}
        self._epochs: dict[int, BrokerEpoch] = {}

    def _root_of(self, number: int) -> Path:
        return self._root / f"node-{number}"

    def make_env(self, number: int, wrap: Callable[[Disk], Disk]) -> Env:
        """The world of one node: this machine's."""
        root = self._root_of(number)
        root.mkdir(exist_ok=True)
        return Env(RealHost(), wrap(RealDisk(str(root))), RealNetwork(), random.Random(number))

    def host_of(self, number: int) -> str:
        """Where other nodes find it."""
        return LOOPBACK

    async def start(
        self, number: int, *, wrap: Callable[[Disk], Disk] = lambda disk: disk, clean: bool = False
    ) -> TestNode:
        node_id = NodeId(number)
        directory_id = UUID(int=500 + number)
        env = self.make_env(number, wrap)
        disk = env.disk
        if not disk.exists(layout.META):
            meta = layout.DirectoryMeta(CLUSTER, node_id, directory_id)
            await layout.format_directory(disk, meta)
        links, controller, manager, failures = self._build(env, node_id, directory_id)
        server = PeerServer(
            env,
            Identity(node_id, directory_id, CLUSTER),
            SECRET,
            on_close=manager.session_closed,
        )
        manager.register(server)
        listeners = await env.net.listen(LOOPBACK, 0)
        address = (self.host_of(number), env.net.bound_port(listeners[0]))
        opened = await manager.open_logs(clean=clean)
        scope = trio.CancelScope()
        stopped = trio.Event()
        boot_seq = self._starts[number] = self._starts.get(number, 0) + 1

        async def serve(task_status: trio.TaskStatus[None]) -> None:
            async with trio.open_nursery() as nursery:
                await nursery.start(links.run)
                await nursery.start(server.run, listeners)
                with scope:
                    async with trio.open_nursery() as inner:
                        await inner.start(manager.run)
                        task_status.started()
                # Links outlast those who use them.
                nursery.cancel_scope.cancel()
            stopped.set()

        await self._nursery.start(serve)
        broker_epoch = await self._register(
            node_id, directory_id, boot_seq, manager, controller, opened
        )
        node = TestNode(
            node_id,
            self._root_of(number),
            manager,
            links,
            server,
            controller,
            disk,
            address,
            scope,
            stopped,
            boot_seq,
            broker_epoch,
            failures,
        )
        self.nodes[number] = node
        self._tell_addresses()
        await self._heartbeat(node)
        return node

    def _build(
        self, env: Env, node_id: NodeId, directory_id: UUID
    ) -> tuple[PeerLinks, DirectController, ReplicaManager, list[OSError]]:
        store = MetadataStore(CLUSTER)
        self.authority.attach(node_id, store)
        identity = Identity(node_id, directory_id, CLUSTER)
        links = PeerLinks(env, identity, SECRET)
        controller = DirectController(self.authority, node_id)
        failures: list[OSError] = []

        manager = ReplicaManager(
            env,
            ReplicationIdentity(CLUSTER, node_id, directory_id),
            store,
            links,
            controller,
            session_valid=lambda: True,
            disk_failed=failures.append,
            lower_floor=self._lower_floor,
            metrics=Metrics(version="test"),
            settings=self._settings,
        )
        return links, controller, manager, failures

    async def _lower_floor(self, mode: FlushMode) -> None:
        await self.hold_floor.wait()
        self.floors.append(mode)

    async def _register(
        self,
        node_id: NodeId,
        directory_id: UUID,
        boot_seq: int,
        manager: ReplicaManager,
        controller: DirectController,
        opened: OpenedLogs,
    ) -> BrokerEpoch:
        number = int(node_id)
        request = control.RegisterBrokerRequest(
            CLUSTER,
            node_id,
            directory_id,
            UUID(int=random.Random(f"{number}/{boot_seq}").getrandbits(128)),
            boot_seq,
            self._epochs.get(number, BrokerEpoch(-1)),
            True,
            refs(opened.damaged),
            (),
            1,
            1,
        )
        reply = await controller.call(request, control.RegisterBrokerResponse, timeout_s=1)
        self._epochs[number] = reply.broker_epoch
        manager.registered(reply.broker_epoch, FlushMode.GROUP)
        return reply.broker_epoch

    async def _heartbeat(self, node: TestNode, *, fence: bool = False) -> None:
        request = control.HeartbeatRequest(
            node.node_id,
            node.broker_epoch,
            self.authority.image.offset,
            want_fence=fence,
            want_shutdown=False,
            offline=False,
            degraded=False,
        )
        await node.controller.call(request, control.HeartbeatResponse, timeout_s=1)

    def _tell_addresses(self) -> None:
        for node in self.nodes.values():
            node.links.set_addresses(
                {n.node_id: n.address for n in self.nodes.values() if n is not node}
            )

    async def kill(self, number: int) -> None:
        """End a node's tasks without closing its logs, and let the controller fence it."""
        node = self.nodes.pop(number)
        node.scope.cancel()
        await node.stopped.wait()
        for partition in node.manager.table.partitions:
            partition.log.abandon()
        self.authority.stores.pop(node.node_id)
        await self._heartbeat(node, fence=True)
        self._tell_addresses()

    async def stop(self, number: int) -> None:
        """An orderly end: tasks first, then logs flushed and closed."""
        node = self.nodes.pop(number)
        node.scope.cancel()
        await node.stopped.wait()
        await node.manager.close()
        self.authority.stores.pop(node.node_id)
        await self._heartbeat(node, fence=True)
        self._tell_addresses()

    async def create_topic(
        self, name: str, *, partitions: int = 1, replicas: int = 3, **configs: str
    ) -> None:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        request = admin.CreateTopic(name, partitions, replicas, named)
        self.authority.decide(None, request)
        await self.wait(
            lambda: all(self._in_place(name, number, replicas) for number in range(partitions))
        )

    def alter_topic(self, name: str, **configs: str | None) -> None:
        """Set or, with None, unset configuration keys."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        self.authority.decide(None, admin.AlterTopic(name, named))

    def _in_place(self, topic: str, number: int, replicas: int) -> bool:
        """Whether every replica is hosted and knows its role."""
        registration = self.registration(topic, number)
        hosted = [
            node.manager.table.get(topic, number)
            for node in self.nodes.values()
            if node.node_id in registration.replicas
        ]
        return len(registration.isr) == replicas and all(
            found is not None and found.leader_epoch == registration.leader_epoch
            for found in hosted
        )

    def registration(self, topic: str, number: int = 0) -> PartitionRegistration:
        return self.authority.image.partition(topic, number)

    def leader(self, topic: str, number: int = 0) -> Partition | None:
        """The leading replica, once it acts as the leader of the newest epoch."""
        registration = self.registration(topic, number)
        node = self.nodes.get(registration.leader)
        found = None if node is None else node.manager.table.get(topic, number)
        if found is None or not found.is_leader:
            return None
        return found if found.leader_epoch == registration.leader_epoch else None

    def elect(self, topic: str, node: int, number: int = 0) -> None:
        self.authority.decide(None, admin.ElectLeader(topic, number, NodeId(node)))

    def elect_uncleanly(self, topic: str, node: int) -> None:
        self.authority.decide(None, admin.ElectLeader(topic, 0, NodeId(node), unclean=True))

    async def wait(self, condition: Callable[[], bool], timeout_s: float = HANG_S) -> None:
        """Return once ``condition`` holds. Fails with the state of all partitions."""
        with trio.move_on_after(timeout_s):
            while not condition():  # noqa: ASYNC110  conditions span nodes: no one event tells
                await trio.sleep(0.005)
            return
        raise AssertionError(f"condition not met in time:\n{self.describe()}")

    def describe(self) -> str:
        lines = [str(partition) for partition in self.authority.image.partitions()]
        for node in self.nodes.values():
            for p in node.manager.table.partitions:
                lines.append(
                    f"node {node.node_id} {p!r} {p.log_start_offset}..{p.high_watermark}.."
                    f"{p.log_end_offset} durable {p.log.durable_offset} {p.log.epochs}"
                )
        return "\n".join(lines)


def batch(*values: bytes, producer: tuple[int, int, int] | None = None) -> bytearray:
    """One batch of records with these values."""
    records = [Record(-1, 1000 + index, None, value) for index, value in enumerate(values)]
    if producer is None:
        return build_batch(records)
    producer_id, epoch, sequence = producer
    return build_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


async def produce(
    partition: Partition,
    data: bytearray,
    *,
    acks: Acks = Acks.ALL,
    timeout_s: float = 10.0,
    simulated: bool = False,
) -> ProduceResult:
    """Append and wait for the answer; raises it when it is an error."""
    answered = trio.Event()
    answers: list[ProduceResult | PacelineError] = []

    def done(answer: ProduceResult | PacelineError) -> None:
        answers.append(answer)
        answered.set()

    partition.produce(
        data,
        validate_client_batches(data),
        acks=acks,
        timeout_s=timeout_s,
        done=done,
        simulated=simulated,
    )
    await answered.wait()
    (answer,) = answers
    if isinstance(answer, PacelineError):
        raise answer
    return answer


@contextlib.asynccontextmanager
async def running_cluster(
    root: Path, count: int = 3, settings: ReplicationSettings = SETTINGS
) -> AsyncIterator[TestCluster]:
    async with trio.open_nursery() as nursery:
        cluster = TestCluster(root, nursery, settings)
        for number in range(count):
            await cluster.start(number)
        yield cluster
        for number in sorted(cluster.nodes):
            await cluster.stop(number)
        nursery.cancel_scope.cancel()
