"""How far a job is: what is done, how quickly, what is left and how long that takes.

Shown on a terminal, as lines for logs, and as a JSON file for other programs (``--progress``,
``--progress-file``). Streams count records, queries that end count Spark's tasks.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from paceline.values import dataclass

if TYPE_CHECKING:
    from pyspark import SparkContext, StatusTracker
    from pyspark.sql import SparkSession

AUTO, PLAIN, NONE = "auto", "plain", "none"
MODES = (AUTO, PLAIN, NONE)
_MODE, _FILE = "paceline.progress", "paceline.progress_file"
RECORDS, TASKS = "records", "tasks"
LINE_S, FILE_S, LOOK_S = 10.0, 1.0, 0.5
CHANGES = 8
"""Over so many steps forward (micro-batches, mostly) the rate is taken."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one moment. None where it is not known. ``tasks``: done and planned of what Spark runs
    right now."""

    job: str
    unit: str
    seconds: float
    done: int
    backlog: int | None = None
    per_second: float | None = None
    seconds_left: float | None = None
    tasks: tuple[int, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """For reports and for ``--progress-file``."""
        return asdict(self)

    def line(self) -> str:
        """For a log, and beside the bar."""
        rate = "-" if self.per_second is None else f"{self.per_second:,.0f}"
        left = "-" if self.seconds_left is None else duration(self.seconds_left)
        backlog = "-" if self.backlog is None else f"{self.backlog:,}"
        running = "" if self.tasks is None else f", tasks {self.tasks[0]}/{self.tasks[1]}"
        return (
            f"{self.done:,} {self.unit} done, {rate}/s, {backlog} behind, {left} left, "
            f"{duration(self.seconds)} so far{running}"
        )


def duration(seconds: float) -> str:
    """``1:02:03``, without hours ``2:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Meter:
    """Makes figures of counts. Pure but for its clock."""

    def __init__(self, job: str, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._job = job
        self._unit = unit
        self._clock = clock
        self._began = clock()
        self._steps = deque([(self._began, 0)], maxlen=CHANGES)
        self._tasks: tuple[int, int] | None = None
        self._backlog: int | None = None

    def count(self, done: int, backlog: int | None) -> None:
        """Take in what is done in all, and what is left if that is known."""
        self._backlog = backlog
        if done != self._steps[-1][1]:
            self._steps.append((self._clock(), done))

    def run(self, tasks: tuple[int, int] | None) -> None:
        """Take in what Spark runs now."""
        self._tasks = tasks

    def figures(self) -> Figures:
        """As of now. The rate falls while nothing comes, and time left grows."""
        now, done = self._clock(), self._steps[-1][1]
        first, before = self._steps[0]
        rate = (done - before) / (now - first) if now > first and done > before else None
        left = 0.0 if self._backlog == 0 else None
        if self._backlog and rate:
            left = self._backlog / rate
        return Figures(
            job=self._job,
            unit=self._unit,
            seconds=round(now - self._began, 3),
            done=done,
            backlog=self._backlog,
            per_second=None if rate is None else round(rate, 3),
            seconds_left=None if left is None else round(left, 3),
            tasks=self._tasks,
        )


Show = Callable[[Figures], None]


def progress_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--progress`` and ``--progress-file``, kept in click's context for ``shown``."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        ctx.meta[f"paceline.{param.name}"] = value

    function = click.option(
        "--progress-file",
        type=click.Path(path_type=Path, dir_okay=False),
        expose_value=False,
        callback=keep,
        help="Keep rate, backlog and time left here as JSON, new every second.",
    )(function)
    return click.option(
        "--progress",
        type=click.Choice(MODES),
        default=AUTO,
        show_default=True,
        expose_value=False,
        callback=keep,
        help="auto: a bar on a terminal; plain: a line every 10 s on standard error.",
    )(function)


@contextmanager
def shown(stream: TextIO | None = None) -> Iterator[Show]:
    """What shows figures as the command line asks for: on ``stream`` (standard error), in a file.
    What is told last is shown in any case."""
    ctx = click.get_current_context(silent=True)
    meta = {} if ctx is None else ctx.meta
    mode, path = meta.get(_MODE, AUTO), meta.get(_FILE)
    stream = stream or sys.stderr
    shows: list[_Paced] = []
    with ExitStack() as stack:
        if mode == PLAIN:
            shows.append(_Paced(lambda figures: _print(figures, stream), LINE_S))
        elif mode == AUTO and stream.isatty():
            shows.append(_Paced(stack.enter_context(_bar(stream)), 0.0))
        if path is not None:
            shows.append(_Paced(lambda figures: _keep(figures, path), FILE_S))

        def show(figures: Figures) -> None:
            for each in shows:
                each.take(figures)

        try:
            yield show
        finally:
            for each in shows:
                each.end()


class _Paced:
    """Shows at most so often, and what came last at the end."""

    def __init__(self, show: Show, pause_s: float) -> None:
        self._show = show
        self._pause_s = pause_s
        self._at: float | None = None
        self._waiting: Figures | None = None

    def take(self, figures: Figures) -> None:
        self._waiting = figures
        if self._at is None or figures.seconds - self._at >= self._pause_s:
            self._at = figures.seconds
            self.end()

    def end(self) -> None:
        if self._waiting is not None:
            self._show(self._waiting)
            self._waiting = None


def _print(figures: Figures, stream: TextIO) -> None:
    print(f"{figures.job}: {figures.line()}", file=stream, flush=True)


def _keep(figures: Figures, path: Path) -> None:
    """Whole or not at all, for who reads it meanwhile."""
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(json.dumps(figures.to_json()) + "\n", encoding="utf-8")
    draft.replace(path)


@contextmanager
def _bar(stream: TextIO) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"))
    with Progress(*columns, console=Console(file=stream)) as bar:
        task = bar.add_task("starting", total=None, told="")

        def show(figures: Figures) -> None:
            total = None if figures.backlog is None else figures.done + figures.backlog
            bar.update(
                task,
                description=figures.job,
                completed=figures.done,
                total=total,
                told=figures.line(),
            )

        yield show


# --- Spark's tasks --------------------------------------------------------------------------------


def running_tasks(context: SparkContext, group: str) -> tuple[int, int] | None:
    """Tasks done, and planned, of the jobs of a group that run now; None if none does."""
    tracker = context.statusTracker()
    active = set(tracker.getActiveJobsIds())
    numbers = [number for number in tracker.getJobIdsForGroup(group) if number in active]
    return _count(tracker, numbers) if numbers else None


def _count(tracker: StatusTracker, jobs: Iterable[int]) -> tuple[int, int]:
    """As far as Spark knows. A stage that a done job skipped was not needed."""
    done = planned = 0
    for number in jobs:
        job = tracker.getJobInfo(number)
        for stage in () if job is None else job.stageIds:
            found = tracker.getStageInfo(stage)
            if job is not None and found is not None:
                done += found.numCompletedTasks
                is_over = job.status != "RUNNING"
                planned += found.numCompletedTasks if is_over else found.numTasks
    return done, planned


@contextmanager
def measured(spark: SparkSession, job: str) -> Iterator[Callable[[], Figures]]:
    """Show how far the queries are that this thread runs in the block; gives the figures."""
    group = f"paceline-{job}-{uuid.uuid4().hex}"
    meter, over = Meter(job, TASKS), threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def look() -> Figures:
        done, planned = _count(tracker, tracker.getJobIdsForGroup(group))
        meter.count(done, planned - done)
        return meter.figures()

    def watch(show: Show) -> None:
        while not over.wait(LOOK_S):
            show(look())

    spark.sparkContext.setJobGroup(group, job)
    with shown() as show:
        thread = threading.Thread(target=watch, args=(show,))
        thread.start()
        try:
            yield look
        finally:
            over.set()
            thread.join()
            show(look())
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
