"""``group offsets``: export what a group has committed, set it elsewhere, or forget it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from paceline.client import Client, Position
from paceline.errors import GroupNotFound
from paceline.types import TopicPartition, is_valid_topic_name
from paceline.values import dataclass
from paceline_cluster.cli.complete import complete_groups, complete_topics
from paceline_cluster.cli.find_cluster import Address, client_options, find
from paceline_cluster.cli.group_family import family_options
from paceline_cluster.cli.group_plan import (
    BadPlan,
    Change,
    from_json,
    plan,
    require_within,
    shifted,
    to_json,
)
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.session import with_client
from paceline_cluster.cli.start_positions import TIMES, parse_time
from paceline_cluster.cli.targets import parse_partition
from paceline_node.groups.keys import Family, GroupKey


@click.group()
def offsets() -> None:
    """Export, reset and delete how far a group has read."""


@offsets.command()
@click.argument("name", shell_complete=complete_groups)
@client_options
@family_options
@output_option
def export(
    name: str,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    family: str,
    subject: str,
    printer: Printer,
) -> None:
    """Print a group's offsets; 'reset --from-file' reads them, printed with --output json."""

    async def work(client: Client) -> dict[TopicPartition, int]:
        return await _committed(client, GroupKey(Family(family), name, subject))

    found = with_client(find(directory, bootstrap), work)
    rows = [(at.topic, at.partition, offset) for at, offset in found.items()]
    printer.result(to_json(name, family, found), Table(("topic", "partition", "offset"), rows))


@dataclass(frozen=True, slots=True)
class Target:
    """Where to: exactly one of these."""

    position: Position | None = None
    shift_by: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None


@offsets.command()
@click.argument("name", shell_complete=complete_groups)
@client_options
@family_options
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[/N]",
    help="Only of this topic or partition; otherwise all that the group has read.",
)
@click.option("--to-earliest", is_flag=True, help="To the oldest record kept.")
@click.option("--to-latest", is_flag=True, help="After the newest record.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N")
@click.option("--to-datetime", metavar="TIME", help=f"To the first record since then: ms, {TIMES}.")
@click.option("--shift-by", type=int, metavar="N", help="By N records, backward if negative.")
@click.option(
    "--from-file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE"
)
@click.option("--execute", is_flag=True, help="Do it. Without this, only show what would be done.")
@output_option
def reset(
    name: str,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    family: str,
    subject: str,
    topics: tuple[str, ...],
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    shift_by: int | None,
    from_file: Path | None,
    execute: bool,
    printer: Printer,
) -> None:
    """Set how far a group without members has read; shows a plan unless --execute is given."""
    target = _target(to_earliest, to_latest, to_offset, to_datetime, shift_by, from_file)
    group = GroupKey(Family(family), name, subject)
    only = tuple(_only(text) for text in topics)

    async def work(client: Client) -> tuple[list[Change], list[str]]:
        changes = await _plan(client, group, only, target)
        members = [] if execute else await _members(client, group)
        if execute:
            wanted = {each.at: each.after for each in changes if each.is_one}
            if wanted:
                await client.admin.groups.alter_offsets(
                    name, wanted, family=family, subject=subject
                )
        return changes, members

    try:
        changes, members = with_client(find(directory, bootstrap), work)
    except BadPlan as error:
        raise click.ClickException(str(error)) from None
    _show(group, changes, members, printer, done=execute)


@offsets.command()
@click.argument("name", shell_complete=complete_groups)
@client_options
@family_options
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    metavar="TOPIC[/N]",
    shell_complete=complete_topics,
    help="Of this topic or partition; it need no longer exist.",
)
@click.option("--execute", is_flag=True, help="Do it. Without this, only show what would be done.")
@output_option
def delete(
    name: str,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    family: str,
    subject: str,
    topics: tuple[str, ...],
    execute: bool,
    printer: Printer,
) -> None:
    """Forget how far a group has read topics that none of its members reads now. The next member
    to read them begins where a new group would."""
    group = GroupKey(Family(family), name, subject)
    only = tuple(_only(text) for text in topics)

    async def work(client: Client) -> dict[TopicPartition, int]:
        current = await _committed(client, group)
        chosen = {at: offset for at, offset in current.items() if at in only or at.topic in only}
        if not chosen:
            raise BadPlan(f"group {name} has committed nothing of {', '.join(topics)}")
        if execute:
            await client.admin.groups.delete_offsets(
                name, list(chosen), family=family, subject=subject
            )
        return chosen

    try:
        chosen = with_client(find(directory, bootstrap), work)
    except BadPlan as error:
        raise click.ClickException(str(error)) from None
    columns = ("topic", "partition", "offset")
    rows = [(at.topic, at.partition, offset) for at, offset in chosen.items()]
    data = {
        "group": name,
        "family": family,
        "executed": execute,
        "offsets": [dict(zip(columns, row, strict=True)) for row in rows],
    }
    printer.result(data, Table(columns, rows))
    if not execute:
        printer.say("nothing was deleted; --execute does it")


def _target(
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    shift_by: int | None,
    from_file: Path | None,
) -> Target:
    found = []
    if to_earliest:
        found.append(Target(Position.EARLIEST))
    if to_latest:
        found.append(Target(Position.LATEST))
    if to_offset is not None:
        found.append(Target(Position.at(to_offset)))
    if to_datetime is not None:
        found.append(Target(_since(to_datetime)))
    if shift_by is not None:
        found.append(Target(shift_by=shift_by))
    if from_file is not None:
        found.append(Target(offsets=_read(from_file)))
    if len(found) != 1:
        raise click.UsageError(
            "give one of --to-earliest, --to-latest, --to-offset, --to-datetime, --shift-by and "
            "--from-file"
        )
    return found[0]


def _since(text: str) -> Position:
    try:
        return Position.since(parse_time(text.removeprefix("@")))
    except ValueError as error:
        raise click.UsageError(f"--to-datetime: {error}") from None


def _read(path: Path) -> dict[TopicPartition, int]:
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except BadPlan as error:
        raise click.ClickException(f"{path}: {error}") from None


def _only(text: str) -> str | TopicPartition:
    if is_valid_topic_name(text):
        return text
    try:
        return parse_partition(text)
    except ValueError as error:
        raise click.UsageError(f"--topic: {error}") from None


async def _committed(client: Client, group: GroupKey) -> dict[TopicPartition, int]:
    found = await client.admin.groups.offsets(
        group.group, family=group.family.value, subject=group.subject
    )
    return {at: each.offset for at, each in found.items()}


async def _plan(
    client: Client, group: GroupKey, only: Sequence[str | TopicPartition], target: Target
) -> list[Change]:
    """Raises BadPlan, UnknownTopicOrPartition."""
    current = await _committed(client, group)
    named = target.offsets if target.offsets is not None else current
    chosen = await _chosen(client, only, sorted(named))
    if not chosen:
        raise BadPlan(f"group {group.group} has committed nothing; name topics with --topic")
    topics = sorted({at.topic for at in chosen})
    starts = await _places(client, topics, Position.EARLIEST)
    ends = await _places(client, topics, Position.LATEST)
    strange = [str(at) for at in chosen if at not in ends]
    if strange:
        raise BadPlan(f"no such partition: {', '.join(strange)}")
    if target.shift_by is not None:
        wanted = shifted(current, chosen, target.shift_by)
    elif target.offsets is not None:
        wanted = {at: target.offsets[at] for at in chosen if at in target.offsets}
    else:
        assert target.position is not None
        places = await _places(client, topics, target.position)
        wanted = {at: places[at] for at in chosen}
    if target.position is None or target.position.offset is not None:
        require_within(wanted, starts, ends)  # the others are places that there are
    return plan(current, wanted)


async def _chosen(
    client: Client, only: Sequence[str | TopicPartition], otherwise: list[TopicPartition]
) -> list[TopicPartition]:
    if not only:
        return otherwise
    chosen: set[TopicPartition] = set()
    for each in only:
        if isinstance(each, TopicPartition):
            chosen.add(each)
        else:
            info = await client.admin.topic(each)
            chosen |= {TopicPartition(each, part.partition) for part in info.partitions}
    return sorted(chosen)


async def _places(
    client: Client, topics: Sequence[str], position: Position
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic in topics:
        offsets = await client.admin.list_offsets(topic, position)
        found |= {TopicPartition(topic, number): offset for number, offset in offsets.items()}
    return found


async def _members(client: Client, group: GroupKey) -> list[str]:
    """Who reads in the group now, and keeps its offsets from being set."""
    try:
        found = await client.admin.groups.describe(
            group.group, family=group.family.value, subject=group.subject
        )
    except GroupNotFound:
        return []  # it is made by the reset
    return [each.member_id for each in found.members]


def _show(
    group: GroupKey,
    changes: Sequence[Change],
    members: Sequence[str],
    printer: Printer,
    *,
    done: bool,
) -> None:
    columns = ("topic", "partition", "before", "after")
    rows = [(each.at.topic, each.at.partition, each.before, each.after) for each in changes]
    data: dict[str, Any] = {
        "group": group.group,
        "family": group.family.value,
        "executed": done,
        "members": list(members),
        "offsets": [dict(zip(columns, row, strict=True)) for row in rows],
    }
    printer.result(data, Table(columns, rows))
    if members:
        printer.say(
            f"nothing was changed; --execute is refused while the group has members: "
            f"{', '.join(members)}"
        )
    elif not done:
        printer.say("nothing was changed; --execute does it")
