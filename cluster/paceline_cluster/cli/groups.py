"""``group``: list, describe and delete consumer groups, evict members, list their topics.

Their offsets: ``group_offsets.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from paceline.client import Client, Position
from paceline.documents.groups import (
    group_document,
    is_dealt_anew,
    listing_document,
    progress_document,
)
from paceline.errors import GroupNotFound, UnknownTopicOrPartition
from paceline.types import TopicPartition
from paceline.units import time_text
from paceline.wire.native.groups import GroupDescription, GroupListing, GroupMember
from paceline_cluster.cli.complete import complete_groups, complete_members
from paceline_cluster.cli.confirming import confirm
from paceline_cluster.cli.find_cluster import Address, client_options, find
from paceline_cluster.cli.group_family import FAMILIES, family_options
from paceline_cluster.cli.group_offsets import offsets
from paceline_cluster.cli.hidden import may_be_hidden, say_hidden
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.session import with_client
from paceline_cluster.errors import BadInput


@click.group()
def group() -> None:
    """List, describe and delete consumer groups, evict members; read and reset offsets."""


group.add_command(offsets)


@group.command("list")
@client_options
@click.option(
    "--family", "families", multiple=True, type=click.Choice(FAMILIES), help="Only of these."
)
@output_option
def list_(
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    families: tuple[str, ...],
    printer: Printer,
) -> None:
    """List the groups of all protocols."""

    async def work(client: Client) -> tuple[list[GroupListing], bool]:
        found = await client.admin.groups.list(families=families)
        return found, not found and await may_be_hidden(client)

    ref = find(directory, bootstrap)
    listed, is_guarded = with_client(ref, work)
    columns = ("group", "family", "subject", "state", "members", "generation")
    data = {"groups": [listing_document(each) for each in listed]}
    rows = [[each[column] for column in columns] for each in data["groups"]]
    printer.result(data, Table(columns, rows))
    if is_guarded:
        say_hidden(printer, ref, "group")


@group.command()
@click.argument("name", shell_complete=complete_groups)
@client_options
@family_options
@output_option
def describe(
    name: str,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    family: str,
    subject: str,
    printer: Printer,
) -> None:
    """Show a group's members, and its lag in each partition that they read, or that they read
    before they left. Where nothing is committed, the lag counts from the oldest record."""

    async def work(client: Client) -> dict[str, Any]:
        groups = client.admin.groups
        try:
            found = await groups.describe(name, family=family, subject=subject)
        except GroupNotFound as error:
            raise GroupNotFound(f"{error}{await _namesakes(client, name)}") from None
        committed = await groups.offsets(name, family=family, subject=subject)
        readers = _readers(found)
        ends = await _offsets(client, {at.topic for at in (*committed, *readers)}, Position.LATEST)
        known = {*committed, *readers, *_left(found, committed, ends)}
        new = {at.topic for at in known.difference(committed)}
        starts = await _offsets(client, new, Position.EARLIEST)
        coordinator = await groups.coordinator(name, family=family, subject=subject)
        return group_document(found, coordinator=coordinator) | {
            "partitions": [
                progress_document(
                    at.topic,
                    at.partition,
                    committed=committed[at].offset if at in committed else None,
                    start=starts.get(at),
                    end=ends.get(at),
                    member=readers.get(at),
                )
                for at in sorted(known)
            ],
        }

    data = with_client(find(directory, bootstrap), work)
    title = (
        f"{name} ({family}): {data['state']}, generation {data['generation']}, "
        f"coordinator node {data['coordinator']}"
    )
    columns = ("topic", "partition", "committed", "end", "lag", "member")
    rows = [[each[column] for column in columns] for each in data["partitions"]]
    tables = [Table(columns, rows, title=title)]
    if data["members"]:
        heads = ("member", "instance", "client", "host", "partitions", "leader")
        rows = [
            [*(each[head] for head in heads), time_text(each["silent_ms"])]
            for each in data["members"]
        ]
        tables.append(Table((*heads, "silent_for"), rows))
    printer.result(data, *tables)


async def _namesakes(client: Client, name: str) -> str:
    """Which groups of the name there are, as the end of a sentence; nothing if there is none."""
    found = [each for each in await client.admin.groups.list() if each.group == name]
    options = [
        f"--family {each.family}" + (f" --subject {each.subject}" if each.subject else "")
        for each in found
    ]
    return f"; there is one with {' and with '.join(options)}" if options else ""


def _readers(found: GroupDescription) -> dict[TopicPartition, str]:
    return {
        TopicPartition(part.topic, number): member.member_id
        for member in found.members
        for part in member.assigned
        for number in part.partitions
    }


def _left(
    found: GroupDescription, committed: Iterable[TopicPartition], there: Iterable[TopicPartition]
) -> set[TopicPartition]:
    """What the next member is dealt, unless others have it."""
    if not is_dealt_anew(found):
        return set()
    topics = {at.topic for at in committed}
    return {at for at in there if at.topic in topics}


async def _offsets(
    client: Client, topics: set[str], position: Position
) -> dict[TopicPartition, int]:
    """Where the position is in each partition; a deleted topic has none."""
    offsets: dict[TopicPartition, int] = {}
    for topic in sorted(topics):
        try:
            found = await client.admin.list_offsets(topic, position)
        except UnknownTopicOrPartition:
            continue
        offsets |= {TopicPartition(topic, number): offset for number, offset in found.items()}
    return offsets


@group.command()
@click.argument("name", shell_complete=complete_groups)
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--all", "reads_all", is_flag=True, help="All topics again, as without a list.")
@client_options
@output_option
def topics(
    name: str,
    topics: tuple[str, ...],
    reads_all: bool,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    """Set, or show, what consumers that name no topics read in a group of family coordinator:
    those of version 0 of its protocol cannot name any."""
    if topics and reads_all:
        raise click.UsageError("name topics, or say --all")

    async def work(client: Client) -> tuple[str, ...]:
        if topics or reads_all:
            await client.admin.groups.set_topics(name, topics)
            return tuple(sorted(set(topics)))
        return await client.admin.groups.topics(name)

    listed = with_client(find(directory, bootstrap), work)
    data = {"group": name, "topics": list(listed) or None}
    shown = " ".join(listed) or "all"
    printer.result(data, Table(tuple(data), [(name, shown)]))


@group.command()
@click.argument("name", shell_complete=complete_groups)
@click.argument(
    "members", nargs=-1, required=True, metavar="MEMBER...", shell_complete=complete_members
)
@client_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
def evict(
    name: str,
    members: tuple[str, ...],
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    yes: bool,
    printer: Printer,
) -> None:
    """Take members out of a group of family kafka, so that others get their partitions at once.
    MEMBER is its id or instance as 'group describe' shows them. A member that hangs, or will not
    come back, stays out; one that is alive joins again."""
    confirm(
        f"Take {', '.join(members)} out of group {name}?",
        f"evict takes {', '.join(members)} out of group {name}",
        yes=yes,
    )

    async def work(client: Client) -> list[GroupMember]:
        found = await client.admin.groups.describe(name)
        known = {each.instance_id: each for each in found.members if each.instance_id}
        known |= {each.member_id: each for each in found.members}
        for member in members:
            if member not in known:
                raise BadInput(
                    f"group {name} has no member {member}",
                    hint=f"'paceline group describe {name}' shows those it has",
                )
        evicted = list({known[member].member_id: known[member] for member in members}.values())
        await client.admin.groups.evict(name, [each.member_id for each in evicted])
        return evicted

    evicted = with_client(find(directory, bootstrap), work)
    columns = ("member", "instance", "client")
    rows = [(each.member_id, each.instance_id, each.client_id) for each in evicted]
    data = {"group": name, "evicted": [dict(zip(columns, row, strict=True)) for row in rows]}
    printer.result(data, Table(columns, rows))


@group.command()
@click.argument("name", shell_complete=complete_groups)
@client_options
@family_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
def delete(
    name: str,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    family: str,
    subject: str,
    yes: bool,
    printer: Printer,
) -> None:
    """Forget a group without members, and how far it has read."""
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("delete forgets the group's offsets; confirm it with --yes")
        click.confirm(f"Forget group {name} and its offsets?", abort=True, err=True)
    with_client(
        find(directory, bootstrap),
        lambda client: client.admin.groups.delete(name, family=family, subject=subject),
    )
    data = {"group": name, "family": family, "deleted": True}
    printer.result(data, Table(tuple(data), [tuple(data.values())]))
