"""Three controllers over the real metadata quorum, in memory, on a virtual clock."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import cast

import pytest
import trio
import trio.testing

from paceline.errors import InvalidRequest, NotController, RetriableError
from paceline.types import NO_NODE, BrokerEpoch, NodeId
from paceline.wire.message import Message
from paceline.wire.native.admin import AddVoter, CreateTopic, Done, RemoveVoter
from paceline.wire.peer.control import HeartbeatRequest, RegisterBrokerResponse
from paceline_node.controller.context import ControllerSettings
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.controller.quorum import Quorum, QuorumSettings
from paceline_node.controller.raft_store import RaftStore, write_bootstrap
from paceline_node.controller.raft_types import Member, MemberId
from paceline_node.controller.service import Controller
from paceline_node.env import Env, Network
from paceline_node.storage.memory_disk import MemoryDisk
from tests.unit.controller.bench import CLUSTER, Bench, uuid_of
from tests.unit.controller.memory_quorum import VirtualHost

NODES = (0, 1, 2)
VOTERS = tuple(Member(NodeId(n), uuid_of(n, 9), "host", 7000 + n) for n in NODES)


@dataclass
class Running:
    """One running node: quorum, image, controller."""

    quorum: Quorum
    store: MetadataStore
    controller: Controller
    scope: trio.CancelScope


class Cluster:
    """Nodes in one process; messages arrive one scheduler pass later, to the living."""

    def __init__(self, nursery: trio.Nursery, settings: ControllerSettings) -> None:
        self.nursery = nursery
        self.settings = settings
        self.nodes: dict[int, Running] = {}
        self.bench = Bench()

    async def start(self, node: int) -> None:
        disk = MemoryDisk()
        env = Env(VirtualHost(), disk, cast(Network, None), random.Random(node))
        await write_bootstrap(
            disk,
            "metadata",
            cluster_id=CLUSTER,
            voters=VOTERS,
            state=Image.bootstrap(CLUSTER).to_snapshot(),
        )
        store = MetadataStore(CLUSTER)
        quorum = Quorum(
            env,
            await RaftStore.open(disk, "metadata", CLUSTER),
            MemberId(NodeId(node), uuid_of(node, 9).bytes),
            store,
            QuorumSettings(),
            send=lambda to, data: self.nursery.start_soon(self.deliver, node, to, data),
            on_role=lambda _role: controller.role_changed(),
        )
        controller = Controller(env, quorum, store, self.settings)
        member = Running(quorum, store, controller, trio.CancelScope())
        await self.nursery.start(self.run, member)
        self.nodes[node] = member

    async def run(self, member: Running, task_status: trio.TaskStatus[None]) -> None:
        with member.scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(member.controller.run)
                await nursery.start(member.quorum.run)
                task_status.started()

    async def deliver(self, sender: int, to: NodeId, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        target = self.nodes.get(to)
        if target is not None and sender in self.nodes:
            target.quorum.receive(NodeId(sender), data)

    def kill(self, node: int) -> None:
        """The process dies; the others find its port closed."""
        self.nodes.pop(node).scope.cancel()
        for other in self.nodes.values():
            other.quorum.peer_refused(NodeId(node))
            other.controller.peer_lost(NodeId(node))

    def active(self) -> int | None:
        found = [n for n, member in self.nodes.items() if member.controller.active]
        return found[0] if len(found) == 1 else None

    @property
    def image(self) -> Image:
        active = self.active()
        assert active is not None
        return self.nodes[active].store.image

    async def ask(self, message: Message) -> Message:
        """Ask whoever is active, again while nobody is."""
        with trio.fail_after(30):
            while True:
                active = self.active()
                if active is not None:
                    try:
                        return await self.nodes[active].controller.handle(None, message)
                    except NotController:
                        pass
                await trio.sleep(0.05)

    async def register(self, node: int) -> None:
        reply = await self.ask(self.bench.registration(node))
        assert isinstance(reply, RegisterBrokerResponse)
        self.bench.disks[node].epoch = reply.broker_epoch

    async def heartbeats(self, node: int) -> None:
        """A broker's life from its registration on."""
        await self.register(node)
        while node in self.nodes:
            request = HeartbeatRequest(
                NodeId(node),
                BrokerEpoch(self.bench.disks[node].epoch),
                self.nodes[node].store.image.offset,
                False,
                False,
                False,
                False,
            )
            with suppress(RetriableError):
                await self.ask(request)
            await trio.sleep(0.5)


@asynccontextmanager
async def cluster(settings: ControllerSettings) -> AsyncIterator[Cluster]:
    async with trio.open_nursery() as nursery:
        nodes = Cluster(nursery, settings)
        for node in NODES:
            await nodes.start(node)
            nursery.start_soon(nodes.heartbeats, node)
        yield nodes
        nursery.cancel_scope.cancel()


async def until(condition: str, check: Callable[[], bool]) -> None:
    """Let virtual time pass until ``check`` holds, 20 s at most."""
    for _ in range(1000):
        if check():
            return
        await trio.sleep(0.02)
    raise AssertionError(f"not within 20 s: {condition}")


def ready(nodes: Cluster) -> bool:
    """All living brokers unfenced, internal topics made, every partition led."""
    if nodes.active() is None:
        return False
    image = nodes.image
    alive = [n for n, broker in image.brokers.items() if not broker.fenced]
    led = all(p.leader != NO_NODE for p in image.partitions())
    return len(alive) == len(nodes.nodes) and len(image.topics) >= 2 and led


async def test_bootstrap_and_failover(autojump_clock: trio.testing.MockClock) -> None:
    async with cluster(ControllerSettings()) as nodes:
        await until("cluster ready", lambda: ready(nodes))
        groups = nodes.image.topic("__groups")
        assert (groups.replication_factor, len(groups.partitions)) == (3, 16)
        await nodes.ask(CreateTopic("orders", 6, 3))

        first = nodes.active()
        assert first is not None
        nodes.kill(first)
        killed_at = trio.current_time()
        await until("another controller", lambda: nodes.active() not in (None, first))
        await until(
            "every partition led by a living node",
            lambda: all(p.leader in nodes.nodes for p in nodes.image.partitions()),
        )
        assert trio.current_time() - killed_at < 2.5, "no session had to run out for that"
        assert all(first not in p.isr for p in nodes.image.partitions())

        second = nodes.active()
        assert second is not None
        await nodes.ask(CreateTopic("more", 2, 2))
        await until(
            "equal images",
            lambda: len({m.store.image.offset for m in nodes.nodes.values()}) == 1,
        )
        images = [member.store.image for member in nodes.nodes.values()]
        assert all(image == images[0] for image in images)


async def test_without_a_majority_nothing_is_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with cluster(ControllerSettings()) as nodes:
        await until("cluster ready", lambda: ready(nodes))
        active = nodes.active()
        assert active is not None
        controller = nodes.nodes[active].controller
        for node in NODES:
            if node != active:
                nodes.kill(node)
        with pytest.raises(NotController):
            await controller.handle(None, CreateTopic("orders", 1, 1))
        assert not controller.active, "check quorum deposed it"


async def test_voters_added_and_removed_by_hand(autojump_clock: trio.testing.MockClock) -> None:
    async with cluster(ControllerSettings()) as nodes:
        await until("cluster ready", lambda: ready(nodes))
        await nodes.start(3)
        first = nodes.active()
        assert first is not None
        quorum = nodes.nodes[first].quorum
        with pytest.raises(InvalidRequest, match="no member"):
            await nodes.ask(AddVoter(NodeId(3)))
        quorum.membership.admit(Member(NodeId(3), uuid_of(3, 9), "host", 7003))
        await until("node 3 listens", lambda: len(quorum.learners) == 1)
        with pytest.raises(InvalidRequest, match="not caught up"):
            await nodes.ask(AddVoter(NodeId(3)))
        with pytest.raises(InvalidRequest, match="keeps 3 voters"):
            await nodes.ask(RemoveVoter(NodeId(first)))
        await until("caught up", lambda: bool(quorum._core.leadership.caught_up() & _ids(quorum)))
        with pytest.raises(InvalidRequest, match="with directory"):
            await nodes.ask(AddVoter(NodeId(3), uuid_of(3, 8)))

        assert isinstance(await nodes.ask(AddVoter(NodeId(3), uuid_of(3, 9))), Done)
        assert len(quorum.voters) == 4
        await nodes.ask(AddVoter(NodeId(3)))  # nothing to do
        await nodes.ask(RemoveVoter(NodeId(first)))  # asked once more of the next leader
        await until("another controller", lambda: nodes.active() not in (None, first))
        assert not quorum.is_voter
        await nodes.ask(CreateTopic("orders", 1, 3))
        await until(
            "the old leader goes on listening",
            lambda: nodes.nodes[first].store.image.find_topic("orders") is not None,
        )


def _ids(quorum: Quorum) -> set[object]:
    return {learner.id for learner in quorum.learners}
