"""``role``: who leads a partition (SETTLED R10)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from paceline.client import Client
from paceline.types import NodeId
from paceline_cluster.cli.complete import complete_topics
from paceline_cluster.cli.find import Address, client_options, find
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.session import with_client


@click.group()
def role() -> None:
    """Move leadership of a partition."""


@role.command("set")
@click.argument("topic", shell_complete=complete_topics)
@click.argument("partition", type=click.IntRange(0))
@click.argument("name", metavar="ROLE", type=click.Choice(["leader", "follower", "auto"]))
@click.option("--node", type=click.IntRange(0), required=True, metavar="ID", help="Whose replica.")
@client_options
@output_option
def set_(
    topic: str,
    partition: int,
    name: str,
    node: int,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    """Make a node's replica the leader or a follower of a partition.

    'leader' moves leadership there, if the replica is in sync; 'follower' moves it away and keeps
    it away; 'auto' leaves it to the cluster again.
    """

    async def work(client: Client) -> dict[str, Any]:
        done = await client.admin.set_role(topic, partition, NodeId(node), name)
        return {
            "topic": topic,
            "partition": partition,
            "node": node,
            "role": name,
            "leader": done.leader,
            "leader_epoch": done.leader_epoch,
        }

    data = with_client(find(directory, bootstrap), work)
    printer.result(data, Table(tuple(data), [tuple(data.values())]))
