"""Quorum drivers of several nodes in one process: memory disks, a network of callbacks, virtual
time."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

import trio

from paceline.types import NodeId
from paceline_cluster.sim.raft.durable import CLUSTER, member
from paceline_node.controller.durable_offsets import NOT_KNOWN
from paceline_node.controller.quorum import Quorum, QuorumSettings
from paceline_node.controller.raft_log import RaftLog
from paceline_node.controller.raft_store import RaftStore, write_bootstrap, write_newcomer
from paceline_node.controller.raft_types import (
    UNKNOWN_START,
    Config,
    Member,
    MemberId,
    RaftTiming,
    RoleInfo,
    Start,
)
from paceline_node.env import Env
from paceline_node.storage.memory_disk import MemoryDisk

DELAY_S = 0.001
SETTINGS = QuorumSettings(timing=RaftTiming.of(heartbeat_ms=100, election_ms=1000))


class VirtualHost:
    """Only the clocks: a quorum needs nothing else of its host."""

    def now(self) -> float:
        return trio.current_time()

    def wall_ms(self) -> int:
        return int(trio.current_time() * 1000)


class Registrations:
    """What the metadata tell of the members' processes."""

    def __init__(self) -> None:
        self.starts: dict[MemberId, Start] = {}
        self.held: dict[MemberId, int] = {}

    def start(self, log: RaftLog, member: MemberId) -> Start | None:
        return self.starts.get(member)

    def durable_offset(self, log: RaftLog, member: MemberId) -> int:
        return self.held.get(member, NOT_KNOWN)


@dataclass(slots=True)
class Machine:
    """The toy state machine: a list of applied records."""

    values: list[bytes]
    index: int = 0

    def apply(self, index: int, term: int, records: Sequence[bytes]) -> None:
        assert index == self.index + 1
        assert term > 0
        self.index = index
        self.values.extend(records)

    def install(self, state: bytes, index: int) -> None:
        self.values = [value for value in state.split(b",") if value]
        self.index = index

    def snapshot(self) -> bytes:
        return b",".join(self.values)

    def is_retired(self, directory_id: UUID) -> bool:
        return False


class Node:
    """One node: its disk outlives its process."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.disk = MemoryDisk()
        self.disk_number = 0
        self.lives = 0
        self.machine = Machine([])
        self.roles: list[RoleInfo] = []
        self.configs: list[Config] = []
        self.quorum: Quorum | None = None
        self.failure: BaseException | None = None
        self.start = UNKNOWN_START
        self.scope = trio.CancelScope()
        self.ended = trio.Event()

    @property
    def member(self) -> Member:
        return member(self.number, self.disk_number)

    @property
    def live(self) -> Quorum:
        assert self.quorum is not None, f"node {self.number} is down"
        return self.quorum

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self.lives += 1
        self.ended = trio.Event()
        env = Env(
            VirtualHost(),  # type: ignore[arg-type]
            self.disk,
            None,  # type: ignore[arg-type]
            random.Random(self.number * 100 + self.lives),
        )
        if not self.disk.list("metadata"):
            await write_newcomer(self.disk, "metadata")
        store = await RaftStore.open(self.disk, "metadata", CLUSTER)
        self.machine = Machine([])
        quorum = Quorum(
            env,
            store,
            MemberId(NodeId(self.number), self.member.directory_id.bytes),
            self.machine,
            self.cluster.settings,
            send=self._send,
            on_role=self.roles.append,
            on_config=self.configs.append,
            registered=self.cluster.registered,
        )
        self.quorum = quorum
        try:
            with trio.CancelScope() as self.scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(quorum.run)
                    task_status.started()
        except BaseExceptionGroup as group:
            self.failure = group.exceptions[0]
        finally:
            self.quorum = None
            store.close()
            self.ended.set()

    def _send(self, to: NodeId, data: bytes) -> None:
        self.cluster.send(self.number, int(to), data)


class Cluster:
    """All nodes and the links between them."""

    def __init__(self, nursery: trio.Nursery, settings: QuorumSettings) -> None:
        self.nursery = nursery
        self.settings = settings
        self.nodes: dict[int, Node] = {}
        self.cuts: set[tuple[int, int]] = set()
        self.registered = Registrations()
        self.sent = 0

    async def format(self, number: int, voters: Sequence[int]) -> None:
        node = self.nodes[number] = Node(self, number)
        await write_bootstrap(
            node.disk,
            "metadata",
            cluster_id=CLUSTER,
            voters=[member(voter) for voter in voters],
            state=b"",
        )

    async def start(self, number: int) -> None:
        if number not in self.nodes:
            self.nodes[number] = Node(self, number)
        await self.nursery.start(self.nodes[number].run)

    async def kill(self, number: int, *, power: bool = False, notify: bool = False) -> None:
        """End a node's process; ``notify``: the others' connections are refused at once."""
        node = self.nodes[number]
        if power:
            node.disk.power_cut(random.Random(number))
        else:
            node.disk.kill()
        node.scope.cancel()
        await node.ended.wait()
        if notify:
            for other in self.nodes.values():
                if other.quorum is not None:
                    other.quorum.peer_refused(NodeId(number))

    def send(self, sender: int, to: int, data: bytes) -> None:
        self.sent += 1
        self.nursery.start_soon(self._deliver, sender, to, data)

    async def _deliver(self, sender: int, to: int, data: bytes) -> None:
        await trio.sleep(DELAY_S)
        node = self.nodes.get(to)
        if (sender, to) in self.cuts or node is None or node.quorum is None:
            return
        node.quorum.receive(NodeId(sender), data, self.nodes[sender].start)

    def cut(self, number: int) -> None:
        for other in self.nodes:
            if other != number:
                self.cuts |= {(number, other), (other, number)}

    # --- waiting ---------------------------------------------------------------------------------

    async def until(
        self, reached: Callable[[], bool], *, within_s: float = 10.0, every_s: float = 0.01
    ) -> None:
        """Wait in virtual time; fails with everybody's state."""
        deadline = trio.current_time() + within_s
        while not reached():
            if trio.current_time() > deadline:
                raise AssertionError("; ".join(self.describe()))
            await trio.sleep(every_s)

    def describe(self) -> list[str]:
        return [
            f"{node.number}: "
            + (
                "down"
                if node.quorum is None
                else f"term {node.quorum.term} leader {node.quorum.leader_id} "
                f"commit {node.quorum.commit_index} config {node.quorum.config.member_ids}"
            )
            for node in self.nodes.values()
        ]

    def leader(self) -> Node | None:
        leaders = [
            node for node in self.nodes.values() if node.quorum is not None and node.live.is_leader
        ]
        return max(leaders, key=lambda node: node.live.term, default=None)

    async def elect(self, *, within_s: float = 5.0) -> Node:
        """Wait for a leader that has committed in its term."""

        def elected() -> bool:
            node = self.leader()
            return node is not None and node.live.applied_index >= node.live.last_index

        await self.until(elected, within_s=within_s)
        leader = self.leader()
        assert leader is not None
        return leader

    async def commit(self, node: Node, *values: bytes) -> None:
        index, term = node.live.propose(values)
        await self.until(lambda: node.live.applied_index >= index)
        assert node.live.term == term

    async def agree(self, values: Sequence[bytes], numbers: Sequence[int]) -> None:
        await self.until(
            lambda: all(self.nodes[number].machine.values == list(values) for number in numbers)
        )


@asynccontextmanager
async def cluster_of(voters: int, *, settings: QuorumSettings = SETTINGS) -> AsyncIterator[Cluster]:
    """A running cluster of formatted voters."""
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, settings)
        for number in range(voters):
            await cluster.format(number, range(voters))
        for number in range(voters):
            await cluster.start(number)
        try:
            yield cluster
        finally:
            nursery.cancel_scope.cancel()
