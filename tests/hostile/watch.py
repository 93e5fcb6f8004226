"""How the nodes under attack are, seen from outside: do they run, what do they hold, who leads."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass, field

import trio

import paceline
from paceline.errors import PacelineError
from paceline_cluster import launch, processes
from paceline_cluster.processes import ProcessState
from paceline_cluster.state import ClusterState, NodeEntry

_MIB = 1024 * 1024
_LOOK_S = 0.25
_ASK_S = 2.0
_ANSWER_S = 10.0


@dataclass
class Sight:
    """Of all nodes, the largest seen since the last :meth:`Watch.take`; ``grown_mib``: how much
    more a node had in memory than at that moment; ``left_mib``: what one never had less than."""

    resident_mib: float = 0.0
    grown_mib: float = 0.0
    left_mib: float = 0.0
    charged_mib: float = 0.0
    clients_ended: int = 0
    leaderships_lost: int = 0
    longest_step_ms: float = 0.0
    longest_step: str = ""
    ended: list[str] = field(default_factory=list)


class Watch:
    """Looks at the nodes of ``state`` until cancelled."""

    def __init__(self, state: ClusterState, client: paceline.Client) -> None:
        self._nodes = state.nodes
        self._client = client
        self._sight = Sight()
        self._dead: set[int] = set()
        self._epochs: dict[object, int] = {}
        self._resident_before: dict[int, float] = {}
        self._least: dict[int, float] = {}
        self._ended_before: dict[int, float] = {}
        self._steps_ms: dict[tuple[int, str], float] = {}

    def take(self) -> Sight:
        """What was seen since the last call."""
        sight, self._sight = self._sight, Sight()
        sight.left_mib = max(self._least.values(), default=0.0)
        self._least.clear()
        self._resident_before = {entry.id: resident_mib(entry) for entry in self._nodes}
        return sight

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._processes)
            nursery.start_soon(self._leaders)
            for entry in self._nodes:
                nursery.start_soon(self._metrics, entry)

    async def _processes(self) -> None:
        while True:
            for entry in self._nodes:
                self._look_at(entry)
            await trio.sleep(_LOOK_S)

    def _look_at(self, entry: NodeEntry) -> None:
        if entry.id in self._dead:
            return
        if launch.process_state(entry) is ProcessState.STOPPED:
            self._dead.add(entry.id)
            self._sight.ended.append(f"node {entry.id}; its log ends:\n{launch.log_tail(entry)}")
            return
        sight, now = self._sight, resident_mib(entry)
        sight.resident_mib = max(sight.resident_mib, now)
        before = self._resident_before.setdefault(entry.id, now)
        sight.grown_mib = max(sight.grown_mib, now - before)
        self._least[entry.id] = min(self._least.get(entry.id, now), now)

    async def _leaders(self) -> None:
        """Each change of a partition's leader, and of the controller, counts once."""
        while True:
            try:
                for topic in await self._client.admin.list_topics():
                    for partition in topic.partitions:
                        self._note((topic.topic_id, partition.partition), partition.leader_epoch)
                self._note("controller", (await self._client.admin.status()).term)
            except PacelineError:
                pass  # whether requests fail is what the load finds out
            await trio.sleep(_ASK_S)

    def _note(self, what: object, epoch: int) -> None:
        before = self._epochs.get(what, epoch)
        self._epochs[what] = max(before, epoch)
        self._sight.leaderships_lost += max(0, epoch - before)

    async def _metrics(self, entry: NodeEntry) -> None:
        while True:
            try:
                text = await trio.to_thread.run_sync(_page, entry, abandon_on_cancel=True)
                self._read(entry, text.splitlines())
            except OSError:
                pass  # a page that is slow to come is no failure
            await trio.sleep(_ASK_S)

    def _read(self, entry: NodeEntry, lines: Iterable[str]) -> None:
        charged = ended = 0.0
        for line in lines:
            name, _, value = line.rpartition(" ")
            if name.startswith("paceline_client_memory_bytes"):
                charged += float(value)
            elif name.startswith("paceline_clients_ended_total"):
                ended += float(value)
            elif name.startswith("paceline_loop_longest_slice_seconds{"):
                self._step(entry.id, name, 1000 * float(value))
        sight = self._sight
        sight.charged_mib = max(sight.charged_mib, charged / _MIB)
        before = self._ended_before.get(entry.id, ended)
        self._ended_before[entry.id] = ended
        sight.clients_ended += int(ended - before)

    def _step(self, node: int, name: str, took_ms: float) -> None:
        """A node tells the longest step of some minutes: one that was told before is not new."""
        before_ms = self._steps_ms.get((node, name), 0.0)
        self._steps_ms[node, name] = took_ms
        if took_ms > max(before_ms, self._sight.longest_step_ms):
            self._sight.longest_step_ms = took_ms
            self._sight.longest_step = name.partition('"')[2].rpartition('"')[0]


def resident_mib(entry: NodeEntry) -> float:
    """What a node's process has in memory; 0 when it is gone."""
    try:
        text = (processes.PROC / str(entry.pid) / "status").read_text()
    except OSError:
        return 0.0
    for line in text.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _page(entry: NodeEntry) -> str:
    url = f"http://{entry.listeners['http']}/metrics"
    with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:
        text: str = answer.read().decode()
    return text
