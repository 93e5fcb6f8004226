"""Running a streaming query to its end: restarts with pauses, progress on a terminal, SIGTERM."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from paceline.spark import offsets
from paceline.spark.jobs.progress import RECORDS, Meter, Show, running_tasks, shown
from paceline.spark.jobs.report import JobExit, Report

POLL_S = 0.5
FIRST_PAUSE_S, LAST_PAUSE_S = 5.0, 60.0
_STOPPING = (signal.SIGTERM, signal.SIGINT)
_LOSS = re.compile(r"PacelineDataLoss: (.*)")
_REASON = re.compile(r"^ *paceline(?:\.\w+)*\.(\w+: .+)$", re.MULTILINE)
"""What ended a Python process of Spark's, below its stack. Others' stacks may follow."""


class Runner:
    """Runs a job's queries until they end, restarting them when one fails. What is counted is the
    first one's. ``behind``: of a query's progress, how many records it has yet to read."""

    def __init__(
        self,
        report: Report,
        *,
        max_restarts: int,
        behind: Callable[[Mapping[str, Any]], int | None] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._report = report
        self._behind = behind or records_behind
        self._max_restarts = max_restarts
        self._sleep = sleep
        self._stopping = threading.Event()
        self._rows: dict[tuple[str, int], int] = {}
        self._dropped: dict[tuple[str, int], int] = {}
        self._meter = Meter(report.job, RECORDS)

    def run(self, start: Callable[[], Sequence[StreamingQuery]]) -> JobExit:
        """Start the queries, again after failures. Rows and offsets go to the report.

        ``start`` makes the session too, if need be, so that a signal is heeded from the beginning.
        """
        with self._stopped_by_signals() as catch, shown() as show:

            def begin() -> Sequence[StreamingQuery]:
                queries = start()
                catch()  # a new Spark context puts its own handler in the place of ours
                return queries

            try:
                return self._repeat(begin, show)
            except (Py4JError, ConnectionError) as error:
                if self._stopping.is_set():
                    return JobExit.DONE
                self._report.errors.append(f"Spark's Java process does not answer: {error}"[:2000])
                return JobExit.FAILED
            finally:
                self._tell()

    def _repeat(self, start: Callable[[], Sequence[StreamingQuery]], show: Show) -> JobExit:
        failures = 0
        while True:
            queries = start()
            try:
                self._follow(queries, show)
            except StreamingQueryException as error:
                if self._stopping.is_set():
                    return JobExit.DONE
                for query in queries:
                    query.stop()
                self._note(queries[0], show)
                if fail(self._report, error) is JobExit.DATA_LOSS:
                    return JobExit.DATA_LOSS
                failures += 1
                if failures > self._max_restarts:
                    return JobExit.FAILED
                self._sleep(min(LAST_PAUSE_S, FIRST_PAUSE_S * 2 ** (failures - 1)))
            else:
                return JobExit.DONE

    def _follow(self, queries: Sequence[StreamingQuery], show: Show) -> None:
        running = list(queries)
        while running and not self._stopping.is_set():
            # Raises what ended it, if that was a failure.
            running = [query for query in running if not query.awaitTermination(POLL_S)]
            self._meter.run(self._tasks_of(queries[0]))
            self._note(queries[0], show)
        for query in running:
            query.stop()
        self._note(queries[0], show)

    @staticmethod
    def _tasks_of(query: StreamingQuery) -> tuple[int, int] | None:
        context = SparkContext._active_spark_context
        return None if context is None else running_tasks(context, str(query.runId))

    def _note(self, query: StreamingQuery, show: Show) -> None:
        behind: int | None = None
        for each in query.recentProgress:
            data = json.loads(each.json)
            batch = data["runId"], data["batchId"]
            self._rows[batch] = data["numInputRows"]
            behind = self._behind(data)
            self._report.facts["offsets"] = [source["endOffset"] for source in data["sources"]]
            self._dropped[batch] = sum(
                operator.get("numRowsDroppedByWatermark", 0)
                for operator in data.get("stateOperators", [])
            )
        self._meter.count(sum(self._rows.values()), behind)
        show(self._meter.figures())

    def _tell(self) -> None:
        self._report.facts["rows"] = sum(self._rows.values())
        self._report.facts["batches"] = len(self._rows)
        self._report.facts["progress"] = self._meter.figures().to_json()
        if dropped := sum(self._dropped.values()):
            self._report.facts["late_rows_dropped"] = dropped

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[Callable[[], None]]:
        """SIGTERM and Ctrl-C end the query in order; a job that was told to stop is done. Gives
        what takes the signals back."""
        if threading.current_thread() is not threading.main_thread():
            yield lambda: None
            return

        def stop(_number: int, _frame: object) -> None:
            self._stopping.set()

        def catch() -> None:
            for each in _STOPPING:
                signal.signal(each, stop)

        before = {each: signal.getsignal(each) for each in _STOPPING}
        catch()
        try:
            yield catch
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def fail(report: Report, error: Exception) -> JobExit:
    """Put what a query failed with into the report. Gives what the job ends with, if it ends."""
    lost, said = _LOSS.search(str(error)), _REASON.search(str(error))
    report.errors.append(lost[1] if lost else said[1] if said else str(error)[:2000])
    return JobExit.DATA_LOSS if lost else JobExit.FAILED


def records_behind(progress: Mapping[str, Any]) -> int | None:
    """Of a query that reads topics; None while that is not known."""
    total = 0
    for source in progress["sources"]:
        end, latest = source.get("endOffset"), source.get("latestOffset")
        if not isinstance(end, dict) or not isinstance(latest, dict) or offsets.HEAD not in end:
            return None
        total += sum(offsets.lag(end, latest).values())
    return total
