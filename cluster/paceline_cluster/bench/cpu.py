"""Processor time that a measurement cost each process, and how quick the processor is.

Wall-clock figures of a shared machine vary with what its neighbours do; CPU time for a write tells
what limits a rate, and compares two versions better.
"""

from __future__ import annotations

import os
import time

from paceline.values import dataclass
from paceline_cluster import launch, processes
from paceline_cluster.bench.rig import Rig
from paceline_cluster.state import NodeEntry

ADDITIONS = 10_000_000
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_USER_TIME_AT = 11
"""Field of /proc/<pid>/stat behind the command's closing parenthesis; system time follows it."""


@dataclass(frozen=True, slots=True)
class CpuSample:
    """Seconds of CPU, user and system, since each process started."""

    by_node: dict[int, float]
    own_s: float


def sample(rig: Rig) -> CpuSample:
    """What the nodes and this process have used so far."""
    used = {entry.id: _used_s(entry) for entry in rig.state.nodes}
    return CpuSample(used, time.process_time())


def since(before: CpuSample, rig: Rig, *, leader: int, writes: int) -> dict[str, float]:
    """Microseconds of CPU a write: of its leader, of one follower, of the client."""
    after = sample(rig)
    used = {node: after.by_node[node] - before.by_node[node] for node in after.by_node}
    leading = used.pop(leader)
    following = sum(used.values()) / len(used)
    own = after.own_s - before.own_s
    return {
        "leader_cpu_us": round(leading / writes * 1e6),
        "follower_cpu_us": round(following / writes * 1e6),
        "client_cpu_us": round(own / writes * 1e6),
    }


def a_record(before: CpuSample, rig: Rig, records: int) -> dict[str, float]:
    """Microseconds of CPU a record: of all nodes together, of the client."""
    after = sample(rig)
    used_s = sum(after.by_node.values()) - sum(before.by_node.values())
    return {
        "nodes_cpu_us": round(used_s / records * 1e6, 2),
        "client_cpu_us": round((after.own_s - before.own_s) / records * 1e6, 2),
    }


def calibrate() -> dict[str, float]:
    """Seconds for ten million integer additions in a Python loop: about 0.4 on a good processor
    that is left alone. Much more wall than CPU time says that others use it too."""
    begin, own = time.monotonic(), time.process_time()
    total = 0
    for number in range(ADDITIONS):
        total += number
    return {
        "wall_s": round(time.monotonic() - begin, 2),
        "cpu_s": round(time.process_time() - own, 2),
    }


def _used_s(entry: NodeEntry) -> float:
    launch.require_running(entry)
    fields = (processes.PROC / str(entry.pid) / "stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[_USER_TIME_AT : _USER_TIME_AT + 2])) / _TICKS_PER_S
