"""``role``: who leads a partition (controller/DESIGN 8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from paceline.client import Client
from paceline.types import NodeId
from paceline_cluster.cli.complete import complete_nodes, complete_topics
from paceline_cluster.cli.confirming import confirm
from paceline_cluster.cli.find_cluster import Address, client_options, find
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.session import with_client


def _topic(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    topic, slash, partition = value.partition("/")
    if slash:
        raise click.BadParameter(
            f"{value!r}: topic and partition stand apart: '{topic} {partition}'"
        )
    return value


_topic_argument = click.argument("topic", callback=_topic, shell_complete=complete_topics)


@click.group()
def role() -> None:
    """Move leadership of a partition."""


@role.command("set")
@_topic_argument
@click.argument("partition", type=click.IntRange(0))
@click.argument("name", metavar="ROLE", type=click.Choice(["leader", "follower", "auto"]))
@click.option(
    "--node",
    type=click.IntRange(0),
    required=True,
    metavar="ID",
    shell_complete=complete_nodes,
    help="Whose replica.",
)
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


@role.command()
@_topic_argument
@click.argument("partition", type=click.IntRange(0))
@click.option(
    "--node",
    type=click.IntRange(0),
    required=True,
    metavar="ID",
    shell_complete=complete_nodes,
    help="Whose replica.",
)
@click.option(
    "--unclean",
    is_flag=True,
    help="Of a partition without a leader: let a replica lead that is not complete.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_options
@output_option
def elect(
    topic: str,
    partition: int,
    node: int,
    unclean: bool,
    yes: bool,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    """Let a node's replica lead a partition, once; it must be in sync.

    With --unclean a partition whose complete replicas are all gone or damaged starts over with
    what this one has. Acknowledged records that only others have are lost then, also when those
    come back: start them first, if that is possible. Refused while a complete replica is there.
    A transaction whose end is lost, or that __transactions forgets, holds readers of committed
    records up until its partition's leader has asked and aborted it (log.producer_check_ms, twice);
    that may be one that was committed elsewhere.
    """
    if unclean:
        loss = (
            f"{topic}/{partition} starts over with what node {node} has of it: acknowledged "
            "records that only other replicas have, or that are damaged on it, are lost for good; "
            "of a transaction whose end is among them, what is left here is aborted"
        )
        confirm(f"{loss}. Let it lead?", loss, yes=yes)

    async def work(client: Client) -> dict[str, Any]:
        done = await client.admin.elect_leader(topic, partition, NodeId(node), unclean=unclean)
        return {
            "topic": topic,
            "partition": partition,
            "leader": done.leader,
            "leader_epoch": done.leader_epoch,
            "unclean": unclean,
        }

    data = with_client(find(directory, bootstrap), work)
    printer.result(data, Table(tuple(data), [tuple(data.values())]))
