"""What all jobs take on their command line, and where they get their cluster from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import click

from paceline.spark.jobs.progress import progress_options


class FindsCluster(Protocol):
    """Gives the addresses of the cluster when ``--bootstrap`` does not."""

    def __call__(self) -> str: ...


def _pairs(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{text!r} is no KEY=VALUE")
        found[key] = value
    return found


def _bootstrap(ctx: click.Context, _param: click.Parameter, value: str | None) -> str:
    if value:
        return value
    finds: FindsCluster | None = ctx.find_object(Finder)
    if finds is None:
        raise click.BadParameter("name the cluster: --bootstrap HOST:PORT,HOST:PORT")
    return finds()


class Finder:
    """Put into click's context by the program that knows clusters."""

    def __init__(self, finds: Callable[[], str]) -> None:
        self._finds = finds

    def __call__(self) -> str:
        return self._finds()


_SHORT_UNITS = {
    "ms": "milliseconds",
    "s": "seconds",
    "min": "minutes",
    "m": "minutes",
    "h": "hours",
    "d": "days",
    "w": "weeks",
}
_UNITS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week")
_PART = re.compile(rf"(\d+) *({'|'.join(_SHORT_UNITS)}|(?:{'|'.join(_UNITS)})s?)(?![a-z]) *")


def interval(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """``30s`` or ``1 hour 30 minutes``, as Spark says it; empty stays empty."""
    parts = _PART.findall(value)
    if value and (_PART.sub("", value) or not parts):
        raise click.BadParameter(f"{value!r}: expected an interval such as 30s or 10 minutes")
    return " ".join(f"{count} {_SHORT_UNITS.get(unit, unit)}" for count, unit in parts)


def _trigger(ctx: click.Context, param: click.Parameter, value: str) -> Mapping[str, Any]:
    if value == "now":
        return {"availableNow": True}
    if not value:
        raise click.BadParameter("'': now, or an interval such as 30s")
    return {"processingTime": interval(ctx, param, value)}


def size(_ctx: click.Context, _param: click.Parameter, value: str) -> int:
    """``256MiB``."""
    from paceline.spark.errors import OptionError
    from paceline.spark.values import size as parse

    try:
        return parse("size", value)
    except OptionError as error:
        raise click.BadParameter(str(error)) from None


def seconds(_ctx: click.Context, _param: click.Parameter, value: str) -> float:
    """``2h``."""
    from paceline.spark.errors import OptionError
    from paceline.spark.values import duration_ms

    try:
        return duration_ms("duration", value) / 1000
    except OptionError as error:
        raise click.BadParameter(str(error)) from None


def directory(_ctx: click.Context, _param: click.Parameter, value: str) -> Path:
    """An archive's, as a path or a ``file:`` URI."""
    from paceline.spark.places import NO_HARD_LINKS, local_path

    found = local_path(value)
    if found is None:
        raise click.BadParameter(f"{value}: {NO_HARD_LINKS}")
    return found


def report_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--report``."""
    return click.option(
        "--report",
        "report_path",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Leave a JSON report here.",
    )(function)


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--bootstrap``, ``--master``, ``--conf``, ``--option``, ``--report``, ``--progress``,
    ``--progress-file``."""
    function = progress_options(report_option(function))
    function = click.option(
        "--option",
        "source_options",
        multiple=True,
        callback=_pairs,
        metavar="KEY=VALUE",
        help="An option of format('paceline'), for example maxOffsetsPerTrigger=1000000.",
    )(function)
    function = click.option(
        "--conf",
        multiple=True,
        callback=_pairs,
        metavar="KEY=VALUE",
        help="A setting of Spark, for example spark.driver.memory=4g.",
    )(function)
    function = click.option(
        "--master", help="A Spark cluster (default: local[*], all cores of this machine)."
    )(function)
    return click.option(
        "--bootstrap",
        callback=_bootstrap,
        metavar="HOST:PORT,...",
        help="Native addresses of the cluster.",
    )(function)


def stream_options(trigger: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--checkpoint``, ``--trigger``, ``--max-restarts``."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        function = click.option(
            "--max-restarts",
            type=click.IntRange(min=0),
            default=3,
            show_default=True,
            help="How often a failed query is started again.",
        )(function)
        function = click.option(
            "--trigger",
            default=trigger,
            show_default=True,
            callback=_trigger,
            help="'now': what is there, then end; or an interval, until stopped.",
        )(function)
        return click.option(
            "--checkpoint",
            required=True,
            type=click.Path(file_okay=False),
            help="Where the query remembers how far it is; one for each job, kept between runs.",
        )(function)

    return add
