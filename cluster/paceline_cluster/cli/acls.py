"""``acl``: who may do what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from paceline.client import Client
from paceline.counted import counted
from paceline.errors import AuthorizationFailed
from paceline.wire.native.acls import (
    ANY_HOST,
    Acl,
    AclEffect,
    AclFilter,
    AclOperation,
    AclPattern,
    AclResource,
    AclsListed,
)
from paceline_cluster.cli.complete import complete_groups, complete_topics
from paceline_cluster.cli.confirming import confirm
from paceline_cluster.cli.find_cluster import Address, client_options, find
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.session import with_client

OPEN = "there are no ACLs and no users: everything is allowed to everybody"
_USER = "User:"
_OPERATIONS = {each.name.lower().replace("_", "-"): each for each in AclOperation}
_COLUMNS = ("effect", "principal", "host", "operation", "resource", "pattern", "name")
F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def acl() -> None:
    """Say who may do what: create, list and delete ACLs.

    A denial wins over every ACL that allows. Once there is an ACL, or a user, everything that no
    ACL allows is refused; super users (setting security.super_users of the nodes) may do
    everything.
    """


def _resource_options(command: F) -> F:
    """What an ACL is about; one of them."""
    options = [
        click.option("--topic", "topics", multiple=True, shell_complete=complete_topics),
        click.option("--group", "groups", multiple=True, shell_complete=complete_groups),
        click.option("--transactional-id", "transactional_ids", multiple=True),
        click.option("--cluster", is_flag=True, help="The cluster as a whole."),
        click.option("--prefix", is_flag=True, help="All whose names begin with it."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


_operations = click.option(
    "--operation",
    "operations",
    multiple=True,
    metavar="OPERATION",
    type=click.Choice(list(_OPERATIONS)),
    help=f"{', '.join(_OPERATIONS)}; may be given more than once.",
)
_principals = click.option(
    "--principal",
    "principals",
    multiple=True,
    metavar="NAME",
    help="A user, or a name in certificates; 'anonymous': clients without either; '*': all.",
)
_hosts = click.option(
    "--host", "hosts", multiple=True, metavar="ADDRESS", help="IP address of clients."
)


@acl.command()
@_principals
@_operations
@_resource_options
@_hosts
@click.option("--deny", is_flag=True, help="Deny it, whatever else allows it.")
@client_options
@output_option
def create(
    principals: tuple[str, ...],
    operations: tuple[str, ...],
    hosts: tuple[str, ...],
    deny: bool,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
    **named: Any,
) -> None:
    """Allow, or deny, operations: every combination of options that are given more than once."""
    resources = _resources(**named)
    if not (principals and operations and resources):
        raise click.UsageError(
            "say --principal, --operation, and what of: --topic, --group, --transactional-id "
            "or --cluster"
        )
    effect = AclEffect.DENY if deny else AclEffect.ALLOW
    wanted = [
        Acl(_bare(principal), kind, pattern, name, _OPERATIONS[operation], host, effect)
        for kind, pattern, name in resources
        for principal in principals
        for operation in operations
        for host in hosts or (ANY_HOST,)
    ]

    async def work(client: Client) -> bool:
        try:
            was_guarded = (await client.admin.acls.list()).is_guarded
        except AuthorizationFailed:
            # Only rules refuse. What it takes to make ACLs is said by the refusal of that.
            was_guarded = True
        await client.admin.acls.create(wanted)
        return was_guarded

    was_guarded = with_client(find(directory, bootstrap), work)
    _show(wanted, printer)
    if not was_guarded:
        printer.say("these are the first: what no ACL allows is refused from now on")


@acl.command("list")
@_principals
@_operations
@_resource_options
@_hosts
@click.option("--matching", is_flag=True, help="All that hold for a name: prefixes and * too.")
@client_options
@output_option
def list_(
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
    **named: Any,
) -> None:
    """List the ACLs, or those that have one of the values given."""
    filters = _filters(**named)

    async def work(client: Client) -> tuple[list[Acl], bool]:
        found: list[Acl] = []
        answer = AclsListed((), is_guarded=False)
        for each in filters:
            answer = await client.admin.acls.list(each)
            found += answer.acls
        return list(dict.fromkeys(found)), answer.is_guarded

    found, is_guarded = with_client(find(directory, bootstrap), work)
    _show(found, printer)
    if not is_guarded:
        printer.say(OPEN)


@acl.command()
@_principals
@_operations
@_resource_options
@_hosts
@click.option("--matching", is_flag=True, help="All that hold for a name: prefixes and * too.")
@click.option(
    "--all", "everything", is_flag=True, help="All ACLs; without users everything is allowed then."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_options
@output_option
def delete(
    everything: bool,
    yes: bool,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
    **named: Any,
) -> None:
    """Delete the ACLs that 'acl list' shows with the same options."""
    filters = _filters(**named)
    if (filters == [AclFilter()]) is not everything:
        raise click.UsageError("say which, or --all")

    async def find_them(client: Client) -> list[Acl]:
        found = [acl for each in filters for acl in (await client.admin.acls.list(each)).acls]
        return list(dict.fromkeys(found))

    async def work(client: Client) -> tuple[list[Acl], bool]:
        gone = await client.admin.acls.delete(*filters)
        return gone, (await client.admin.acls.list()).is_guarded

    target = find(directory, bootstrap)
    doomed = with_client(target, find_them)
    if doomed:
        acls = counted(len(doomed), "ACL")
        confirm(f"Delete {acls}?", f"delete removes {acls}", yes=yes)
    gone, is_guarded = with_client(target, work)
    _show(gone, printer)
    if not is_guarded:
        printer.say(OPEN)


def _bare(principal: str) -> str:
    """Kafka's way of writing it is understood."""
    return principal.removeprefix(_USER)


def _resources(
    *,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    cluster: bool,
    prefix: bool,
) -> list[tuple[AclResource, AclPattern, str]]:
    pattern = AclPattern.PREFIXED if prefix else AclPattern.LITERAL
    named = (
        (AclResource.TOPIC, topics),
        (AclResource.GROUP, groups),
        (AclResource.TRANSACTIONAL_ID, transactional_ids),
    )
    found = [(kind, pattern, name) for kind, names in named for name in names]
    if cluster:
        found.append((AclResource.CLUSTER, AclPattern.LITERAL, ""))
    return found


def _filters(
    *,
    principals: tuple[str, ...],
    operations: tuple[str, ...],
    hosts: tuple[str, ...],
    matching: bool,
    **named: Any,
) -> list[AclFilter]:
    """Every combination of the values; what is not given may be any."""
    resources = _resources(**named)
    return [
        AclFilter(
            principal=principal,
            resource=None if resource is None else resource[0],
            pattern=None if resource is None or matching else resource[1],
            name=None if resource is None else resource[2],
            operation=operation,
            host=host,
            is_match=matching,
        )
        for resource in resources or (None,)
        for principal in [_bare(each) for each in principals] or (None,)
        for operation in [_OPERATIONS[each] for each in operations] or (None,)
        for host in hosts or (None,)
    ]


def _show(acls: list[Acl], printer: Printer) -> None:
    rows = [
        (
            each.effect.name.lower(),
            each.principal,
            each.host,
            _word(each.operation),
            _word(each.resource),
            _word(each.pattern),
            each.name,
        )
        for each in acls
    ]
    data = {"acls": [dict(zip(_COLUMNS, row, strict=True)) for row in rows]}
    printer.result(data, Table(_COLUMNS, rows))


def _word(value: AclOperation | AclResource | AclPattern) -> str:
    return value.name.lower().replace("_", "-")
