"""Nodes in this process: one trio loop, ports known beforehand; real sockets and disks, or memory
(``machines.py``)."""

from __future__ import annotations

import random
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

import trio

from paceline.errors import PacelineError, error_for
from paceline.types import NodeId
from paceline.wire.cursus.compression import CompressorRegistry
from paceline.wire.native.data import (
    MetadataReply,
    PartitionDescription,
    PartitionInfo,
    StatusReply,
)
from paceline_node.app.boot import DirectoryInUse, format_node
from paceline_node.app.node import Node, NodeAddresses
from paceline_node.controller.raft_types import Member
from paceline_node.env import Disk, Env, Network
from paceline_node.groups.keys import GROUPS_TOPIC
from paceline_node.listeners.serving import PortInUse
from paceline_node.security.principals import Policy
from paceline_node.settings import load
from paceline_node.state_machines.replica import Phase
from paceline_node.storage.disk import RealDisk
from paceline_node.storage.layout import DirectoryMeta
from paceline_node.transactions.keys import TRANSACTIONS_TOPIC
from tests.integration.node.machines import (
    LOOPBACK,
    Machines,
    MemoryMachines,
    NodeExited,
    RealMachines,
    data_dir,
    machines_at_hand,
)
from tests.integration.node.native import NativeConnection
from tests.integration.node.stalling import StallingNetwork
from tests.integration.node.v1_client import V1Client

__all__ = ["Cluster", "NodeExited", "RunningNode", "V1Client", "cluster", "lone_node"]

Address = tuple[str, int]
_T = TypeVar("_T")
HANG_S = 60.0
"""Nothing here takes this long; it bounds a hang, it does not measure."""
_LOOK_AGAIN_S = 0.02
_KINDS = ("v1", "native", "http", "peer", "segment", "cursus", "kafka", "pravega")
GROUP_PARTITIONS = 4
"""Of ``__groups``: to make the sixteen of a cluster as it comes took half of what most tests take,
and these are on all of three nodes, too."""
_PATIENT = {
    "broker.session_ms": "4000",
    "v1.ack_timeout_ms": "3500",
    "v1.leader_wait_ms": "3500",
}
"""A busy machine may keep a node waiting for seconds: its session with itself ended meanwhile, and
a topic that was made just now had no leader."""
CALM = {**_PATIENT, "raft.election_ms": "1000"}
"""Three nodes share one loop and a busy machine here; deaths are found by proof all the same."""


@dataclass(frozen=True)
class RunningNode:
    """A node that serves; ``stop`` ends it in order."""

    node: Node
    cluster_id: UUID
    addresses: Mapping[str, Address]
    directory: Path

    @property
    def v1(self) -> Address:
        return self.addresses["v1"]

    @property
    def native(self) -> str:
        host, port = self.addresses["native"]
        return f"{host}:{port}"

    def stop(self) -> None:
        self.node.stop()


# --- directories and settings ---------------------------------------------------------------------


def write_secret(directory: Path, text: str = "0123456789abcdef0123456789abcdef") -> Path:
    path = directory / "cluster.secret"
    path.write_text(text)
    path.chmod(0o600)
    return path


async def format_nodes(
    directory: Path, ports: Sequence[int], machines: Machines | None = None
) -> UUID:
    """Format node-0, node-1 ... as voters whose peer listeners are at ``ports``."""
    cluster_id = uuid4()
    write_secret(directory)
    machines = machines or RealMachines()
    voters = [Member(NodeId(number), uuid4(), LOOPBACK, port) for number, port in enumerate(ports)]
    for voter in voters:
        meta = DirectoryMeta(cluster_id, voter.node_id, voter.directory_id)
        await _format(machines.data(directory, voter.node_id), meta, voters)
    return cluster_id


async def format_to_join(directory: Path, number: int, cluster_id: UUID) -> UUID:
    """Format a directory as ``node format`` does: of the cluster, but no voter. Its new id."""
    directory_id = uuid4()
    meta = DirectoryMeta(cluster_id, NodeId(number), directory_id)
    await _format(RealDisk(str(data_dir(directory, number))), meta, ())
    return directory_id


async def _format(disk: Disk, meta: DirectoryMeta, voters: Sequence[Member]) -> None:
    await format_node(disk, meta, voters)
    disk.close()


def listener_ports(peer_port: int = 0) -> dict[str, int]:
    return {**dict.fromkeys(_KINDS, 0), "peer": peer_port}


def make_node(
    directory: Path,
    number: int,
    ports: Mapping[str, int],
    flags: Mapping[str, str],
    *,
    data: Path | None = None,
    policy: Policy | None = None,
    network: Network | None = None,
    compressors: CompressorRegistry | None = None,
    tls: Sequence[str] = (),
    machines: Machines | None = None,
    options: Mapping[str, str] | None = None,
) -> Node:
    machines = machines or RealMachines()
    disk = RealDisk(str(data)) if data else machines.data(directory, number)
    data = data or data_dir(directory, number)
    listeners = ",".join(
        _listener_url(kind, f"{LOOPBACK}:{port}", tls, (options or {}).get(kind, ""))
        for kind, port in ports.items()
    )
    words = [
        f"node.id={number}",
        f"node.data_dir={data}",
        f"listeners={listeners}",
        "cluster.timing=local",
        "disk.min_free_bytes=0",
        f"groups.partitions={GROUP_PARTITIONS}",
        *(f"{key}={value}" for key, value in flags.items()),
    ]
    settings = load(flags=words)
    env = Env(machines.host, disk, network or machines.network, random.SystemRandom())
    return Node(settings, env, policy=policy, compressors=compressors)


def _listener_url(kind: str, address: str, tls: Sequence[str], plain: str) -> str:
    """``tls`` holds kinds that are encrypted, with options behind a ``?``; ``plain`` are options
    of one that is not."""
    for each in tls:
        name, mark, options = each.partition("?")
        if name == kind:
            return f"{kind}+tls://{address}{mark}{options}"
    return f"{kind}://{address}{'?' if plain else ''}{plain}"


# --- one node -------------------------------------------------------------------------------------


@asynccontextmanager
async def running(node: Node, directory: Path) -> AsyncIterator[RunningNode]:
    """Run a node for the length of a block; it stops in order at its end."""
    async with trio.open_nursery() as nursery:
        with trio.fail_after(HANG_S):
            started = await nursery.start(node.run)
        try:
            yield RunningNode(node, started.cluster_id, started.by_listener, directory)
        finally:
            node.stop_with_cluster()
            node.stop()


@asynccontextmanager
async def lone_node(
    directory: Path,
    flags: Mapping[str, str] | None = None,
    *,
    policy: Policy | None = None,
    compressors: CompressorRegistry | None = None,
    more_kinds: Sequence[str] = (),
    tls: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> AsyncIterator[RunningNode]:
    """A cluster of one, formatted afresh."""
    machines = machines_at_hand()
    (port,) = machines.free_ports(1)
    await format_nodes(directory, [port], machines)
    ports = {**listener_ports(port), **dict.fromkeys(more_kinds, 0)}
    if isinstance(machines, MemoryMachines):
        others = [kind for kind in ports if kind != "peer"]
        ports.update(zip(others, machines.free_ports(len(others)), strict=True))
    node = make_node(
        directory,
        0,
        ports,
        {**_PATIENT, **(flags or {})},
        policy=policy,
        compressors=compressors,
        tls=tls,
        machines=machines,
        options=options,
    )
    async with running(node, directory) as up:
        with trio.fail_after(HANG_S):
            while not _coordinates_all(node):  # noqa: ASYNC110  no event tells
                await trio.sleep(0.01)
        yield up


def _coordinates_all(node: Node) -> bool:
    """Whether every group and transaction has its coordinator. A node serves a little earlier, and
    a first request that is refused, as it may be, is no matter of most tests."""
    broker = node.broker
    assert broker is not None
    image = broker.metadata.image_store.image
    for name, kept in (GROUPS_TOPIC, broker._groups), (TRANSACTIONS_TOPIC, broker.transactions):
        topic = image.find_topic(name)
        if topic is None:
            return False
        for number in topic.partitions:
            replica = kept.machines.replica(number)
            if replica is None or replica.phase is not Phase.LEADING:
                return False
    return True


# --- several nodes --------------------------------------------------------------------------------


@dataclass
class _Life:
    """One process of a node, as it were."""

    node: Node
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)


class Cluster:
    """Nodes that can crash, stop and come back. ``up`` holds those that serve."""

    def __init__(
        self,
        directory: Path,
        nursery: trio.Nursery,
        flags: Mapping[str, str],
        peer_tls: Callable[[int], Mapping[str, str]] | None = None,
        machines: Machines | None = None,
    ) -> None:
        self.peer_tls = peer_tls
        self.machines = machines or RealMachines()
        self.directory = directory
        self.flags = {**CALM, **flags}
        self.up: dict[int, RunningNode] = {}
        self.exits: dict[int, int] = {}
        self.networks: dict[int, StallingNetwork] = {}
        self._nursery = nursery
        self._lives: dict[int, _Life] = {}
        self._ports: dict[int, dict[str, int]] = {}

    # --- life -------------------------------------------------------------------------------------

    def ports(self, number: int) -> dict[str, int]:
        """The ports of a node, the same for all its lives."""
        if number not in self._ports:
            self._ports[number] = dict(
                zip(_KINDS, self.machines.free_ports(len(_KINDS)), strict=True)
            )
        return self._ports[number]

    @property
    def bootstrap(self) -> str:
        """Where the first nodes' peers listen, as the setting wants it."""
        return ",".join(f"{n}@{LOOPBACK}:{p['peer']}" for n, p in sorted(self._ports.items()))

    def move(self, number: int) -> None:
        """Give a node that is down other ports. The others are not told."""
        del self._ports[number]

    async def start(self, number: int, **flags: str) -> RunningNode:
        """Start a node on the directory it had, or on an empty one to join; return once it
        serves. ``flags`` name settings with ``__`` for the dot."""
        extra = {key.replace("__", "."): value for key, value in flags.items()}
        bootstrap = {"cluster.bootstrap": self.bootstrap}
        shown = {} if self.peer_tls is None else self.peer_tls(number)
        node = make_node(
            self.directory,
            number,
            self.ports(number),
            {**bootstrap, **self.flags, **shown, **extra},
            network=self.networks.get(number),
            tls=("peer",) if shown else (),
            machines=self.machines,
        )
        life = self._lives[number] = _Life(node)
        with trio.fail_after(HANG_S):
            started = await self._nursery.start(self._run, number, life)
        up = RunningNode(node, started.cluster_id, started.by_listener, self.directory)
        self.up[number] = up
        return up

    async def start_all(self, numbers: Sequence[int]) -> None:
        """Start nodes together: a quorum of new or killed nodes serves only once most are there."""
        async with trio.open_nursery() as nursery:
            for number in numbers:
                nursery.start_soon(self.start, number)

    async def _run(
        self, number: int, life: _Life, *, task_status: trio.TaskStatus[NodeAddresses]
    ) -> None:
        try:
            with life.scope:
                await life.node.run(task_status=task_status)
        except* NodeExited as group:
            self.exits[number] = _exit_code(group)
        finally:
            self.machines.killed(number)
            self.up.pop(number, None)
            life.ended.set()

    async def crash(self, *numbers: int) -> None:
        """Take nodes away at once, without an orderly stop: no drain, no flush, no clean mark."""
        for number in numbers:
            self._lives[number].scope.cancel()
        for number in numbers:
            await self.ended(number)

    async def stop(self, number: int) -> None:
        """What SIGTERM does: leadership is handed over first."""
        self._lives[number].node.stop()
        await self.ended(number)

    async def ended(self, number: int) -> None:
        """Wait until a node has ended, however it does."""
        with trio.fail_after(HANG_S):
            await self._lives[number].ended.wait()

    async def restart(self, number: int, **flags: str) -> RunningNode:
        await self.crash(number)
        return await self.start(number, **flags)

    async def wipe(self, number: int) -> UUID:
        """Give a node that is down a new, empty disk, as ``node format --replace``."""
        assert self._lives[number].ended.is_set(), f"node {number} is running"
        [cluster_id] = {up.cluster_id for up in self.up.values()}
        shutil.rmtree(data_dir(self.directory, number))
        return await format_to_join(self.directory, number, cluster_id)

    async def restart_on_stalling_network(self, number: int) -> StallingNetwork:
        """Have a node that can be cut off from others; the network stays its own."""
        network = self.networks[number] = StallingNetwork(self.machines.network)
        await self.restart(number)
        return network

    def stop_all(self) -> None:
        """End everything; the whole cluster stops."""
        for life in self._lives.values():
            life.node.stop_with_cluster()
            life.node.stop()

    # --- looking ----------------------------------------------------------------------------------

    def process(self, number: int) -> Node:
        """The newest process of a node, whether it serves yet or not."""
        return self._lives[number].node

    @property
    def bootstrap_native(self) -> list[str]:
        """Where the nodes that serve take native clients."""
        return [up.native for _, up in sorted(self.up.items())]

    def v1(self, number: int) -> V1Client:
        """A V1 connection to a node, for ``async with``."""
        return V1Client(self.up[number].v1)

    async def metadata(self, number: int, *topics: str) -> MetadataReply:
        """Cluster and topics (all if none is named) as a node knows them."""
        async with NativeConnection(self.up[number].addresses["native"]) as connection:
            return await connection.metadata(topics or None)

    async def status(self, number: int) -> StatusReply:
        async with NativeConnection(self.up[number].addresses["native"]) as connection:
            return await connection.status()

    async def partition(
        self, topic: str, partition: int, *, via: int | None = None
    ) -> PartitionInfo:
        """Leader and replicas as node ``via`` (or any that serves) knows them: what another node
        has just done, or was told, it may not know yet. Raises the error of a topic that is not
        known there."""
        reply = await self.metadata(min(self.up) if via is None else via, topic)
        [info] = reply.topics
        if info.error:
            raise error_for(info.error, f"{topic}, as node {via} knows it")
        return next(each for each in info.partitions if each.partition == partition)

    async def leader(self, topic: str, partition: int) -> int:
        """The node that leads; waits until one does, and every node that serves knows it."""

        async def led() -> int | None:
            told = {
                (await self.partition(topic, partition, via=number)).leader
                for number in sorted(self.up)
            }
            return told.pop() if len(told) == 1 and told <= self.up.keys() else None

        return await self.wait_for(f"{topic}/{partition} has a leader", led)

    async def describe(self, topic: str, partition: int) -> PartitionDescription:
        """Offsets and the replicas' progress, from the partition's leader once there is one."""

        async def told() -> PartitionDescription:
            leader = await self.leader(topic, partition)
            async with NativeConnection(self.up[leader].addresses["native"]) as connection:
                return await connection.describe(topic, partition)

        return await self.wait_for(f"the leader of {topic}/{partition} tells of it", told)

    async def in_sync(self, topic: str, partition: int, *nodes: int) -> PartitionInfo:
        """Wait until a partition's in-sync replicas are these nodes, and return it. Every node
        that serves knows it then."""

        async def found() -> PartitionInfo | None:
            for number in sorted(self.up):
                info = await self.partition(topic, partition, via=number)
                if sorted(info.isr) != sorted(nodes) or info.leader not in self.up:
                    return None
            return info

        return await self.wait_for(f"{topic}/{partition} in sync on {nodes}", found)

    async def wait_for(self, what: str, look: Callable[[], Awaitable[_T | None]]) -> _T:
        """Look until there is something to see; at the end of time the state of all is shown.
        A look that fails because a node is away counts as seeing nothing."""
        with trio.move_on_after(HANG_S):
            while True:
                try:
                    found = await look()
                except (PacelineError, OSError, KeyError, trio.BrokenResourceError):
                    found = None
                if found is not None and found is not False:
                    return found
                await trio.sleep(_LOOK_AGAIN_S)
        raise AssertionError(f"{what}: not within {HANG_S:g} s\n{await self.dump()}")

    async def dump(self) -> str:
        """What every node says of itself and of the topics."""
        lines = []
        for number in sorted(self.up):
            with trio.move_on_after(2):
                try:
                    told = await self.status(number)
                    lines.append(
                        f"node {number}: {told.state} {told.reasons} {told.role} term {told.term} "
                        f"controller {told.controller} voters {told.voters} fenced "
                        f"{[each.node_id for each in told.brokers if each.fenced]}"
                    )
                    for topic in (await self.metadata(number)).topics:
                        if not topic.name.startswith("__"):
                            lines += [f"  {topic.name}: {each}" for each in topic.partitions]
                except (PacelineError, OSError, trio.BrokenResourceError) as error:
                    lines.append(f"node {number}: {error!r}")
        lines.append(f"exit codes: {self.exits}")
        return "\n".join(lines)


def _exit_code(group: BaseExceptionGroup[NodeExited]) -> int:
    error = first_error(group)
    assert isinstance(error, NodeExited)
    return error.code


def first_error(error: BaseException) -> BaseException:
    """What a group of errors is about."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def refusal(node: Node) -> BaseException:
    """Why a node does not start. One that does is a failure."""
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            try:
                await nursery.start(node.run)
            except (PacelineError, OSError, DirectoryInUse, PortInUse, ExceptionGroup) as error:
                return first_error(error)
            nursery.cancel_scope.cancel()
    raise AssertionError("the node started")


@asynccontextmanager
async def cluster(
    directory: Path,
    count: int = 3,
    flags: Mapping[str, str] | None = None,
    *,
    peer_tls: Callable[[int], Mapping[str, str]] | None = None,
) -> AsyncIterator[Cluster]:
    """``count`` nodes, all of them voters, formatted afresh and serving; ``peer_tls`` are a node's
    settings where they encrypt among themselves."""
    machines = machines_at_hand()
    async with trio.open_nursery() as nursery:
        made = Cluster(directory, nursery, flags or {}, peer_tls, machines)
        ports = [made.ports(number)["peer"] for number in range(count)]
        await format_nodes(directory, ports, machines)
        await made.start_all(range(count))
        try:
            yield made
        finally:
            made.stop_all()
