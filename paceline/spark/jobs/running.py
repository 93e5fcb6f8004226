"""Running a streaming query to its end: restarts with pauses, progress on a terminal, SIGTERM."""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from paceline.spark import offsets
from paceline.spark.jobs.report import JobExit, Report

POLL_S = 0.5
FIRST_PAUSE_S, LAST_PAUSE_S = 5.0, 60.0
_LOSS = re.compile(r"PacelineDataLoss: (.*)")

Update = Callable[[int, int | None], None]
"""Shows how many records are done, and of how many if that is known."""


@contextmanager
def progress(title: str, stream: TextIO = sys.stderr) -> Iterator[Update]:
    """A bar while the block runs; silent unless ``stream`` is a terminal."""
    if not stream.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(file=stream)) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class Runner:
    """Runs one job's query until it ends, restarting it when it fails."""

    def __init__(
        self,
        report: Report,
        *,
        title: str,
        max_restarts: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._report = report
        self._title = title
        self._max_restarts = max_restarts
        self._sleep = sleep
        self._stopping = threading.Event()
        self._rows: dict[tuple[str, int], int] = {}
        self._dropped = 0

    def run(self, start: Callable[[], StreamingQuery]) -> JobExit:
        """Start the query, again after failures. Rows and offsets go to the report."""
        failures = 0
        with self._stopped_by_signals(), progress(self._title) as update:
            while True:
                query = start()
                try:
                    self._follow(query, update)
                except StreamingQueryException as error:
                    self._note(query, update)
                    lost = _LOSS.search(str(error))
                    self._report.errors.append(lost[1] if lost else str(error)[:2000])
                    if lost:
                        return JobExit.DATA_LOSS
                    failures += 1
                    if failures > self._max_restarts:
                        return JobExit.FAILED
                    self._sleep(min(LAST_PAUSE_S, FIRST_PAUSE_S * 2 ** (failures - 1)))
                else:
                    return JobExit.DONE
                finally:
                    self._tell()

    def _follow(self, query: StreamingQuery, update: Update) -> None:
        while query.isActive:
            if self._stopping.is_set():
                query.stop()
                break
            query.awaitTermination(POLL_S)
            self._note(query, update)
        query.awaitTermination()
        self._note(query, update)

    def _note(self, query: StreamingQuery, update: Update) -> None:
        behind: int | None = None
        for each in query.recentProgress:
            data = json.loads(each.json)
            self._rows[data["runId"], data["batchId"]] = data["numInputRows"]
            behind = _behind(data)
            self._report.facts["offsets"] = [source["endOffset"] for source in data["sources"]]
            dropped = [
                operator.get("numRowsDroppedByWatermark", 0)
                for operator in data.get("stateOperators", [])
            ]
            self._dropped = max(self._dropped, sum(dropped))
        done = sum(self._rows.values())
        update(done, None if behind is None else done + behind)

    def _tell(self) -> None:
        self._report.facts["rows"] = sum(self._rows.values())
        self._report.facts["batches"] = len(self._rows)
        if self._dropped:
            self._report.facts["late_rows_dropped"] = self._dropped

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C end the query in order; a job that was told to stop is done."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(_number: int, _frame: object) -> None:
            self._stopping.set()

        before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def _behind(progress: dict[str, Any]) -> int | None:
    total = 0
    for source in progress["sources"]:
        end, latest = source.get("endOffset"), source.get("latestOffset")
        if not isinstance(end, dict) or not isinstance(latest, dict) or offsets.HEAD not in end:
            return None
        total += sum(offsets.lag(end, latest).values())
    return total
