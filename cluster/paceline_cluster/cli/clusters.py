"""``cluster``: which clusters there are here, and certificates of their nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from paceline_cluster import certificate_authority, create, launch, profiles, state
from paceline_cluster.cli.cluster_init import init
from paceline_cluster.cli.complete import complete_clusters
from paceline_cluster.cli.find_cluster import overruled
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.errors import BadState
from paceline_cluster.processes import ProcessState
from paceline_cluster.state import NodeEntry


@click.group()
def cluster() -> None:
    """List, choose and forget clusters on this machine; prepare a new one's directories."""


cluster.add_command(init)


@cluster.command("list")
@output_option
def list_(printer: Printer) -> None:
    """List the clusters that were up on this machine, the last used first. Commands use the
    selected one, unless $PACELINE_DIR names another."""
    profile = profiles.selected()
    rows = [_row(each, None if profile is None else profile.dir) for each in profiles.known()]
    columns = ("name", "selected", "state", "running", "nodes", "dir")
    table = Table(columns, [[row[column] for column in columns] for row in rows])
    printer.result({"clusters": rows}, table)


def _row(directory: Path, selected: Path | None) -> dict[str, Any]:
    word = "gone"
    nodes: tuple[NodeEntry, ...] = ()
    try:
        if state.exists(directory):
            nodes, word = state.load(directory).nodes, "stopped"
    except BadState:
        word = "damaged"
    running = [each for each in nodes if launch.process_state(each) is not ProcessState.STOPPED]
    return {
        "name": directory.name,
        "selected": directory == selected,
        "state": "running" if running else word,
        "running": len(running),
        "nodes": len(nodes),
        "dir": str(directory),
    }


@cluster.command()
@click.argument("name", shell_complete=complete_clusters)
@output_option
def use(name: str, printer: Printer) -> None:
    """Select the cluster NAME, from 'cluster list' or by its directory, for later commands.
    $PACELINE_DIR, if set, takes precedence."""
    directory = profiles.named(name) if not state.exists(Path(name)) else Path(name).resolve()
    state.load(directory)
    profiles.select(directory)
    if told := overruled(directory):
        printer.say(told)
    _told(_row(directory, directory), printer)


@cluster.command()
@click.argument("name", shell_complete=complete_clusters)
@output_option
def forget(name: str, printer: Printer) -> None:
    """Take cluster NAME off the list. Its nodes and files stay; 'paceline purge' removes them."""
    directory = profiles.named(name)
    profiles.forget(directory)
    _told({"name": directory.name, "forgotten": True, "dir": str(directory)}, printer)


def _told(data: dict[str, Any], printer: Printer) -> None:
    printer.result(data, Table(tuple(data), [tuple(data.values())]))


@cluster.command()
@click.argument("number", type=click.IntRange(0))
@click.option(
    "--dir",
    "directory",
    required=True,
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="The directory of a cluster that was made with --tls.",
)
@click.option("--host", "hosts", multiple=True, help="A name clients reach it by; repeat it.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to put the files (default: the node's own folder below DIR).",
)
@output_option
def certify(
    number: int, directory: Path, hosts: tuple[str, ...], out: Path | None, printer: Printer
) -> None:
    """Make certificates for node NUMBER, for a new node or to replace those of an old one.

    A running node loads new ones on SIGHUP.
    """
    whole = directory.resolve()
    folder = (
        whole / f"node-{number}" / certificate_authority.FOLDER if out is None else out.resolve()
    )
    certificate_authority.certify(
        whole, folder, number, tuple(dict.fromkeys([*hosts, *create.LOCAL]))
    )
    _told({"node": number, "folder": str(folder)}, printer)
