"""``config``: the settings of a cluster's nodes on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import click
import trio

from paceline.health import RUNNING
from paceline_cluster import configuring, launch, state
from paceline_cluster.cli.complete import complete_nodes
from paceline_cluster.cli.complete_settings import complete_node_settings
from paceline_cluster.cli.find_cluster import Address, cluster_options, find
from paceline_cluster.cli.options import parse_settings
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.configuring import FIXED, Changed, Held
from paceline_cluster.processes import ProcessState
from paceline_cluster.survey import survey

node_option = click.option(
    "--node",
    "nodes",
    type=click.IntRange(0),
    multiple=True,
    shell_complete=complete_nodes,
    help="This node only; may be given more than once.",
)


@click.group()
def config() -> None:
    """Show and change the settings of the nodes of a cluster on this machine.

    A topic's own settings go before those of nodes: 'paceline topic alter'.
    """


@config.command("list")
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@click.option("--all", "show_all", is_flag=True, help="Those that have their defaults, too.")
@cluster_options
@output_option
def list_(
    keys: tuple[str, ...],
    show_all: bool,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    """Show settings that are not the default, or those named: KEY is a setting or a section.

    They are what stands in the nodes' files, as TOML; RESTART says whether a change takes one.
    """
    local = find(directory, bootstrap).require_dir("config list")
    found = [
        each
        for each in configuring.held(state.load(local))
        if (any(each.key == key or each.key.startswith(f"{key}.") for key in keys))
        or (not keys and (show_all or _is_chosen(each)))
    ]
    columns = ("key", "value", "default", "restart", "nodes")
    data = [{**asdict(each), "nodes": list(each.nodes)} for each in found]
    rows = [
        (each.key, each.value, each.default, _yes(each.restart), _names(each.nodes))
        for each in found
    ]
    printer.result({"settings": data}, Table(columns, rows))


def _is_chosen(each: Held) -> bool:
    return each.value != each.default and each.key not in FIXED


@config.command("set")
@click.argument(
    "settings",
    metavar="KEY=VALUE...",
    nargs=-1,
    required=True,
    callback=parse_settings,
    shell_complete=complete_node_settings,
)
@node_option
@cluster_options
@output_option
def set_(
    settings: dict[str, str],
    nodes: tuple[int, ...],
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    """Set settings of all nodes, or of those named. Nothing is changed if one is wrong.

    Nodes that run take over what can change at run time; the rest waits for a restart
    ('paceline rolling-restart').
    """
    local = find(directory, bootstrap).require_dir("config set")
    _change(local, settings, (), nodes, printer)


@config.command()
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@node_option
@cluster_options
@output_option
def unset(
    keys: tuple[str, ...],
    nodes: tuple[int, ...],
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    """Give settings of all nodes, or of those named, their defaults again."""
    local = find(directory, bootstrap).require_dir("config unset")
    _change(local, {}, keys, nodes, printer)


def _change(
    local: Path,
    given: Mapping[str, str],
    removed: tuple[str, ...],
    nodes: tuple[int, ...],
    printer: Printer,
) -> None:
    changed = configuring.change(local, given, removed, nodes)
    waiting = trio.run(_apply, local, changed)
    columns = ("key", "before", "after", "restart", "nodes")
    data = [{**asdict(each), "nodes": list(each.nodes)} for each in changed]
    rows = [
        (each.key, each.before, each.after, _yes(each.restart), _names(each.nodes))
        for each in changed
    ]
    printer.result({"settings": data}, Table(columns, rows))
    if not changed:
        printer.say("nothing changes")
    if waiting:
        printer.say(
            f"'paceline rolling-restart {' '.join(map(str, waiting))}' has nodes take over what "
            "takes a restart"
        )


async def _apply(local: Path, changed: list[Changed]) -> list[int]:
    """Have nodes that serve read what they can take over; which ones have to be restarted."""
    current = state.load(local)
    live = {node for each in changed if not each.restart for node in each.nodes}
    if live:
        seen = await survey(current)
        serving = {view.id for view in seen.nodes if view.is_closed or view.state == RUNNING}
        configuring.have_read(each for each in current.nodes if each.id in live & serving)
    late = {node for each in changed if each.restart for node in each.nodes}
    return [
        entry.id
        for entry in current.nodes
        if entry.id in late and launch.process_state(entry) is not ProcessState.STOPPED
    ]


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _names(nodes: tuple[int, ...]) -> str:
    return ", ".join(map(str, nodes))
