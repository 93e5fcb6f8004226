"""Spark's daemon of Python workers, which has imported most of what ours need before it forks them.

Each query has half a dozen workers, and each would import the client by itself: a quarter of a
second of processor time. Only what starts no thread may be imported here, since a fork leaves
threads behind: not pyarrow, nor what imports it.
"""

from __future__ import annotations

import socket

from pyspark import daemon

from paceline.spark import batch_plan, exactly_once, planner

IMPORTED = (batch_plan, exactly_once, planner)

_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """One task. Where Spark has hung up, because ``show(5)`` has its five rows, Spark's own daemon
    prints a BrokenPipeError with its stack; nothing is wrong then."""
    try:
        code: int = _worker(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1
    return code


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
