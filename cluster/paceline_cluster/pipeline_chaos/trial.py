"""One copy of the source, struck at one point, and started again until it is done."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from paceline.client import blocking
from paceline_cluster.bench.rig import Rig
from paceline_cluster.pipeline_chaos import points
from paceline_cluster.pipeline_chaos.points import Armed
from paceline_cluster.spark_standalone import Standalone

SOURCE = "source"
PARTITIONS = 4
BATCHES = 3
MAX_STARTS = 6
LONGEST_DELAY_MS = 60
"""A commit, its connection included, takes some tens of milliseconds."""
DRIVER_S = 600.0
"""No driver takes this long; it bounds a hang."""
SHARED = {"spark.cores.max": "1"}
"""Settings of drivers that run at the same time: the first would take all cores of a cluster."""
ANSWERED = (points.ZOMBIE, points.TWO_DRIVERS)


@dataclass
class Trial:
    """What was done, and what came of it.

    ``answer``: of the one who came too late. ``findings``: the audit's, by name; ``audited`` says
    that it ran to its end.
    """

    point: str
    batch: int
    delay_ms: int
    target: str
    hit: bool = False
    done: bool = False
    starts: int = 0
    answer: str = ""
    seconds: float = 0.0
    audited: bool = False
    audit_seconds: float = 0.0
    findings: dict[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether the point was hit, the query came to its end, nobody wrote who must not, and the
        audit found nothing."""
        answered = bool(self.answer) or self.point not in ANSWERED
        copied = self.hit and self.done and answered and points.NOT_REFUSED not in self.answer
        return copied and self.audited and not self.findings


def draw(point: str, rng: random.Random) -> Trial:
    """When to strike."""
    batch, delay_ms = rng.randrange(BATCHES), rng.randrange(LONGEST_DELAY_MS)
    return Trial(point, batch, delay_ms, f"copy-{point}")


class Runner:
    """Runs a trial on a cluster; its files lie in ``base``. ``spark``: where its query runs, a
    master's URL or a cluster whose workers may be lost."""

    def __init__(
        self, rig: Rig, spark: str | Standalone, base: Path, trial: Trial, records: int
    ) -> None:
        self._rig = rig
        self._spark = spark
        self._base = base / trial.point
        self._trial = trial
        # Where a query starts is told: it needs no first batch to find that out.
        start = {SOURCE: {str(number): 0 for number in range(PARTITIONS)}}
        self._options = {
            "startingOffsets": json.dumps(start),
            "maxOffsetsPerTrigger": str(-(-records // BATCHES)),
        }

    def run(self) -> None:
        """Fill the trial in."""
        trial, began = self._trial, time.monotonic()
        self._base.mkdir()
        with blocking.connect(self._rig.addresses) as client:
            client.admin.create_topic(trial.target, partitions=PARTITIONS)
        Armed(trial.point, trial.batch, trial.delay_ms).write(self._base)
        while trial.starts < MAX_STARTS and not trial.done:
            process = self._start()
            self._strike(process)
            trial.done = _ended_well(process) or trial.done
        trial.hit = self._hit.exists()
        if trial.point in ANSWERED:
            trial.answer = self._told()
        trial.seconds = round(time.monotonic() - began, 1)

    @property
    def _hit(self) -> Path:
        return points.hit_file(self._base, self._trial.point)

    def _start(self) -> subprocess.Popen[bytes]:
        """The driver; what it and its workers say goes to a log."""
        self._trial.starts += 1
        with (self._base / "driver.log").open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - our own interpreter and our own module
                [
                    *(sys.executable, "-m", "paceline_cluster.pipeline_chaos.driver"),
                    self._spark if isinstance(self._spark, str) else self._spark.url,
                    *(",".join(self._rig.addresses), SOURCE, self._trial.target),
                    *(str(self._base / "checkpoint"), json.dumps(self._options)),
                    json.dumps(SHARED if self._trial.point == points.TWO_DRIVERS else {}),
                ],
                env={**os.environ, points.FOLDER_VARIABLE: str(self._base)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _strike(self, driver: subprocess.Popen[bytes]) -> None:
        """What the query cannot do to itself: it waits at the point until this is done."""
        point = self._trial.point
        if (self._base / points.STRUCK).exists():
            return
        if point == points.TWO_DRIVERS and self._comes(self._hit, driver):
            self._trial.done = _ended_well(self._start())
            (self._base / points.STRUCK).touch()
        elif point == points.SPARK_WORKER:
            self._strike_spark(driver)
        elif point == points.LEADER_READ:
            self._strike_leader(SOURCE, driver)
        elif point == points.LEADER_WRITE:
            self._strike_leader(self._trial.target, driver)

    def _strike_spark(self, driver: subprocess.Popen[bytes]) -> None:
        """Kill the worker that the waiting task runs on, its executor and all."""
        place = self._base / points.EXECUTOR
        if not self._comes(place, driver):
            return
        assert isinstance(self._spark, Standalone), "struck only there"
        self._spark.lose(int(place.read_text()))
        (self._base / points.STRUCK).touch()
        _ended_well(driver)
        self._spark.complete()

    def _strike_leader(self, topic: str, driver: subprocess.Popen[bytes]) -> None:
        """Kill the leader of the partition that the waiting task has to do with."""
        place = self._base / points.PARTITION
        if not self._comes(place, driver):
            return
        with blocking.connect(self._rig.addresses) as client:
            leader = client.admin.topic(topic).partitions[int(place.read_text())].leader
        self._rig.kill(leader)
        (self._base / points.STRUCK).touch()
        _ended_well(driver)
        self._rig.restart(leader)

    @staticmethod
    def _comes(path: Path, driver: subprocess.Popen[bytes]) -> bool:
        """Wait for a file, as long as the driver runs."""
        while not path.exists():
            if driver.poll() is not None:
                return False
            time.sleep(0.02)
        return True

    def _told(self) -> str:
        answer = self._base / points.ANSWER
        deadline = time.monotonic() + points.PATIENCE_S
        while not answer.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return answer.read_text() if answer.exists() else ""


def _ended_well(driver: subprocess.Popen[bytes]) -> bool:
    """Wait for its end; one that hangs is killed, and Java ends with it."""
    try:
        return driver.wait(DRIVER_S) == 0
    except subprocess.TimeoutExpired:
        driver.kill()
        driver.wait()
        return False
