"""Carries a plan of faults out on a running cluster, and notes what it did."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import trio

from paceline.documents.survey import Survey
from paceline.errors import PacelineError
from paceline.types import NO_NODE, is_internal_topic
from paceline.values import dataclass
from paceline_cluster.chaos.faults import KINDS, Act, FaultKind, Part
from paceline_cluster.chaos.recorder import Recorder
from paceline_cluster.chaos.schedule import PlannedFault
from paceline_cluster.chaos.targets import NoTarget, PartitionView, Picture
from paceline_cluster.chaos.workload import COPIES_TOPIC
from paceline_cluster.checker import events
from paceline_cluster.errors import ClusterError
from paceline_cluster.faulty.fleet import Fleet
from paceline_cluster.node_calls import ask_metadata

PATIENCE_S = 15.0
"""So long a fault that takes data away waits until everything is in sync."""
_LOOK_AGAIN_S = 0.1


@dataclass(slots=True)
class Strike:
    """One fault as it went. ``nodes`` is empty when it was passed over, ``why`` says why."""

    kind: str
    target: str
    nodes: tuple[int, ...] = ()
    begin: float = 0.0
    end: float = 0.0
    moves: tuple[str, ...] = ()
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "target": self.target,
            "nodes": list(self.nodes),
            "begin": round(self.begin, 3),
            "end": round(self.end, 3),
            "moves": list(self.moves),
            "passed_over": self.why,
        }


@dataclass(slots=True)
class Nemesis:
    """Strikes a fleet. ``say`` is told every beginning and end."""

    fleet: Fleet
    recorder: Recorder
    rng: random.Random
    say: Callable[[str], None]
    strikes: list[Strike] = field(default_factory=list)
    _losing: trio.Lock = field(default_factory=trio.Lock)
    _held: set[tuple[Part, int]] = field(default_factory=set)
    _over: float = math.inf

    async def run(self, planned: Sequence[PlannedFault]) -> None:
        """Carry the plan out; returns when the last fault has ended. What takes data away waits for
        the one before, and for all to be in sync: on a slow machine not all of it has time."""
        began = trio.current_time()
        self._over = began + max((fault.end for fault in planned), default=0.0)
        async with trio.open_nursery() as nursery:
            for fault in planned:
                await trio.sleep_until(began + fault.begin)
                nursery.start_soon(self._strike, fault)

    async def _strike(self, fault: PlannedFault) -> None:
        """What takes data away does so one after the other."""
        kind = KINDS[fault.spec.kind]
        async with self._losing if kind.losing else contextlib.AsyncExitStack():
            await self._carry_out(fault, kind)

    async def _carry_out(self, fault: PlannedFault, kind: FaultKind) -> None:
        spec = fault.spec
        strike = Strike(spec.kind, spec.target.text, begin=self.recorder.t)
        self.strikes.append(strike)
        try:
            if trio.current_time() > self._over:
                raise NoTarget("its time is over")
            picture = await self._look(kind)
            nodes = self._free(kind, spec.target.nodes(picture, self.rng), picture)
        except NoTarget as reason:
            strike.why = str(reason)
            strike.end = self.recorder.t
            self.say(f"{strike.kind} of {strike.target}: passed over, {reason}")
            return
        held = {(kind.part, node) for node in nodes}
        is_alone = not self._held
        self._held |= held
        strike.nodes = tuple(nodes)
        strike.moves = tuple(_led(picture, nodes)) if kind.moves and is_alone else ()
        strike.begin = self.recorder.t
        number = self.recorder.fault(strike.kind, strike.target, nodes, list(strike.moves))
        self.say(f"{strike.kind} of {strike.target}: node {', '.join(map(str, nodes))}")
        await self._act(strike, kind.begin, nodes, spec.numbers)
        await trio.sleep(fault.end - fault.begin)
        await self._act(strike, kind.end, nodes, spec.numbers)
        self._held -= held
        strike.end = self.recorder.t
        self.recorder.say(events.Healed(strike.end, number))
        self.say(f"{strike.kind} of node {', '.join(map(str, nodes))} is over")

    async def _act(
        self, strike: Strike, act: Act, nodes: Sequence[int], numbers: Mapping[str, float]
    ) -> None:
        """A beginning that goes wrong has an end all the same: what it did is taken back."""
        try:
            await act(self.fleet, nodes, numbers)
        except ClusterError as error:
            strike.why = f"went wrong: {error}"
            self.say(f"{strike.kind} of {strike.target} {strike.why}")

    async def _look(self, kind: FaultKind) -> Picture:
        """The cluster now; for a fault that takes data away, once all is in sync. Raises
        NoTarget when that takes too long."""
        deadline = trio.current_time() + PATIENCE_S
        while True:
            picture = await look(self.fleet)
            if picture.is_healthy or not kind.losing:
                return picture
            if trio.current_time() > deadline:
                raise NoTarget("not everything is in sync, and it takes data away")
            await trio.sleep(_LOOK_AGAIN_S)

    def _free(self, kind: FaultKind, wanted: Sequence[int], picture: Picture) -> list[int]:
        """Those of the nodes that the fault may strike now. Raises NoTarget."""
        if kind.serving:
            wanted = [node for node in wanted if node in picture.serving]
        if not wanted:
            raise NoTarget("it does not serve, and would end instead of standing it")
        free = [node for node in wanted if (kind.part, node) not in self._held]
        if not free:
            raise NoTarget(f"a fault holds node {', '.join(map(str, wanted))} already")
        return free


def _led(picture: Picture, nodes: Sequence[int]) -> list[str]:
    """Partitions of the history that the nodes certainly lead; none when the cluster moves."""
    if not picture.is_healthy:
        return []
    return [
        name
        for name, view in sorted(picture.partitions.items())
        if view.leader in set(nodes)
        and not is_internal_topic(name)
        and not name.startswith(f"{COPIES_TOPIC}/")
    ]


async def look(fleet: Fleet) -> Picture:
    """The cluster as its best informed node sees it; whoever cannot answer is passed over."""
    seen = await fleet.survey()
    newest = seen.newest()
    partitions: dict[str, PartitionView] = {}
    if newest is not None:
        partitions = await _partitions(seen, int(newest.node_id))
    serving = frozenset(view.id for view in seen.nodes if view.state == "running")
    is_healthy = seen.is_healthy() is True
    return Picture(fleet.nodes, seen.controller, partitions, is_healthy, serving)


async def _partitions(seen: Survey, node: int) -> dict[str, PartitionView]:
    [view] = [each for each in seen.nodes if each.id == node]
    try:
        reply = await ask_metadata(view.address, None)
    except PacelineError:
        return {}
    return {
        f"{topic.name}/{each.partition}": PartitionView(
            None if each.leader == NO_NODE else int(each.leader), tuple(map(int, each.replicas))
        )
        for topic in reply.topics
        for each in topic.partitions
    }
