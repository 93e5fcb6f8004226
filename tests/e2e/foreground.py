"""Nodes in the foreground, as a service manager starts them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.e2e.cluster import PACELINE, Cluster


class Runner:
    """Starts ``paceline node run`` in the foreground, as a service manager does."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.processes: list[subprocess.Popen[bytes]] = []

    def run(self, config: Path, *options: str) -> subprocess.Popen[bytes]:
        with (config.parent / "node.log").open("ab") as log:
            process = subprocess.Popen(
                [*PACELINE, "node", "run", "--config", str(config), *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._cluster.env,
            )
        self.processes.append(process)
        return process


ANY_PORTS = 'listeners = ["native://127.0.0.1:0", "peer://127.0.0.1:0"]'


def listeners_of(made: dict[str, object]) -> str:
    """That line of a node's configuration."""
    lines = (Path(str(made["dir"])) / "node.toml").read_text().splitlines()
    return next(line for line in lines if line.startswith("listeners"))


def config_of_another(
    made: dict[str, object], node: int, folder: Path, *, listeners: str = ANY_PORTS
) -> Path:
    """The configuration of a node that was made, with another id, directory and ports."""
    text = (Path(str(made["dir"])) / "node.toml").read_text()
    secret = Path(str(made["dir"])).parent / "cluster.secret"
    folder.mkdir()
    lines = []
    for line in text.splitlines():
        if line.startswith("listeners"):
            line = listeners
        elif line.startswith("id ="):
            line = f"id = {node}"
        elif line.startswith("data_dir"):
            line = f"data_dir = {json.dumps(str(folder))}"
        elif line.startswith("[cluster]"):
            line = f"[cluster]\nsecret_file = {json.dumps(str(secret))}"
        lines.append(line)
    config = folder / "node.toml"
    config.write_text("\n".join(lines) + "\n")
    return config
