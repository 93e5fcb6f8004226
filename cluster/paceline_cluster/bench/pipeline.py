"""``scripts/show-pipeline``: millions of records archived, restored into another topic, audited.

Leaves one JSON report with the figures of each step. On a standalone Spark cluster all five jobs
run, and each of them loses a worker on its way.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click

from paceline.client import blocking
from paceline_cluster.bench import cpu
from paceline_cluster.bench.rig import Rig, cluster
from paceline_cluster.round_trip.crash import Blow
from paceline_cluster.spark_standalone import Standalone, standalone

SOURCE, TARGET, WINDOWS = "events", "events-restored", "events-per-minute"
CHUNK = 10_000
"""Records of one request; they go to one partition."""
NUMBER = b"%012d"
"""What each value begins with."""
STEP_S = 3600.0
"""No step takes this long; it bounds a hang."""
LOSE_AFTER_S = 1.0
"""How long a job's tasks run before a worker is lost."""
NOT_STRUCK = 97
"""In the place of exit code 0, where a job was done before it lost its worker."""
MEMORY = ("--conf", "spark.driver.memory=3g")
PARTS = ("--conf", "spark.sql.shuffle.partitions=12")
"""Of ten million digests, so that each part is sorted in memory."""


@click.command()
@click.option("--records", type=click.IntRange(min=1), default=5_000_000, show_default=True)
@click.option("--size", type=click.IntRange(min=12), default=200, show_default=True)
@click.option("--partitions", type=click.IntRange(min=1), default=12, show_default=True)
@click.option(
    "--standalone",
    "is_standalone",
    is_flag=True,
    help="On a Spark master with two workers; each job, windows and stats too, loses one of them.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Default: pipeline.json in --dir.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=Path(".paceline"),
    show_default=True,
    help="Where the cluster's disks and the archive lie; removed when all went well.",
)
def main(
    records: int,
    size: int,
    partitions: int,
    is_standalone: bool,
    report: Path | None,
    directory: Path,
) -> None:
    """Archive, restore and audit; exit code 1 unless both topics hold the same."""
    base = directory.resolve() / f"pipeline-{os.getpid()}"
    steps: dict[str, dict[str, Any]] = {}
    calibration = cpu.calibrate()
    with cluster(base / "cluster") as rig, _spark(base / "spark", wanted=is_standalone) as spark:
        rig.up()
        steps["fill"] = {"exit_code": 0, "wall_s": _fill(rig, records, size, partitions)}
        _tell("fill", steps["fill"], records)
        plan = _plan(base, records)
        if spark is not None:
            plan |= _more(rig, base)
        for name, words in plan.items():
            steps[name] = _job(rig, spark, base, name, words)
            _tell(name, steps[name], records)
            if steps[name]["exit_code"]:
                break
    equal = all(name in steps and steps[name]["exit_code"] == 0 for name in plan)
    told = {
        "records": records,
        "bytes_each": size,
        "partitions": partitions,
        "standalone": is_standalone,
        "cpus": os.cpu_count(),
        "ten_million_additions": calibration,
        "load_average_at_the_end": os.getloadavg()[0],
        "verdict": "equal" if equal else "failed",
        "steps": steps,
    }
    where = report or directory / "pipeline.json"
    where.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    click.echo(f"{told['verdict']}: {where}")
    if not equal:
        click.echo(f"what the jobs said is in {base}", err=True)
        sys.exit(1)
    shutil.rmtree(base)


@contextmanager
def _spark(base: Path, *, wanted: bool) -> Iterator[Standalone | None]:
    if not wanted:
        yield None
        return
    with standalone(base) as made:
        yield made


def _tell(name: str, step: dict[str, Any], records: int) -> None:
    """Say how a step went. Its rate counts a process's start and end, and Spark's."""
    step["records_per_s"] = round(records / max(step["wall_s"], 0.1))
    click.echo(
        f"{name}: exit {step['exit_code']}, {step['wall_s']} s, {step['records_per_s']} records/s"
    )


def _plan(base: Path, records: int) -> dict[str, tuple[str, ...]]:
    """Each job with its words, in their order."""
    archive = str(base / "archive")
    return {
        "archive": (
            *("--topics", SOURCE, "--to", archive, "--checkpoint", str(base / "c-archive")),
            *("--option", f"maxOffsetsPerTrigger={-(-records // 4)}", *MEMORY),
        ),
        "archive-verify": (archive,),
        "restore": (
            *("--from-archive", archive, "--topic-map", f"{SOURCE}={TARGET}"),
            *("--checkpoint", str(base / "c-restore"), "--max-files", "24", *MEMORY),
        ),
        "audit": ("--topics", SOURCE, "--compare", TARGET, *MEMORY, *PARTS),
    }


def _more(rig: Rig, base: Path) -> dict[str, tuple[str, ...]]:
    """The other two jobs."""
    with blocking.connect(rig.addresses) as client:
        client.admin.create_topic(WINDOWS, partitions=1)
    return {
        "windows": (
            *("--topics", SOURCE, "--to", WINDOWS, "--agg", "count", *MEMORY),
            *("--checkpoint", str(base / "c-windows")),
        ),
        "stats": ("--topics", SOURCE, "--out", str(base / "stats"), *MEMORY),
    }


def _fill(rig: Rig, records: int, size: int, partitions: int) -> float:
    """Numbered values of ``size`` bytes, dealt out over the partitions; the seconds it took."""
    filling = b"x" * (size - len(NUMBER % 0))
    began = time.monotonic()
    with blocking.connect(rig.addresses) as client:
        client.admin.create_topic(SOURCE, partitions=partitions)
        with client.producer() as producer:
            for chunk, first in enumerate(range(0, records, CHUNK)):
                numbers = range(first, min(first + CHUNK, records))
                values = [NUMBER % number + filling for number in numbers]
                producer.send_many(SOURCE, values, partition=chunk % partitions)
    return round(time.monotonic() - began, 1)


def _job(
    rig: Rig, spark: Standalone | None, base: Path, name: str, words: tuple[str, ...]
) -> dict[str, Any]:
    """Run a job of ``paceline pipeline``; its report, with its exit code and how long its process
    ran, Spark's start included. Where it runs on workers, it loses one of them."""
    report, progress = base / f"{name}.json", base / f"{name}-progress.json"
    of_files = name.startswith("archive-")
    where: tuple[str, ...] = () if of_files else ("--bootstrap", ",".join(rig.addresses))
    blow: Blow | None = None
    if spark is not None and not of_files:
        where += ("--master", spark.url, "--progress-file", str(progress))
        blow = Blow(lambda: _begun(progress), LOSE_AFTER_S, spark.lose)
    command = (sys.executable, "-m", "paceline_cluster.cli.main", "pipeline", name)
    began = time.monotonic()
    with (base / f"{name}.log").open("wb") as log, blow.watching() if blow else nullcontext():
        result = subprocess.run(  # noqa: S603 - our own interpreter and our own module
            [*command, *words, *where, "--report", str(report)],
            check=False,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=STEP_S,
        )
    wall_s = round(time.monotonic() - began, 1)
    told: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {}
    told |= {"exit_code": result.returncode, "wall_s": wall_s}
    if spark is not None and blow is not None:
        spark.complete()
        told["worker_lost"] = blow.hit
        if not blow.hit:
            told["exit_code"] = told["exit_code"] or NOT_STRUCK
    return told


def _begun(progress: Path) -> int:
    """1 once the job has tasks on the workers."""
    if not progress.exists():
        return 0
    told = json.loads(progress.read_text(encoding="utf-8"))
    return int(bool(told["done"] or told["tasks"] or told["backlog"]))


if __name__ == "__main__":
    main()
