"""``scripts/show-round-trip``: histories of topics, archived, restored and compared with crashes.

Leaves one JSON report: each seed's story, where it was struck, and what was wrong.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from paceline.client import blocking
from paceline_cluster.bench.rig import cluster
from paceline_cluster.round_trip.world import STRIKES, Outcome, Shape, world

NODE_SETTINGS = {"log.compaction_check_ms": "200"}
MASTER = "local[2,3]"
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CONF = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
}
"""Little of what runs once or twice is worth compiling."""


@click.command()
@click.option("--seeds", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--first", type=int, default=1, show_default=True, help="The first seed.")
@click.option("--rounds", type=click.IntRange(min=1), default=2, show_default=True)
@click.option(
    "--strike",
    "strikes",
    multiple=True,
    type=click.Choice(STRIKES),
    default=STRIKES,
    show_default=True,
    help="What is killed: Spark's Python workers, or a job's whole process (which takes longer).",
)
@click.option("--minutes", type=float, help="Begin no seed later than this.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Default: round-trip.json in --dir.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=Path(".paceline"),
    show_default=True,
    help="Where the cluster and the archives lie; removed where all went well.",
)
def main(
    seeds: int,
    first: int,
    rounds: int,
    strikes: Sequence[str],
    minutes: float | None,
    report: Path | None,
    directory: Path,
) -> None:
    """Run the histories of some seeds; exit code 1 unless every copy was right."""
    from paceline.spark.session import local_session

    until = None if minutes is None else time.monotonic() + minutes * 60
    base = directory.resolve() / f"round-trip-{os.getpid()}"
    where = report or directory / "round-trip.json"
    shape = Shape(rounds=rounds, strikes=strikes)
    outcomes: list[Outcome] = []
    with cluster(base / "cluster") as rig:
        rig.up(NODE_SETTINGS)
        bootstrap = ",".join(rig.addresses)
        spark = local_session("round-trip", master=MASTER, conf=CONF)
        with blocking.connect(rig.addresses) as client:
            for seed in range(first, first + seeds):
                if until is not None and time.monotonic() > until:
                    break
                place = base / f"seed-{seed}"
                with world(client, bootstrap, place, f"s{seed}", seed, shape) as made:
                    outcome = made.run()
                outcomes.append(outcome)
                _tell(outcome, place)
                _leave(where, outcomes)
        spark.stop()
    wrong = [outcome.seed for outcome in outcomes if outcome.problems]
    click.echo(f"{len(outcomes)} seeds, wrong: {wrong or 'none'}: {where}")
    if wrong:
        sys.exit(1)
    shutil.rmtree(base)


def _tell(outcome: Outcome, place: Path) -> None:
    """Say how a seed went; what its jobs said stays where something was wrong."""
    verdict = "wrong" if outcome.problems else "right"
    blows = ", ".join(outcome.blows) or "no blow"
    click.echo(f"seed {outcome.seed}: {verdict}, {outcome.counts}, {outcome.seconds} s; {blows}")
    if not outcome.problems:
        shutil.rmtree(place)
        return
    for problem in outcome.problems:
        click.echo(f"  {problem}", err=True)
    click.echo(f"  what its jobs said: {place}", err=True)


def _leave(path: Path, outcomes: list[Outcome]) -> None:
    blows = Counter(blow for outcome in outcomes for blow in outcome.blows)
    told = {
        "verdict": "wrong" if any(outcome.problems for outcome in outcomes) else "right",
        "seeds": len(outcomes),
        "records": sum(outcome.counts["records"] for outcome in outcomes),
        "archived": sum(outcome.counts["archived"] for outcome in outcomes),
        "blows": dict(sorted(blows.items())),
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
