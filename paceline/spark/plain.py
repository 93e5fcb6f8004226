"""Failures that Spark shows in one line.

Spark puts the stack of its Python process into the message of a failed query: of what is wrong
there is then one line below sixty. What says by itself what is wrong is told without it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from paceline.errors import PacelineError

VARIABLE = "SPARK_HIDE_TRACEBACK"
"""What Spark's Python processes look at when they tell a failure, which is the last they do."""


@contextmanager
def told_plainly() -> Iterator[None]:
    """Let a PacelineError be told without its stack; also to be put above a function."""
    try:
        yield
    except PacelineError:
        os.environ[VARIABLE] = "1"
        raise
