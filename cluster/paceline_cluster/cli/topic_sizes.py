"""``topic sizes``: where the disk is used, by topic and by node."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import trio

from paceline.client import Client
from paceline.errors import PacelineError, UnknownTopicOrPartition
from paceline.types import NodeId
from paceline_cluster.cli.complete import complete_topics
from paceline_cluster.cli.find_cluster import Address, client_options, find
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.session import with_client
from paceline_cluster.cli.topic_names import TopicNames, regex_option

Sizes = dict[NodeId, dict[int, int]]
"""Of one topic: by node and partition, the bytes of the log that lies there."""


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_topics)
@client_options
@regex_option
@output_option
def sizes(
    names: tuple[str, ...],
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    is_regex: bool,
    printer: Printer,
) -> None:
    """Show how much of the disk each topic's log takes, the largest first, and each node's part.

    All topics, the cluster's own too, or those that are named; NAME may be a pattern. Indexes,
    snapshots and metadata are not counted: they are small compared to a log."""

    meant = TopicNames(names, is_regex)

    async def work(client: Client) -> tuple[dict[str, Sizes], dict[NodeId, str]]:
        if names:
            # Raises for a name that nobody knows.
            wanted = [
                (await client.admin.topic(name)).name for name in await meant.expanded(client)
            ]
        else:
            wanted = [each.name for each in await client.admin.list_topics()]
        return await ask_all(client, wanted)

    found, silent = with_client(find(directory, bootstrap), work)
    topics = sorted((_topic(*each) for each in found.items()), key=_largest_first)
    nodes = [_node(node, found, silent) for node in sorted({*_nodes(found), *silent})]
    printer.result({"topics": topics, "nodes": nodes}, *_tables(topics, nodes))


async def ask_all(
    client: Client, names: Sequence[str]
) -> tuple[dict[str, Sizes], dict[NodeId, str]]:
    """What every node that answers holds of the topics, and why the others do not say."""
    cluster = await client.admin.describe_cluster()
    found: dict[str, Sizes] = {name: {} for name in names}
    silent: dict[NodeId, str] = {}

    async def ask(node: NodeId) -> None:
        for name in names:
            try:
                described = await client.admin.describe_replicas(node, name)
            except UnknownTopicOrPartition:
                continue  # deleted meanwhile, or not heard of yet
            except PacelineError as error:
                silent[node] = str(error)
                return
            held = {each.partition: each.size_bytes for each in described.partitions}
            found[name][node] = {at: size for at, size in held.items() if size >= 0}

    async with trio.open_nursery() as nursery:
        for broker in cluster.brokers:
            nursery.start_soon(ask, broker.node_id)
    return found, silent


def _topic(name: str, held: Sizes) -> dict[str, Any]:
    partitions: dict[int, dict[NodeId, int]] = {}
    for node, parts in sorted(held.items()):
        for number, size in parts.items():
            partitions.setdefault(number, {})[node] = size
    return {
        "name": name,
        "size_bytes": sum(max(each.values()) for each in partitions.values()),
        "disk_bytes": sum(sum(each.values()) for each in partitions.values()),
        "partitions": [
            {
                "partition": number,
                "replicas": [{"node": node, "size_bytes": size} for node, size in each.items()],
            }
            for number, each in sorted(partitions.items())
        ],
    }


def _largest_first(topic: dict[str, Any]) -> tuple[int, str]:
    return -topic["disk_bytes"], topic["name"]


def _nodes(found: dict[str, Sizes]) -> set[NodeId]:
    return {node for held in found.values() for node in held}


def _node(node: NodeId, found: dict[str, Sizes], silent: dict[NodeId, str]) -> dict[str, Any]:
    """A node that broke off in the middle has not told its sum."""
    reason = silent.get(node)
    total = sum(sum(held.get(node, {}).values()) for held in found.values())
    return {"node": node, "disk_bytes": None if reason else total, "reason": reason}


def _tables(topics: Sequence[dict[str, Any]], nodes: Sequence[dict[str, Any]]) -> list[Table]:
    from rich.filesize import decimal  # imported where somebody looks at a table

    rows = [
        (
            each["name"],
            decimal(each["size_bytes"]),
            decimal(each["disk_bytes"]),
            *_largest(each["partitions"]),
        )
        for each in topics
    ]
    columns = ("topic", "data", "on all disks", "largest partition", "its data")
    by_node = [
        (each["node"], None if each["disk_bytes"] is None else decimal(each["disk_bytes"]))
        + ((each["reason"],) if any(other["reason"] for other in nodes) else ())
        for each in nodes
    ]
    heads = ("node", "on its disk", "reason")[: 3 if any(each["reason"] for each in nodes) else 2]
    return [Table(columns, rows), Table(heads, by_node)]


def _largest(partitions: Sequence[dict[str, Any]]) -> tuple[int | None, str | None]:
    from rich.filesize import decimal

    data = {
        each["partition"]: max(replica["size_bytes"] for replica in each["replicas"])
        for each in partitions
    }
    if not data:
        return None, None
    largest = max(data, key=lambda number: data[number])
    return largest, decimal(data[largest])
