"""``partition move``: where replicas lie, and how that changes (DESIGN 5)."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import click

from paceline.client import Client
from paceline.counted import counted, first_of
from paceline.types import NodeId, TopicPartition
from paceline_cluster import moving, replica_plan
from paceline_cluster.cli.complete import complete_nodes, complete_topics
from paceline_cluster.cli.find_cluster import Address, client_options, find
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.session import with_client
from paceline_cluster.cli.units import Seconds
from paceline_cluster.errors import BadInput, Refused
from paceline_cluster.moving import Result, Standing
from paceline_cluster.replica_plan import Move, ReplicaPlan

VERSION = 1


@click.group()
def partition() -> None:
    """Move partitions to other nodes."""


@partition.group()
def move() -> None:
    """Plan and carry out moves of replicas; see their progress; cancel them.

    A new replica fetches the whole log and joins the ISR; only then does an old one leave. Clients
    can read and write meanwhile. The plan is a JSON file; those of Kafka's
    kafka-reassign-partitions are taken, too.
    """


at_once_option = click.option(
    "--at-once",
    type=click.IntRange(1),
    default=moving.AT_ONCE,
    show_default=True,
    metavar="N",
    help="How many partitions are moved at the same time.",
)


@move.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC]...", shell_complete=complete_topics)
@client_options
@click.option(
    "--away-from",
    type=click.IntRange(0),
    multiple=True,
    metavar="NODE",
    shell_complete=complete_nodes,
    help="Move every replica of this node to others, and nothing else.",
)
@click.option(
    "--file", "target", type=click.Path(path_type=Path, dir_okay=False), help="Write the plan here."
)
@output_option
def plan(
    topics: tuple[str, ...],
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    away_from: tuple[int, ...],
    target: Path | None,
    printer: Printer,
) -> None:
    """Show which replicas should be elsewhere; nothing is moved.

    Replicas of a partition go to different racks if possible; then all nodes get the same number
    of replicas, the same amount of data, and the same number of preferred leaders. All topics, the
    cluster's own too, or those that are named.
    """

    async def work(client: Client) -> ReplicaPlan:
        return await planned(client, topics, [NodeId(node) for node in away_from])

    made = with_client(find(directory, bootstrap), work)
    if made.stuck:
        raise Refused(first_of(made.stuck), hint="add a node, or lower the replication factor")
    data = _document(made.moves)
    if target is not None:
        target.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    if not made.moves and not printer.is_data:
        printer.say("nothing has to be moved")
    printer.result(data, *_plan_tables(made.moves))


def _plan_tables(moves: Sequence[Move]) -> list[Table]:
    rows = [
        (str(each.at), _nodes(each.before), _nodes(each.after), _nodes(each.adding), _size(each))
        for each in moves
    ]
    columns = ("partition", "replicas", "planned", "new", "to copy")
    return [Table(columns, rows)] if rows else []


@move.command()
@click.argument("file", type=click.File(encoding="utf-8"), metavar="PLAN")
@output_option
def show(file: TextIO, printer: Printer) -> None:
    """Show what the file PLAN ('-': standard input) would move. It asks no node."""
    moves = parsed(file)
    printer.result(_document(moves), *_plan_tables(moves))
    whole, in_bytes = moving.extent(moves)
    if in_bytes:
        printer.say(f"{counted(len(moves), 'partition')}, {_bytes(whole)} to copy")


async def planned(client: Client, topics: Sequence[str], leaving: Sequence[NodeId]) -> ReplicaPlan:
    """A plan for these topics, or all: away from the nodes ``leaving``, or to balance."""
    sites, partitions = await moving.placement(client, topics or None)
    unknown = sorted(set(leaving) - {site.node for site in sites})
    if unknown:
        known = _nodes(sorted(site.node for site in sites))
        raise click.BadParameter(f"there is no node {_nodes(unknown)}; the cluster has {known}")
    if leaving:
        return replica_plan.away_from(leaving, sites, partitions)
    return replica_plan.balanced(sites, partitions)


@move.command()
@click.argument("file", type=click.File(encoding="utf-8"), metavar="PLAN")
@client_options
@at_once_option
@click.option(
    "--timeout",
    type=Seconds(),
    metavar="SECONDS",
    help="Stop waiting after this, and say what is left and why; moves that have begun continue.",
)
@output_option
def execute(
    file: TextIO,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    at_once: int,
    timeout: float | None,
    printer: Printer,
) -> None:
    """Carry out the moves in the file PLAN ('-': standard input), and wait until they are done.

    If repeated, it continues with what is left. Ctrl-C stops it: moves that have begun go on, and
    no others are begun. A partition whose replicas are no longer those of the plan is left alone.
    """
    moves = parsed(file)
    results = with_client(
        find(directory, bootstrap),
        partial(carried_out, moves=moves, at_once=at_once, timeout=timeout, printer=printer),
    )
    show_results(results, printer)


async def carried_out(
    client: Client, *, moves: Sequence[Move], at_once: int, timeout: float | None, printer: Printer
) -> list[Result]:
    """:func:`moving.carry_out` with a bar for who waits at a terminal."""
    whole, in_bytes = moving.extent(moves)
    with printer.progress("moving", whole, in_bytes=in_bytes) as update:
        return await moving.carry_out(
            client,
            moves,
            at_once=at_once,
            timeout_s=math.inf if timeout is None else timeout,
            report=update,
        )


def show_results(results: Sequence[Result], printer: Printer) -> None:
    """Each partition and what became of it. Raises Refused where one could not be moved."""
    in_order = sorted(results, key=lambda each: each.move.at)
    rows = [
        {
            "topic": each.move.at.topic,
            "partition": each.move.at.partition,
            "replicas": list(each.move.after),
            "state": each.state,
            "reason": each.reason,
        }
        for each in in_order
    ]
    table = Table(
        ("partition", "replicas", "state", "reason"),
        [
            (str(each.move.at), _nodes(each.move.after), each.state, each.reason)
            for each in in_order
        ],
    )
    printer.result({"partitions": rows}, table)
    refused = [each for each in results if each.state == "refused"]
    if refused:
        said = first_of([f"{each.move.at}: {each.reason}" for each in refused])
        raise Refused(f"{len(refused)} of {counted(len(results), 'partition')} not moved: {said}")


@move.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC]...", shell_complete=complete_topics)
@client_options
@output_option
def status(
    topics: tuple[str, ...],
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    """Show which partitions are being moved, how much is left, how fast that becomes less, and what
    each waits for. Takes a second where records are being fetched."""

    async def work(client: Client) -> list[Standing]:
        return await moving.paced_standings(client, topics or None)

    found = with_client(find(directory, bootstrap), work)
    data = [
        {
            "topic": each.at.topic,
            "partition": each.at.partition,
            "leader": each.leader,
            "replicas": list(each.replicas),
            "adding": list(each.adding),
            "removing": list(each.removing),
            "left_records": _known(each.left_records),
            "left_bytes": _known(each.left_bytes),
            "bytes_per_s": _known(each.bytes_per_s),
            "left_s": _known(each.left_s),
            "waits_for": each.waits_for,
        }
        for each in found
    ]
    if not found and not printer.is_data:
        printer.say("nothing is being moved")
    rows = [
        (
            *(str(each.at), _nodes(each.adding), _nodes(each.removing)),
            *(_known(each.left_records), _bytes(_known(each.left_bytes))),
            *(_rate(_known(each.bytes_per_s)), _time(_known(each.left_s)), each.waits_for),
        )
        for each in found
    ]
    left = ("records left", "data left", "rate", "time left")
    columns = ("partition", "new", "leaving", *left, "waits for")
    printer.result({"partitions": data}, *([Table(columns, rows)] if rows else []))


@move.command()
@click.argument("places", nargs=-1, metavar="[TOPIC/PARTITION]...")
@click.option("--all", "is_all", is_flag=True, help="Every move under way.")
@client_options
@output_option
def cancel(
    places: tuple[str, ...],
    is_all: bool,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    """Cancel moves: the former replicas stay, the new ones go.

    Refused where too few of the former ones are in sync to continue without the new ones.
    """
    if bool(places) == is_all:
        raise click.UsageError("name partitions, as orders/0, or give --all")
    named = [_place(text) for text in places]

    async def work(client: Client) -> dict[TopicPartition, str]:
        wanted = named
        if is_all:
            moves = await client.admin.list_reassignments()
            wanted = [TopicPartition(each.topic, each.partition) for each in moves]
        return await moving.give_up(client, wanted)

    said = with_client(find(directory, bootstrap), work)
    rows = [
        {"topic": at.topic, "partition": at.partition, "cancelled": not reason, "reason": reason}
        for at, reason in said.items()
    ]
    columns = ("topic", "partition", "cancelled", "reason")
    printer.result(
        {"partitions": rows}, *([Table(columns, [tuple(r.values()) for r in rows])] if rows else [])
    )
    kept = [f"{at}: {reason}" for at, reason in said.items() if reason]
    if kept:
        raise Refused(first_of(kept))


def _place(text: str) -> TopicPartition:
    topic, slash, number = text.rpartition("/")
    if not slash or not topic or not (number.isascii() and number.isdecimal()):
        raise click.BadParameter(f"{text!r} is no TOPIC/PARTITION, as orders/0")
    return TopicPartition(topic, int(number))


# --- the file -------------------------------------------------------------------------------------


def _document(moves: Sequence[Move]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "partitions": [
            {
                "topic": each.at.topic,
                "partition": each.at.partition,
                "replicas": list(each.after),
                "former_replicas": list(each.before),
                "size_bytes": each.size_bytes,
            }
            for each in moves
        ],
    }


def parsed(file: TextIO) -> list[Move]:
    """The moves of a plan. Raises BadInput saying where it is none."""
    try:
        data = json.load(file)
    except ValueError as error:
        raise BadInput(f"{file.name} is no JSON: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("partitions"), list):
        raise BadInput(f"{file.name} is no plan: it has no list 'partitions'")
    if data.get("version", VERSION) != VERSION:
        raise BadInput(f"{file.name} is a plan of version {data['version']}, not {VERSION}")
    moves = []
    for position, each in enumerate(data["partitions"]):
        where = f"{file.name}: partitions[{position}]"
        if not isinstance(each, dict) or not isinstance(each.get("topic"), str):
            raise BadInput(f"{where} names no topic")
        number: Any = each.get("partition")
        size: Any = each.get("size_bytes", 0)
        if not _is_count(number) or not _is_count(size):
            raise BadInput(f"{where}: partition and size_bytes are numbers from 0 on")
        after = _ids(each.get("replicas"), f"{where}.replicas")
        before = _ids(each.get("former_replicas", []), f"{where}.former_replicas")
        if not after or len(set(after)) != len(after):
            raise BadInput(f"{where}.replicas: expected distinct nodes, at least one")
        moves.append(Move(TopicPartition(each["topic"], number), before, after, size))
    twice = len(moves) - len({each.at for each in moves})
    if twice:
        raise BadInput(f"{file.name} has {counted(twice, 'partition')} more than once")
    return moves


def _ids(value: object, where: str) -> tuple[NodeId, ...]:
    if not isinstance(value, list) or not all(_is_count(each) for each in value):
        raise BadInput(f"{where}: expected a list of node numbers")
    return tuple(map(NodeId, value))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


# --- cells ----------------------------------------------------------------------------------------


def _nodes(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes)) or "-"


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _size(planned_move: Move) -> str | None:
    return _bytes(len(planned_move.adding) * planned_move.size_bytes)


def _rate(number: int | None) -> str | None:
    return None if number is None else f"{_bytes(number)}/s"


def _time(seconds: int | None) -> str | None:
    return None if seconds is None else str(datetime.timedelta(seconds=seconds))


def _bytes(number: int | None) -> str | None:
    from rich.filesize import decimal  # imported where somebody looks at a table

    return None if number is None else decimal(number)
