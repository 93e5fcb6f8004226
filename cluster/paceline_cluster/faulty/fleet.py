"""A cluster of node processes in a faulty world: made, started, killed, frozen, wiped.

The processes are children of ``paceline up``'s own launcher code; ``paceline status`` and ``down``
with ``--dir`` work on the directory too. Every node dials the others through the links of a
:class:`Mesh`, and its disk and clock obey a :class:`ControlPage`.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from uuid import UUID

import trio

from paceline.client.single_error_nursery import open_scope
from paceline.documents.survey import Survey
from paceline_cluster import create, launch, ports, processes, state
from paceline_cluster.errors import TooLate
from paceline_cluster.faulty import world
from paceline_cluster.faulty.control import ControlPage
from paceline_cluster.faulty.crash_points import CrashPoints
from paceline_cluster.faulty.proxy import Mesh
from paceline_cluster.launch import Children
from paceline_cluster.processes import ProcessState
from paceline_cluster.readiness import wait_until_ready
from paceline_cluster.shutdown import stop_cluster
from paceline_cluster.state import ClusterState, NodeEntry
from paceline_cluster.survey import survey

STOP_S = 40.0
_LOOK_AGAIN_S = 0.05


class Fleet:
    """Made by :func:`open_fleet`. Nodes that end although nobody ended them are noted in
    ``deaths``, a sentence each."""

    def __init__(
        self, directory: Path, mesh: Mesh, pages: Mapping[int, ControlPage], children: Children
    ) -> None:
        self.directory = directory
        self.mesh = mesh
        self.pages = pages
        self.deaths: list[str] = []
        self.rng = random.Random(0)  # noqa: S311 - which byte rots is no secret
        """Decides what is struck of a node; whoever has a seed puts a generator of it here."""
        self.tell: Callable[[str], None] = _nobody_listens
        self.remembered: dict[int, dict[Path, bytes]] = {}
        """Files as they once were, by node."""
        self._children = children
        self._expected: set[int] = set()

    @property
    def state(self) -> ClusterState:
        return state.load(self.directory)

    @property
    def nodes(self) -> tuple[int, ...]:
        return self.mesh.nodes

    @property
    def bootstrap(self) -> list[str]:
        """Native addresses of all nodes, whether they run or not."""
        return self.state.bootstrap()

    def process(self, node: int) -> ProcessState:
        """What a node's process is doing."""
        return launch.process_state(self.state.node(node))

    # --- life -------------------------------------------------------------------------------------

    def start(self, *nodes: int) -> None:
        """Start the processes of those that do not run."""
        for node in nodes:
            self._children.exit_code(
                node
            )  # an ended child is let go before another takes its place
        launch.start_nodes(self.directory, nodes, self._children)
        self._expected |= set(nodes)

    async def kill(self, node: int) -> None:
        """SIGKILL."""
        self._expected.discard(node)
        entry = self.state.node(node)
        processes.send(entry.pid, entry.pid_started, signal.SIGKILL)
        await self._gone(entry)

    async def terminate(self, node: int) -> None:
        """SIGTERM, and wait until it has stopped in order. Raises TooLate."""
        self._expected.discard(node)
        await launch.stop_node(self.directory, self.state.node(node), timeout_s=STOP_S)

    def suspend(self, node: int) -> None:
        """SIGSTOP."""
        self._signal(node, signal.SIGSTOP)

    def resume(self, node: int) -> None:
        """SIGCONT."""
        self._signal(node, signal.SIGCONT)

    async def wipe(self, node: int) -> None:
        """SIGKILL a node and give it a new, empty disk."""
        await self.kill(node)
        entry = self.state.node(node)
        await create.format_for_joining(
            entry.config_path, cluster_id=UUID(self.state.cluster_id), replace=True
        )

    def crash_points(self, node: int) -> CrashPoints:
        """To let a node die at a named point; say :meth:`expect_end` too."""
        return world.crash_points(self.state.node(node).dir)

    def expect_end(self, node: int) -> None:
        """The node will end by itself; that is no death to be noted."""
        self._expected.discard(node)

    def expect_life(self, node: int) -> None:
        """If the node ends from now on, that is a death."""
        self._expected.add(node)

    def _signal(self, node: int, number: signal.Signals) -> None:
        entry = self.state.node(node)
        processes.send(entry.pid, entry.pid_started, number)

    async def _gone(self, entry: NodeEntry) -> None:
        if not await launch.wait_ended(entry, timeout_s=10):
            raise TooLate(f"node {entry.id} did not end within 10 s of SIGKILL")
        launch.mark_stopped(self.directory, entry)

    # --- looking ----------------------------------------------------------------------------------

    async def survey(self) -> Survey:
        """How every node is."""
        return await survey(self.state)

    async def wait_healthy(self, timeout_s: float) -> None:
        """Wait until nothing is wrong any more. Raises TooLate naming what still is."""
        deadline = trio.current_time() + timeout_s
        while True:
            reasons = (await self.survey()).reasons()
            if not reasons:
                return
            if trio.current_time() > deadline:
                raise TooLate(f"not healthy within {timeout_s:.0f} s: {'; '.join(reasons)}")
            await trio.sleep(_LOOK_AGAIN_S)

    async def largest_node(self) -> int:
        """Bytes in the fullest of the nodes' directories."""
        folders = [entry.dir for entry in self.state.nodes]
        return max(await trio.to_thread.run_sync(lambda: [_bytes_in(each) for each in folders]))

    async def watch(self) -> None:
        """Note nodes that end by themselves, until cancelled."""
        while True:
            self.look_for_deaths()
            await trio.sleep(0.2)

    def look_for_deaths(self) -> None:
        """Note nodes that have ended by themselves."""
        for node in sorted(self._expected):
            entry = self.state.node(node)
            if launch.process_state(entry) is ProcessState.STOPPED:
                self._expected.discard(node)
                how = launch.how_it_ended(node, self._children.exit_code(node))
                self.deaths.append(f"{how}; its log ends:\n{launch.log_tail(entry)}")

    # --- healing ----------------------------------------------------------------------------------

    def heal(self) -> None:
        """Take every fault back and start every node that does not run."""
        self.mesh.heal()
        for node in self.nodes:
            self.pages[node].heal()
            self.resume(node)
        self.look_for_deaths()
        self.start(*self.nodes)

    async def stop(self) -> None:
        """Stop all, in order."""
        self._expected.clear()
        await stop_cluster(self.directory, timeout_s=STOP_S)


@contextlib.asynccontextmanager
async def open_fleet(
    directory: Path,
    count: int,
    settings: Mapping[str, str],
    *,
    timeout_s: float = 60.0,
    tls: bool = False,
) -> AsyncIterator[Fleet]:
    """A ready cluster of ``count`` processes in a new directory, which encrypt everything if
    ``tls``; none of them outlives the block.

    Raises BadSetting, NodeEnded, TooLate.
    """
    children = Children(program=processes.FAULTY_PROGRAM)
    async with open_scope() as nursery:
        async with ports.free_ports(range(count)) as plan:
            spec = create.local_spec(plan, settings=settings, voters=None)
            made = await create.create(directory, spec.encrypted(directory) if tls else spec)
            peers = {node: (ports.HOST, chosen["peer"]) for node, chosen in plan.items()}
            chosen = [port for listeners in plan.values() for port in listeners.values()]
            mesh = Mesh(peers, ports.free_numbers(count * (count - 1), besides=chosen))
            pages = {
                entry.id: world.prepare(entry.dir, mesh.routes(entry.id)) for entry in made.nodes
            }
            fleet = Fleet(directory, mesh, pages, children)
            await nursery.start(mesh.run)
            try:
                fleet.start(*fleet.nodes)
                await wait_until_ready(fleet.state, children, timeout_s=timeout_s)
            except BaseException:
                _kill_all(children)
                raise
        try:
            nursery.start_soon(fleet.watch)
            yield fleet
        finally:
            _kill_all(children)
            for page in pages.values():
                page.close()


def _nobody_listens(_: str) -> None:
    """What is done to nodes is told to nobody."""


def _kill_all(children: Children) -> None:
    """End what still runs; a stopped process too."""
    for child in children.by_node.values():
        child.kill()
        child.wait()


def _bytes_in(folder: Path) -> int:
    """Of all files; what vanishes meanwhile counts nothing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += Path(parent, name).stat().st_size
    return total
