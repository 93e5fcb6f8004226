"""That a list without anything may be one of which nothing is shown to who asks."""

from __future__ import annotations

from paceline.client import Client
from paceline.errors import AuthorizationFailed
from paceline_cluster.cli.find_cluster import ClusterRef
from paceline_cluster.cli.output import Printer
from paceline_cluster.cli.session import user_of


async def may_be_hidden(client: Client) -> bool:
    """Whether there may be what is not shown to who asks."""
    try:
        return (await client.admin.acls.list()).is_guarded
    except AuthorizationFailed:
        return True


def say_hidden(printer: Printer, ref: ClusterRef, kind: str) -> None:
    """Say so of a list of that kind."""
    who = user_of(ref) or "whoever does not log in"
    printer.say(
        f"no {kind} is visible to {who}: there is none, or none that {who} may see; "
        "an administrator sees what is allowed by 'paceline acl list'"
    )
