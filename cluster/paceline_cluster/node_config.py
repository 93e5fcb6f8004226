"""The ``node.toml`` of a node, as ``up`` and ``cluster init`` write it."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from paceline.values import dataclass
from paceline_cluster.toml import Sections, Value, merged, render
from paceline_node.settings.addresses import LOGIN_KINDS, ListenerKind

DEFAULT_REPLICATION_FACTOR = 3
DEFAULT_MIN_IN_SYNC = 2
HEADING = "# Written by 'paceline'; change it here or with 'paceline up --set'.\n\n"


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A node to configure. ``listeners`` are the addresses that others are told, ``bind`` is the
    host to listen on. ``data_dir`` is where the directory will lie, None where it is made."""

    id: int
    listeners: Mapping[str, tuple[str, int]]
    bind: str
    data_dir: Path | None
    timing: str
    tls: Path | None = None
    """Where the node finds its certificates; None where nothing is encrypted."""
    administrator: str = ""
    """Who may do everything where clients have to prove who they are; empty where they need not."""


def text(
    plan: NodePlan, folder: Path, nodes: Sequence[NodePlan], settings: Mapping[str, str]
) -> str:
    """The whole file: what ``plan`` says, ``--set`` values laid over it."""
    return HEADING + render(merged(_sections(plan, folder, nodes), settings))


def _sections(plan: NodePlan, folder: Path, nodes: Sequence[NodePlan]) -> Sections:
    # Replication factor and minimum in-sync replicas are written out even where they are the
    # node's own defaults, so that the file says what holds (DECISIONS 28).
    replication_factor = min(DEFAULT_REPLICATION_FACTOR, len(nodes))
    peers = [(each.id, *each.listeners["peer"]) for each in nodes]
    cluster: dict[str, Value] = {
        "bootstrap": [f"{node}@{_joined(host, port)}" for node, host, port in peers],
        "timing": plan.timing,
    }
    if plan.data_dir is not None:
        cluster["secret_file"] = str(plan.data_dir / "cluster.secret")
    tls: Sections = {} if plan.tls is None else {"tls": dict(files_of(plan.tls))}
    return {
        "": {"listeners": [_url(plan, name) for name in plan.listeners]},
        "node": {"id": plan.id, "data_dir": str(plan.data_dir or folder)},
        "cluster": cluster,
        "topics": {
            "replication_factor": replication_factor,
            "min_insync_replicas": min(DEFAULT_MIN_IN_SYNC, replication_factor),
        },
        **tls,
        **({"security": {"super_users": [plan.administrator]}} if plan.administrator else {}),
    }


def files_of(folder: Path) -> Mapping[str, str]:
    """What a node shows and whom it trusts, as ``authority.certify`` lays it down: the section
    ``tls``. Clients may show a certificate, and are then known by its name."""
    return {
        "certificate": str(folder / "server.pem"),
        "key": str(folder / "server.key"),
        "client_authorities": str(folder / "authority.pem"),
        "client_auth": "optional",
        "peer_certificate": str(folder / "peer.pem"),
        "peer_key": str(folder / "peer.key"),
        "peer_authority": str(folder / "peers.pem"),
    }


def scheme(name: str, *, is_encrypted: bool) -> str:
    """Of a listener's URL."""
    return f"{name}+tls" if is_encrypted else name


def _url(plan: NodePlan, name: str) -> str:
    host, port = plan.listeners[name]
    url = f"{scheme(name, is_encrypted=plan.tls is not None)}://{_joined(plan.bind, port)}"
    options = [] if plan.bind == host else [f"advertised={_joined(host, port)}"]
    if plan.administrator:
        options += _proof(name)
    return f"{url}?{'&'.join(options)}" if options else url


def _proof(listener: str) -> list[str]:
    """How clients of a listener prove who they are."""
    kind = ListenerKind(listener)
    if kind in LOGIN_KINDS:
        return ["login=required"]
    return [] if kind is ListenerKind.PEER else ["client_auth=required"]


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def with_settings(old: str, settings: Mapping[str, str]) -> str:
    """An existing file's text with ``settings`` laid over it; its comments are not kept."""
    return HEADING + render(merged(_parsed(old), settings))


def without(old: str, keys: Collection[str]) -> str:
    """An existing file's text without what it says of these settings; comments are not kept."""
    kept = {
        section: {
            name: value
            for name, value in values.items()
            if (f"{section}.{name}" if section else name) not in keys
        }
        for section, values in _parsed(old).items()
    }
    return HEADING + render(kept)


def _parsed(text: str) -> dict[str, dict[str, Value]]:
    sections: dict[str, dict[str, Value]] = {"": {}}
    for name, value in tomllib.loads(text).items():
        if isinstance(value, dict):
            sections[name] = value
        else:
            sections[""][name] = value
    return sections
