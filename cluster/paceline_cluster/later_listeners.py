"""Listeners for a cluster that was made before this installation could serve them.

``pip install 'paceline[segment]'`` brings the ``pravega`` listener; a cluster that is there already
gets it at its next ``up``. What somebody has configured himself is left alone.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from paceline_cluster import node_config, ports, state
from paceline_cluster.state import ClusterState, NodeEntry

_LISTENERS = "listeners"


def add(directory: Path) -> list[str]:
    """Add what is lacking to the configuration of nodes, none of which may run. Returns the names
    of the listeners that were added. Raises NoSuchCluster, BadState."""
    with state.locked(directory):
        current = state.load(directory)
        lacking = _lacking(current)
        if not lacking:
            return []
        chosen = _ports(current, lacking)
        entries = [_with(entry, chosen[entry.id]) for entry in current.nodes]
        for entry in entries:
            old = entry.config_path.read_text(encoding="utf-8")
            new = [f"{name}://{ports.HOST}:{port}" for name, port in chosen[entry.id].items()]
            there = tomllib.loads(old).get(_LISTENERS, [])
            text = node_config.with_settings(old, {_LISTENERS: json.dumps([*there, *new])})
            state.write_file(entry.config_path, text)
        state.store(directory, dataclasses.replace(current, nodes=tuple(entries)))
    return lacking


def _lacking(current: ClusterState) -> list[str]:
    """What every node of a cluster on this machine lacks, unless its listeners were chosen."""
    addresses = [address for entry in current.nodes for address in entry.listeners.values()]
    is_local = all(address.startswith(f"{ports.HOST}:") for address in addresses)
    if not is_local or _LISTENERS in current.settings:
        return []
    there = {name for entry in current.nodes for name in entry.listeners}
    return [name for name in ports.BASE_PORTS if name not in there]


def _ports(current: ClusterState, names: list[str]) -> dict[int, ports.NodePorts]:
    """The documented ports, shifted as the others are; free ones where those were chosen freely or
    are taken."""
    shift = _port(current.nodes[0], "native") - ports.BASE_PORTS["native"]
    fixed = ports.fixed_ports([entry.id for entry in current.nodes], offset=shift)
    is_fixed = all(
        _port(entry, name) == fixed[entry.id][name]
        for entry in current.nodes
        for name in entry.listeners
    )
    wanted = {node: {name: numbers[name] for name in names} for node, numbers in fixed.items()}
    if is_fixed and ports.are_free(wanted):
        return wanted
    taken = {_port(entry, name) for entry in current.nodes for name in entry.listeners}
    free = iter(ports.free_numbers(len(names) * len(current.nodes), besides=taken))
    return {entry.id: {name: next(free) for name in names} for entry in current.nodes}


def _port(entry: NodeEntry, name: str) -> int:
    return int(entry.listeners[name].rpartition(":")[2])


def _with(entry: NodeEntry, chosen: Mapping[str, int]) -> NodeEntry:
    added = {name: f"{ports.HOST}:{port}" for name, port in chosen.items()}
    return dataclasses.replace(entry, listeners={**entry.listeners, **added})
