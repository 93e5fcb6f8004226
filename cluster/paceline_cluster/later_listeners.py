"""Listeners for a cluster that was made before this installation could serve them.

``pip install 'paceline[segment]'`` brings the ``pravega`` listener; a cluster that is there already
gets it at its next ``up``. What somebody has configured himself is left alone.

The nodes' files are written before ``cluster.json``. A launcher that is killed between them would
leave listeners that look like their owner's choice, so what is to be added is noted in ``.adding``
first, and whoever finds the note takes out of the files what ``cluster.json`` does not have.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tomllib
from collections.abc import AsyncIterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

from paceline_cluster import create, node_config, ports, state
from paceline_cluster.errors import BadSetting, BadState
from paceline_cluster.state import ClusterState, NodeEntry
from paceline_node.settings.addresses import Listener

MARKER = ".adding"
_LISTENERS = "listeners"


@contextlib.asynccontextmanager
async def adding(directory: Path) -> AsyncIterator[list[str]]:
    """Add what is lacking to the configuration of nodes, none of which may run. Yields the names of
    the listeners that were added; their ports are kept from other launchers until the block ends,
    in which the nodes are started.

    Raises NoSuchCluster, BadState, or BadSetting where a node would not take its configuration, and
    then nothing is changed.
    """
    if not (_marker(directory).exists() or _lacking(state.load(directory))):
        yield []
        return
    # In this order: who starts nodes while it keeps ports waits for the directory's lock.
    async with ports.choosing():
        with state.locked(directory):
            _undo(directory)
            added = _add(directory)
        yield added


def _marker(directory: Path) -> Path:
    return directory / MARKER


def _undo(directory: Path) -> None:
    """Take back what a launcher began to add and did not finish. Raises BadState, BadSetting."""
    marker = _marker(directory)
    if not marker.exists():
        return
    try:
        begun = json.loads(marker.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadState(f"{marker} cannot be understood: {error}") from None
    current = state.load(directory)
    for entry in current.nodes:
        there = {
            f"{_scheme(current, name)}://{address}" for name, address in entry.listeners.items()
        }
        ours = set(begun.get(str(entry.id), ())) - there
        old = entry.config_path.read_text(encoding="utf-8")
        try:
            urls = _urls(old)
        except tomllib.TOMLDecodeError as error:
            raise BadSetting(f"{entry.config_path}: {error}") from None
        if not ours.isdisjoint(urls):
            kept = json.dumps([url for url in urls if url not in ours])
            state.write_file(entry.config_path, node_config.with_settings(old, {_LISTENERS: kept}))
    marker.unlink()


def _add(directory: Path) -> list[str]:
    current = state.load(directory)
    lacking = _lacking(current)
    if not lacking:
        return []
    served = [each for entry in current.nodes for each in _served(entry)]
    chosen = _ports(current, lacking, {each.port for each in served})
    added = {entry.id: _added_urls(current, chosen[entry.id]) for entry in current.nodes}
    texts = {entry.config_path: _text(entry, added[entry.id]) for entry in current.nodes}
    begun = added
    state.write_file(_marker(directory), json.dumps(begun) + "\n")
    for path, text in texts.items():
        state.write_file(path, text)
    entries = tuple(_with(entry, chosen[entry.id]) for entry in current.nodes)
    state.store(directory, dataclasses.replace(current, nodes=entries))
    _marker(directory).unlink()
    return lacking


def _lacking(current: ClusterState) -> list[str]:
    """What every node of a cluster on this machine lacks, unless its listeners were chosen: for all
    nodes, or in the file of one. Raises BadSetting."""
    addresses = [address for entry in current.nodes for address in entry.listeners.values()]
    is_local = all(address.startswith(f"{ports.HOST}:") for address in addresses)
    if not is_local or _LISTENERS in current.settings:
        return []
    there = {name for entry in current.nodes for name in entry.listeners}
    lacking = [name for name in ports.BASE_PORTS if name not in there]
    if not lacking:
        return []
    served = {str(each.kind.value) for entry in current.nodes for each in _served(entry)}
    return [name for name in lacking if name not in served]


def _served(entry: NodeEntry) -> tuple[Listener, ...]:
    """What the node would listen on by its own file, which its owner may have changed."""
    return create.check_config(entry.config_path).listeners


def _text(entry: NodeEntry, added: list[str]) -> str:
    """The node's configuration with the listeners ``added``. Raises BadSetting."""
    old = entry.config_path.read_text(encoding="utf-8")
    urls = [*_urls(old), *added]
    create.check_config(entry.config_path, {_LISTENERS: ",".join(urls)})
    return node_config.with_settings(old, {_LISTENERS: json.dumps(urls)})


def _urls(text: str) -> list[str]:
    """The listeners in a configuration file."""
    there: str | list[str] = tomllib.loads(text).get(_LISTENERS, [])
    return there.split(",") if isinstance(there, str) else there


def _added_urls(current: ClusterState, added: Mapping[str, int]) -> list[str]:
    return [f"{_scheme(current, name)}://{ports.HOST}:{port}" for name, port in added.items()]


def _scheme(current: ClusterState, name: str) -> str:
    return node_config.scheme(name, is_encrypted=current.tls is not None)


def _ports(
    current: ClusterState, names: list[str], served: AbstractSet[int]
) -> dict[int, ports.NodePorts]:
    """The documented ports, shifted as the others are; free ones where those were chosen freely or
    are taken, for example by what a node has ``served``. The caller is in a block of
    :func:`ports.choosing`."""
    shift = _port(current.nodes[0], "native") - ports.BASE_PORTS["native"]
    fixed = ports.fixed_ports([entry.id for entry in current.nodes], offset=shift)
    is_fixed = all(
        _port(entry, name) == fixed[entry.id][name]
        for entry in current.nodes
        for name in entry.listeners
    )
    wanted = {node: {name: numbers[name] for name in names} for node, numbers in fixed.items()}
    known = {_port(entry, name) for entry in current.nodes for name in entry.listeners}
    taken = known.union(served)
    is_apart = all(taken.isdisjoint(numbers.values()) for numbers in wanted.values())
    if is_fixed and is_apart and ports.are_free(wanted):
        return wanted
    free = iter(ports.free_numbers(len(names) * len(current.nodes), besides=taken))
    return {entry.id: {name: next(free) for name in names} for entry in current.nodes}


def _port(entry: NodeEntry, name: str) -> int:
    return int(entry.listeners[name].rpartition(":")[2])


def _with(entry: NodeEntry, chosen: Mapping[str, int]) -> NodeEntry:
    added = {name: f"{ports.HOST}:{port}" for name, port in chosen.items()}
    return dataclasses.replace(entry, listeners={**entry.listeners, **added})
