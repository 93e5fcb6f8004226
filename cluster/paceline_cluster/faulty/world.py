"""The files that tell a node its faulty world, and the Env made of them.

    node-0.faults/faults.page     the control page
    node-0.faults/crash.armed     the site at which it is to die (crash_points.py)
    node-0.faults/routes.json     {"127.0.0.1:7401": "127.0.0.1:23456"}: what to dial instead

They lie beside the node's folder ``node-0``, so that they survive when that is emptied.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path

from paceline_cluster.faulty.control import ControlPage
from paceline_cluster.faulty.crash_points import CrashPoints
from paceline_cluster.faulty.disk import FaultyDisk
from paceline_cluster.faulty.host import FaultyHost
from paceline_cluster.faulty.network import Address, RoutedNetwork
from paceline_node.env import Env
from paceline_node.settings import Settings

PAGE = "faults.page"
ROUTES = "routes.json"


def beside(folder: Path) -> Path:
    """Where the files of the node in ``folder`` lie."""
    return folder.with_name(folder.name + ".faults")


def prepare(node_folder: Path, routes: Mapping[Address, Address]) -> ControlPage:
    """Write a node's files; returns its page, to switch faults with."""
    folder = beside(node_folder)
    folder.mkdir(exist_ok=True)
    table = {_text(there): _text(instead) for there, instead in routes.items()}
    (folder / ROUTES).write_text(json.dumps(table, indent=2), encoding="utf-8")
    return ControlPage.create(folder / PAGE)


def read_world(node_folder: Path) -> tuple[ControlPage, dict[Address, Address]]:
    """What :func:`prepare` wrote: page and routes."""
    folder = beside(node_folder)
    table = json.loads((folder / ROUTES).read_text(encoding="utf-8"))
    routes = {_address(there): _address(instead) for there, instead in table.items()}
    return ControlPage(folder / PAGE), routes


def crash_points(node_folder: Path) -> CrashPoints:
    """Where the node in ``node_folder`` may be told to die."""
    return CrashPoints(beside(node_folder))


def faulty_env(
    settings: Settings,
    page: ControlPage,
    routes: Mapping[Address, Address],
    crashes: CrashPoints,
) -> Env:
    """The production Env, failing on command."""
    disk = FaultyDisk(str(settings.node.data_dir), page)
    return Env(FaultyHost(page, crashes), disk, RoutedNetwork(routes), random.SystemRandom())


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)
