"""``check``: one question each for a monitoring system, with thresholds and the exit codes of
Nagios' plugins.

What could not be found out is UNKNOWN (3), also where another command would end with a code of its
own: a plugin has no others.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import trio

from paceline.errors import PacelineError
from paceline_cluster import questions, verdicts
from paceline_cluster.cli.failures import usage_failure
from paceline_cluster.cli.find_cluster import Address, cluster_options, find
from paceline_cluster.cli.health import look
from paceline_cluster.cli.output import OutputFormat, Printer
from paceline_cluster.errors import ClusterError
from paceline_cluster.verdicts import Form, Status, Verdict


class _Plugin(click.Group):
    """A group that ends with UNKNOWN where a command line is wrong."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            print(usage_failure(error).text(), file=sys.stderr)  # noqa: T201 - the process edge
            return Status.UNKNOWN


@click.group(cls=_Plugin)
def check() -> None:
    """Check one thing about the cluster, as Nagios plugins do.

    Exit codes: 0 ok, 1 warning, 2 critical, 3 unknown: also where nothing answers or the command
    line is wrong. '--output prometheus' writes gauges for a text file of the node exporter.
    """


_WRITTEN: dict[Form, Callable[[Verdict], str]] = {
    Form.TEXT: verdicts.to_text,
    Form.JSON: lambda verdict: json.dumps(verdicts.to_json(verdict), indent=2, ensure_ascii=False),
    Form.NAGIOS: verdicts.to_nagios,
    Form.PROMETHEUS: verdicts.to_prometheus,
}


def _add(name: str, judge: Callable[..., Verdict], *options: click.Option) -> None:
    """Add the command ``check NAME``, with the options that the judge takes."""

    @check.command(name, help=inspect.getdoc(judge))
    @cluster_options
    @click.option(
        "--output",
        "printer",
        type=click.Choice([each.value for each in Form]),
        default=Form.TEXT.value,
        show_default=True,
        help="How the verdict is written.",
    )
    def command(
        directory: Path | None, bootstrap: tuple[Address, ...], printer: str, **given: Any
    ) -> int:
        try:
            verdict = judge(trio.run(look, find(directory, bootstrap)), **given)
        except (ClusterError, PacelineError, OSError) as error:
            verdict = verdicts.unknown(name, str(error))
        out = Printer(OutputFormat.TABLE)
        for line in _WRITTEN[Form(printer)](verdict).split("\n"):
            out.line(line)
        return verdict.status

    command.params += options


def _limits(warning: float | None, critical: float | None, what: str) -> list[click.Option]:
    return [
        click.Option(
            [f"--{name}"],
            type=click.FloatRange(min=0),
            default=default,
            show_default=default is not None,
            metavar="NUMBER",
            help=f"{name.capitalize()}: {what}.",
        )
        for name, default in (("warning", warning), ("critical", critical))
    ]


_add("health", questions.health)
_add(
    "quorum",
    questions.quorum,
    click.Option(
        ["--expect"], type=click.IntRange(1), metavar="COUNT", help="How many nodes shall vote."
    ),
    *_limits(1000, 10_000, "so many metadata records, or more, that a node is behind"),
)
_add(
    "partitions",
    questions.partitions,
    *_limits(1, None, "so many partitions, or more, that lack replicas in sync"),
)
_add("disk", questions.disk, *_limits(15, 5, "less percent than that free on a node's disk"))
_add(
    "certificates",
    questions.certificates,
    *_limits(14, 3, "less days than that until a certificate ends"),
)
_add(
    "event-loop",
    questions.event_loop,
    *_limits(0.5, 2, "so many seconds, or more, that a node stood still within the last minute"),
)
