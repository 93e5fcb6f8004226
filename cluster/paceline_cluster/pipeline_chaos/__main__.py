"""``scripts/spark-chaos``: strikes a copying query at every point, and audits each copy.

A trial passes when its point was hit, the query came to its end, and the audit job finds each
record of the source once in its copy, unchanged and in order, on replicas that are all the same.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from paceline.client import blocking
from paceline_cluster.bench.rig import Rig, cluster
from paceline_cluster.pipeline_chaos import points
from paceline_cluster.pipeline_chaos.auditing import audit
from paceline_cluster.pipeline_chaos.report import BROKEN, HELD, Report
from paceline_cluster.pipeline_chaos.trial import PARTITIONS, SOURCE, Runner, Trial, draw
from paceline_cluster.spark_standalone import Standalone, standalone

LOCAL, STANDALONE = "local[2,4]", "standalone"
UNFINISHED_EXIT = 75
"""EX_TEMPFAIL: the same command goes on."""


@click.command()
@click.option("--point", "only", multiple=True, type=click.Choice(points.POINTS), help="These.")
@click.option(
    "--master",
    default=LOCAL,
    show_default=True,
    help="Where the queries run: a master's URL, or 'standalone' for one of its own with two "
    "workers, of which one can be lost.",
)
@click.option("--records", type=click.IntRange(min=1000), default=4000, show_default=True)
@click.option("--seed", type=int, help="Draws at which batch, and how late, each point strikes.")
@click.option("--minutes", type=float, help="Begin no point later than this; the next run goes on.")
@click.option(
    "--report",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Default: spark-chaos.json in --dir. Points that are in it are not struck again.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=Path(".paceline"),
    show_default=True,
    help="Where the cluster and the checkpoints lie; removed when all went well.",
)
def main(
    only: Sequence[str],
    master: str,
    records: int,
    seed: int | None,
    minutes: float | None,
    path: Path | None,
    directory: Path,
) -> None:
    """Strike a copying query at every point and audit its copies.

    Exit code 0: every record once; 1: broken; 75: points are left.
    """
    until = None if minutes is None else time.monotonic() + minutes * 60
    possible = [
        point
        for point in points.POINTS
        if master == STANDALONE or point not in points.NEEDS_CLUSTER
    ]
    wanted = [point for point in possible if not only or point in only]
    if not wanted:
        raise click.UsageError(f"{', '.join(only)}: only with --master {STANDALONE}")
    new_seed = random.SystemRandom().randrange(1_000_000)
    try:
        report = Report.open(
            path or directory / "spark-chaos.json",
            seed=seed,
            new_seed=new_seed,
            records=records,
            master=master,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    rng = random.Random(report.seed)  # noqa: S311 - repeatable on purpose
    # All are drawn, so that --point strikes as the whole run does.
    drawn = [draw(point, rng) for point in points.POINTS]
    left = [each for each in drawn if each.point in wanted and each.point not in report.done]
    base = directory.resolve() / f"spark-chaos-{os.getpid()}"
    if left:
        _run(left, base, report, wanted, until)
    verdict = report.verdict(wanted)
    click.echo(f"{verdict}, seed {report.seed}: {report.path}")
    if verdict == BROKEN:
        click.echo(f"what the queries said is in {base}", err=True)
        sys.exit(1)
    shutil.rmtree(base, ignore_errors=True)
    sys.exit(0 if verdict == HELD else UNFINISHED_EXIT)


def _run(
    trials: Sequence[Trial], base: Path, report: Report, wanted: Sequence[str], until: float | None
) -> None:
    """Strike and audit, one after the other, on one cluster."""
    with cluster(base / "cluster") as rig, _spark(base / "spark", report.master) as spark:
        rig.up()
        fill(rig, report.records)
        for trial in trials:
            if until is not None and time.monotonic() > until:
                return
            Runner(rig, spark, base, trial, report.records).run()
            audit(rig, base, trial)
            report.note(trial, wanted)
            click.echo(
                f"{trial.point}: {'held' if trial.passed else 'FAILED'}, {trial.seconds} s in "
                f"{trial.starts} starts, audit {trial.audit_seconds} s {trial.findings or ''}"
            )


@contextmanager
def _spark(base: Path, master: str) -> Iterator[str | Standalone]:
    """Where the queries run."""
    if master != STANDALONE:
        yield master
        return
    with standalone(base) as made:
        yield made


def fill(rig: Rig, records: int) -> None:
    """The source: numbered values over its partitions."""
    with blocking.connect(rig.addresses) as client:
        client.admin.create_topic(SOURCE, partitions=PARTITIONS)
        with client.producer() as producer:
            for partition in range(PARTITIONS):
                values = [b"%08d" % number for number in range(partition, records, PARTITIONS)]
                # Small requests make small batches, so that a task fetches more than once.
                for first in range(0, len(values), 50):
                    producer.send_many(SOURCE, values[first : first + 50], partition=partition)


if __name__ == "__main__":
    main()
