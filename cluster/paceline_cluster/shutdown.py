"""Stops a whole cluster in order."""

from __future__ import annotations

import signal
from pathlib import Path

import trio

from paceline_cluster import processes
from paceline_cluster.errors import TooLate
from paceline_cluster.launch import adopt_strays, mark_stopped, process_state, wait_ended
from paceline_cluster.processes import ProcessState
from paceline_cluster.state import ClusterState, NodeEntry
from paceline_cluster.survey import tell_to_stop


async def stop_cluster(directory: Path, *, timeout_s: float) -> ClusterState:
    """Stop all nodes: tell each that the whole cluster stops (paceline_node/DESIGN 2.4), then
    SIGTERM, and after ``timeout_s`` SIGKILL. Suspended nodes are resumed first, so that they can
    stop."""
    current = adopt_strays(directory)
    running = [entry for entry in current.nodes if process_state(entry) is not ProcessState.STOPPED]
    for entry in running:
        processes.send(entry.pid, entry.pid_started, signal.SIGCONT)
    await tell_to_stop(current, running)
    for entry in running:
        processes.send(entry.pid, entry.pid_started, signal.SIGTERM)
    killed = await _wait_or_kill(running, timeout_s)
    for entry in running:
        current = mark_stopped(directory, entry)
    if killed:
        names = ", ".join(str(entry.id) for entry in killed)
        raise TooLate(
            f"node {names} did not stop within {timeout_s:.0f} s and was killed; "
            "it will recover its log at the next start"
        )
    return current


async def _wait_or_kill(entries: list[NodeEntry], timeout_s: float) -> list[NodeEntry]:
    late = []
    deadline = trio.current_time() + timeout_s
    for entry in entries:
        if not await wait_ended(entry, max(0.1, deadline - trio.current_time())):
            processes.send(entry.pid, entry.pid_started, signal.SIGKILL)
            await wait_ended(entry, timeout_s=10)
            late.append(entry)
    return late
