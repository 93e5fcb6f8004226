"""Nodes in this process: production nodes on real sockets and disks, all in one trio loop."""

from __future__ import annotations

import contextlib
import random
import secrets
import shutil
import traceback
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import NoReturn
from uuid import UUID

import structlog
import trio

from paceline.client.single_error_nursery import open_scope
from paceline.tls import ClientTls
from paceline.types import NodeId
from paceline.values import dataclass
from paceline_cluster import certificate_authority, node_config, ports, state
from paceline_cluster.create import LOCAL, SECRET_BYTES, format_directory
from paceline_cluster.faulty.control import ControlPage
from paceline_cluster.faulty.disk import FaultyDisk
from paceline_cluster.faulty.host import FaultyHost
from paceline_cluster.faulty.network import RoutedNetwork
from paceline_cluster.faulty.proxy import Mesh
from paceline_cluster.testing.logtail import LOGGED_IN
from paceline_cluster.testing.nodes import Unsupported
from paceline_node.app.node import Node
from paceline_node.controller.raft_types import Member
from paceline_node.env import Env
from paceline_node.security.principals import Policy
from paceline_node.settings import Settings, load

LISTENERS = ("v1", "native", "http", "peer", "segment", "cursus", "kafka")
CLOSE_S = 10.0
_QUICK = {
    "cluster.timing": "local",
    "disk.min_free_bytes": "0",
    # Nodes share one loop here: a session must survive a test that keeps it busy for a while.
    "broker.session_ms": "2000",
    # Making the sixteen of a cluster as it comes would be half of its start.
    "groups.partitions": "4",
}


class _Ended(BaseException):
    """A node ended its process at once; in one of its own that would be the exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _SharedHost(FaultyHost):
    """A node's end must not take the test's process with it."""

    def exit(self, code: int) -> NoReturn:
        raise _Ended(code)


@dataclass(slots=True)
class _Life:
    """One start of a node."""

    node: Node
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)
    how: str = "runs"


class InProcessNodes:
    """See :class:`paceline_cluster.testing.nodes.Nodes`. Made by :func:`in_process`."""

    def __init__(
        self,
        directory: Path,
        nursery: trio.Nursery,
        plan: Mapping[int, Mapping[str, int]],
        settings: Mapping[str, str],
        policy: Policy,
        tls: ClientTls | None = None,
    ) -> None:
        self.tls = tls
        self._directory = directory
        self._nursery = nursery
        self._plan = plan
        self._policy = policy
        self.crashes: list[ExceptionGroup[Exception]] = []
        """What ended a node that is no failure it knows of."""
        self._lives: dict[int, _Life] = {}
        self._cluster_id = uuid.uuid4()
        peers = {node: (ports.HOST, chosen["peer"]) for node, chosen in plan.items()}
        chosen = [port for listeners in plan.values() for port in listeners.values()]
        self.mesh = Mesh(peers, ports.free_numbers(len(plan) * (len(plan) - 1), besides=chosen))
        self.pages = {node: ControlPage() for node in plan}
        bootstrap = ",".join(f"{node}@{host}:{port}" for node, (host, port) in peers.items())
        replication = min(3, len(plan))
        self._settings = {
            **_QUICK,
            "cluster.bootstrap": bootstrap,
            "topics.replication_factor": str(replication),
            "topics.min_insync_replicas": str(min(2, replication)),
            **settings,
        }

    def listeners(self, node: int) -> Mapping[str, str]:
        return {name: f"{ports.HOST}:{port}" for name, port in self._plan[node].items()}

    def is_running(self, node: int) -> bool:
        life = self._lives.get(node)
        return life is not None and not life.ended.is_set()

    # --- life -------------------------------------------------------------------------------------

    async def format(self) -> None:
        """Make the directories of a new cluster; up to three nodes vote (controller/RAFT 4.3)."""
        secret = secrets.token_hex(SECRET_BYTES)
        state.write_file(self._directory / state.CLUSTER_KEY_FILE, secret + "\n", mode=0o600)
        votes = 1 if len(self._plan) < 3 else 3
        voters = [
            Member(NodeId(node), uuid.uuid4(), ports.HOST, self._plan[node]["peer"])
            for node in sorted(self._plan)[:votes]
        ]
        known = {int(voter.node_id): voter.directory_id for voter in voters}
        async with trio.open_nursery() as nursery:
            for node in self._plan:
                members = voters if node in known else []
                nursery.start_soon(self._format, node, known.get(node, uuid.uuid4()), members)

    async def _format(self, node: int, directory_id: UUID, voters: list[Member]) -> None:
        if self.tls is not None:
            certificate_authority.certify(self._directory, self._certificates(node), node, LOCAL)
        await format_directory(
            self._folder(node),
            cluster_id=self._cluster_id,
            node_id=node,
            directory_id=directory_id,
            voters=voters,
        )

    async def start(self, node: int) -> None:
        if self.is_running(node):
            return
        settings = self._load(node)
        page = self.pages[node]
        env = Env(
            _SharedHost(page),
            FaultyDisk(str(settings.node.data_dir), page),
            RoutedNetwork(self.mesh.routes(node)),
            random.SystemRandom(),
        )
        life = self._lives[node] = _Life(Node(settings, env, policy=self._policy))
        self._nursery.start_soon(self._run, node, life)

    def _load(self, node: int) -> Settings:
        is_encrypted = self.tls is not None
        urls = [
            f"{node_config.scheme(name, is_encrypted=is_encrypted)}://{ports.HOST}:{port}"
            for name, port in self._plan[node].items()
        ]
        files = node_config.files_of(self._certificates(node)) if is_encrypted else {}
        values = {
            **{f"tls.{name}": value for name, value in files.items()},
            "node.id": str(node),
            "node.data_dir": str(self._folder(node)),
            "listeners": ",".join(urls),
            **self._settings,
        }
        return load(flags=[f"{key}={value}" for key, value in values.items()])

    async def _run(self, node: int, life: _Life) -> None:
        try:
            with life.scope, structlog.contextvars.bound_contextvars(**{LOGGED_IN: node}):
                await life.node.run()
            life.how = "was killed" if life.scope.cancelled_caught else "stopped in order"
        except* _Ended as group:
            life.how = f"ended with exit code {_code(group)}"
        except* Exception as group:  # noqa: BLE001  raised at the end
            # As in a process of its own, the others go on; the test fails when it is over.
            life.how = "crashed\n" + "".join(traceback.format_exception(group))
            self.crashes.append(group)
        finally:
            life.ended.set()

    async def kill(self, node: int) -> None:
        life = self._lives.get(node)
        if life is not None:
            life.scope.cancel("killed")
            await life.ended.wait()

    async def stop(self, node: int) -> None:
        life = self._lives.get(node)
        if life is not None:
            life.node.stop()
            await life.ended.wait()

    async def wipe(self, node: int) -> None:
        await self.kill(node)
        await trio.to_thread.run_sync(shutil.rmtree, self._folder(node))
        await self._format(node, uuid.uuid4(), [])

    def suspend(self, node: int) -> None:
        raise Unsupported(
            f"node {node} shares this process and cannot be frozen; isolate() it, or run the tests "
            "with --paceline-processes"
        )

    def resume(self, node: int) -> None:
        """Nothing is ever frozen here."""

    def describe_end(self, node: int) -> str:
        life = self._lives.get(node)
        return f"node {node} " + ("was never started" if life is None else life.how)

    async def close(self) -> None:
        """Stop all nodes in order, those that do not within CLOSE_S at once."""
        for life in self._lives.values():
            life.node.stop_with_cluster()
            life.node.stop()
        with trio.move_on_after(CLOSE_S):
            for life in self._lives.values():
                await life.ended.wait()
        for life in self._lives.values():
            life.scope.cancel("it did not stop in time")

    def _certificates(self, node: int) -> Path:
        return self._folder(node) / certificate_authority.FOLDER

    def _folder(self, node: int) -> Path:
        return self._directory / f"node-{node}"


@contextlib.asynccontextmanager
async def in_process(
    directory: Path,
    count: int,
    settings: Mapping[str, str],
    policy: Policy,
    *,
    tls: bool = False,
) -> AsyncIterator[InProcessNodes]:
    """``count`` nodes, formatted and starting, in this loop; their ports are chosen here. With
    ``tls`` they encrypt everything."""
    async with open_scope() as nursery:
        numbers = iter(ports.free_numbers(count * len(LISTENERS)))
        plan = {node: {name: next(numbers) for name in LISTENERS} for node in range(count)}
        made = certificate_authority.make(directory) if tls else None
        nodes = InProcessNodes(directory, nursery, plan, settings, policy, made)
        await nodes.format()
        await nursery.start(nodes.mesh.run)
        for node in plan:
            await nodes.start(node)
        try:
            yield nodes
        finally:
            with trio.move_on_after(2 * CLOSE_S, shield=True):
                await nodes.close()
            for page in nodes.pages.values():
                page.close()
    if nodes.crashes:
        raise ExceptionGroup("nodes of this cluster crashed", nodes.crashes)


def _code(group: BaseExceptionGroup[_Ended]) -> int:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, _Ended), "the group was filtered"
    return error.code
