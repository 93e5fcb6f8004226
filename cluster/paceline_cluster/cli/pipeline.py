"""``pipeline``: the Spark jobs, on the cluster that the other commands mean."""

from __future__ import annotations

from paceline.spark.jobs.commands import pipeline
from paceline.spark.jobs.options import Finder
from paceline_cluster.cli.find_cluster import find

__all__ = ["pipeline"]


def _addresses() -> str:
    found = find(None, ())
    if found.is_stopped():
        raise found.stopped()
    return ",".join(found.bootstrap())


pipeline.context_settings = {**pipeline.context_settings, "obj": Finder(_addresses)}
