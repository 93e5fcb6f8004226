"""``metadata``: what can be done about the metadata log without any node running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import trio

from paceline.errors import PacelineError
from paceline_cluster import forced_quorum, state
from paceline_cluster.cli.find_cluster import cluster_options, find
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.errors import ClusterError
from paceline_cluster.forced_quorum import Found
from paceline_node.controller.force_quorum import Forced, check_lost


@click.group()
def metadata() -> None:
    """Recover when most voters of the metadata quorum are lost."""


@metadata.command("force-quorum")
@click.argument(
    "paths",
    nargs=-1,
    metavar="[DATA_DIR]...",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
)
@click.option("--lost", multiple=True, type=click.IntRange(0), metavar="ID", help="A lost voter.")
@click.option("--execute", is_flag=True, help="Do it; otherwise only show what would be done.")
@cluster_options
@output_option
def force_quorum(
    paths: tuple[Path, ...],
    lost: tuple[int, ...],
    execute: bool,
    directory: Path | None,
    bootstrap: tuple[str, ...],
    printer: Printer,
) -> None:
    """Make the longest metadata log among stopped nodes the only voter's.

    For a majority of voters whose disks are lost for good: nothing else brings the cluster back.
    DATA_DIR are the data directories of ALL nodes that are left (without any: of the cluster on
    this machine). Metadata that only the lost voters had is gone, and with it, perhaps,
    acknowledged records. Without --execute nothing is changed.

    To do it, name every lost voter with --lost. It must never start again on its old directory:
    'paceline node format --replace' makes it an empty one.
    """
    if not paths:
        found_dir = find(directory, bootstrap).require_dir("metadata force-quorum")
        paths = tuple(entry.dir for entry in state.load(found_dir).nodes if entry.dir.is_dir())
    found = trio.run(forced_quorum.look, [path.resolve() for path in paths])
    tables = [_directories(found)]
    try:
        forced = forced_quorum.decide(found)
        if execute:
            check_lost(forced, lost)
    except (PacelineError, ClusterError):
        if not printer.is_data:
            printer.result({}, *tables)
        raise
    moved = trio.run(forced_quorum.force, found, forced) if execute else None
    data = _data(found, forced, moved)
    printer.result(data, *tables, _outcome(data))
    words = " ".join(f"--lost {node}" for node in data["lost"])
    if execute:
        printer.say(
            f"node {data['keeper']} votes alone now; start the nodes that are left, then format "
            f"the lost ones with 'paceline node format --replace'"
        )
    else:
        printer.say(f"nothing was changed; to do this, add: --execute {words}")


def _directories(found: Found) -> Table:
    columns = ("node", "votes", "term", "last term", "last index", "directory")
    rows: list[tuple[Any, ...]] = []
    for path, each in found.survivors.items():
        votes = each.id in each.log.config.voter_ids
        rows.append((each.meta.node_id, votes, each.term, *each.end, path))
    rows += [(None, None, None, None, why, path) for path, why in found.unreadable.items()]
    return Table(columns, rows)


def _data(found: Found, forced: Forced, moved: int | None) -> dict[str, Any]:
    return {
        "executed": moved is not None,
        "cluster_id": str(forced.keeper.meta.cluster_id),
        "keeper": forced.keeper.meta.node_id,
        "term": forced.term,
        "last_index": forced.keeper.log.last_index,
        "listeners": [int(member.node_id) for member in forced.config.learners],
        "lost": [int(voter.node_id) for voter in forced.lost],
        "partitions": moved,
        "unreadable": {str(path): why for path, why in found.unreadable.items()},
    }


def _outcome(data: dict[str, Any]) -> Table:
    columns = ("keeper", "term", "last_index", "listeners", "lost", "executed")
    return Table(
        ("votes alone", "from term", "last index", "listen", "lost voters", "done"),
        [[data[column] for column in columns]],
    )
