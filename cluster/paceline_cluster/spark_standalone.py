"""A standalone Spark cluster on this machine: a master and workers, each a process of its own.

What ``deploy/spark/README.md`` does on several machines, for trials: a worker can be lost.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from paceline_cluster.process_tree import descendants, kill_below

HOST = "127.0.0.1"
WORKERS = 2
MEMORY = "1g"
START_S = 600.0
"""No master or worker takes this long to come up; it bounds a hang."""


class Standalone:
    """A master, and workers of one core each. What they say goes to ``base``."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._port, self._page = _free_port(), _free_port()
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self._made = 0

    @property
    def url(self) -> str:
        """What ``--master`` takes."""
        return f"spark://{HOST}:{self._port}"

    def start(self) -> None:
        """The master and its workers; returns when all of them are there."""
        ports = ("--port", str(self._port), "--webui-port", str(self._page))
        self._master = self._spawn("master", "master", *ports)
        self._await(0)
        for _ in range(WORKERS):
            self._add()
        self._await(WORKERS)

    def lose(self, inside: int | None = None) -> None:
        """SIGKILL a worker and all that it has started: the one that ``inside`` runs in, or the
        first. As a machine that is gone."""
        worker = next(
            (each for each in self._workers if inside in (None, *descendants(each.pid))), None
        )
        if worker is None:
            raise ValueError(f"process {inside} is in none of the workers")
        _kill(worker)
        self._workers.remove(worker)

    def complete(self) -> None:
        """New workers in the place of lost ones."""
        while len(self._workers) < WORKERS:
            self._add()
        self._await(WORKERS)

    def stop(self) -> None:
        """End all of it."""
        for each in [*self._workers, *([self._master] if self._master else [])]:
            _kill(each)

    def _add(self) -> None:
        name = f"worker-{self._made}"
        self._made += 1
        room = ("--cores", "1", "--memory", MEMORY, "--webui-port", "0")
        where = ("--work-dir", str(self._base / name))
        self._workers.append(self._spawn(name, "worker", *room, *where, self.url))

    def _spawn(self, name: str, role: str, *words: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "256m"}
        with (self._base / f"{name}.log").open("wb") as log:
            return subprocess.Popen(  # noqa: S603 - our own interpreter and our own module
                [sys.executable, "-m", "paceline.spark.standalone", role, "--host", HOST, *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _await(self, workers: int) -> None:
        deadline = time.monotonic() + START_S
        while self._alive() != workers:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._base}: {self._alive()} of {workers} workers came up")
            time.sleep(0.2)

    def _alive(self) -> int:
        """Workers that the master knows; -1 while it does not answer."""
        with (
            suppress(OSError, ValueError),
            urllib.request.urlopen(f"http://{HOST}:{self._page}/json/", timeout=10) as page,
        ):
            return int(json.load(page)["aliveworkers"])
        return -1


@contextmanager
def standalone(base: Path) -> Iterator[Standalone]:
    """A running cluster with its files in ``base`` (created), ended with the block."""
    base.mkdir(parents=True)
    made = Standalone(base)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def _kill(process: subprocess.Popen[bytes]) -> None:
    kill_below(process.pid, itself=True)
    process.wait()


def _free_port() -> int:
    with closing(socket.socket()) as made:
        made.bind((HOST, 0))
        return int(made.getsockname()[1])
