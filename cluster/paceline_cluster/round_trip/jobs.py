"""Runs jobs of ``paceline pipeline``: in this process' Spark session, or in processes of their own
to be killed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from paceline.errors import ConfigurationError, PacelineError
from paceline.spark.jobs.commands import pipeline
from paceline.spark.jobs.report import JobExit
from paceline_cluster.process_tree import kill_below
from paceline_cluster.round_trip.crash import Blow

JOB_S = 300.0
"""No job takes this long; it bounds a hang."""


class Jobs:
    """Jobs of one cluster; what they say goes to ``base``."""

    def __init__(self, bootstrap: str, base: Path) -> None:
        self.base = base
        self._bootstrap = bootstrap
        self._log = base / "jobs.log"

    def run(self, name: str, *words: object) -> tuple[int, dict[str, Any]]:
        """Run a job in this process; its exit code, and its report if it left one."""
        report = self.base / f"{name}.json"
        report.unlink(missing_ok=True)
        arguments = [*self._words(name, words), "--report", str(report)]
        with self._log.open("a", encoding="utf-8") as log:
            print("$", *arguments, file=log)
            with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
                try:
                    code = pipeline.main(arguments, standalone_mode=False)
                except PacelineError as error:
                    print(f"{type(error).__name__}: {error}", file=log)
                    is_ours = isinstance(error, ConfigurationError)
                    return (JobExit.USAGE if is_ours else JobExit.FAILED), {"errors": [str(error)]}
        return code, json.loads(report.read_text(encoding="utf-8"))

    def run_struck(
        self,
        how: str,
        count: Callable[[], int] | None,
        delay_s: float,
        name: str,
        *words: object,
    ) -> bool:
        """Run a job and strike it; how it ends is its own affair. Whether it was hit.

        ``how``: ``workers`` kills Spark's Python processes, those that plan and commit included;
        ``process`` kills the job and all that it has started.
        """
        if how == "process":
            return self._run_killed(count, delay_s, name, words)
        gateway = SparkContext._gateway
        assert gateway is not None, "no session was made"
        java = gateway.proc.pid
        blow = Blow(count, delay_s, lambda: kill_below(java, itself=False))
        with blow.watching():
            self.run(name, *words)
        return blow.hit

    def _run_killed(
        self,
        count: Callable[[], int] | None,
        delay_s: float,
        name: str,
        words: tuple[object, ...],
    ) -> bool:
        command = (sys.executable, "-m", "paceline_cluster.cli.main", "pipeline")
        with self._log.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own module
                [*command, *self._words(name, words)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        blow = Blow(count, delay_s, lambda: kill_below(process.pid, itself=True))
        with blow.watching():
            try:
                process.wait(JOB_S)
            finally:
                process.kill()
        return blow.hit

    def _words(self, name: str, words: tuple[object, ...]) -> list[str]:
        of_files = name.startswith("archive-")
        where = () if of_files else ("--bootstrap", self._bootstrap)
        return [name, *map(str, words), *where]
