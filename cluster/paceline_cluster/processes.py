"""Processes of nodes: which one is ours, what it is doing, signalling and starting it.

A pid alone proves nothing, since the kernel gives numbers out again; a process is taken for a node
only when its start time is the one that was recorded. Where the system has no ``/proc`` (macOS)
the pid alone has to do.
"""

from __future__ import annotations

import enum
import os
import signal
import subprocess
import sys
from pathlib import Path

from paceline.values import dataclass

PROC = Path("/proc")
NODE_PROGRAM = "paceline_node"
FAULTY_PROGRAM = "paceline_cluster.faulty"
"""The same node in a world that fails on command (chaos, the pytest plugin)."""
_ENDED = "ZX"
"""States of what has ended: zombie, dead."""
_PROGRAMS = frozenset({NODE_PROGRAM.encode(), FAULTY_PROGRAM.encode()})


class ProcessState(enum.StrEnum):
    """What a recorded process is doing."""

    RUNNING = "running"
    SUSPENDED = "suspended"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class _Stat:
    state: str
    started: int


def _read_stat(pid: int) -> _Stat | None:
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name stands in parentheses and may itself hold blanks and parentheses.
    fields = text[text.rindex(")") + 2 :].split()
    return _Stat(state=fields[0], started=int(fields[19]))


def _is_over(pid: int, stat: _Stat) -> bool:
    """Whether all of a process has ended. Killed while a thread of it waits for the disk, it is
    shown as a zombie, and yet holds its files and locks until that thread is back."""
    if stat.state not in _ENDED:
        return False
    try:
        threads = [int(entry.name) for entry in (PROC / str(pid) / "task").iterdir()]
    except OSError:
        return True
    return all(_thread_state(pid, thread) in _ENDED for thread in threads)


def _thread_state(pid: int, thread: int) -> str:
    try:
        text = (PROC / str(pid) / "task" / str(thread) / "stat").read_text(errors="replace")
    except OSError:
        return "X"
    return text[text.rindex(")") + 2 :].split()[0]


def start_time(pid: int) -> int | None:
    """The kernel's start time of a process, in clock ticks since boot; None when it is gone."""
    stat = _read_stat(pid)
    return None if stat is None else stat.started


def state_of(pid: int | None, started: int | None) -> ProcessState:
    """What the process that was recorded as (pid, started) is doing now."""
    if pid is None:
        return ProcessState.STOPPED
    if not (PROC / "self").exists():
        return ProcessState.RUNNING if _exists(pid) else ProcessState.STOPPED
    stat = _read_stat(pid)
    if stat is None or stat.started != started or _is_over(pid, stat):
        return ProcessState.STOPPED
    return ProcessState.SUSPENDED if stat.state in "Tt" else ProcessState.RUNNING


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def send(pid: int | None, started: int | None, number: signal.Signals) -> bool:
    """Signal the recorded process; False when it is gone (nobody else is ever signalled)."""
    if pid is None or state_of(pid, started) is ProcessState.STOPPED:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def find_node(config: Path) -> int | None:
    """The pid of a node process that runs with this configuration file, if any.

    Finds a node whose launcher was killed between starting it and writing it down.
    """
    wanted = str(config).encode()
    for entry in PROC.glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # ended meanwhile, or not ours to look at
        if wanted in words and not _PROGRAMS.isdisjoint(words):
            stat = _read_stat(int(entry.name))
            if stat is not None and not _is_over(int(entry.name), stat):
                return int(entry.name)
    return None


def start_node(config: Path, log: Path, *, program: str = NODE_PROGRAM) -> subprocess.Popen[bytes]:
    """Start a node in a session of its own, so that the launcher's end does not end it.

    ``program`` is the module to run. Its output is appended to ``log``. The caller keeps the
    returned object for as long as it cares how the process ends.
    """
    with open(log, "ab") as output:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and our own module
            [sys.executable, "-m", program, "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=config.parent,
        )
