"""What a test must not leave behind: threads of ours, sockets, files of its cluster."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path

from paceline.values import dataclass

_GRACE_S = 2.0
"""Threads and sockets that are being closed get so long."""
_LOOK_AGAIN_S = 0.01
_THREADS = "paceline"
_DESCRIPTORS = Path("/proc/self/fd")


class Leak(AssertionError):
    """A test left something open; the text lists it."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is open in this process."""

    threads: frozenset[threading.Thread]
    descriptors: frozenset[str]

    @classmethod
    def take(cls, directory: Path) -> Snapshot:
        """Threads, sockets, and open files below ``directory``. Systems without /proc show no
        descriptors."""
        return cls(frozenset(threading.enumerate()), frozenset(_descriptors(directory)))


def _descriptors(directory: Path) -> list[str]:
    found = []
    try:
        names = os.listdir(_DESCRIPTORS)
    except FileNotFoundError:
        return []
    for name in names:
        try:
            target = os.readlink(_DESCRIPTORS / name)
        except FileNotFoundError:
            continue  # the one we listed the directory with
        if target.startswith(("socket:", str(directory))):
            found.append(target)
    return found


def require_none(before: Snapshot, directory: Path) -> None:
    """Raise Leak naming what was not open before. What is on its way out gets a moment."""
    deadline = time.monotonic() + _GRACE_S
    while True:
        gc.collect()
        left = _left(before, Snapshot.take(directory))
        if not left:
            return
        if time.monotonic() > deadline:
            raise Leak(
                "left open by the test: " + ", ".join(left) + "; close clients, best with 'with'"
            )
        time.sleep(_LOOK_AGAIN_S)


def _left(before: Snapshot, now: Snapshot) -> list[str]:
    threads = [
        f"thread {thread.name}"
        for thread in now.threads - before.threads
        if thread.name.startswith(_THREADS) and thread.is_alive()
    ]
    return sorted(threads) + sorted(now.descriptors - before.descriptors)
