"""``cluster``: which clusters there are here; the directories of one whose nodes others start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import trio

from paceline_cluster import certificate_authority, create, launch, ports, profiles, state
from paceline_cluster.cli.complete import complete_clusters
from paceline_cluster.cli.complete_settings import complete_node_settings
from paceline_cluster.cli.find_cluster import overruled
from paceline_cluster.cli.options import VOTERS_HELP, parse_settings
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.survey_report import address_table
from paceline_cluster.errors import BadState
from paceline_cluster.processes import ProcessState
from paceline_cluster.state import ClusterState, NodeEntry

MANY = click.IntRange(1, 9)
EVERYWHERE = "0.0.0.0"  # noqa: S104 - of a machine that serves others; --bind narrows it


@click.group()
def cluster() -> None:
    """List, choose and forget clusters on this machine; prepare a new one's directories."""


@cluster.command("list")
@output_option
def list_(printer: Printer) -> None:
    """List the clusters that were up on this machine, the last used first. Commands find the
    selected one by themselves, unless $PACELINE_DIR names another."""
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
    """Have commands find the cluster NAME, which is one of 'cluster list' or a directory.
    $PACELINE_DIR goes first, where it is set."""
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
    """List the cluster NAME no more. Its nodes and files stay; 'paceline purge' removes those."""
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
    """Make certificates for node NUMBER: a further node, or new ones for one that has some.

    A node that runs takes new ones over on SIGHUP.
    """
    whole = directory.resolve()
    folder = (
        whole / f"node-{number}" / certificate_authority.FOLDER if out is None else out.resolve()
    )
    certificate_authority.certify(
        whole, folder, number, tuple(dict.fromkeys([*hosts, *create.LOCAL]))
    )
    _told({"node": number, "folder": str(folder)}, printer)


@cluster.command()
@click.option(
    "--dir",
    "directory",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to make them; must be empty or new.",
)
@click.option("--nodes", type=MANY, help="So many nodes on this machine; 'up --dir' starts them.")
@click.option("--any-port", is_flag=True, help="With --nodes: free ports, not the documented ones.")
@click.option("--host", "hosts", multiple=True, help="A node on a machine of this name; repeat it.")
@click.option(
    "--bind", default=EVERYWHERE, show_default=True, help="With --host: the address to listen on."
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=Path("/var/lib/paceline"),
    show_default=True,
    help="With --host: where the node's directory will lie on its machine.",
)
@click.option(
    "--tls",
    is_flag=True,
    help="Encrypt everything, with certificates for a year; their authorities stay in DIR/tls.",
)
@click.option("--voters", type=click.Choice(["1", "3", "5"]), help=VOTERS_HELP)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=parse_settings,
    shell_complete=complete_node_settings,
    help="A setting for all nodes.",
)
@output_option
def init(
    directory: Path,
    nodes: int | None,
    any_port: bool,
    hosts: tuple[str, ...],
    bind: str,
    data_dir: Path,
    tls: bool,
    voters: str | None,
    settings: dict[str, str],
    printer: Printer,
) -> None:
    """Make the directories of a new cluster's first nodes, and start nothing.

    With --host each node-N directory is copied to its machine, to --data-dir there, and started
    with 'paceline node run --config DATA_DIR/node.toml'. All of them carry the cluster's secret.
    """
    if (nodes is None) == (not hosts):
        raise click.UsageError("give either --nodes or --host")
    wanted = None if voters is None else int(voters)

    whole = directory.resolve()
    create.refuse_existing(whole)

    async def prepare() -> ClusterState:
        if nodes is None:
            spec = create.hosts_spec(
                hosts, bind=bind, data_dir=data_dir, settings=settings, voters=wanted
            )
        else:
            async with ports.planned(range(nodes), any_port=any_port, offset=0) as plan:
                spec = create.local_spec(plan, settings=settings, voters=wanted)
        return await create.create(whole, spec.encrypted(whole) if tls else spec)

    made = trio.run(prepare)
    directories = Table(("node", "directory"), [(node.id, node.dir) for node in made.nodes])
    addresses = address_table(
        [node.listeners for node in made.nodes], is_encrypted=made.tls is not None
    )
    printer.result(made.to_json(), directories, addresses)
