"""``node drain``, ``revive``, ``decommission``: take a node out of work, out of the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from paceline.client import Client
from paceline.types import NodeId
from paceline_cluster import launch, leaving, moving, state
from paceline_cluster.cli.complete import complete_nodes
from paceline_cluster.cli.confirming import confirm
from paceline_cluster.cli.find_cluster import Address, client_options, find
from paceline_cluster.cli.options import STOP_TIMEOUT_S
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.partitions import at_once_option, carried_out
from paceline_cluster.cli.session import with_client
from paceline_cluster.cli.units import Seconds
from paceline_cluster.processes import ProcessState
from paceline_cluster.replica_plan import Move

DRAIN_S = 60.0

_number = click.argument(
    "number", metavar="NODE", type=click.IntRange(0), shell_complete=complete_nodes
)


def _show(data: dict[str, Any], printer: Printer) -> None:
    printer.result(data, Table(tuple(data), [tuple(data.values())]))


@click.command()
@_number
@click.option("--force", is_flag=True, help="Even if a partition is left without a leader.")
@click.option("--timeout", type=Seconds(), default=DRAIN_S, show_default=True, metavar="SECONDS")
@client_options
@output_option
def drain(
    number: int,
    force: bool,
    timeout: float,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    """Move all leadership away from NODE until 'node revive', and wait until it is done.

    It keeps following, so no partition lacks replicas, and stays drained over restarts. Refused
    where a partition would be left without a leader.
    """
    node = NodeId(number)

    async def work(client: Client) -> int:
        await leaving.require_node(client, node)
        return await leaving.drain(client, node, is_forced=force, timeout_s=timeout)

    count = with_client(find(directory, bootstrap), work)
    _show({"node": number, "action": "drain", "leaderships": count}, printer)


@click.command()
@_number
@client_options
@output_option
def revive(
    number: int, directory: Path | None, bootstrap: tuple[Address, ...], printer: Printer
) -> None:
    """Let NODE lead again, and give it the partitions of which it is the preferred leader."""
    node = NodeId(number)

    async def work(client: Client) -> int:
        await leaving.require_node(client, node)
        return await leaving.revive(client, node)

    count = with_client(find(directory, bootstrap), work)
    _show({"node": number, "action": "revive", "leaderships": count}, printer)


@click.command()
@_number
@at_once_option
@click.option(
    "--timeout",
    type=Seconds(),
    metavar="SECONDS",
    help="Stop waiting for moves after this, and say what is left and why.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_options
@output_option
def decommission(
    number: int,
    at_once: int,
    timeout: float | None,
    yes: bool,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    """Take NODE out of the cluster for good, with no record or copy missing at any time.

    Its replicas are moved to other nodes, another node votes on the metadata in its place, and with
    --dir its process is stopped and it is forgotten; its files stay, but cannot join again. With
    --bootstrap the process has to be stopped by whoever runs it, and then 'paceline node remove'
    forgets it. If it was interrupted, repeat it once 'paceline partition move status' shows
    nothing.
    """
    ref = find(directory, bootstrap)
    node = NodeId(number)
    confirm(
        f"Take node {number} out of the cluster for good?",
        f"a node that was taken out cannot come back as node {number} with its files",
        yes=yes,
    )

    async def work(client: Client) -> dict[str, Any]:
        await leaving.require_node(client, node)

        async def carry_out(moves: list[Move]) -> list[moving.Result]:
            return await carried_out(
                client, moves=moves, at_once=at_once, timeout=timeout, printer=printer
            )

        moved = await leaving.empty(client, node, carry_out)
        heir = await leaving.hand_over_vote(client, node)
        result = {"node": number, "action": "decommission", "moved": moved, "new_voter": heir}
        if ref.dir is None:
            return {**result, "removed": False}
        entry = state.load(ref.dir).node(number)
        if launch.process_state(entry) is not ProcessState.STOPPED:
            await launch.stop_node(ref.dir, entry, timeout_s=STOP_TIMEOUT_S)
        await leaving.forget(client, node)
        state.remove_node(ref.dir, number)
        return {**result, "removed": True}

    data = with_client(ref, work)
    if not data["removed"]:
        printer.say(
            f"node {number} holds nothing any more: stop its process, then 'paceline node remove "
            f"{number}' forgets it"
        )
    _show(data, printer)
