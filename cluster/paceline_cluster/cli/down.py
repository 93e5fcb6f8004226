"""``down`` and ``purge``: the end of a cluster on this machine."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click
import trio

from paceline_cluster import launch, profiles, state
from paceline_cluster.cli.find import Address, cluster_options, find
from paceline_cluster.cli.options import STOP_TIMEOUT_S
from paceline_cluster.cli.output import Printer, output_option
from paceline_cluster.shutdown import stop_cluster
from paceline_cluster.state import ClusterState


@click.command()
@cluster_options
@click.option("--timeout", type=float, default=STOP_TIMEOUT_S, show_default=True)
@output_option
def down(
    directory: Path | None, bootstrap: tuple[Address, ...], timeout: float, printer: Printer
) -> None:
    """Stop the cluster in order; its data stay and 'up' starts it again."""
    found = find(directory, bootstrap).require_dir("down")
    current = trio.run(_down, found, timeout)
    printer.say(f"the cluster in {found} is stopped")
    if printer.is_data:
        printer.result(current.to_json())


async def _down(directory: Path, timeout_s: float) -> ClusterState:
    return await stop_cluster(directory, timeout_s=timeout_s)


@click.command()
@cluster_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
def purge(
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    yes: bool,
    printer: Printer,
) -> None:
    """Stop the cluster and remove its directory with all records."""
    found = find(directory, bootstrap).require_dir("purge")
    state.load(found)  # never remove a directory that is no cluster
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("purge removes all records; confirm it with --yes")
        click.confirm(f"Remove {found} with all records?", abort=True, err=True)
    trio.run(_down, found, STOP_TIMEOUT_S)
    shutil.rmtree(found)
    instead = _forget(found)
    printer.say(f"removed {found}")
    if instead is not None:
        printer.say(f"commands find the cluster in {instead} now, which runs")
    if printer.is_data:
        printer.result({"removed": str(found)})


def _forget(directory: Path) -> Path | None:
    """Forget a purged cluster; if it was the selected one, the last used of those that run is
    selected and returned."""
    selected = profiles.selected()
    if selected is None or selected.dir != directory:
        profiles.forget(directory)
        return None
    running = (each for each in profiles.known() if each != directory and launch.is_running(each))
    instead = next(running, None)
    profiles.forget(directory, instead=instead)
    return instead
