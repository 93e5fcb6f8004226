"""A job that is struck when it has come to a chosen step: its process, or Spark's Python workers.

Nothing in the job knows of it. What a job has done shows in its files, so a thread looks at those.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

LOOK_S = 0.002
"""Between two looks: short beside any step, so that it is as if the moment were chosen at random
behind the step's begin."""
STEPS = ("planned", "staged", "logged", "placed", "committed", "soon")
"""A batch's offsets are logged, its files are staged, a version of the archive is made, a file is
in its place, Spark's commit is logged; or after a while, wherever the job is."""


def counter(step: str, checkpoint: Path, root: Path) -> Callable[[], int]:
    """How often a job has come to the step, by its files."""

    def of(folder: Path, pattern: str) -> Callable[[], int]:
        return lambda: sum(1 for _ in folder.glob(pattern))

    return {
        "planned": of(checkpoint, "offsets/[0-9]*"),
        "staged": of(root, "_stage/*/*"),
        "logged": of(root, "_log/*.json"),
        "placed": of(root, "topic=*/*/*/*.parquet"),
        "committed": of(checkpoint, "commits/[0-9]*"),
    }[step]


class Blow:
    """Strikes once ``count`` has grown by one (None: at once), and ``delay_s`` later.

    Used as a context; ``hit`` says whether it came to that before the end.
    """

    def __init__(
        self, count: Callable[[], int] | None, delay_s: float, strike: Callable[[], None]
    ) -> None:
        self.hit = False
        self._count = count
        self._delay_s = delay_s
        self._strike = strike
        self._over = threading.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        before = 0 if self._count is None else self._count()
        thread = threading.Thread(target=self._watch, args=(before,))
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch(self, before: int) -> None:
        while self._count is not None and self._count() <= before:
            if self._over.wait(LOOK_S):
                return
        if not self._over.wait(self._delay_s):
            self._strike()
            self.hit = True
