"""How a survey of the cluster is shown, by ``up``, ``status`` and ``health`` alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paceline.documents.survey import Survey
from paceline.health import WANTED
from paceline_cluster.cli.output import Table
from paceline_cluster.state import ClusterState


def status_data(current: ClusterState | None, seen: Survey) -> dict[str, Any]:
    """``cluster.json`` plus what the nodes say: state, controller, counts of partitions."""
    newest = seen.newest()
    data: dict[str, Any] = (
        {"cluster_id": None if newest is None else str(newest.cluster_id), "nodes": []}
        if current is None
        else current.to_json()
    )
    if current is None:
        data["nodes"] = [
            {"id": view.id, "pid": None, "dir": None, "listeners": {"native": _plain(view.address)}}
            for view in seen.nodes
        ]
    states = seen.states()
    leading = {view.id: view.status.leading_count for view in seen.nodes if view.status}
    for node in data["nodes"]:
        node["state"] = states[node["id"]]
        node["role"] = "controller" if node["id"] == seen.controller else None
        node["leads"] = leading.get(node["id"])
    data["addresses"] = _by_listener(data["nodes"])
    data["controller"] = seen.controller
    data["topics"] = None if newest is None else newest.topic_count
    data["internal_topics"] = seen.internal_topics
    data["partitions"] = None if newest is None else newest.partition_count
    data["leaderless_partitions"] = seen.leaderless()
    data["under_replicated_partitions"] = None if newest is None else newest.under_replicated_count
    data["healthy"] = seen.is_healthy()
    data["reasons"] = seen.reasons()
    data["checks"] = [each.to_json() for each in seen.checks()]
    return data


def _by_listener(nodes: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Addresses of all nodes, as clients of each protocol take them."""
    known = sorted({name for node in nodes for name in node["listeners"]})
    return {
        name: [node["listeners"][name] for node in nodes if name in node["listeners"]]
        for name in known
    }


def health_tables(data: Mapping[str, Any]) -> list[Table]:
    """The same for people."""
    reasons = data["reasons"]
    tables = [Table(("health",), [(reason,) for reason in reasons] or [("healthy",)])]
    todos = _todos(each for each in data["checks"] if each["reason"] in reasons)
    if todos:
        tables.append(Table(("what to do",), [(each,) for each in todos]))
    remarks = [each for each in data["checks"] if each["reason"] and each["name"] in WANTED]
    if remarks:
        tables.append(Table(("remarks",), [(each["reason"],) for each in remarks]))
    for rows in (data["ranges"], data["certificates"]):
        if rows:
            tables.append(Table(tuple(rows[0]), [tuple(each.values()) for each in rows]))
    return tables


def _todos(checks: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is to be done about them, unless their own sentence says it, each thing once."""
    whose: dict[str, list[int | None]] = {}
    for each in checks:
        if each["what_to_do"] not in each["reason"]:
            whose.setdefault(each["what_to_do"], []).append(each["node"])
    return [f"{_named(nodes)}{todo}" for todo, nodes in whose.items()]


def _named(nodes: Sequence[int | None]) -> str:
    """The nodes before what is to be done about them; nothing where it is the cluster's."""
    if None in nodes:
        return ""
    return f"node{'' if len(nodes) == 1 else 's'} {', '.join(map(str, nodes))}: "


def _plain(address: str) -> str:
    """``host:port`` of an address."""
    return address.partition("?")[0].removeprefix("tls://")


def status_tables(current: ClusterState | None, seen: Survey) -> list[Table]:
    """The same for people: a table of nodes, one of addresses, one of the cluster."""
    data = status_data(current, seen)
    columns = ("state", "role", "leads", "pid")
    nodes = Table(
        ("node", *columns),
        [(node["id"], *(node[column] for column in columns)) for node in data["nodes"]],
    )
    counts = ("partitions", "leaderless_partitions", "under_replicated_partitions", "healthy")
    cluster = Table(
        ("cluster", "topics", "partitions", "leaderless", "under-replicated", "healthy"),
        [(data["cluster_id"], _topics(data), *(_known(data[count]) for count in counts))],
    )
    listeners = [node["listeners"] for node in data["nodes"]]
    is_encrypted = current is not None and current.tls is not None
    tables = [nodes, address_table(listeners, is_encrypted=is_encrypted), cluster]
    problems = [(problem,) for problem in data["reasons"]]
    return [*tables, Table(("problems",), problems)] if problems else tables


def _topics(data: Mapping[str, Any]) -> object:
    own = data["internal_topics"]
    return _known(data["topics"]) if own is None else f"{data['topics']} ({own} internal)"


def _known(value: object) -> object:
    return "unknown" if value is None else value


_CLIENTS = {
    "native": "paceline --bootstrap",
    "kafka": "Kafka",
    "v1": "V1",
    "cursus": "Cursus",
    "segment": "segments",
    "pravega": "Pravega",
}
_PAGES = "http"


def address_table(listeners: Sequence[Mapping[str, str]], *, is_encrypted: bool = False) -> Table:
    """Where clients of each protocol connect, as they take it: the addresses of all nodes, joined
    by commas; a browser takes one. Nobody connects to what nodes have for each other."""
    rows: list[tuple[str, str]] = []
    for name, clients in _CLIENTS.items():
        found = [node[name] for node in listeners if name in node]
        if is_encrypted and name == "native":  # the one whose addresses say so
            found = [f"tls://{each}" for each in found]
        elif is_encrypted:
            clients = f"{clients} (TLS)"
        if found:
            rows.append((clients, ",".join(found)))
    scheme = "https" if is_encrypted else "http"
    pages = [f"{scheme}://{node[_PAGES]}" for node in listeners if _PAGES in node]
    if pages:
        rows.append(("console, API", " ".join(pages)))
    return Table(("clients", "addresses"), rows)
