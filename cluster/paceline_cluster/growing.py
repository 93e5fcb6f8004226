"""Adds nodes to a cluster that is there: their configurations, formatted directories, and places in
``cluster.json``.

A new node is configured as the first one is, what somebody wrote into its file by hand included:
who may log in, who may do what, is the same at all nodes. It votes on nothing until the quorum lets
it.

A launcher that is killed in between leaves directories that no cluster has. So the numbers that
are being added are noted in ``.growing`` first, and whoever finds the note removes what
``cluster.json`` does not have; nothing of that has ever run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import signal
import tomllib
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from paceline.values import dataclass
from paceline_cluster import certificate_authority, create, node_config, ports, processes, state
from paceline_cluster.errors import BadState, Refused
from paceline_cluster.ports import STEP
from paceline_cluster.state import ClusterState, NodeEntry
from paceline_node.settings import Settings
from paceline_node.settings.addresses import Listener, ListenerKind

MARKER = ".growing"
_MAKE_ANEW = "make another one with 'paceline up --dir OTHER'"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be added: so many nodes of this machine, or one on each of ``hosts``.

    ``taken`` are numbers that the running cluster knows besides those of ``cluster.json``;
    ``settings`` is laid over the configuration of all nodes, the old ones too.
    """

    count: int
    hosts: tuple[str, ...] = ()
    rack: str = ""
    taken: frozenset[int] = frozenset()
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Growth:
    """The new nodes' numbers, and what has changed in the configuration of those before them."""

    numbers: tuple[int, ...]
    changed: Mapping[str, str]


@contextlib.asynccontextmanager
async def adding(directory: Path, wish: Wish) -> AsyncIterator[Growth]:
    """Add nodes; none of them is started. Their ports are kept from other launchers until the block
    ends, in which they are started.

    Raises NoSuchCluster, BadState, Refused, or BadSetting where a node would not take its
    configuration, and then nothing is changed.
    """
    # In this order: who starts nodes while it keeps ports waits for the directory's lock.
    async with ports.choosing():
        with state.locked(directory):
            _clear(directory)
            growth = await _add(directory, wish)
        yield growth


def have_read(current: ClusterState, growth: Growth) -> None:
    """Have the nodes that were there read what has changed for them. Not before all nodes serve:
    SIGHUP ends a process that is only starting."""
    for entry in current.nodes if growth.changed else ():
        if entry.id not in growth.numbers:
            processes.send(entry.pid, entry.pid_started, signal.SIGHUP)


def is_local(current: ClusterState) -> bool:
    """Whether all nodes are reached by loopback, so that none can be anywhere else."""
    return all(
        address.startswith(f"{ports.HOST}:")
        for entry in current.nodes
        for address in entry.listeners.values()
    )


def _clear(directory: Path) -> None:
    """Remove what a launcher began to add and did not finish. Raises BadState."""
    marker = directory / MARKER
    if not marker.exists():
        return
    try:
        begun = [int(number) for number in json.loads(marker.read_text(encoding="utf-8"))]
    except (ValueError, TypeError) as error:
        raise BadState(f"{marker} cannot be understood: {error}") from None
    there = {entry.id for entry in state.load(directory).nodes}
    for number in begun:
        folder = directory / f"node-{number}"
        if number not in there and folder.exists():
            shutil.rmtree(folder)
    marker.unlink()


async def _add(directory: Path, wish: Wish) -> Growth:
    current = state.load(directory)
    if not current.nodes:
        raise Refused(f"the cluster in {directory} has no node to go by", hint=_MAKE_ANEW)
    settings = create.check_config(current.nodes[0].config_path)
    _require_fitting(directory, current, settings, wish)
    numbers = _numbers(directory, current, wish)
    listeners = _listeners(current, settings, numbers, wish.hosts)
    for_all = {**_raised_defaults(current, settings, len(numbers)), **wish.settings}
    peers = {number: _address(listeners[number], ListenerKind.PEER) for number in numbers}
    plans = [_Planned(number, listeners[number], _folder(directory, number)) for number in numbers]
    texts = {
        each.id: _text(current, settings, each, peers, {**for_all, "node.rack": _quoted(wish.rack)})
        for each in plans
    }
    for text in texts.values():
        create.check_text(text)
    state.write_file(directory / MARKER, json.dumps(numbers) + "\n")
    entries = [await _make(directory, current, each, texts[each.id]) for each in plans]
    _change_all(current, for_all)
    state.store(directory, replace(current, nodes=(*current.nodes, *entries)))
    (directory / MARKER).unlink()
    return Growth(tuple(numbers), for_all)


def _require_fitting(
    directory: Path, current: ClusterState, settings: Settings, wish: Wish
) -> None:
    """Raises Refused where the new nodes could not be reached, or not be trusted."""
    local = is_local(current)
    if wish.hosts and local:
        raise Refused(
            f"the nodes of the cluster in {directory} are reached by {ports.HOST}, so none can be "
            "on another machine",
            hint="without --host the new node is on this one",
        )
    if not wish.hosts and not local:
        raise Refused(
            f"the nodes of the cluster in {directory} run on machines of their own",
            hint="say on which one the new node will: --host NAME",
        )
    if current.tls is None and any(each.tls for each in settings.listeners):
        raise Refused(
            "the nodes' certificates were not made by Paceline, so it cannot make further ones",
            hint="write the new node's node.toml by hand: 'One more node' in the documentation",
        )


# --- what a new node gets -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Planned:
    id: int
    listeners: tuple[Listener, ...]
    folder: Path


def _folder(directory: Path, number: int) -> Path:
    return directory / f"node-{number}"


def _numbers(directory: Path, current: ClusterState, wish: Wish) -> list[int]:
    """The next ones. A number that was used is not given again: whoever reads old logs would take
    two nodes for one."""
    used = {entry.id for entry in current.nodes} | wish.taken
    for folder in directory.glob("node-*"):
        number = folder.name.removeprefix("node-")
        if number.isascii() and number.isdecimal():
            used.add(int(number))
    first = max(used) + 1
    return list(range(first, first + wish.count))


def _listeners(
    current: ClusterState, settings: Settings, numbers: Sequence[int], hosts: Sequence[str]
) -> dict[int, tuple[Listener, ...]]:
    """Those of the first node, at other ports or on other hosts."""
    if hosts:
        former = _address(settings.listeners, ListenerKind.PEER)[0]
        return {
            number: tuple(_on_host(each, former, host) for each in settings.listeners)
            for number, host in zip(numbers, hosts, strict=True)
        }
    chosen = _ports(current, settings, numbers)
    return {
        number: tuple(
            replace(each, port=chosen[number][name], advertised_port=None)
            for name, each in _named(settings)
        )
        for number in numbers
    }


def _named(settings: Settings) -> list[tuple[str, Listener]]:
    return [(str(each.kind.value), each) for each in settings.listeners]


def _on_host(listener: Listener, former: str, host: str) -> Listener:
    return replace(
        listener,
        host=host if listener.host == former else listener.host,
        advertised_host=host if listener.advertised_host == former else listener.advertised_host,
    )


def _ports(
    current: ClusterState, settings: Settings, numbers: Sequence[int]
) -> dict[int, ports.NodePorts]:
    """As far behind the first node's as those of the others are; free ones where these were chosen
    freely, or are taken. The caller is in a block of :func:`ports.choosing`."""
    model = current.nodes[0]
    there = dict(_named(settings))
    is_fixed = all(
        _port(address) - _port(model.listeners.get(name, address)) == STEP * (entry.id - model.id)
        for entry in current.nodes
        for name, address in entry.listeners.items()
        if name in model.listeners
    )
    wanted = {
        number: {name: each.port + STEP * (number - model.id) for name, each in there.items()}
        for number in numbers
    }
    if is_fixed and ports.are_free(wanted):
        return wanted
    known = {_port(address) for entry in current.nodes for address in entry.listeners.values()}
    free = iter(ports.free_numbers(len(there) * len(numbers), besides=known))
    return {number: {name: next(free) for name in there} for number in numbers}


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _address(listeners: Iterable[Listener], kind: ListenerKind) -> tuple[str, int]:
    for each in listeners:
        if each.kind is kind:
            return each.advertised(each.port)
    raise Refused(f"the first node has no {kind.value} listener to go by")


def _raised_defaults(current: ClusterState, settings: Settings, more: int) -> dict[str, str]:
    """What nobody chose, and a larger cluster has more of: replicas of new topics, and how many of
    them must have a record. Nothing where the files of the nodes lie elsewhere."""
    if not is_local(current):
        return {}
    topics, count = settings.topics, len(current.nodes)
    raised: dict[str, str] = {}
    factor = topics.replication_factor
    former = min(node_config.DEFAULT_REPLICATION_FACTOR, count)
    if "topics.replication_factor" not in current.settings and factor == former:
        factor = min(node_config.DEFAULT_REPLICATION_FACTOR, count + more)
        raised["topics.replication_factor"] = str(factor)
    least, before = topics.min_insync_replicas, min(node_config.DEFAULT_MIN_IN_SYNC, former)
    if "topics.min_insync_replicas" not in current.settings and least == before:
        least = min(node_config.DEFAULT_MIN_IN_SYNC, factor)
        raised["topics.min_insync_replicas"] = str(least)
    now = {
        "topics.replication_factor": str(topics.replication_factor),
        "topics.min_insync_replicas": str(topics.min_insync_replicas),
    }
    return {key: value for key, value in raised.items() if value != now[key]}


def _text(
    current: ClusterState,
    settings: Settings,
    planned: _Planned,
    peers: Mapping[int, tuple[str, int]],
    more: Mapping[str, str],
) -> str:
    """The node's whole file."""
    model = current.nodes[0]
    old = model.config_path.read_text(encoding="utf-8")
    known = [f"{entry.id}@{entry.listeners['peer']}" for entry in current.nodes]
    known += [f"{number}@{_joined(*address)}" for number, address in peers.items()]
    own = {
        "node.id": str(planned.id),
        "listeners": json.dumps([str(each) for each in planned.listeners]),
        "cluster.bootstrap": json.dumps(known),
    }
    if settings.node.data_dir == model.dir:
        own["node.data_dir"] = _quoted(planned.folder)
    sections = tomllib.loads(old)
    made_before = node_config.files_of(model.dir / certificate_authority.FOLDER)
    made_now = node_config.files_of(planned.folder / certificate_authority.FOLDER)
    for key, value in sections.get("tls", {}).items():
        if value == made_before.get(key):
            own[f"tls.{key}"] = _quoted(made_now[key])
    return node_config.with_settings(old, {**more, **own})


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _quoted(value: object) -> str:
    return json.dumps(str(value))


async def _make(directory: Path, current: ClusterState, planned: _Planned, text: str) -> NodeEntry:
    """The node's directory, ready to be started, or to be carried to its machine."""
    folder = planned.folder
    folder.mkdir(mode=0o700)
    addresses = {str(each.kind.value): each.advertised(each.port) for each in planned.listeners}
    if not is_local(current):
        secret = (directory / state.CLUSTER_KEY_FILE).read_text(encoding="ascii")
        state.write_file(folder / state.CLUSTER_KEY_FILE, secret, mode=0o600)
    if current.tls is not None:
        hosts = dict.fromkeys([*create.LOCAL, *(host for host, _ in addresses.values())])
        certificate_authority.certify(
            directory, folder / certificate_authority.FOLDER, planned.id, tuple(hosts)
        )
    entry = NodeEntry(
        id=planned.id,
        dir=folder,
        listeners={name: _joined(*address) for name, address in addresses.items()},
    )
    state.write_file(entry.config_path, text)
    await create.format_directory(
        folder,
        cluster_id=uuid.UUID(current.cluster_id),
        node_id=planned.id,
        directory_id=uuid.uuid4(),
        voters=(),
    )
    return entry


def _change_all(current: ClusterState, settings: Mapping[str, str]) -> None:
    """Lay ``settings`` over the files of the nodes that are there."""
    for entry in current.nodes if settings else ():
        old = entry.config_path.read_text(encoding="utf-8")
        state.write_file(entry.config_path, node_config.with_settings(old, settings))
