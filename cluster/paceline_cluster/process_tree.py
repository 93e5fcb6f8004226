"""A process and all that it has started: found, and ended together. Linux (``/proc``)."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from paceline_cluster.processes import PROC

GONE_S = 60.0
"""No process takes this long to go after SIGKILL; it bounds a hang."""


def descendants(pid: int) -> list[int]:
    """Whatever a process has started, directly or not, and is its child's child still."""
    children: dict[int, list[int]] = {}
    for path in PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            children.setdefault(int(_fields(path.read_text())[1]), []).append(int(path.parent.name))
    found = list(children.get(pid, []))
    for each in found:  # grows meanwhile
        found += children.get(each, [])
    return found


def kill_below(pid: int, *, itself: bool) -> None:
    """SIGKILL all that a process has started, ``itself`` before that. Returns when what it has
    started is gone; a child of ours has to be waited for by its owner."""
    below = descendants(pid)
    for victim in [*([pid] if itself else []), *below]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    deadline = time.monotonic() + GONE_S
    while any(_is_alive(victim) for victim in below):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{below}: still there after SIGKILL")
        time.sleep(0.002)


def _is_alive(pid: int) -> bool:
    try:
        return _fields((PROC / str(pid) / "stat").read_text())[0] != "Z"
    except OSError:
        return False


def _fields(stat: str) -> list[str]:
    """Behind the command's name, which may hold anything: state, parent and so on."""
    return stat.rpartition(")")[2].split()
