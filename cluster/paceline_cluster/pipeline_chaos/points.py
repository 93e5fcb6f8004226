"""Where a copying query is struck, and how the processes of one query agree on it.

A folder that all of them know holds the armed point (``armed``: its name, batch and delay) and,
once it was reached, ``hit-<name>``. Reaching it disarms it, so each point strikes once.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from paceline.values import dataclass

FOLDER_VARIABLE = "PACELINE_PIPELINE_CHAOS"
DRIVER = "driver.pid"
"""The driver's Python and Java."""
STRUCK = "struck"
"""Made by the harness when it has done what the query waits for."""
COMMITTED = "committed"
"""Made after each batch's commit."""
ANSWER = "answer"
"""What somebody who had no right to write any more was told: errors, or ``NOT_REFUSED``."""
NOT_REFUSED = "not refused as it should be"
EXECUTOR = "executor"
"""A process of the Spark worker that is to be lost."""
PARTITION = "partition"
"""Which partition the task that waits reads and writes."""
PATIENCE_S = 600.0
"""How long one waits for another: as long as a driver may take."""
_ARMED = "armed"

BEFORE_BEGIN = "driver-before-begin"
WHILE_WRITING = "driver-while-writing"
AFTER_FLUSH = "driver-after-flush"
BEFORE_COMMIT = "driver-before-commit"
IN_COMMIT = "driver-in-commit"
AFTER_COMMIT = "driver-after-commit"
COMMIT_RAISES = "commit-raises"
TWO_DRIVERS = "two-drivers"
TASK = "task-fails"
WORKER = "worker-killed"
ZOMBIE = "zombie"
LEADER_READ = "leader-while-reading"
LEADER_WRITE = "leader-while-writing"
SPARK_WORKER = "spark-worker-lost"
POINTS = (
    BEFORE_BEGIN,
    WHILE_WRITING,
    AFTER_FLUSH,
    BEFORE_COMMIT,
    IN_COMMIT,
    AFTER_COMMIT,
    COMMIT_RAISES,
    TWO_DRIVERS,
    TASK,
    WORKER,
    ZOMBIE,
    LEADER_READ,
    LEADER_WRITE,
    SPARK_WORKER,
)
NEEDS_CLUSTER = (SPARK_WORKER,)
"""Points that only ``--master standalone`` has."""


def folder() -> Path:
    """Where the processes of the run meet."""
    return Path(os.environ[FOLDER_VARIABLE])


@dataclass(frozen=True, slots=True)
class Armed:
    """A point, the first batch at which it strikes, and how long after it is reached."""

    name: str
    batch: int
    delay_ms: int

    def write(self, where: Path) -> None:
        """Arm it."""
        (where / _ARMED).write_text(f"{self.name} {self.batch} {self.delay_ms}")


def hit_file(where: Path, name: str) -> Path:
    """What is there once the point was reached."""
    return where / f"hit-{name}"


def reached(name: str, batch: int) -> Armed | None:
    """The point, if it is armed for this batch or an earlier one: it is hit then, and disarmed.
    Of several processes that ask at once one is told so."""
    path = folder() / _ARMED
    try:
        wanted, first, delay_ms = path.read_text().split()
    except FileNotFoundError:
        return None
    if wanted != name or batch < int(first):
        return None
    try:
        path.rename(hit_file(folder(), name))
    except FileNotFoundError:
        return None
    return Armed(name, batch, int(delay_ms))


def tell(name: str, text: str) -> None:
    """Leave a file for others, whole or not at all."""
    draft = folder() / f"{name}.new"
    draft.write_text(text)
    draft.rename(folder() / name)


def kill_driver() -> None:
    """SIGKILL the driver, its Python and its Java, and the worker that calls this. Workers beside
    it go on until they notice."""
    for pid in (folder() / DRIVER).read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def await_harness() -> None:
    """Until the harness has struck."""
    deadline = time.monotonic() + PATIENCE_S
    while not (folder() / STRUCK).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{folder()}: the harness did not strike")
        time.sleep(0.02)
