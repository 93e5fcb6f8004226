"""Starts and stops the node processes of a cluster on this machine.

What belongs here: the life of processes and of ``cluster.json``. Making the directories is
``create.py``; whether the cluster serves is ``readiness.py``, its orderly end ``shutdown.py``.
Nothing here talks to nodes, so that ``up`` starts them before it loads what does. Everything can be
called again after a launcher was killed at any point: a node that was started but not written down
is found by its configuration file, and ``cluster.json`` changes only as a whole.
"""

from __future__ import annotations

import dataclasses
import signal
import subprocess
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path

import trio

from paceline.values import dataclass
from paceline_cluster import processes, state
from paceline_cluster.errors import Refused, TooLate
from paceline_cluster.ports import HOST
from paceline_cluster.processes import ProcessState
from paceline_cluster.state import ClusterState, NodeEntry

POLL_S = 0.02
_LOG_TAIL_LINES = 12


@dataclass(slots=True)
class Children:
    """Node processes that this launcher itself started, so that their exit codes are known.

    ``program`` is the module that they run.
    """

    by_node: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    program: str = processes.NODE_PROGRAM

    def exit_code(self, node_id: int) -> int | None:
        """The exit code of a child that ended (negative: a signal), None while it runs or when it
        is not our child."""
        child = self.by_node.get(node_id)
        return None if child is None else child.poll()


def process_state(entry: NodeEntry) -> ProcessState:
    """What a node's recorded process is doing."""
    return processes.state_of(entry.pid, entry.pid_started)


def is_running(directory: Path) -> bool:
    """Whether the directory holds a cluster of which a node runs. Raises BadState."""
    if not state.exists(directory):
        return False
    nodes = state.load(directory).nodes
    return any(process_state(entry) is not ProcessState.STOPPED for entry in nodes)


def is_stopped(current: ClusterState) -> bool:
    """Whether all its nodes are of this machine, and none runs: neither one that is written down
    nor one that somebody started with its file."""
    return all(
        entry.listeners.get("native", "").startswith(f"{HOST}:")
        and process_state(entry) is ProcessState.STOPPED
        and processes.find_node(entry.config_path) is None
        for entry in current.nodes
    )


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
        child = processes.start_node(entry.config_path, entry.log_path, program=children.program)
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


def how_it_ended(node_id: int, code: int | None) -> str:
    """One clause about a node process that is gone."""
    if code is None:
        return f"node {node_id} ended"
    if code < 0:
        return f"node {node_id} was ended by {signal.Signals(-code).name}"
    return f"node {node_id} ended with exit code {code}"


def log_tail(entry: NodeEntry, lines: int = _LOG_TAIL_LINES) -> str:
    """The last lines of a node's log."""
    try:
        text = entry.log_path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return "(there is no log)"
    return "\n".join(text.splitlines()[-lines:] if lines else ())


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


def mark_stopped(directory: Path, ended: NodeEntry) -> ClusterState:
    """Write down that the process is gone, unless the node was started anew meanwhile."""

    def change(entry: NodeEntry) -> NodeEntry:
        if (entry.pid, entry.pid_started) != (ended.pid, ended.pid_started):
            return entry
        return dataclasses.replace(entry, pid=None, pid_started=None)

    return state.update_node(directory, ended.id, change)
