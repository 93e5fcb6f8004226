"""``quorum``: who votes about the metadata."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import click
import trio

from paceline.client import Client
from paceline.documents.nodes import NodeAnswer, quorum_document
from paceline.types import NodeId
from paceline_cluster.cli.complete import complete_nodes
from paceline_cluster.cli.find_cluster import Address, client_options, cluster_options, find
from paceline_cluster.cli.health import look
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.session import with_client
from paceline_cluster.errors import Refused


@click.group()
def quorum() -> None:
    """Show the metadata quorum; add and remove voters.

    The quorum grows to 'raft.voters' by itself. To move a vote to another node, add the new voter,
    then remove the old one.
    """


@quorum.command()
@cluster_options
@output_option
def describe(directory: Path | None, bootstrap: tuple[Address, ...], printer: Printer) -> None:
    """Show who votes and who listens, who leads, and how far each node's metadata reaches."""
    ref = find(directory, bootstrap)
    seen = trio.run(look, ref)
    newest = seen.newest()
    if newest is None:
        if ref.is_stopped():
            raise ref.stopped()
        raise Refused("no node answers; a stopped cluster: paceline metadata force-quorum --help")
    states = seen.states()
    answers = [NodeAnswer(view.id, states[view.id], view.status) for view in seen.nodes]
    data = quorum_document(answers, newest)
    rows = data["nodes"]
    printer.result(data, Table(tuple(rows[0]), [tuple(row.values()) for row in rows]))


_Change = Callable[[Client, NodeId, UUID | None], Awaitable[None]]


def _change(name: str, action: str, change: _Change, text: str) -> None:
    """Add the command ``quorum NAME NODE``."""

    @quorum.command(name, help=text)
    @click.argument("number", metavar="NODE", type=click.IntRange(0), shell_complete=complete_nodes)
    @click.option(
        "--directory-id", type=click.UUID, help="Refuse unless this is the node's directory."
    )
    @client_options
    @output_option
    def command(
        number: int,
        directory_id: UUID | None,
        directory: Path | None,
        bootstrap: tuple[Address, ...],
        printer: Printer,
    ) -> None:
        ref = find(directory, bootstrap)
        with_client(ref, lambda client: change(client, NodeId(number), directory_id))
        data = {"node": number, "action": action}
        printer.result(data, Table(tuple(data), [tuple(data.values())]))


_change(
    "add-voter",
    "add",
    lambda client, node, directory_id: client.admin.add_voter(node, directory_id),
    "Let NODE vote, which listens so far and has caught up.",
)
_change(
    "remove-voter",
    "remove",
    lambda client, node, directory_id: client.admin.remove_voter(node, directory_id),
    "Let NODE listen only. Refused where too few live voters would be left, and where the quorum "
    "would make it a voter again at once.",
)
