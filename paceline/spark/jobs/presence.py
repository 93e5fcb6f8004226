"""Whether the topics that a job names are there, asked before Spark starts.

Spark would say it half a minute later, at the end of a stack of its own, and after each restart.
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline.client import blocking
from paceline.errors import UnknownTopicOrPartition


def require_topics(bootstrap: str, topics: str, options: Mapping[str, str]) -> None:
    """Nothing if all of ``topics`` (``a,b``) exist, or ``waitForTopics`` among the ``options`` says
    that a stream waits for them.

    Raises UnknownTopicOrPartition naming those that do not, ConnectionLost.
    """
    if any(name.lower() == "waitfortopics" and value == "true" for name, value in options.items()):
        return
    with blocking.connect(bootstrap.split(",")) as client:
        known = {info.name for info in client.admin.list_topics()}
    absent = [name for each in topics.split(",") if (name := each.strip()) not in known]
    if absent:
        raise UnknownTopicOrPartition(f"{', '.join(absent)}: no such topic")
