"""Starts and stops the node processes of a cluster on this machine.

What belongs here: the life of processes and of ``cluster.json``. Making the directories is
``create.py``; asking nodes how they are is ``survey.py``. Everything can be called again after a
launcher was killed at any point: a node that was started but not written down is found by its
configuration file, and ``cluster.json`` changes only as a whole.
"""

from __future__ import annotations

import dataclasses
import signal
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import trio

from paceline_cluster import processes, state
from paceline_cluster.errors import NodeEnded, NodeMisconfigured, Refused, TooLate
from paceline_cluster.processes import ProcessState
from paceline_cluster.state import ClusterState, NodeEntry
from paceline_cluster.survey import Survey, survey, tell_to_stop

POLL_S = 0.02
_CONFIGURATION_EXIT = 78
_LOG_TAIL_LINES = 12


@dataclass(slots=True)
class Children:
    """Node processes that this launcher itself started, so that their exit codes are known."""

    by_node: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def exit_code(self, node_id: int) -> int | None:
        """The exit code of a child that ended (negative: a signal), None while it runs or when it
        is not our child."""
        child = self.by_node.get(node_id)
        return None if child is None else child.poll()


def process_state(entry: NodeEntry) -> ProcessState:
    """What a node's recorded process is doing."""
    return processes.state_of(entry.pid, entry.pid_started)


def start_nodes(directory: Path, node_ids: Iterable[int], children: Children) -> ClusterState:
    """Start those of the nodes that do not run; each pid is written down at once."""
    current = state.load(directory)
    for node_id in node_ids:
        entry = current.node(node_id)
        if process_state(entry) is ProcessState.STOPPED:
            current = _start(directory, entry, children)
    return current


def _start(directory: Path, entry: NodeEntry, children: Children) -> ClusterState:
    with state.locked(directory):
        current = _adopt_strays(directory)
        entry = current.node(entry.id)
        if process_state(entry) is not ProcessState.STOPPED:
            return current  # another launcher was quicker
        child = processes.start_node(entry.config_path, entry.log_path)
        children.by_node[entry.id] = child
        current = current.with_node(_running_as(entry, child.pid))
        state.store(directory, current)
    return current


def adopt_strays(directory: Path) -> ClusterState:
    """Write down nodes that run although nobody did: their launcher was killed in between."""
    with state.locked(directory):
        return _adopt_strays(directory)


def _adopt_strays(directory: Path) -> ClusterState:
    current = state.load(directory)
    changed = current
    for entry in current.nodes:
        if process_state(entry) is ProcessState.STOPPED:
            pid = processes.find_node(entry.config_path)
            if pid is not None:
                changed = changed.with_node(_running_as(entry, pid))
    if changed != current:
        state.store(directory, changed)
    return changed


def _running_as(entry: NodeEntry, pid: int) -> NodeEntry:
    return dataclasses.replace(entry, pid=pid, pid_started=processes.start_time(pid))


async def wait_until_ready(
    current: ClusterState, children: Children, *, timeout_s: float
) -> Survey:
    """Wait until every node answers and the quorum and all partitions have leaders.

    Raises NodeEnded or NodeMisconfigured with the end of the node's log when a process ends, and
    TooLate naming what was still missing.
    """
    deadline = trio.current_time() + timeout_s
    while True:
        _require_running(current, children)
        seen = await survey(current)
        if seen.is_ready():
            return seen
        if trio.current_time() > deadline:
            missing = "; ".join(seen.reasons())
            raise TooLate(f"the cluster is not ready after {timeout_s:.0f} s: {missing}")
        await trio.sleep(POLL_S)


def _require_running(current: ClusterState, children: Children) -> None:
    for entry in current.nodes:
        code = children.exit_code(entry.id)
        if code is None and process_state(entry) is not ProcessState.STOPPED:
            continue
        text = f"{how_it_ended(entry.id, code)}; its log {entry.log_path} ends:\n{log_tail(entry)}"
        if code == _CONFIGURATION_EXIT:
            raise NodeMisconfigured(text)
        raise NodeEnded(text)


def how_it_ended(node_id: int, code: int | None) -> str:
    """One clause about a node process that is gone."""
    if code is None:
        return f"node {node_id} ended"
    if code < 0:
        return f"node {node_id} was ended by {signal.Signals(-code).name}"
    return f"node {node_id} ended with exit code {code}"


def log_tail(entry: NodeEntry) -> str:
    """The last lines of a node's log."""
    try:
        text = entry.log_path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return "(there is no log)"
    return "\n".join(text.splitlines()[-_LOG_TAIL_LINES:])


async def stop_cluster(directory: Path, *, timeout_s: float) -> ClusterState:
    """Stop all nodes: tell each that the whole cluster stops (SETTLED R9), then SIGTERM, and
    after ``timeout_s`` SIGKILL. Suspended nodes are resumed first, so that they can stop."""
    current = adopt_strays(directory)
    running = [entry for entry in current.nodes if process_state(entry) is not ProcessState.STOPPED]
    for entry in running:
        processes.send(entry.pid, entry.pid_started, signal.SIGCONT)
    await tell_to_stop(running)
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


async def stop_node(directory: Path, entry: NodeEntry, *, timeout_s: float) -> ClusterState:
    """SIGTERM one node and wait for its end; it hands its leaderships over first. Raises
    TooLate (the node runs on) when it does not end in time."""
    processes.send(entry.pid, entry.pid_started, signal.SIGCONT)
    processes.send(entry.pid, entry.pid_started, signal.SIGTERM)
    if not await wait_ended(entry, timeout_s):
        raise TooLate(
            f"node {entry.id} did not stop within {timeout_s:.0f} s; see {entry.log_path}, or end "
            f"it with 'paceline node kill {entry.id}'"
        )
    return mark_stopped(directory, entry)


async def kill_node(directory: Path, entry: NodeEntry) -> ClusterState:
    """SIGKILL one node. Raises Refused when it does not run."""
    require_running(entry)
    processes.send(entry.pid, entry.pid_started, signal.SIGKILL)
    await wait_ended(entry, timeout_s=10)
    return mark_stopped(directory, entry)


def require_running(entry: NodeEntry) -> None:
    """Raise Refused when the node's process does not run."""
    if process_state(entry) is ProcessState.STOPPED:
        raise Refused(f"node {entry.id} does not run")


async def wait_ended(entry: NodeEntry, timeout_s: float) -> bool:
    """Wait until the recorded process is gone; False after ``timeout_s``."""
    with trio.move_on_after(timeout_s) as scope:
        # The end of a process that is not our child can only be looked for.
        while process_state(entry) is not ProcessState.STOPPED:  # noqa: ASYNC110
            await trio.sleep(POLL_S)
    return not scope.cancelled_caught


async def _wait_or_kill(entries: list[NodeEntry], timeout_s: float) -> list[NodeEntry]:
    late = []
    deadline = trio.current_time() + timeout_s
    for entry in entries:
        if not await wait_ended(entry, max(0.1, deadline - trio.current_time())):
            processes.send(entry.pid, entry.pid_started, signal.SIGKILL)
            await wait_ended(entry, timeout_s=10)
            late.append(entry)
    return late


def mark_stopped(directory: Path, ended: NodeEntry) -> ClusterState:
    """Write down that the process is gone, unless the node was started anew meanwhile."""

    def change(entry: NodeEntry) -> NodeEntry:
        if (entry.pid, entry.pid_started) != (ended.pid, ended.pid_started):
            return entry
        return dataclasses.replace(entry, pid=None, pid_started=None)

    return state.update_node(directory, ended.id, change)
