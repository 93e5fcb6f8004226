"""``cluster.json``: what the launcher knows about the cluster in a directory.

::

    {"cluster_id": "...",
     "nodes": [{"id": 0, "pid": 4711, "pid_started": 123456, "dir": "/.../node-0",
                "listeners": {"v1": "127.0.0.1:9092", ...}}, ...],
     "settings": {"log.segment_bytes": "1048576"},
     "tls": {"authority": "/.../tls/authority.pem", "certificate": ..., "key": ...}}

``pid`` is null while a node does not run. ``pid_started`` is the kernel's start time of that
process, so that a number that was given to another process is never signalled. ``settings`` are
the ``--set`` values of ``up``; ``tls`` is what clients go by where the nodes' listeners are
encrypted, and empty where they are not. The file is replaced as a whole (write, fsync, rename,
fsync of the directory), so a launcher that is killed leaves the old or the new one; writers hold
``.lock``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from paceline.tls import ClientTls
from paceline.values import dataclass
from paceline_cluster.errors import BadState, NoSuchCluster, NoSuchNode

CLUSTER_FILE = "cluster.json"
LOCK_FILE = ".lock"
CLUSTER_KEY_FILE = "cluster.secret"
NODE_CONFIG_FILE = "node.toml"
NODE_LOG_FILE = "node.log"
_RENAMED = {"coordinator": "kafka"}
"""Listeners that had another name when the file was written."""


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """One node of the cluster: its process if it runs, its files, its addresses by listener."""

    id: int
    dir: Path
    listeners: dict[str, str]
    pid: int | None = None
    pid_started: int | None = None

    @property
    def config_path(self) -> Path:
        return self.dir / NODE_CONFIG_FILE

    @property
    def log_path(self) -> Path:
        return self.dir / NODE_LOG_FILE

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "pid": self.pid,
            "pid_started": self.pid_started,
            "dir": str(self.dir),
            "listeners": self.listeners,
        }


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The whole of ``cluster.json``."""

    cluster_id: str
    nodes: tuple[NodeEntry, ...]
    settings: dict[str, str] = field(default_factory=dict)
    tls: ClientTls | None = None

    def node(self, node_id: int) -> NodeEntry:
        """The entry of a node. Raises NoSuchNode."""
        for entry in self.nodes:
            if entry.id == node_id:
                return entry
        known = ", ".join(str(entry.id) for entry in self.nodes)
        raise NoSuchNode(f"there is no node {node_id} in this cluster; it has {known}")

    def with_node(self, changed: NodeEntry) -> ClusterState:
        """The state with one entry replaced by the one of the same id."""
        nodes = tuple(changed if entry.id == changed.id else entry for entry in self.nodes)
        return dataclasses.replace(self, nodes=nodes)

    def addresses(self, listener: str) -> list[str]:
        """``host:port`` of every node that has the listener."""
        return [entry.listeners[listener] for entry in self.nodes if listener in entry.listeners]

    def native(self, entry: NodeEntry) -> str:
        """Where a node takes native clients, as they are told: with what TLS they need."""
        address = entry.listeners["native"]
        return address if self.tls is None else f"tls://{address}?{self.tls.query()}"

    def bootstrap(self) -> list[str]:
        """:meth:`native` of every node."""
        return [self.native(entry) for entry in self.nodes]

    def to_json(self) -> dict[str, Any]:
        return {
            "cluster_id": self.cluster_id,
            "nodes": [entry.to_json() for entry in self.nodes],
            "settings": self.settings,
            "tls": {} if self.tls is None else self.tls.given(),
        }


def exists(directory: Path) -> bool:
    """Whether the directory holds a cluster."""
    return (directory / CLUSTER_FILE).is_file()


def load(directory: Path) -> ClusterState:
    """Read ``cluster.json``. Raises NoSuchCluster, or BadState naming what does not fit."""
    path = directory / CLUSTER_FILE
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise _nothing_in(directory) from None
    try:
        return _from_json(json.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadState(f"{path} cannot be understood: {error!r}") from None


def _nothing_in(directory: Path) -> NoSuchCluster:
    return NoSuchCluster(
        f"there is no cluster in {directory} (no {CLUSTER_FILE})",
        hint="'paceline cluster list' shows those of this machine; 'paceline up --dir "
        f"{shlex.quote(str(directory))}' starts one there",
    )


def _from_json(data: Any) -> ClusterState:
    nodes = tuple(
        NodeEntry(
            id=int(node["id"]),
            dir=Path(node["dir"]),
            listeners={
                _RENAMED.get(name, name): str(address)
                for name, address in node["listeners"].items()
            },
            pid=node["pid"],
            pid_started=node.get("pid_started"),
        )
        for node in data["nodes"]
    )
    settings = {str(key): str(value) for key, value in data.get("settings", {}).items()}
    tls = data.get("tls")
    return ClusterState(str(data["cluster_id"]), nodes, settings, ClientTls(**tls) if tls else None)


def store(directory: Path, state: ClusterState) -> None:
    """Replace ``cluster.json`` durably. The caller holds :func:`locked`."""
    write_file(directory / CLUSTER_FILE, json.dumps(state.to_json(), indent=2) + "\n")


def write_file(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a small file so that a crash leaves the old one or the whole new one."""
    new = path.with_name(path.name + ".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    parent = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory's launcher lock; waits for another launcher to finish its change. Raises
    NoSuchCluster, and then leaves no file behind."""
    if not exists(directory):
        raise _nothing_in(directory)
    with open(directory / LOCK_FILE, "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def remove_node(directory: Path, node_id: int) -> None:
    """Take a node out of ``cluster.json``; its own directory stays."""
    with locked(directory):
        state = load(directory)
        left = tuple(entry for entry in state.nodes if entry.id != node_id)
        store(directory, replace(state, nodes=left))


def update_node(
    directory: Path, node_id: int, change: Callable[[NodeEntry], NodeEntry]
) -> ClusterState:
    """Change one entry under the lock and return the new state."""
    with locked(directory):
        state = load(directory)
        state = state.with_node(change(state.node(node_id)))
        store(directory, state)
    return state
