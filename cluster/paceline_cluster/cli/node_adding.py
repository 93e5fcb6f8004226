"""``node add``: one more node, on this machine or prepared for another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import trio

from paceline.counted import counted
from paceline_cluster import growing, launch, state
from paceline_cluster.cli import growth
from paceline_cluster.cli.find_cluster import Address, ClusterRef, cluster_options, find
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.units import Seconds
from paceline_cluster.errors import ClusterStopped
from paceline_cluster.growing import Wish
from paceline_cluster.launch import Children
from paceline_cluster.readiness import START_TIMEOUT_S, wait_until_serves
from paceline_cluster.state import ClusterState

MOST = 9


@click.command()
@click.option(
    "--count", type=click.IntRange(1, MOST), help="So many nodes on this machine (default 1)."
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="For nodes on machines of their own, with --dir naming what 'cluster init' made: prepare "
    "the directory of one on this machine; repeat it.",
)
@click.option("--rack", default="", help="The new nodes' node.rack.")
@click.option(
    "--timeout", type=Seconds(), default=START_TIMEOUT_S, show_default=True, metavar="SECONDS"
)
@cluster_options
@output_option
def add(
    count: int | None,
    hosts: tuple[str, ...],
    rack: str,
    timeout: float,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    """Add a node to a cluster that runs, and wait until it serves.

    It is configured as the first node is, joins the cluster, and votes on the metadata where that
    makes the quorum better. With --host nothing is started: the directory node-N is copied to its
    machine, as those of 'cluster init' are, and 'paceline node run' starts it there.
    """
    if hosts and count is not None:
        raise click.UsageError("give either --count or --host")
    ref = find(directory, bootstrap)
    whole = ref.require_dir("node add")
    wish = Wish(len(hosts) if hosts else count or 1, hosts, rack)
    if hosts:
        _show(trio.run(_prepare, whole, wish), printer)
        printer.say(
            "copy each directory to its machine, to where node.data_dir says, and start the node "
            "with 'paceline node run --config DATA_DIR/node.toml'"
        )
        return
    _show(trio.run(_add, ref, whole, wish, timeout), printer)
    printer.say(growth.HINT)


async def _prepare(directory: Path, wish: Wish) -> dict[str, Any]:
    async with growing.adding(directory, wish) as made:
        return _data(state.load(directory), made.numbers, [])


async def _add(ref: ClusterRef, directory: Path, wish: Wish, timeout_s: float) -> dict[str, Any]:
    if growing.is_local(state.load(directory)) and ref.is_stopped():
        whole = len(state.load(directory).nodes) + wish.count
        more = counted(wish.count, "more node")
        raise ClusterStopped(
            ref.stopped().message, hint=f"'paceline up --nodes {whole}' starts it with {more}"
        )
    taken = await growth.numbers_taken(directory)
    children = Children()
    async with growing.adding(directory, replace(wish, taken=taken)) as made:
        current = launch.start_nodes(directory, made.numbers, children)
        for number in made.numbers:
            entry = current.node(number)
            await wait_until_serves(current, entry, children, timeout_s=timeout_s)
    voters = await growth.settled(directory, made, by_hand=False, timeout_s=timeout_s)
    return _data(state.load(directory), made.numbers, voters)


def _data(current: ClusterState, numbers: tuple[int, ...], voters: Sequence[int]) -> dict[str, Any]:
    nodes = []
    for number in numbers:
        entry = current.node(number)
        nodes.append(
            {
                "node": number,
                "action": "add",
                "state": str(launch.process_state(entry)),
                "address": entry.listeners.get("native", ""),
                "dir": str(entry.dir),
            }
        )
    return {"nodes": nodes, "voters": voters}


def _show(data: dict[str, Any], printer: Printer) -> None:
    rows = [tuple(each.values()) for each in data["nodes"]]
    printer.result(data, Table(tuple(data["nodes"][0]), rows))
