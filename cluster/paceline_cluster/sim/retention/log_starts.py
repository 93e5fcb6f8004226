"""Where logs may begin: nowhere above what somebody has asked for, and in the end nowhere below
what somebody was told is deleted.

A log that begins higher has lost records, and looks as if they had expired: then they are gone
everywhere, since followers take over where their leader's log begins. One that begins lower shows
what was deleted for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from paceline.types import TopicPartition
from paceline_cluster.sim.oracle import Oracle
from paceline_node.replication.partition import Partition


class LogStarts:
    """Judges the topics ``names``; ``fail`` is told of the invariant that broke, and how."""

    def __init__(self, names: Iterable[str], fail: Callable[[str, str], None]) -> None:
        self._names = frozenset(names)
        self._fail = fail
        self._asked: dict[TopicPartition, int] = {}
        self._told: dict[TopicPartition, int] = {}

    def asked(self, at: TopicPartition, before: int) -> None:
        """Somebody asks for the deletion of the records below ``before``."""
        self._asked[at] = max(before, self._asked.get(at, 0))

    def told(self, at: TopicPartition, before: int) -> None:
        """Somebody was told that the records below ``before`` are deleted."""
        self._told[at] = max(before, self._told.get(at, 0))

    def look_at_last(self, oracle: Oracle) -> None:
        """Nothing moves any more."""
        newest = oracle.metadata.newest
        for at, before in self._told.items():
            topic = None if newest is None else newest.find_topic(at.topic)
            if topic is None:
                continue
            for node, partition in oracle.in_sync((topic.topic_id, at.partition)):
                if partition.log_start_offset < before:
                    who, start = f"n{node} {partition}", partition.log_start_offset
                    self._fail(
                        "I2", f"{who} begins at {start}, what lay below {before} was deleted"
                    )

    def look(self, node: int, partition: Partition) -> None:
        """A replica has moved."""
        name = partition.log.identity.topic
        if name not in self._names:
            return
        allowed = self._asked.get(TopicPartition(name, partition.partition), 0)
        start = partition.log_start_offset
        if start > allowed:
            who = f"n{node} {partition}"
            self._fail("I2", f"{who} begins at {start}, nobody asked for more than {allowed}")
