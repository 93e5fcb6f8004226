"""``role``: who leads a partition (controller/DESIGN 8)."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from paceline.client import Client
from paceline.errors import PacelineError
from paceline.types import NodeId, TopicPartition
from paceline.wire.native.admin import RoleSet
from paceline_cluster.cli.complete import complete_nodes, complete_topics
from paceline_cluster.cli.confirming import confirm
from paceline_cluster.cli.find_cluster import Address, ClusterRef, client_options, find
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.session import with_client
from paceline_cluster.cli.targets import parse_partition

ROLES = ("leader", "follower", "auto")
BALANCING = "controller.balance_interval_ms"


def _place(_ctx: click.Context, _param: click.Parameter, words: tuple[str, ...]) -> TopicPartition:
    """``orders/0``, or ``orders 0``, as it was to be written before."""
    try:
        return parse_partition("/".join(words))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _topics_and_roles(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    # How many words name the partition is not known before the last.
    roles = [CompletionItem(role) for role in ROLES if role.startswith(incomplete)]
    return [*complete_topics(ctx, param, incomplete), *roles]


@click.group()
def role() -> None:
    """Move leadership of a partition."""


@role.command("set")
@click.argument(
    "at",
    nargs=-1,
    required=True,
    metavar="TOPIC/PARTITION",
    callback=_place,
    shell_complete=_topics_and_roles,
)
@click.argument("name", metavar="ROLE", type=click.Choice(ROLES))
@click.option(
    "--node",
    type=click.IntRange(0),
    required=True,
    metavar="ID",
    shell_complete=complete_nodes,
    help="The node whose replica is meant.",
)
@client_options
@output_option
def set_(
    at: TopicPartition,
    name: str,
    node: int,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    """Make a node's replica the leader or a follower of a partition.

    'leader' moves leadership there, if the replica is in sync, and makes the leader balancer
    leave the partition alone; 'follower' moves it away and keeps it away; 'auto' leaves it to the
    cluster again. Either holds over restarts, until 'auto'; but if the leader dies, another one
    leads, and stays the leader. 'topic describe' shows it.
    """

    async def work(client: Client) -> dict[str, Any]:
        done = await client.admin.set_role(at.topic, at.partition, NodeId(node), name)
        return {
            "topic": at.topic,
            "partition": at.partition,
            "node": node,
            "role": name,
            "leader": done.leader,
            "leader_epoch": done.leader_epoch,
        }

    data = with_client(find(directory, bootstrap), work)
    printer.result(data, Table(tuple(data), [tuple(data.values())]))


@role.command()
@click.argument(
    "at",
    nargs=-1,
    required=True,
    metavar="TOPIC/PARTITION",
    callback=_place,
    shell_complete=complete_topics,
)
@click.option(
    "--node",
    type=click.IntRange(0),
    required=True,
    metavar="ID",
    shell_complete=complete_nodes,
    help="The node whose replica is meant.",
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
    at: TopicPartition,
    node: int,
    unclean: bool,
    yes: bool,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    """Let a node's replica lead a partition, once; it must be in sync.

    Unless it is the preferred leader (the first of the replicas), leadership may go back to that
    one when leaders are balanced: every controller.balance_interval_ms (a minute; 0: never), where
    more than a tenth of what a node should lead, or leads, is elsewhere. 'role set leader' keeps
    it.

    With --unclean a partition whose complete replicas are all gone or damaged starts over with
    what this one has. Acknowledged records that only others have are then lost, even when those
    come back: start them first, if possible. Refused while there is a complete replica.
    A transaction whose end is lost, or that __transactions forgets, holds readers of committed
    records up until its partition's leader has asked and aborted it (log.producer_check_ms, twice);
    that may be one that was committed elsewhere.
    """
    if unclean:
        loss = (
            f"{at} starts over with what node {node} has of it: acknowledged "
            "records that only other replicas have, or that are damaged on it, are lost for good; "
            "of a transaction whose end is among them, what is left here is aborted"
        )
        confirm(f"{loss}. Let it lead?", loss, yes=yes)

    async def work(client: Client) -> dict[str, Any]:
        admin = client.admin
        done = await admin.elect_leader(at.topic, at.partition, NodeId(node), unclean=unclean)
        preferred, pinned = await _standing(client, at, done)
        return {
            "topic": at.topic,
            "partition": at.partition,
            "leader": done.leader,
            "leader_epoch": done.leader_epoch,
            "preferred": preferred,
            "pinned": pinned,
            "unclean": unclean,
        }

    ref = find(directory, bootstrap)
    data = with_client(ref, work)
    printer.result(data, Table(tuple(data), [tuple(data.values())]))
    interval = _interval(ref)
    if data["preferred"] != data["leader"] and not data["pinned"] and interval:
        printer.say(
            f"node {data['preferred']} is the preferred leader of {at}, and may have it back when "
            f"leaders are balanced ({interval}); 'paceline role set {at} leader --node {node}' "
            f"keeps it at node {node}"
        )


async def _standing(
    client: Client, at: TopicPartition, done: RoleSet
) -> tuple[NodeId, bool | None]:
    """The preferred leader of a partition, and whether another one may be moved back to it; None
    where the leader does not tell."""
    partitions = (await client.admin.topic(at.topic)).partitions
    [preferred] = [each.replicas[0] for each in partitions if each.partition == at.partition]
    with contextlib.suppress(PacelineError):
        described = await client.admin.describe_replicas(done.leader, at.topic)
        for each in described.partitions:
            if each.partition == at.partition:
                return preferred, each.override is not None and each.override.pinned
    return preferred, None


def _interval(ref: ClusterRef) -> str:
    """How often leaders are balanced, as far as that is known here; empty: never."""
    current = ref.state()
    typed = None if current is None else current.settings.get(BALANCING)
    if typed is None:
        return f"{BALANCING}, 60 s unless it is set"
    return "" if typed == "0" else f"{BALANCING} is {typed}"
