"""``status`` and ``health``: what the nodes say, and whether that is well."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import trio

from paceline.documents.survey import Survey, health_document
from paceline.errors import PacelineError
from paceline_cluster import launch
from paceline_cluster.cli.find_cluster import (
    Address,
    ClusterRef,
    cluster_options,
    find,
    start_command,
)
from paceline_cluster.cli.output import Printer, output_option
from paceline_cluster.cli.survey_report import (
    health_tables,
    status_data,
    status_tables,
)
from paceline_cluster.cli.units import Seconds
from paceline_cluster.errors import Exit, TooLate
from paceline_cluster.survey import survey, survey_addresses, with_internal_topics

POLL_S = 0.2


async def look(ref: ClusterRef) -> Survey:
    """Survey the cluster, however it was named."""
    current = ref.state()
    if current is None or ref.dir is None:
        return await survey_addresses(ref.addresses)
    seen = await survey(current)
    if not launch.is_stopped(current):
        return seen
    return replace(seen, start_with=start_command(ref.dir))


@click.command()
@cluster_options
@output_option
def status(directory: Path | None, bootstrap: tuple[Address, ...], printer: Printer) -> None:
    """Show the nodes with their addresses, the controller, and partition counts."""
    ref = find(directory, bootstrap)

    async def run() -> Survey:
        return await with_internal_topics(await look(ref))

    seen = trio.run(run)
    current = ref.state()
    printer.result(status_data(current, seen), *status_tables(current, seen))


@click.command()
@cluster_options
@click.option(
    "--exit-when-healthy", is_flag=True, help="Wait until it is, at most --timeout seconds."
)
@click.option("--timeout", type=Seconds(), default=60.0, show_default=True, metavar="SECONDS")
@output_option
def health(
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    exit_when_healthy: bool,
    timeout: float,
    printer: Printer,
) -> int:
    """Say whether the cluster is healthy: all nodes answer, a controller is known, every
    partition is led and has all its replicas in sync. Exit code 69 when it is not, 77 when nodes
    may not tell you. Drained nodes are named, but do not count as unhealthy.

    Offset ranges that a node's disk lost are listed with what happens to them: 'damaged',
    'repairing', 'incomplete' where a partition has no leader and the replica is behind, or
    'given-up' where the log start has passed them or an operator let a replica lead without them.
    An end of -1 means unknown.

    Certificates are shown with their expiry time, by the setting that names their file. A
    certificate that expires within 14 days, or a new one that cannot be used, is unhealthy.
    """
    ref = find(directory, bootstrap)
    seen = trio.run(_wait_healthy, ref, timeout) if exit_when_healthy else trio.run(look, ref)
    data = health_document(seen)
    printer.result(data, *health_tables(data))
    if data["healthy"] is None:
        return Exit.NO_PERMISSION
    return Exit.OK if data["healthy"] else Exit.UNAVAILABLE


async def _wait_healthy(ref: ClusterRef, timeout_s: float) -> Survey:
    deadline = trio.current_time() + timeout_s
    while True:
        try:
            seen = await look(ref)
            problems = seen.reasons()
        except PacelineError as error:
            problems = [str(error)]
        if not problems:
            return seen
        if trio.current_time() > deadline:
            raise TooLate(f"not healthy after {timeout_s:.0f} s: {'; '.join(problems)}")
        await trio.sleep(POLL_S)
