"""``down`` and ``purge``: the end of a cluster on this machine."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
from pathlib import Path

import click
import trio

from paceline_cluster import launch, profiles, state
from paceline_cluster.cli.find_cluster import Address, cluster_options, find
from paceline_cluster.cli.options import STOP_TIMEOUT_S
from paceline_cluster.cli.output import Printer, output_option
from paceline_cluster.cli.units import Seconds
from paceline_cluster.errors import BadState
from paceline_cluster.shutdown import stop_cluster
from paceline_cluster.state import ClusterState


@click.command()
@cluster_options
@click.option(
    "--timeout", type=Seconds(), default=STOP_TIMEOUT_S, show_default=True, metavar="SECONDS"
)
@output_option
def down(
    directory: Path | None, bootstrap: tuple[Address, ...], timeout: float, printer: Printer
) -> None:
    """Shut the cluster down cleanly; its data stay, and 'up' starts it again."""
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
    was_selected = profiles.selected() == profiles.Profile(found)
    profiles.forget(found)
    printer.say(f"removed {found}")
    if was_selected and (other := _running()) is not None:
        printer.say(
            f"'paceline cluster use {shlex.quote(str(other))}' selects the one in {other}, "
            "which runs"
        )
    if printer.is_data:
        printer.result({"removed": str(found)})


def _running() -> Path | None:
    """The last used of the clusters that run. It is only named: if it were selected, the same
    'purge --yes' again would destroy it."""
    for each in profiles.known():
        with contextlib.suppress(BadState):  # damaged: 'cluster list' says so
            if launch.is_running(each):
                return each
    return None
