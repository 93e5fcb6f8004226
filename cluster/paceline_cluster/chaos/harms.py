"""Faults that a bad disk does to one node's files: struck while the node runs or is down, they end
with a restart, so that a process has read all of it, and with the operator's help where the node
cannot know any more who it is."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import trio

from paceline_cluster.faulty import harm
from paceline_cluster.faulty.fleet import Fleet
from paceline_cluster.processes import ProcessState

Harm = Callable[[Path, random.Random], str | None]
Numbers = Mapping[str, float]
_RETURN_S = 30.0
_LOOK_S = 0.1
_WIDEST = 4096
_DEEPEST = 64 * 1024


async def _do(fleet: Fleet, node: int, work: Callable[[], str | None]) -> None:
    done = await trio.to_thread.run_sync(work)
    if done is not None:
        fleet.tell(f"node {node}: {done}")


async def _kill(fleet: Fleet, node: int) -> None:
    if fleet.process(node) is not ProcessState.STOPPED:
        await fleet.kill(node)


async def _strike(fleet: Fleet, nodes: Sequence[int], work: Harm, *, is_down: bool) -> None:
    for node in nodes:
        folder = fleet.state.node(node).dir
        if is_down:
            await _kill(fleet, node)
        else:
            # What it does when its files go away below it is its own affair; it is started again.
            fleet.expect_end(node)
        await _do(fleet, node, lambda folder=folder: work(folder, fleet.rng))  # type: ignore[misc]


async def rot(fleet: Fleet, nodes: Sequence[int], _: Numbers) -> None:
    await _strike(fleet, nodes, harm.rot, is_down=True)


async def rot_running(fleet: Fleet, nodes: Sequence[int], _: Numbers) -> None:
    await _strike(fleet, nodes, harm.rot, is_down=False)


async def lose_file(fleet: Fleet, nodes: Sequence[int], _: Numbers) -> None:
    await _strike(fleet, nodes, harm.lose_file, is_down=fleet.rng.random() < 0.5)


async def lose_partition(fleet: Fleet, nodes: Sequence[int], _: Numbers) -> None:
    await _strike(fleet, nodes, harm.lose_partition, is_down=True)


async def lose_metadata(fleet: Fleet, nodes: Sequence[int], _: Numbers) -> None:
    await _strike(fleet, nodes, harm.lose_metadata, is_down=True)


async def begin_to_age(fleet: Fleet, nodes: Sequence[int], _: Numbers) -> None:
    """Remember what the files are; at the end one of them is that again."""
    for node in nodes:
        folder = fleet.state.node(node).dir
        fleet.remembered[node] = await trio.to_thread.run_sync(harm.remember, folder)


async def aged(fleet: Fleet, nodes: Sequence[int], numbers: Numbers) -> None:
    for node in nodes:
        before = fleet.remembered.pop(node, {})
        await _strike(
            fleet,
            [node],
            lambda folder, rng, before=before: harm.age(folder, before, rng),  # type: ignore[misc]
            is_down=True,
        )
    await come_back(fleet, nodes, numbers)


async def unreadable(fleet: Fleet, nodes: Sequence[int], _: Numbers) -> None:
    """A range of every log that is there answers EIO, until it is written anew or the end."""
    for node in nodes:
        start = fleet.rng.randrange(_DEEPEST)
        page = fleet.pages[node]
        page.unreadable = (start, start + fleet.rng.randrange(1, _WIDEST))
        fleet.tell(f"node {node}: bytes {page.unreadable} of its logs cannot be read")


async def come_back(fleet: Fleet, nodes: Sequence[int], _: Numbers) -> None:
    """Start the nodes anew; who does not start is given an empty disk, as its operator would."""
    for node in nodes:
        fleet.pages[node].unreadable = None
        await _kill(fleet, node)
        fleet.start(node)
        fleet.expect_end(node)
        if not await _serves(fleet, node):
            fleet.tell(f"node {node} does not start; its disk is replaced")
            await fleet.wipe(node)
            fleet.start(node)
        fleet.expect_life(node)


async def _serves(fleet: Fleet, node: int) -> bool:
    """Whether a node that was started stays; False once it has ended."""
    with trio.move_on_after(_RETURN_S):
        while fleet.process(node) is not ProcessState.STOPPED:
            seen = await fleet.survey()
            if any(view.id == node and view.state == "running" for view in seen.nodes):
                return True
            await trio.sleep(_LOOK_S)
        return False
    return True
