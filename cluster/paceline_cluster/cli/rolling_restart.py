"""``rolling-restart``: every node of a cluster on this machine, one at a time, while it serves."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import trio

from paceline.documents.survey import Survey
from paceline_cluster import launch, rolling, state
from paceline_cluster.cli.complete import complete_nodes
from paceline_cluster.cli.find_cluster import Address, ClusterRef, cluster_options, find
from paceline_cluster.cli.health import look
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.units import Seconds
from paceline_cluster.errors import ClusterError, Exit, NoSuchNode
from paceline_cluster.rolling import Round

TIMEOUT_S = 300.0


@click.command("rolling-restart")
@click.argument(
    "numbers", metavar="[NODE]...", type=click.IntRange(0), nargs=-1, shell_complete=complete_nodes
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Restart nothing: say what would break if each node stopped now; exit code 69 if anything "
    "would.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Even where there are too few replicas or voters for the cluster to go on without a node.",
)
@click.option(
    "--timeout",
    type=Seconds(),
    default=TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="For each node: until it may stop, has stopped, serves, and is back in sync.",
)
@cluster_options
@output_option
def rolling_restart(
    numbers: tuple[int, ...],
    dry_run: bool,
    force: bool,
    timeout: float,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> int:
    """Restart all nodes, or those named, one at a time, while the cluster goes on serving.

    A node is stopped when no partition would have fewer replicas in sync than its
    min.insync.replicas without it, and the metadata quorum would keep its majority. It hands its
    leaderships over, and the next one's turn comes when it is in sync again. Nodes that do not run
    come first, the controller last. The first trouble ends it, saying which nodes are left.

    With --bootstrap only --dry-run is possible: it says whether a node may be stopped by whoever
    runs it.
    """
    ref = find(directory, bootstrap)
    if dry_run:
        return trio.run(_dry_run, ref, numbers, printer)
    local = ref.require_dir("rolling-restart")
    if ref.is_stopped():
        raise ref.stopped()  # one at a time they would wait for each other
    work = Round(_chosen(numbers, [entry.id for entry in state.load(local).nodes]))
    chosen = tuple(work.left)

    async def run() -> None:
        await rolling.restart_each(local, work, is_forced=force, timeout_s=timeout, say=printer.say)

    try:
        trio.run(run)
    except ClusterError as error:
        what = f"stopped at node {work.left[0]}: {error.message}; {_how_far(work)}"
        mend = error.hint or "see to that"
        raise type(error)(what, hint=f"{mend}; then go on with {_go_on(work, local)}") from None
    except KeyboardInterrupt:
        printer.say(
            f"interrupted at node {work.left[0]}; {_how_far(work)}; go on with "
            f"{_go_on(work, local)}"
        )
        raise
    entries = [state.load(local).node(number) for number in chosen]
    columns = ("node", "action", "state", "pid")
    rows = [(each.id, "restart", str(launch.process_state(each)), each.pid) for each in entries]
    data = {"nodes": [dict(zip(columns, row, strict=True)) for row in rows]}
    printer.result(data, Table(columns, rows))
    return Exit.OK


def _chosen(numbers: tuple[int, ...], known: list[int]) -> list[int]:
    for number in numbers:
        if number not in known:
            names = ", ".join(map(str, known))
            raise NoSuchNode(f"there is no node {number} in this cluster; it has {names}")
    return list(dict.fromkeys(numbers)) or known


def _how_far(work: Round) -> str:
    done = ", ".join(map(str, work.done)) or "none"
    return f"restarted: {done}; left: {', '.join(map(str, work.left))}"


def _go_on(work: Round, local: Path) -> str:
    nodes = " ".join(map(str, work.left))
    return f"'paceline rolling-restart {nodes} --dir {shlex.quote(str(local))}'"


async def _dry_run(ref: ClusterRef, numbers: tuple[int, ...], printer: Printer) -> int:
    seen: Survey = await look(ref)
    chosen = _chosen(numbers, [view.id for view in seen.nodes])
    found = await rolling.what_breaks(seen, chosen)
    states = seen.states()
    data = [
        {"node": node, "state": states[node], "breaks": list(found[node].all())} for node in chosen
    ]
    rows = [(node, states[node], "; ".join(found[node].all()) or "nothing") for node in chosen]
    printer.result({"nodes": data}, Table(("node", "state", "breaks"), rows))
    return Exit.UNAVAILABLE if any(each.all() for each in found.values()) else Exit.OK
