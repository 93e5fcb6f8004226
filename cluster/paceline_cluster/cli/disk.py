"""``disk``: how full each node's disk is, and what lies on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from paceline.client import Client
from paceline.errors import PacelineError
from paceline.types import NodeId
from paceline.units import size_text
from paceline.wire.native.data import StatusReply
from paceline_cluster.cli.find_cluster import Address, client_options, find
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.session import with_client
from paceline_cluster.cli.topic_sizes import Sizes, ask_all

ROWS = 10
_Statuses = Mapping[NodeId, StatusReply | PacelineError]


@click.command()
@client_options
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=ROWS,
    show_default=True,
    help="Topics and partitions to show in tables.",
)
@output_option
def disk(
    directory: Path | None, bootstrap: tuple[Address, ...], rows: int, printer: Printer
) -> None:
    """Show how full each node's disk is, how much of it logs take, and the largest topics and
    partitions on all disks together, the cluster's own too.

    The size of a log includes what retention will delete when its segments are old enough. What
    others keep on the same disk, and indexes and metadata, are in what is used, and in no log.
    """

    async def work(client: Client) -> tuple[dict[str, Sizes], dict[NodeId, str], _Statuses]:
        names = [each.name for each in await client.admin.list_topics()]
        return (*await ask_all(client, names), await client.admin.statuses())

    found, silent, statuses = with_client(find(directory, bootstrap), work)
    partitions = [each for name, held in found.items() for each in _partitions(name, held)]
    topics = dict.fromkeys(found, 0)
    for each in partitions:
        topics[each["topic"]] += each["disk_bytes"]
    data = {
        "nodes": [_node(node, statuses[node], found, silent.get(node)) for node in statuses],
        "topics": [
            {"name": name, "disk_bytes": topics[name]}
            for name in sorted(topics, key=lambda each: (-topics[each], each))
        ],
        "partitions": sorted(
            partitions, key=lambda each: (-each["disk_bytes"], each["topic"], each["partition"])
        ),
    }
    printer.result(data, *_tables(data, rows))


def _partitions(name: str, held: Sizes) -> list[dict[str, Any]]:
    sizes: dict[int, dict[NodeId, int]] = {}
    for node, parts in sorted(held.items()):
        for number, size in parts.items():
            sizes.setdefault(number, {})[node] = size
    return [
        {
            "topic": name,
            "partition": number,
            "disk_bytes": sum(by_node.values()),
            "replicas": [{"node": node, "size_bytes": size} for node, size in by_node.items()],
        }
        for number, by_node in sizes.items()
    ]


def _node(
    node: NodeId,
    status: StatusReply | PacelineError,
    found: Mapping[str, Sizes],
    reason: str | None,
) -> dict[str, Any]:
    """A node that broke off in the middle has not told its sum."""
    told = None if isinstance(status, PacelineError) else status
    is_known = told is not None and told.disk_bytes >= 0
    logs = sum(sum(held.get(node, {}).values()) for held in found.values())
    return {
        "node": node,
        "disk_bytes": told.disk_bytes if told is not None and is_known else None,
        "disk_free_bytes": told.disk_free_bytes if told is not None and is_known else None,
        "log_bytes": None if reason else logs,
        "reason": reason or (str(status) if told is None else None),
    }


def _tables(data: Mapping[str, Any], rows: int) -> list[Table]:
    nodes = data["nodes"]
    has_reasons = any(each["reason"] for each in nodes)
    heads = ("node", "disk", "used", "free", "logs") + (("reason",) if has_reasons else ())
    return [
        Table(heads, [_row(each) + ((each["reason"],) if has_reasons else ()) for each in nodes]),
        Table(
            ("topic", "on all disks"),
            [(each["name"], size_text(each["disk_bytes"])) for each in data["topics"][:rows]],
        ),
        Table(
            ("partition", "on all disks", "by node"),
            [
                (
                    f"{each['topic']}/{each['partition']}",
                    size_text(each["disk_bytes"]),
                    _by_node(each["replicas"]),
                )
                for each in data["partitions"][:rows]
            ],
        ),
    ]


def _row(each: Mapping[str, Any]) -> tuple[object, ...]:
    total, free, logs = each["disk_bytes"], each["disk_free_bytes"], each["log_bytes"]
    shown = None if logs is None else size_text(logs)
    if not total:
        return (each["node"], None, None, None, shown)
    used = total - free
    return (
        each["node"],
        size_text(total),
        f"{size_text(used)} ({100 * used // total} %)",
        size_text(free),
        shown,
    )


def _by_node(replicas: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{each['node']}: {size_text(each['size_bytes'])}" for each in replicas)
