"""How far a streaming query is behind: computed from its progress, in the user's driver.

    spark.streams.addListener(LagListener())

Names are those of Spark's Kafka source. ``LagListener.latest`` holds the newest figures; with a
Prometheus registry they are gauges too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from paceline.spark import offsets
from paceline.types import TopicPartition
from paceline.values import dataclass

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Gauge

LOG = logging.getLogger("paceline.spark")
LABELS = ("query", "topic", "partition")


@dataclass(frozen=True, slots=True)
class SourceLag:
    """Of one source of one query. ``behind``: records not yet processed, per partition; ``lost``:
    records passed over under ``failOnDataLoss=false``. Seconds are -1 while nothing was processed.
    """

    query: str
    behind: Mapping[TopicPartition, int] = field(default_factory=dict)
    lost: Mapping[TopicPartition, int] = field(default_factory=dict)
    estimated_seconds_behind: float = -1.0

    @property
    def max_offsets_behind_latest(self) -> int:
        return max(self.behind.values(), default=0)

    @property
    def min_offsets_behind_latest(self) -> int:
        return min(self.behind.values(), default=0)

    @property
    def avg_offsets_behind_latest(self) -> float:
        return sum(self.behind.values()) / len(self.behind) if self.behind else 0.0

    def to_json(self) -> dict[str, Any]:
        """With Spark-Kafka's names."""
        return {
            "query": self.query,
            "avgOffsetsBehindLatest": self.avg_offsets_behind_latest,
            "maxOffsetsBehindLatest": self.max_offsets_behind_latest,
            "minOffsetsBehindLatest": self.min_offsets_behind_latest,
            "estimatedSecondsBehind": self.estimated_seconds_behind,
            "offsetsBehindLatest": {str(at): count for at, count in sorted(self.behind.items())},
            "lost": {str(at): count for at, count in sorted(self.lost.items())},
        }


def source_lag(query: str, end: str, latest: str, rows_per_second: float) -> SourceLag | None:
    """From a source's progress; None when the source is not ours or told no offsets."""
    try:
        ends, newest = json.loads(end), json.loads(latest)
    except (TypeError, ValueError):
        return None
    if not isinstance(ends, dict) or offsets.HEAD not in ends or not isinstance(newest, dict):
        return None
    behind = offsets.lag(ends, newest)
    lost = {} if offsets.is_marker(ends) else dict(offsets.StreamOffset.from_json(ends).lost)
    total = sum(behind.values())
    seconds = 0.0 if total == 0 else total / rows_per_second if rows_per_second > 0 else -1.0
    return SourceLag(query, behind, lost, seconds)


class LagListener(StreamingQueryListener):
    """Keeps the newest lag of every query of a session, by query id; logs one line a batch."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.latest: dict[str, list[SourceLag]] = {}
        self._gauge: Gauge | None = None
        if registry is not None:
            from prometheus_client import Gauge as RealGauge

            self._gauge = RealGauge(
                "paceline_spark_records_behind",
                "Records of a partition that a streaming query has not processed yet.",
                LABELS,
                registry=registry,
            )

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:
        """Take in a batch's progress."""
        progress = event.progress
        name = progress.name or str(progress.id)
        found = []
        for source in progress.sources:
            rate = source.processedRowsPerSecond
            lag = source_lag(name, source.endOffset, source.latestOffset, float(rate or 0.0))
            if lag is not None:
                found.append(lag)
                self._tell(lag)
        self.latest[str(progress.id)] = found

    def _tell(self, lag: SourceLag) -> None:
        LOG.info("lag %s", json.dumps(lag.to_json()))
        if self._gauge is not None:
            for at, count in lag.behind.items():
                self._gauge.labels(lag.query, at.topic, str(at.partition)).set(count)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing has changed."""

    def onQueryTerminated(self, event: Any) -> None:
        """The last figures stay, for who looks afterwards."""
