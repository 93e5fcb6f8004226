"""``user``: who may log in, and with what."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from paceline.client import Client
from paceline.errors import PolicyViolation
from paceline.scram import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_HASHES
from paceline.wire.native.users import UserInfo
from paceline_cluster.cli.acls import OPEN
from paceline_cluster.cli.confirming import confirm
from paceline_cluster.cli.find_cluster import Address, client_options, find
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.passwords import password_file_option, read_password, write_secret
from paceline_cluster.cli.session import with_client

_DAY_MS = 24 * 3600 * 1000
_NAME_ONE = (
    "name one: 'paceline down', then 'paceline up --detach --set security.super_users={}'; on "
    "machines of their own in node.toml of all nodes, which read it on SIGHUP"
)
_name_argument = click.argument("name", metavar="NAME")
_mechanism_option = click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(tuple(SCRAM_HASHES)),
    help="Let the user log in by these only (default: by all).",
)
_iterations_option = click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS),
    default=MAX_ITERATIONS,
    show_default=True,
    help="How slow the password is to guess and to log in with.",
)


@click.group()
def user() -> None:
    """Say who may log in, and with what: passwords and tokens."""


@user.command()
@_name_argument
@client_options
@password_file_option
@click.option("--no-password", is_flag=True, help="The user will be known by tokens only.")
@_mechanism_option
@_iterations_option
@output_option
def create(
    name: str,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    password_file: Path | None,
    no_password: bool,
    mechanisms: tuple[str, ...],
    iterations: int,
    printer: Printer,
) -> None:
    """Make a user. The first one has to be a super user (setting security.super_users of the
    nodes): from then on everything that nothing allows is refused."""
    if no_password and password_file is not None:
        raise click.UsageError("--no-password and --password-file exclude each other")
    password = None if no_password else read_password(password_file, f"Password of {name}")
    chosen = mechanisms or tuple(SCRAM_HASHES)

    async def work(client: Client) -> bool:
        was_guarded = (await client.admin.acls.list()).is_guarded
        create = client.admin.users.create
        try:
            await create(name, password, mechanisms=chosen, iterations=iterations)
        except PolicyViolation as error:
            if not was_guarded:
                error.add_note(_NAME_ONE.format(name))
            raise
        return was_guarded

    was_guarded = with_client(find(directory, bootstrap), work)
    _done(printer, name, "created")
    if not was_guarded:
        printer.say(
            "this is the first user: what nothing allows is refused from now on, to clients that "
            "do not log in too"
        )


@user.command()
@_name_argument
@client_options
@password_file_option
@_mechanism_option
@_iterations_option
@output_option
def password(
    name: str,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    password_file: Path | None,
    mechanisms: tuple[str, ...],
    iterations: int,
    printer: Printer,
) -> None:
    """Change a user's password. Connected clients stay, until they have to log in again."""
    new = read_password(password_file, f"New password of {name}")
    chosen = mechanisms or tuple(SCRAM_HASHES)

    async def work(client: Client) -> None:
        await client.admin.users.set_password(name, new, mechanisms=chosen, iterations=iterations)

    with_client(find(directory, bootstrap), work)
    _done(printer, name, "changed")


@user.command("list")
@client_options
@output_option
def list_(directory: Path | None, bootstrap: tuple[Address, ...], printer: Printer) -> None:
    """List users, the mechanisms they may log in by, and their tokens."""
    found = with_client(find(directory, bootstrap), lambda client: client.admin.users.list())
    rows = [
        (each.name, ", ".join(key.mechanism for key in each.mechanisms) or "-", len(each.tokens))
        for each in found
    ]
    tables = [Table(("name", "mechanisms", "tokens"), rows)]
    tokens = [
        (each.name, token.token_id, _date(token.created_ms), _expiry(token.expires_ms), token.note)
        for each in found
        for token in each.tokens
    ]
    if tokens:
        tables.append(Table(("user", "token", "created", "expires", "note"), tokens))
    printer.result({"users": [_shown(each) for each in found]}, *tables)


@user.command()
@_name_argument
@client_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
def delete(
    name: str,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    yes: bool,
    printer: Printer,
) -> None:
    """Forget a user, and end its connections. Without users and ACLs everything is allowed."""
    confirm(f"Delete user {name}?", f"user {name} would be deleted", yes=yes)

    async def work(client: Client) -> bool:
        await client.admin.users.delete(name)
        return (await client.admin.acls.list()).is_guarded

    is_guarded = with_client(find(directory, bootstrap), work)
    _done(printer, name, "deleted")
    if not is_guarded:
        printer.say(OPEN)


@user.command()
@_name_argument
@client_options
@click.option(
    "--days", type=click.IntRange(1, 36_500), help="How long it holds (default: for good)."
)
@click.option("--note", default="", metavar="TEXT", help="What it is for.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write it to this new file, which only its owner can read, instead of stdout.",
)
@output_option
def token(
    name: str,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    days: int | None,
    note: str,
    token_file: Path | None,
    printer: Printer,
) -> None:
    """Make a token of a user. It is shown once: the cluster keeps only what recognises it."""
    if token_file is not None and token_file.exists():
        raise click.BadParameter(f"{token_file} exists already")
    expires_ms = 0 if days is None else int(time.time() * 1000) + days * _DAY_MS

    async def work(client: Client) -> str:
        return await client.admin.users.make_token(name, expires_ms=expires_ms, note=note)

    made = with_client(find(directory, bootstrap), work)
    token_id = made.split(".")[1]
    if token_file is not None:
        write_secret(token_file, made)
        made = ""
    data = {"name": name, "token_id": token_id, "token": made or None}
    shown = str(token_file) if token_file is not None else made
    printer.result(data, Table(("user", "id", "token"), [(name, token_id, shown)]))


@user.command()
@_name_argument
@click.argument("token_ids", nargs=-1, required=True, metavar="TOKEN...")
@client_options
@output_option
def revoke(
    name: str,
    token_ids: tuple[str, ...],
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    """Forget tokens of a user, by their ids, and end the connections that logged in by them."""
    ref = find(directory, bootstrap)
    with_client(ref, lambda client: client.admin.users.revoke(name, token_ids))
    _done(printer, name, "revoked")


def _done(printer: Printer, name: str, result: str) -> None:
    printer.result({"name": name, "result": result}, Table(("user", "result"), [(name, result)]))


def _shown(found: UserInfo) -> dict[str, Any]:
    return {
        "name": found.name,
        "mechanisms": [
            {"mechanism": each.mechanism, "iterations": each.iterations}
            for each in found.mechanisms
        ],
        "tokens": [
            {
                "token_id": each.token_id,
                "created_ms": each.created_ms,
                "expires_ms": each.expires_ms or None,
                "note": each.note,
            }
            for each in found.tokens
        ],
    }


def _date(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _expiry(milliseconds: int) -> str:
    return _date(milliseconds) if milliseconds else "never"
