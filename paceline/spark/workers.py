"""Spark's daemon of Python workers, which has imported most of what ours need before it forks them.

Each query has half a dozen workers, and each would import the client by itself: a quarter of a
second of processor time. Only what starts no thread may be imported here, since a fork leaves
threads behind: not pyarrow, nor what imports it.
"""

from __future__ import annotations

from pyspark import daemon

from paceline.spark import batch_plan, exactly_once, planner

IMPORTED = (batch_plan, exactly_once, planner)

if __name__ == "__main__":
    daemon.manager()
