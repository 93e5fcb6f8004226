"""``quota``: how much of each node clients may have in a second."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from paceline import units
from paceline.wire.native.quotas import Quota, QuotaChange, QuotaLimit, QuotaOf
from paceline_cluster.cli.find_cluster import Address, client_options, find
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.session import with_client

Whose = tuple[QuotaOf, str | None]
_COLUMNS = ("for", "name", "limit", "rate")
_EACH = "(each)"
"""In the place of a name: who has no quota of his own."""
F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def quota() -> None:
    """Say how much of each node clients may have in a second: set, unset and list quotas.

    Who is over one is not refused: its next request waits. A user's quota and that of its address
    both hold. Quotas are each node's, and not shared between nodes: somebody who writes to three
    may write three times as much.
    """


def _whose_options(command: F) -> F:
    options = [
        click.option(
            "--user",
            "users",
            multiple=True,
            metavar="NAME",
            help="A user, or as certificates name it; 'anonymous' is all who are neither.",
        ),
        click.option("--each-user", is_flag=True, help="Each who has no quota of his own."),
        click.option(
            "--address",
            "addresses",
            multiple=True,
            metavar="IP",
            help="Whoever comes from there, all together.",
        ),
        click.option("--each-address", is_flag=True, help="Each that has no quota of its own."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _rate_option(name: str, what: str) -> Callable[[F], F]:
    return click.option(f"--{name}", metavar="SIZE", callback=_size, help=f"{what} a second: 10MB.")


def _size(_ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    try:
        return float(units.size(value))
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: {error}", param=param) from None


@quota.command("set")
@_whose_options
@_rate_option("produce", "Bytes of records written")
@_rate_option("fetch", "Bytes of records read")
@click.option("--requests", type=click.FloatRange(0, min_open=True), help="Requests a second.")
@client_options
@output_option
def set_(
    produce: float | None,
    fetch: float | None,
    requests: float | None,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
    **named: Any,
) -> None:
    """Set quotas. Those that are not named stay."""
    rates = {
        QuotaLimit.PRODUCE: produce,
        QuotaLimit.FETCH: fetch,
        QuotaLimit.REQUESTS: requests,
    }
    given = {limit: rate for limit, rate in rates.items() if rate is not None}
    if not given:
        raise click.UsageError("say how much: --produce, --fetch or --requests")
    _alter(_whose(**named), given, directory, bootstrap, printer)


@quota.command()
@_whose_options
@click.option("--produce", is_flag=True, help="Of bytes written.")
@click.option("--fetch", is_flag=True, help="Of bytes read.")
@click.option("--requests", is_flag=True, help="Of requests.")
@client_options
@output_option
def unset(
    produce: bool,
    fetch: bool,
    requests: bool,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
    **named: Any,
) -> None:
    """Take quotas away: those that are named, or all of somebody."""
    asked = {
        QuotaLimit.PRODUCE: produce,
        QuotaLimit.FETCH: fetch,
        QuotaLimit.REQUESTS: requests,
    }
    chosen = [limit for limit, is_asked in asked.items() if is_asked] or list(QuotaLimit)
    _alter(_whose(**named), dict.fromkeys(chosen), directory, bootstrap, printer)


@quota.command("list")
@client_options
@output_option
def list_(directory: Path | None, bootstrap: tuple[Address, ...], printer: Printer) -> None:
    """List all quotas."""
    found = with_client(find(directory, bootstrap), lambda client: client.admin.quotas.list())
    _show(found, printer)


def _whose(
    *, users: tuple[str, ...], each_user: bool, addresses: tuple[str, ...], each_address: bool
) -> list[Whose]:
    found: list[Whose] = [(QuotaOf.USER, name) for name in users]
    found += [(QuotaOf.ADDRESS, name) for name in addresses]
    found += [(QuotaOf.USER, None)] if each_user else []
    found += [(QuotaOf.ADDRESS, None)] if each_address else []
    if not found:
        raise click.UsageError("say whose: --user, --each-user, --address or --each-address")
    return found


def _alter(
    whose: Sequence[Whose],
    rates: Mapping[QuotaLimit, float | None],
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    changes = [
        QuotaChange(of, name, limit, rate) for of, name in whose for limit, rate in rates.items()
    ]

    async def work(client: Any) -> list[Quota]:
        await client.admin.quotas.alter(changes)
        found: list[Quota] = await client.admin.quotas.list()
        return found

    _show(with_client(find(directory, bootstrap), work), printer)


def _show(quotas: Sequence[Quota], printer: Printer) -> None:
    data = [
        {
            "for": each.of.name.lower(),
            "name": each.name,
            "limit": each.limit.name.lower(),
            "rate": each.rate,
        }
        for each in quotas
    ]
    rows = [
        (row["for"], _EACH if row["name"] is None else row["name"], row["limit"], _told(each))
        for row, each in zip(data, quotas, strict=True)
    ]
    printer.result({"quotas": data}, Table(_COLUMNS, rows))


def _told(quota: Quota) -> str:
    if quota.limit is QuotaLimit.REQUESTS:
        return f"{quota.rate:g}/s"
    return f"{quota.rate:.15g} ({units.size_text(int(quota.rate))})/s"
