"""``transaction``: list, describe and abort transactions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from paceline.client import Client
from paceline.documents.transactions import transaction_document
from paceline.wire.native.transactions import KAFKA
from paceline_cluster.cli.find_cluster import Address, client_options, find
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.session import with_client

_FAMILIES = ("kafka", "cursus", "sink")
_STATES = (
    "empty",
    "ongoing",
    "prepare_commit",
    "prepare_abort",
    "complete_commit",
    "complete_abort",
)
_family = click.option(
    "--family",
    type=click.Choice(_FAMILIES),
    default=KAFKA,
    show_default=True,
    help="Whose transactional id it is.",
)


@click.group()
def transaction() -> None:
    """List, describe and abort transactions."""


@transaction.command("list")
@client_options
@click.option(
    "--state", "states", multiple=True, type=click.Choice(_STATES), help="Only in these states."
)
@output_option
def list_(
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    states: tuple[str, ...],
    printer: Printer,
) -> None:
    """List the transactional ids of all protocols, and how long each one has been open."""
    listed = with_client(
        find(directory, bootstrap),
        lambda client: client.admin.transactions.list(states=states),
    )
    rows = [transaction_document(each) for each in listed]
    columns = ("id", "family", "state", "open_s", "partitions", "producer_id", "epoch")
    table = Table(columns, [[row[column] for column in columns] for row in rows])
    printer.result({"transactions": rows}, table)


@transaction.command()
@click.argument("transactional_id", metavar="ID")
@client_options
@_family
@output_option
def describe(
    transactional_id: str,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    family: str,
    printer: Printer,
) -> None:
    """Show a transactional id, and what its open transaction has written to."""

    async def work(client: Client) -> dict[str, Any]:
        found = await client.admin.transactions.describe(transactional_id, family=family)
        return {
            **transaction_document(found.listing),
            "timeout_ms": found.listing.timeout_ms,
            "written": [asdict(each) for each in found.partitions],
            "groups": list(found.groups),
            "staged": found.staged,
            "reason": found.reason,
            "sink": found.sink,
            "batch": found.batch,
            "run": found.run,
        }

    data = with_client(find(directory, bootstrap), work)
    since = "" if data["open_s"] is None else f", open for {data['open_s']} s"
    why = f" ({data['reason']})" if data["reason"] else ""
    title = (
        f"{transactional_id} ({family}): {data['state']}{why}{since}, producer "
        f"{data['producer_id']} epoch {data['epoch']}"
    )
    rows = [(each["topic"], each["partition"]) for each in data["written"]]
    tables = [Table(("topic", "partition"), rows, title=title)]
    if data["groups"]:
        tables.append(Table(("group",), [(name,) for name in data["groups"]]))
    printer.result(data, *tables)


@transaction.command()
@click.argument("transactional_id", metavar="ID")
@client_options
@_family
@output_option
def abort(
    transactional_id: str,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    family: str,
    printer: Printer,
) -> None:
    """Abort the open transaction of ID, and fence the producer that writes in it."""
    complete = with_client(
        find(directory, bootstrap),
        lambda client: client.admin.transactions.abort(transactional_id, family=family),
    )
    data = {"id": transactional_id, "family": family, "aborted": True, "complete": complete}
    state = "aborted" if complete else "abort decided; not all partitions have been told yet"
    printer.result(data, Table(("id", "family", "result"), [(transactional_id, family, state)]))
