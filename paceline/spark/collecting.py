"""Python's garbage collector while a task carries records.

Each record is an object, and thousands live at once. The collector looks at new objects whenever
700 more were made than freed, and finds all of them in use: a third of a task's processor time.
Records are freed by counting references; cycles are made by the connections only, a few for each
fetch.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 100_000
"""Several Arrow batches of records."""


@contextmanager
def rarely() -> Iterator[None]:
    """Collect only when so many objects more were made than freed."""
    before = gc.get_threshold()
    if 0 < before[0] < YOUNG:
        gc.set_threshold(YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
