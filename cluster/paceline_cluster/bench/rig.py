"""The cluster under measurement: started by ``paceline up``, as a user would."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from paceline_cluster import launch, processes, state
from paceline_cluster.errors import NodeEnded
from paceline_cluster.state import ClusterState, NodeEntry

NODES = 3


class Rig:
    """A running cluster, of three processes if not said otherwise, in a directory of its own."""

    def __init__(self, directory: Path, nodes: int = NODES) -> None:
        self.directory = directory
        self._nodes = nodes

    @property
    def state(self) -> ClusterState:
        return state.load(self.directory)

    @property
    def addresses(self) -> list[str]:
        return self.state.addresses("native")

    def paceline(self, *words: str) -> None:
        """Run a command against this cluster. Raises NodeEnded with what it said."""
        result = subprocess.run(  # noqa: S603 - our own interpreter and our own module
            [sys.executable, "-m", "paceline_cluster.cli.main", *words, "--dir", self.directory],
            capture_output=True,
            check=False,
            env={**os.environ, "XDG_CONFIG_HOME": str(self.directory.parent / "config")},
        )
        if result.returncode:
            text = result.stderr.decode(errors="replace")
            raise NodeEnded(f"paceline {' '.join(words)}: exit code {result.returncode}\n{text}")

    def up(self, settings: Mapping[str, str] | None = None) -> None:
        words = [
            word
            for name, value in (settings or {}).items()
            for word in ("--set", f"{name}={value}")
        ]
        self.paceline("up", "--detach", "--any-port", "--nodes", str(self._nodes), *words)

    def kill(self, node_id: int) -> float:
        """SIGKILL a node; returns the monotonic time just before."""
        entry = self.state.node(node_id)
        moment = time.monotonic()
        processes.send(entry.pid, entry.pid_started, signal.SIGKILL)
        return moment

    def restart(self, node_id: int) -> None:
        """Start a killed node and wait until the cluster is healthy."""
        self.paceline("node", "restart", str(node_id))
        self.paceline("health", "--exit-when-healthy")

    def resident_mib(self) -> list[float]:
        """Resident memory of each node's process."""
        return [_resident_mib(entry) for entry in self.state.nodes]


def _resident_mib(entry: NodeEntry) -> float:
    launch.require_running(entry)
    for line in (processes.PROC / str(entry.pid) / "status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise NodeEnded(f"node {entry.id} shows no resident memory")


@contextmanager
def cluster(base: Path, nodes: int = NODES) -> Iterator[Rig]:
    """A cluster below ``base`` (created), stopped and removed at the end."""
    base.mkdir(parents=True)
    rig = Rig(base / "cluster", nodes)
    try:
        yield rig
    finally:
        if state.exists(rig.directory):
            rig.paceline("down")
        shutil.rmtree(base)
