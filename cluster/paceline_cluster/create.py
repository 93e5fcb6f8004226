"""Makes the directories of a new cluster: secret, node configurations, formatted data directories.

Nothing runs yet when this is at work, so it is repeatable: a directory whose making was
interrupted (it holds ``.creating``) is made anew. ``cluster.json`` is written last; from then on
the cluster exists.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import tomllib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import trio

from paceline.errors import ConfigurationError
from paceline.tls import ClientTls
from paceline.types import NodeId
from paceline.values import dataclass
from paceline_cluster import certificate_authority, node_config, state
from paceline_cluster.errors import BadSetting, Refused
from paceline_cluster.first_user import PASSWORD_FILE, FirstUser
from paceline_cluster.node_config import NodePlan
from paceline_cluster.ports import BASE_PORTS, HOST, NodePorts
from paceline_cluster.state import ClusterState, NodeEntry
from paceline_node.app.boot import format_node
from paceline_node.controller.metadata_records import User
from paceline_node.controller.raft_types import Member
from paceline_node.settings import InvalidSettings, Settings, load
from paceline_node.storage import layout
from paceline_node.storage.disk import RealDisk

MARKER = ".creating"
SECRET_BYTES = 32
LOCAL = ("localhost", HOST, "::1")
"""Names of a machine that clients on it use."""
SHOW_SETTINGS = "'paceline node settings' shows all settings and their bounds"
KEPT = frozenset(
    {
        state.NODE_CONFIG_FILE,
        state.NODE_LOG_FILE,
        state.CLUSTER_KEY_FILE,
        certificate_authority.FOLDER,
        "LOCK",
    }
)
"""Files of a node's directory that formatting it anew leaves alone."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A cluster to make: its nodes in order of id, and how many of the first ones vote."""

    nodes: tuple[NodePlan, ...]
    voters: int
    settings: Mapping[str, str]
    first_user: FirstUser | None = None

    def encrypted(self, directory: Path) -> ClusterSpec:
        """The same in ``directory``, where everything is encrypted."""
        nodes = []
        for plan in self.nodes:
            folder = plan.data_dir or _folder(directory, plan)
            nodes.append(replace(plan, tls=folder / certificate_authority.FOLDER))
        return replace(self, nodes=tuple(nodes))

    def closed(self, directory: Path, first_user: FirstUser) -> ClusterSpec:
        """The same in ``directory``, encrypted, for clients only that prove who they are."""
        spec = self.encrypted(directory)
        nodes = tuple(replace(plan, administrator=first_user.name) for plan in spec.nodes)
        return replace(spec, nodes=nodes, first_user=first_user)


def local_spec(
    ports: Mapping[int, NodePorts], *, settings: Mapping[str, str], voters: int | None
) -> ClusterSpec:
    """All nodes on this machine, on loopback, with the timing for that."""
    plans = tuple(
        NodePlan(
            id=node,
            listeners={name: (HOST, port) for name, port in listeners.items()},
            bind=HOST,
            data_dir=None,
            timing="local",
        )
        for node, listeners in ports.items()
    )
    return ClusterSpec(plans, voter_count(len(plans), voters), settings)


def hosts_spec(
    hosts: Sequence[str],
    *,
    bind: str,
    data_dir: Path,
    settings: Mapping[str, str],
    voters: int | None,
) -> ClusterSpec:
    """One node a host, each with node 0's ports; their directories will lie in ``data_dir``."""
    plans = tuple(
        NodePlan(
            id=node,
            listeners={name: (host, port) for name, port in BASE_PORTS.items()},
            bind=bind,
            data_dir=data_dir,
            timing="production",
        )
        for node, host in enumerate(hosts)
    )
    return ClusterSpec(plans, voter_count(len(plans), voters), settings)


def voter_count(nodes: int, wanted: int | None) -> int:
    """How many nodes vote (controller/RAFT 4.3): 1 of one or two, 3 of three or more, unless said.

    Raises BadSetting when there are not as many nodes.
    """
    if wanted is None:
        return 1 if nodes < 3 else 3
    if wanted > nodes:
        raise BadSetting(f"{wanted} voters need at least {wanted} nodes, not {nodes}")
    return wanted


async def create(directory: Path, spec: ClusterSpec) -> ClusterState:
    """Make the directory and everything in it. Raises Refused when something else is there,
    BadSetting naming every setting that is wrong, before anything is made."""
    is_encrypted = any(plan.tls is not None for plan in spec.nodes)
    if is_encrypted:
        certificate_authority.require_library()
    for plan in spec.nodes:
        _check(directory, plan, spec)
    _begin(directory)
    tls = _make_authorities(directory, spec) if is_encrypted else None
    key = directory / state.CLUSTER_KEY_FILE
    state.write_file(key, secrets.token_hex(SECRET_BYTES) + "\n", mode=0o600)
    users = await _first_users(directory, spec)
    entries = [_write_node(directory, plan, spec) for plan in spec.nodes]
    cluster_id = uuid.uuid4()
    directory_ids = {plan.id: uuid.uuid4() for plan in spec.nodes}
    voters = [
        Member(NodeId(plan.id), directory_ids[plan.id], *plan.listeners["peer"])
        for plan in spec.nodes[: spec.voters]
    ]
    for entry in entries:
        is_voter = entry.id < spec.voters
        await format_directory(
            entry.dir,
            cluster_id=cluster_id,
            node_id=entry.id,
            directory_id=directory_ids[entry.id],
            voters=voters if is_voter else (),
            users=users,
        )
    made = ClusterState(str(cluster_id), tuple(entries), dict(spec.settings), tls)
    state.store(directory, made)
    finish(directory)
    return made


def _make_authorities(directory: Path, spec: ClusterSpec) -> ClientTls:
    """What clients need who find the cluster by its directory: they are its administrator."""
    name = None if spec.first_user is None else spec.first_user.name
    return certificate_authority.make(directory, name or certificate_authority.CLIENT_NAME)


async def _first_users(directory: Path, spec: ClusterSpec) -> Sequence[User]:
    first = spec.first_user
    if first is None:
        return ()
    if first.is_drawn:
        state.write_file(directory / PASSWORD_FILE, first.password + "\n", mode=0o600)
    return [await trio.to_thread.run_sync(first.record)]


def finish(directory: Path) -> None:
    """The cluster exists: nothing is to be made anew, even if whoever made it died just then."""
    (directory / MARKER).unlink(missing_ok=True)


def _check(directory: Path, plan: NodePlan, spec: ClusterSpec) -> None:
    """What the node would make of the file that it is to get. Raises BadSetting."""
    text = node_config.text(plan, _folder(directory, plan), spec.nodes, _voters_setting(spec))
    settings = _load(spec.settings, planned=tomllib.loads(text))
    first = spec.first_user
    if first is not None and first.name not in settings.security.super_users:
        raise BadSetting(
            f"security.super_users: {first.name}, the cluster's first user, has to be one of them"
        )


def _folder(directory: Path, plan: NodePlan) -> Path:
    return directory / f"node-{plan.id}"


def refuse_existing(directory: Path) -> None:
    """Raises Refused where a cluster is already, before anybody complains of its ports."""
    if state.exists(directory):
        where = shlex.quote(str(directory))
        raise Refused(
            f"{directory} holds a cluster already",
            hint=f"choose another --dir; or 'paceline up --dir {where}' starts it, "
            f"'paceline purge --dir {where}' removes it with all records",
        )


def _begin(directory: Path) -> None:
    refuse_existing(directory)
    marker = directory / MARKER
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()) and not marker.exists():
            raise Refused(
                f"{directory} is not empty and holds no cluster", hint="choose another --dir"
            )
        marker.touch()
    except OSError as error:
        raise Refused(
            f"no cluster can be made in {directory} ({_reason(directory, error)})",
            hint="choose another --dir",
        ) from None
    for left in directory.glob("node-*"):
        shutil.rmtree(left)


def _reason(directory: Path, error: OSError) -> str:
    """What is in the way, and where, as a person looks for it."""
    if isinstance(error, FileExistsError | NotADirectoryError):
        file = next(each for each in (directory, *directory.parents) if each.exists())
        return f"{file} is a file"
    return f"{error.filename}: {(error.strerror or str(error)).lower()}"


def _write_node(directory: Path, plan: NodePlan, spec: ClusterSpec) -> NodeEntry:
    folder = _folder(directory, plan)
    folder.mkdir(mode=0o700)  # records and secrets: for nobody but who runs the node
    if plan.data_dir is not None:
        # The directory will be carried to another machine, so the secret travels in it.
        secret = (directory / state.CLUSTER_KEY_FILE).read_text(encoding="ascii")
        state.write_file(folder / state.CLUSTER_KEY_FILE, secret, mode=0o600)
    if plan.tls is not None:
        hosts = dict.fromkeys([*LOCAL, *(host for host, _ in plan.listeners.values())])
        certificate_authority.certify(
            directory, folder / certificate_authority.FOLDER, plan.id, tuple(hosts)
        )
    entry = NodeEntry(
        id=plan.id,
        dir=folder,
        listeners={name: f"{host}:{port}" for name, (host, port) in plan.listeners.items()},
    )
    settings = {**_voters_setting(spec), **spec.settings}
    state.write_file(entry.config_path, node_config.text(plan, folder, spec.nodes, settings))
    return entry


def voters_of(current: ClusterState) -> int:
    """How many nodes of a cluster that exists vote, by its first node's configuration. Raises
    BadSetting."""
    asked = check_config(current.nodes[0].config_path).raft.voters
    count = len(current.nodes)
    return asked if asked <= count else voter_count(count, None)


def _voters_setting(spec: ClusterSpec) -> dict[str, str]:
    """What the quorum must know to stay as large as it was asked to be; nothing where it was not
    asked."""
    if spec.voters == voter_count(len(spec.nodes), None):
        return {}
    return {"raft.voters": str(spec.voters)}


def check_config(path: Path, settings: Mapping[str, str] | None = None) -> Settings:
    """What a node would make of its configuration file with the ``settings`` of a command line over
    it. Raises BadSetting with all problems, each with the place that its writer knows."""
    return _load(settings or {}, file=path)


def check_text(text: str) -> Settings:
    """What a node would make of a file with this text. Raises BadSetting."""
    return _load({}, planned=tomllib.loads(text))


def _load(
    settings: Mapping[str, str],
    *,
    file: Path | None = None,
    planned: Mapping[str, Any] | None = None,
) -> Settings:
    flags = [f"{key}={value}" for key, value in settings.items()]
    try:
        return load(file=file, planned=planned, environ=os.environ, flags=flags)
    except InvalidSettings as error:
        raise BadSetting("; ".join(error.problems), hint=SHOW_SETTINGS) from None


def change_settings(directory: Path, settings: Mapping[str, str]) -> ClusterState:
    """Lay ``settings`` over the configuration files of all nodes; they hold from the next start.

    Raises BadSetting, and then nothing is changed.
    """
    with state.locked(directory):
        current = state.load(directory)
        texts = {}
        for entry in current.nodes:
            check_config(entry.config_path, settings)
            old = entry.config_path.read_text(encoding="utf-8")
            texts[entry.config_path] = node_config.with_settings(old, settings)
        for path, text in texts.items():
            state.write_file(path, text)
        changed = replace(current, settings=dict(settings))
        state.store(directory, changed)
    return changed


async def format_directory(
    path: Path,
    *,
    cluster_id: UUID,
    node_id: int,
    directory_id: UUID,
    voters: Sequence[Member],
    users: Sequence[User] = (),
) -> None:
    """Give a data directory its identity and, for an initial voter, the quorum's first state, with
    the users that the cluster begins with."""
    disk = RealDisk(str(path))
    try:
        _lock(disk, path)
        meta = layout.DirectoryMeta(cluster_id, NodeId(node_id), directory_id)
        await format_node(disk, meta, voters, users)
    finally:
        disk.close()


def _lock(disk: RealDisk, path: Path) -> None:
    try:
        disk.lock()
    except BlockingIOError as error:
        raise Refused(f"{path} is in use by a running node: {error}") from None


async def format_for_joining(
    config: Path, *, cluster_id: UUID | None, replace: bool
) -> dict[str, Any]:
    """Prepare the data directory of a node that joins a running cluster.

    ``cluster_id`` None keeps the cluster of the directory that is replaced. Raises Refused when
    the directory is in use, holds a node and is not to be replaced, or names no cluster.
    """
    settings = check_config(config)
    path = settings.node.data_dir.absolute()
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    known = await _former_cluster(path, replace=replace)
    chosen = cluster_id or known
    if chosen is None:
        raise Refused(f"{path} belongs to no cluster yet; name the one to join with --cluster-id")
    directory_id = uuid.uuid4()
    await format_directory(
        path, cluster_id=chosen, node_id=settings.node.id, directory_id=directory_id, voters=()
    )
    return {
        "node": settings.node.id,
        "dir": str(path),
        "cluster_id": str(chosen),
        "directory_id": str(directory_id),
    }


async def _former_cluster(path: Path, *, replace: bool) -> UUID | None:
    """The cluster that a directory belongs to; what it holds is removed if ``replace``."""
    disk = RealDisk(str(path))
    try:
        _lock(disk, path)
        try:
            meta = await layout.read_meta(disk)
        except ConfigurationError:
            meta = None  # unreadable: one reason to format it anew
        _empty(path, replace=replace)
    finally:
        disk.close()
    return None if meta is None else meta.cluster_id


def _empty(path: Path, *, replace: bool) -> None:
    """Remove a node's data. Raises Refused when there are any and they are to stay."""
    data = [entry for entry in path.iterdir() if entry.name not in KEPT]
    if data and not replace:
        raise Refused(f"{path} holds data of a node already; --replace removes them")
    for entry in data:
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
