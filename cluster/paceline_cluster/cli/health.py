"""``status`` and ``health``: what the nodes say, and whether that is well."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
import trio

from paceline.errors import PacelineError
from paceline_cluster.cli.find_cluster import Address, ClusterRef, cluster_options, find
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.survey_report import status_data, status_tables
from paceline_cluster.errors import Exit, TooLate
from paceline_cluster.survey import Survey, survey, survey_addresses

POLL_S = 0.2


async def look(ref: ClusterRef) -> Survey:
    """Survey the cluster, however it was named."""
    current = ref.state()
    return await (survey_addresses(ref.addresses) if current is None else survey(current))


@click.command()
@cluster_options
@output_option
def status(directory: Path | None, bootstrap: tuple[Address, ...], printer: Printer) -> None:
    """Show nodes with their addresses, the controller, and counts of partitions."""
    ref = find(directory, bootstrap)
    seen = trio.run(look, ref)
    current = ref.state()
    printer.result(status_data(current, seen), *status_tables(current, seen))


@click.command()
@cluster_options
@click.option(
    "--exit-when-healthy", is_flag=True, help="Wait until it is, at most --timeout seconds."
)
@click.option("--timeout", type=float, default=60.0, show_default=True, metavar="SECONDS")
@output_option
def health(
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    exit_when_healthy: bool,
    timeout: float,
    printer: Printer,
) -> int:
    """Say whether the cluster is healthy: all nodes answer, a controller is known, every
    partition is led and has all its replicas in sync. Exit code 69 when it is not.

    Ranges of offsets that a node's disk lost are named with what becomes of them: 'damaged',
    'repairing', 'incomplete' where a partition has no leader and the replica is behind, or
    'given-up' where the log start lies behind them or an operator let a replica lead without them.
    An end of -1 is not known.

    Certificates are shown with the moment until which they are good, by the setting that names
    their file. It is not healthy to have one that ends within 14 days, or new ones that cannot be
    used.
    """
    ref = find(directory, bootstrap)
    seen = trio.run(_wait_healthy, ref, timeout) if exit_when_healthy else trio.run(look, ref)
    reasons = seen.reasons()
    lost = [{"node": node, **asdict(each)} for node, each in seen.ranges()]
    shown = [
        {"node": node, "setting": each.setting, "until": _date(each.ends)}
        for node, each in seen.certificates()
    ]
    data = {
        "healthy": not reasons,
        "reasons": reasons,
        "controller": seen.controller,
        "ranges": lost,
        "certificates": shown,
    }
    tables = [Table(("health",), [(reason,) for reason in reasons] or [("healthy",)])]
    if lost:
        tables.append(Table(tuple(lost[0]), [tuple(each.values()) for each in lost]))
    if shown:
        tables.append(Table(tuple(shown[0]), [tuple(each.values()) for each in shown]))
    printer.result(data, *tables)
    return Exit.UNAVAILABLE if reasons else Exit.OK


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


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
