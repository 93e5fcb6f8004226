"""Restarts a cluster's nodes on this machine one after the other, while it serves (DESIGN 8).

What a stop would break is ``stop_check.py``, processes are ``launch.py``. Nothing is remembered:
whoever goes on after an interruption names the nodes that are left.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from pathlib import Path

import trio

from paceline.documents.survey import Survey
from paceline.values import dataclass
from paceline_cluster import launch, state, stop_check
from paceline_cluster.errors import Refused, TooLate
from paceline_cluster.launch import Children
from paceline_cluster.processes import ProcessState
from paceline_cluster.readiness import wait_until_serves
from paceline_cluster.stop_check import Breaks
from paceline_cluster.survey import metadata_of, survey

LOOK_S = 0.3
STOP_S = 40.0
"""How long an orderly stop may take before it is a failure."""
LOCK_FILE = ".rolling-restart"

Say = Callable[[str], None]


@dataclass(slots=True)
class Round:
    """How far it has come: nodes that are ``done``, in order, and those that are ``left``, of which
    the first is the one at work."""

    left: list[int]
    done: list[int] = field(default_factory=list)


async def restart_each(
    directory: Path, work: Round, *, is_forced: bool, timeout_s: float, say: Say
) -> None:
    """Restart the nodes of ``work``; no stop takes the replicas in sync of a partition below their
    minimum, nor the majority of the voters away. ``is_forced``: but where there are too few for
    anything else. ``timeout_s`` is each node's.

    Raises Refused, TooLate and NodeEnded; what is left then stands in ``work``.
    """
    with _alone(directory):
        while work.left:
            current = state.load(directory)
            seen = await survey(current)
            stopped = [
                entry.id
                for entry in current.nodes
                if launch.process_state(entry) is ProcessState.STOPPED
            ]
            node = stop_check.next_of(work.left, stopped, seen.controller)
            work.left.remove(node)
            work.left.insert(0, node)
            await _restart(directory, node, is_forced=is_forced, timeout_s=timeout_s, say=say)
            work.done.append(work.left.pop(0))


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Two at the same time could each find that its node may stop. Raises Refused."""
    state.load(directory)
    with open(directory / LOCK_FILE, "w", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused("another rolling restart of this cluster is under way") from None
        yield


async def _restart(
    directory: Path, node: int, *, is_forced: bool, timeout_s: float, say: Say
) -> None:
    began = trio.current_time()
    deadline = began + timeout_s
    entry = state.load(directory).node(node)
    if launch.process_state(entry) is not ProcessState.STOPPED:
        await _until_it_may_stop(directory, node, is_forced=is_forced, deadline=deadline, say=say)
        say(f"node {node}: stopping")
        left_s = max(1.0, deadline - trio.current_time())
        await launch.stop_node(directory, entry, timeout_s=min(STOP_S, left_s))
    say(f"node {node}: starting")
    children = Children()
    current = launch.start_nodes(directory, [node], children)
    left_s = max(1.0, deadline - trio.current_time())
    await wait_until_serves(current, current.node(node), children, timeout_s=left_s)
    await _until_it_is_back(directory, node, deadline)
    say(f"node {node}: back in sync after {trio.current_time() - began:.1f} s")


async def _until_it_may_stop(
    directory: Path, node: int, *, is_forced: bool, deadline: float, say: Say
) -> None:
    told: tuple[str, ...] = ()
    while True:
        found = await what_breaks(await survey(state.load(directory)), [node])
        broken = found[node]
        if broken.lasting and not is_forced:
            raise Refused("; ".join(broken.lasting), hint="--force restarts it all the same")
        if not broken.passing:
            return
        if trio.current_time() > deadline:
            raise TooLate(f"it still may not stop: {'; '.join(broken.passing)}")
        if broken.passing != told and not told:
            say(f"node {node}: waits, for if it stopped {'; '.join(broken.passing)}")
        told = broken.passing
        await trio.sleep(LOOK_S)


async def what_breaks(seen: Survey, nodes: Sequence[int]) -> dict[int, Breaks]:
    """What would break if one of the nodes stopped now, by node."""
    told = await metadata_of(seen)
    return {node: stop_check.breaks(seen, told, node) for node in nodes}


async def _until_it_is_back(directory: Path, node: int, deadline: float) -> None:
    while True:
        seen = await survey(state.load(directory))
        lacks = stop_check.not_back(seen, await metadata_of(seen), node)
        if not lacks:
            return
        if trio.current_time() > deadline:
            raise TooLate(f"it was restarted and is not back: {lacks}")
        await trio.sleep(LOOK_S)
