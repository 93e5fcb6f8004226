"""``topic``: create, list, describe, alter, add partitions, delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from paceline.client import Client
from paceline.counted import counted
from paceline.documents.topics import (
    NO_CONTROLLER,
    TopicSummary,
    partition_document,
    topic_document,
)
from paceline.errors import (
    InvalidPartitions,
    PacelineError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from paceline.types import NO_NODE, TopicPartition, is_internal_topic
from paceline.wire.native.data import TopicDescription, TopicInfo
from paceline_cluster.cli.complete import complete_topics
from paceline_cluster.cli.confirming import confirm
from paceline_cluster.cli.find_cluster import Address, client_options, find
from paceline_cluster.cli.hidden import may_be_hidden, say_hidden
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.session import with_client
from paceline_cluster.cli.topic_alter import alter, config_option
from paceline_cluster.cli.topic_names import TopicNames, regex_option
from paceline_cluster.cli.topic_settings import settings
from paceline_cluster.cli.topic_sizes import sizes
from paceline_cluster.cli.units import told

CLUSTER_DEFAULT = -1
LEADER_WAIT_S = 10.0
"""How long leaders are waited for that do not answer: longer than an election takes."""


_names_argument = click.argument(
    "names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_topics
)


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


topic.add_command(alter)
topic.add_command(sizes)
topic.add_command(settings)


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@client_options
@click.option("--partitions", type=click.IntRange(1))
@click.option("--replication-factor", type=click.IntRange(1))
@config_option
@click.option("--if-not-exists", is_flag=True, help="Succeed if the same topic exists already.")
@output_option
def create(
    names: tuple[str, ...],
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: dict[str, str],
    if_not_exists: bool,
    printer: Printer,
) -> None:
    """Create topics, all alike; what is not given is the cluster's default."""

    async def make(client: Client, name: str) -> dict[str, Any]:
        try:
            created = await client.admin.create_topic(
                name,
                partitions=partitions or CLUSTER_DEFAULT,
                replication_factor=replication_factor or CLUSTER_DEFAULT,
                configs=configs,
                if_not_exists=if_not_exists,
            )
        except TopicAlreadyExists as error:
            hint = "" if if_not_exists else "; --if-not-exists takes one that is the same"
            error.add_note(f"'paceline topic describe {name}' shows it{hint}")
            raise
        except InvalidPartitions as error:
            error.add_note("fewer will do: 'paceline topic add-partitions' adds some later")
            raise
        return {
            "name": name,
            "topic_id": str(created.topic_id),
            "partitions": created.partitions,
            "replication_factor": created.replication_factor,
            "existed": created.existed,
        }

    async def work(client: Client) -> list[dict[str, Any]]:
        return await _each(names, partial(make, client), "created", printer)

    _show_each(with_client(find(directory, bootstrap), work), printer)


@topic.command("list")
@client_options
@click.option("--internal", is_flag=True, help="The cluster's own topics (__...) too.")
@output_option
def list_(
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    internal: bool,
    printer: Printer,
) -> None:
    """List topics with their counts."""

    async def work(client: Client) -> tuple[list[TopicInfo], bool, bool]:
        there = await client.admin.list_topics()
        found = [each for each in there if internal or not is_internal_topic(each.name)]
        has_controller = (await client.admin.describe_cluster()).controller != NO_NODE
        return found, not found and await may_be_hidden(client), has_controller

    ref = find(directory, bootstrap)
    found, is_guarded, has_controller = with_client(ref, work)
    topics = [_summary(each) for each in found]
    columns = ("name", "partitions", "replication_factor", "leaderless", "under_replicated")
    rows = [[each[column] for column in columns] for each in topics]
    printer.result({"topics": topics}, Table(columns, rows))
    if found and not has_controller:
        printer.say(f"{NO_CONTROLLER}; 'paceline health' says more")
    if is_guarded:
        say_hidden(printer, ref, "topic")


def _summary(info: TopicInfo) -> dict[str, Any]:
    return TopicSummary(info.name, info.topic_id, info.kind).add(info.partitions).document()


@topic.command()
@_names_argument
@client_options
@regex_option
@output_option
def describe(
    names: tuple[str, ...],
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    is_regex: bool,
    printer: Printer,
) -> None:
    """Show each partition's leader, replicas and offsets, and the settings in force with where
    they are from: set for the topic, the nodes' own settings, or defaults. NAME may be a pattern
    such as 'orders-*', for all matching topics.

    ROLE SET is shown where that command was used: 'pinned', the leader stays though it is not the
    preferred one, and nodes that are to be followers.
    """
    meant = TopicNames(names, is_regex)

    async def work(client: Client) -> tuple[list[TopicDescription], bool]:
        found = [
            await client.admin.describe_topic(name, settings=True, timeout_s=LEADER_WAIT_S)
            for name in await meant.expanded(client)
        ]
        return found, (await client.admin.describe_cluster()).controller != NO_NODE

    found, has_controller = with_client(find(directory, bootstrap), work)
    described = [_described(each, has_controller=has_controller) for each in found]
    data = [each for each, _ in described]
    tables = [table for _, tables in described for table in tables]
    printer.result(data[0] if meant.is_one else {"topics": data}, *tables)
    for each in data:
        if each["stale"] is not None:
            printer.say(f"{each['name']}: {each['stale']}; 'paceline health' says more")
        if each["configs"] is None:
            printer.say(f"{each['name']}: its settings are shown to who has describe-configs of it")


def _described(
    found: TopicDescription, *, has_controller: bool
) -> tuple[dict[str, Any], list[Table]]:
    partitions = [partition_document(each) for each in found.partitions]
    configs = found.configs or {}
    data = topic_document(found, has_controller=has_controller) | {"partitions": partitions}
    columns: tuple[str, ...] = (
        *("partition", "leader", "leader_epoch", "replicas", "isr"),
        *("log_start_offset", "high_watermark", "log_end_offset", "size_bytes", "error"),
    )
    rows = [[each[column] for column in columns] for each in partitions]
    overrides = [_override(each) for each in partitions]
    if any(overrides):
        columns = (*columns, "role set")
        rows = [[*row, override] for row, override in zip(rows, overrides, strict=True)]
    tables = [Table(columns, rows, title=f"{found.name} ({found.topic_id})")]
    if found.settings:
        held = [
            (each.name, told(each.name, each.value), each.source)
            for each in found.settings
            if each.value
        ]
        tables.append(Table(("setting", "value", "source"), held))
    elif configs:  # no leader says what else holds
        set_ = [(name, told(name, value)) for name, value in sorted(configs.items())]
        tables.append(Table(("setting", "value"), set_))
    return data, tables


def _override(partition: dict[str, Any]) -> str | None:
    """What 'role set' has made of it, for people."""
    pinned = ["pinned"] if partition["pinned"] else []
    return (
        ", ".join([*pinned, *(f"follower {node}" for node in partition["follower_marks"])]) or None
    )


@topic.command("add-partitions")
@click.argument("name", shell_complete=complete_topics)
@click.argument("total", type=click.IntRange(1))
@client_options
@output_option
def add_partitions(
    name: str,
    total: int,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    """Grow a topic to TOTAL partitions. Keys may then go to other partitions than before."""

    async def work(client: Client) -> dict[str, Any]:
        try:
            await client.admin.add_partitions(name, total)
        except InvalidPartitions as error:
            error.add_note(
                "TOTAL counts those that are there; partitions are never taken away: for fewer, "
                "make another topic"
            )
            raise
        return {"name": name, "partitions": len((await client.admin.topic(name)).partitions)}

    _show(with_client(find(directory, bootstrap), work), printer)


@topic.command()
@click.argument("name", shell_complete=complete_topics)
@client_options
@click.option("--partition", type=click.IntRange(0), help="Only this one; all by default.")
@click.option(
    "--before", type=click.IntRange(0), help="First offset to keep; without it nothing is kept."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
def trim(
    name: str,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    partition: int | None,
    before: int | None,
    yes: bool,
    printer: Printer,
) -> None:
    """Delete the oldest records of a topic, on all replicas. Offsets do not change.

    They can no longer be read, at once. Disk space is freed by whole segments: the one that is
    being written keeps its space until it is full (segment.bytes) or old enough (segment.ms)."""
    what = "all records" if before is None else f"the records before offset {before}"
    where = name if partition is None else f"{name}/{partition}"
    confirm(f"Delete {what} of {where}?", f"trim deletes {what} of {where}", yes=yes)

    async def work(client: Client) -> list[tuple[int, int]]:
        there = [each.partition for each in (await client.admin.topic(name)).partitions]
        numbers = there if partition is None else [partition]
        if not set(numbers) <= set(there):
            raise UnknownTopicOrPartition(
                f"{name}/{partition}: the topic has {counted(len(there), 'partition')}"
            )
        return [
            (number, await client.admin.trim(TopicPartition(name, number), before))
            for number in numbers
        ]

    starts = with_client(find(directory, bootstrap), work)
    printer.result(
        {
            "name": name,
            "partitions": [
                {"partition": number, "log_start_offset": start} for number, start in starts
            ],
        },
        Table(("partition", "log start"), starts),
    )


@topic.command()
@_names_argument
@client_options
@regex_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
def delete(
    names: tuple[str, ...],
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    is_regex: bool,
    yes: bool,
    printer: Printer,
) -> None:
    """Delete topics with all their records. NAME may be a pattern such as 'orders-*'; the matching
    topics are shown before you are asked, and with --yes as well."""
    ref = find(directory, bootstrap)
    meant = TopicNames(names, is_regex)
    # Of mere names nobody has to be asked what they mean.
    named = list(dict.fromkeys(names))
    wanted = with_client(ref, meant.expanded) if meant.are_patterns else named
    confirm(
        f"Delete {', '.join(wanted)} with all records?",
        f"delete removes all records of {', '.join(wanted)}",
        yes=yes,
    )

    async def remove(client: Client, name: str) -> dict[str, Any]:
        await client.admin.delete_topic(name)
        return {"name": name, "deleted": True}

    async def work(client: Client) -> list[dict[str, Any]]:
        return await _each(wanted, partial(remove, client), "deleted", printer)

    _show_each(with_client(ref, work), printer, is_one=meant.is_one)


async def _each(
    names: Sequence[str],
    work: Callable[[str], Awaitable[dict[str, Any]]],
    done: str,
    printer: Printer,
) -> list[dict[str, Any]]:
    """What ``work`` makes of each topic in order. Where one fails, those before it are named."""
    made: list[dict[str, Any]] = []
    try:
        for name in names:
            made.append(await work(name))
    except PacelineError:
        if made:
            printer.say(f"{done} before it: {', '.join(each['name'] for each in made)}")
        raise
    return made


def _show(data: dict[str, Any], printer: Printer) -> None:
    _show_each([data], printer)


def _show_each(
    found: Sequence[dict[str, Any]], printer: Printer, *, is_one: bool | None = None
) -> None:
    """A row for each; as data the one that was named, or a list of several."""
    table = Table(tuple(found[0]), [tuple(each.values()) for each in found])
    alone = len(found) == 1 if is_one is None else is_one
    printer.result(found[0] if alone else {"topics": list(found)}, table)
