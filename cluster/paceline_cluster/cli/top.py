"""``top``: what the cluster is busy with at the moment, in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import trio

from paceline.errors import PacelineError
from paceline.units import size_text, time_text
from paceline_cluster.activity import Look, activity
from paceline_cluster.cli.find_cluster import Address, ClusterRef, client_options, find
from paceline_cluster.cli.health import look as survey_of
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.session import client_of
from paceline_cluster.cli.signals import on_signals
from paceline_cluster.cli.units import Seconds
from paceline_cluster.looks import Looker

INTERVAL_S = 2.0
ROWS = 10
_MANY = 1000
_LISTS = ("topics", "partitions", "groups")
_LINES_OF_ALL = 18
"""On a screen: the totals, the heads of six tables with a line below, and five lines between."""


@click.command()
@client_options
@click.option("--once", is_flag=True, help="Look for one interval, print it, and end.")
@click.option(
    "--interval",
    type=Seconds(0.1, 3600),
    default=INTERVAL_S,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks; what is shown is of the time in between.",
)
@click.option(
    "--rows",
    type=click.IntRange(1, _MANY),
    help=f"Topics, partitions and groups to show.  [default: as many as fit, else {ROWS}]",
)
@output_option
def top(
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    once: bool,
    interval: float,
    rows: int | None,
    printer: Printer,
) -> None:
    """Show what the cluster is busy with, until Ctrl-C: what its nodes write, read and answer a
    second and how long writes take, the busiest topics and partitions by records written, and the
    groups with members that are furthest behind what they have committed.

    On a terminal it is one screen that is drawn anew; elsewhere each look is printed behind the one
    before, as JSON a line each. In JSON, rates are per second.
    """
    ref = find(directory, bootstrap)
    trio.run(_watch, ref, interval, rows, printer, once)


async def _watch(
    ref: ClusterRef, interval_s: float, rows: int | None, printer: Printer, once: bool
) -> None:
    async with client_of(ref) as client:
        looker = Looker(client, lambda: survey_of(ref))
        before = await looker.look()
        if once:
            await trio.sleep_until(before.at_s + interval_s)
            _print(activity(before, await looker.look(), rows or ROWS), printer)
        else:
            await _until_told(looker, before, interval_s, rows, printer)


async def _until_told(
    looker: Looker, before: Look, interval_s: float, rows: int | None, printer: Printer
) -> None:
    """Follow until Ctrl-C, which is how this ends and no failure."""
    async with trio.open_nursery() as nursery:
        stop = nursery.cancel_scope.cancel
        nursery.start_soon(on_signals, stop, stop)
        await _follow(looker, before, interval_s, rows, printer)


async def _follow(
    looker: Looker, before: Look, interval_s: float, rows: int | None, printer: Printer
) -> None:
    with printer.screen() as screen:
        due = before.at_s
        while True:
            due = max(due + interval_s, trio.current_time())
            await trio.sleep_until(due)
            try:
                now = await looker.look()
            except PacelineError as error:
                if screen is None:
                    printer.say(f"no node answers: {error}")
                else:
                    screen.show([Table(("no node answers",), [(error,)])])
                continue
            data = activity(before, now, rows or _MANY)
            if screen is not None:
                fitting = _cut(data, rows) if rows else _fitting(data, screen.line_count)
                screen.show(tables(fitting))
            else:
                _print(_cut(data, rows or ROWS), printer)
                if not printer.is_data:
                    printer.line("")
                printer.flush()
            before = now


def _print(data: dict[str, Any], printer: Printer) -> None:
    if printer.is_data:
        printer.item(data)
    else:
        printer.result(data, *tables(data))


def _fitting(data: Mapping[str, Any], line_count: int) -> dict[str, Any]:
    """As many rows as the screen has lines for, of each table alike; on a small one partitions
    stand for their topics."""
    taken = _LINES_OF_ALL + len(data["nodes"]) + max(1, len(data["reasons"]))
    if line_count - taken < len(_LISTS):
        return {**_cut(data, 1), "topics": []}
    return _cut(data, (line_count - taken) // len(_LISTS))


def _cut(data: Mapping[str, Any], rows: int) -> dict[str, Any]:
    return {**data, **{name: data[name][:rows] for name in _LISTS}}


def tables(data: Mapping[str, Any]) -> list[Table]:
    """What ``activity`` tells, for people."""
    found = [
        Table(("health",), [(each,) for each in data["reasons"] or ["healthy"]]),
        Table(
            ("written/s", "data", "read/s", "data", "requests/s", "writes p99", "syncs p99"),
            [
                (
                    _count(data["written_records"]),
                    _size(data["written_bytes"]),
                    _count(data["read_records"]),
                    _size(data["read_bytes"]),
                    _count(data["requests"]),
                    *_times(data, "write_p99_ms", "sync_p99_ms"),
                )
            ],
        ),
        Table(
            ("node", "state", "leads", "written/s", "read/s", "writes p99", "clients", "free disk"),
            [_node(each) for each in data["nodes"]],
        ),
    ]
    if data["topics"]:
        rows = [
            (each["name"], each["partitions"], _count(each["written_records"]))
            for each in data["topics"]
        ]
        found.append(Table(("topic", "partitions", "records/s"), rows))
    if data["partitions"]:
        names = [f"{each['topic']}/{each['partition']}" for each in data["partitions"]]
        partitions = [
            (name, each["leader"], _count(each["written_records"]), each["high_watermark"])
            for name, each in zip(names, data["partitions"], strict=True)
        ]
        found.append(Table(("partition", "leader", "records/s", "high_watermark"), partitions))
    if data["groups"]:
        columns = ("group", "family", "members", "lag", "lag/s", "caught up in")
        found.append(Table(columns, [_group(each) for each in data["groups"]]))
    return found


def _node(each: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        each["node"],
        each["state"],
        each["leads"],
        _count(each["written_records"]),
        _count(each["read_records"]),
        *_times(each, "write_p99_ms"),
        each["connections"],
        _part(each["disk_free_bytes"], each["disk_bytes"]),
    )


def _group(each: Mapping[str, Any]) -> tuple[object, ...]:
    seconds = each["caught_up_s"]
    return (
        each["group"],
        each["family"],
        each["members"],
        each["lag"],
        _count(each["lag_change"]),
        None if seconds is None else time_text(int(seconds * 1000)),
    )


def _size(rate: float | None) -> str | None:
    return None if rate is None else size_text(round(rate))


def _count(rate: float | None) -> str | None:
    return None if rate is None else f"{rate:,.0f}"


def _times(data: Mapping[str, Any], *names: str) -> list[str | None]:
    return [None if data[name] is None else f"{data[name]:.1f} ms" for name in names]


def _part(free: int | None, total: int | None) -> str | None:
    if free is None or not total or total < 0:
        return None
    return f"{100 * free // total} %"
