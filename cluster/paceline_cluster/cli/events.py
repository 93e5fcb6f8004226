"""``events``: what happens in the cluster, as it happens."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import trio

from paceline.documents.survey import Survey
from paceline.errors import PacelineError
from paceline.types import TopicPartition
from paceline_cluster.cli.find_cluster import Address, ClusterRef, cluster_options, find
from paceline_cluster.cli.health import look
from paceline_cluster.cli.output import Printer, output_option
from paceline_cluster.cli.signals import on_signals
from paceline_cluster.cli.units import Seconds
from paceline_cluster.happened import Event, Seen, Standing, happened
from paceline_cluster.survey import metadata_of

INTERVAL_S = 0.5
WATCHED_S = 10.0


@click.command()
@cluster_options
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C.")
@click.option(
    "--for",
    "watched_s",
    type=Seconds(0.1),
    default=WATCHED_S,
    show_default=True,
    metavar="SECONDS",
    help="Without --follow: how long to watch.",
)
@click.option(
    "--interval",
    type=Seconds(0.1, 3600),
    default=INTERVAL_S,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks. What comes and goes in between is not seen.",
)
@output_option
def events(
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    follow: bool,
    watched_s: float,
    interval: float,
    printer: Printer,
) -> None:
    """Watch the cluster and tell what happens from now on, a line each: nodes that come and go,
    elections, replicas that fall out of sync and come back, new and deleted topics, and what of its
    health fails or is over. Partitions that share a fate stand in one line.

    Nothing is told of the time before: 'paceline logs' has what the nodes wrote down of it.
    """
    ref = find(directory, bootstrap)
    trio.run(_watch, ref, math.inf if follow else watched_s, interval, printer)


async def _watch(ref: ClusterRef, watched_s: float, interval_s: float, printer: Printer) -> None:
    async with trio.open_nursery() as nursery:
        stop = nursery.cancel_scope.cancel
        nursery.start_soon(on_signals, stop, stop)
        before = await _seen(ref)
        printer.say("watching")
        with trio.move_on_after(watched_s):
            while True:
                await trio.sleep(interval_s)
                now = await _seen(ref, before)
                for event in happened(before, now):
                    _print(event, printer)
                printer.flush()
                before = now
        stop()


async def _seen(ref: ClusterRef, before: Seen | None = None) -> Seen:
    """A look. While no node answers, nodes that were there ``before`` are all that can be said of.
    Raises PacelineError where nothing is known yet."""
    try:
        survey = await look(ref)
    except PacelineError as error:
        if before is None:
            raise
        survey = _silent(before.survey, str(error))
    partitions = await _partitions(survey)
    if partitions is None and before is not None:
        partitions = before.partitions
    return Seen(survey, partitions)


def _silent(before: Survey, reason: str) -> Survey:
    return replace(
        before, nodes=tuple(replace(view, status=None, error=reason) for view in before.nodes)
    )


async def _partitions(survey: Survey) -> Mapping[TopicPartition, Standing] | None:
    """As the node with the newest metadata knows them; None where none tells."""
    told = await metadata_of(survey)
    if told is None:
        return None
    return {
        TopicPartition(topic.name, each.partition): Standing(each.leader, frozenset(each.isr))
        for topic in told.topics
        for each in topic.partitions
    }


def _print(event: Event, printer: Printer) -> None:
    wall_s = time.time()
    if printer.is_data:
        printer.item(_document(event, int(wall_s * 1000)))
        return
    at = datetime.fromtimestamp(wall_s).astimezone().strftime("%H:%M:%S")
    printer.line(f"{at} {event.level.name.lower():8} {event.kind:8} {event.text}")


def _document(event: Event, time_ms: int) -> dict[str, Any]:
    return {
        "time_ms": time_ms,
        "kind": event.kind,
        "level": event.level.name.lower(),
        "text": event.text,
        "node": event.node,
        "partitions": [{"topic": at.topic, "partition": at.partition} for at in event.partitions],
    }
