"""Plans of a streaming query: where it starts, how far a micro-batch goes, which tasks it has.

Lives in Spark's planner process for one run of the query. Holds no state that a restart needs:
everything is in the offsets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from paceline.errors import PacelineError
from paceline.spark import bounds, loss, offsets
from paceline.spark.cluster import Cluster
from paceline.spark.facts import Facts
from paceline.spark.offsets import StreamOffset
from paceline.spark.options import SourceOptions
from paceline.spark.planning import ReadRange, backlog, limit_rows, proportional, split
from paceline.types import TopicPartition
from paceline.values import dataclass

LOG = logging.getLogger("paceline.spark")
REFRESH_S = 1.0
"""How old metadata may be while nothing new arrives; before a batch they are always fresh."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Limit:
    """How much one micro-batch takes; None = no limit. ``everything`` overrides the options."""

    max_rows: int | None = None
    min_rows: int | None = None
    max_bytes: int | None = None
    everything: bool = False


def default_limit(options: SourceOptions) -> Limit:
    """What the options ask for."""
    return Limit(options.max_offsets, options.min_offsets, options.max_bytes)


class StreamPlanner:
    """The reader's planning, without Spark's types."""

    def __init__(
        self,
        options: SourceOptions,
        cluster: Cluster | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._cluster = cluster or Cluster(options)
        self._monotonic = monotonic
        self._available_now = False
        self._target: dict[TopicPartition, int] | None = None
        self._latest: StreamOffset | None = None
        self._last_batch_s = monotonic()
        self._quiet: tuple[str, float] = ("", 0.0)  # the offset text that had nothing behind it
        self._warned: set[tuple[str, str]] = set()
        self._published = ""

    def close(self) -> None:
        self._cluster.close()

    # --- offsets ----------------------------------------------------------------------------------

    def initial(self) -> Json:
        """The offset of a new query: the explicit one, or the marker (DESIGN 2.1)."""
        start = self._options.start
        if start.is_explicit:
            return self._cluster.retrying(self._explicit).to_json()
        return offsets.marker(start.kind.value)

    def _explicit(self) -> StreamOffset:
        facts = self._look()
        resolved = bounds.explicit(self._options.start, sorted(facts.partitions))
        return _offset(facts, resolved)

    def available_now(self) -> None:
        """Everything that is there at the first batch, and nothing that comes later."""
        self._available_now = True

    def latest(self, start: Mapping[str, Any], limit: Limit) -> Json:
        """The end of the next micro-batch, at most ``limit`` behind ``start``; ``start`` itself
        when there is nothing to do.

        Raises PacelineDataLoss, and what the cluster answers once retries are used up.
        """
        if offsets.is_marker(start):
            return self._cluster.retrying(self._first).to_json()
        self._publish(StreamOffset.from_json(start))
        return self._cluster.retrying(lambda: self._next(StreamOffset.from_json(start), limit))

    def _first(self) -> StreamOffset:
        """Where the new query starts: its first, empty batch writes this into the checkpoint."""
        facts = self._look()
        resolved = bounds.resolve(self._options, self._cluster, facts)
        found = self._latest = _offset(facts, resolved)
        return found

    def _next(self, start: StreamOffset, limit: Limit) -> Json:
        if self._is_quiet(start):
            return start.to_json()
        facts = self._cluster.facts(start.epochs, start.ends)
        loss.check_ids(self._options.topic_ids, facts)
        begin = self._settle(start, facts)
        self._latest = self._end(begin, facts, facts.ends())
        target = self._targets(begin, facts)
        ends = self._admit(begin.ends, target, limit)
        end = self._end(begin, facts, ends)
        if end == begin == start:
            self._quiet = (start.to_text(), self._monotonic())
        elif end.ends != begin.ends:
            self._last_batch_s = self._monotonic()
        return end.to_json()

    def _is_quiet(self, start: StreamOffset) -> bool:
        """Whether it is sure, by the ends alone, that nothing came since the last look."""
        text, since = self._quiet
        if text != start.to_text() or self._monotonic() - since > REFRESH_S or not start.ends:
            return False
        found = self._cluster.ends(sorted(start.ends))
        return all(found[at].offset == offset for at, offset in start.ends.items())

    def _look(self) -> Facts:
        facts = self._cluster.facts({})
        self._cluster.require(facts.ids)
        loss.check_ids(self._options.topic_ids, facts)
        return facts

    def _settle(self, start: StreamOffset, facts: Facts) -> StreamOffset:
        """``start``, moved past what is lost if that is allowed. Raises PacelineDataLoss."""
        losses = loss.find(start, facts)
        if losses and self._options.fail_on_data_loss:
            raise losses[0].error()
        for each in losses:
            self._warn(each)
        return loss.accept(start, losses, facts)

    def _warn(self, found: loss.Loss) -> None:
        key = (str(found.at), found.what)
        if key not in self._warned:
            self._warned.add(key)
            LOG.warning(
                "going on without lost records: %s %s: %s", found.rule, found.at, found.what
            )

    def _targets(self, begin: StreamOffset, facts: Facts) -> dict[TopicPartition, int]:
        """The ends to go for; under AvailableNow those of the run's first batch (DESIGN 3)."""
        ends = facts.ends()
        if self._available_now:
            if self._target is None:
                self._target = ends
            ends = {
                at: min(self._target[at], end) for at, end in ends.items() if at in self._target
            }
        return {at: max(end, begin.ends.get(at, 0)) for at, end in ends.items()}

    def _admit(
        self,
        starts: Mapping[TopicPartition, int],
        target: Mapping[TopicPartition, int],
        limit: Limit,
    ) -> dict[TopicPartition, int]:
        begin = {at: starts.get(at, 0) for at in target}
        if limit.everything:
            return dict(target)
        if self._waits(backlog(begin, target), limit):
            return begin
        ends = dict(target)
        if limit.max_rows is not None:
            ends = limit_rows(begin, ends, limit.max_rows)
        if limit.max_bytes is not None:
            shares = proportional(begin, ends, limit.max_bytes)
            reached = self._cluster.ahead(begin, shares)
            ends = {
                at: min(end, max(reached[at], begin[at])) if at in reached else end
                for at, end in ends.items()
            }
        return ends

    def _waits(self, available: int, limit: Limit) -> bool:
        """Whether a minimum is not reached yet, and there is time to wait for it."""
        if limit.min_rows is None or self._available_now or available >= limit.min_rows:
            return False
        waited_ms = (self._monotonic() - self._last_batch_s) * 1000
        return waited_ms < self._options.max_trigger_delay_ms

    def _end(
        self, begin: StreamOffset, facts: Facts, ends: Mapping[TopicPartition, int]
    ) -> StreamOffset:
        """The offset at ``ends``: never backwards; only what moved takes a new epoch; a new
        partition enters when it holds a record."""
        moved, epochs, ids = dict(begin.ends), dict(begin.epochs), dict(begin.ids)
        for at, end in ends.items():
            if end > moved.get(at, 0):
                moved[at] = end
                epochs[at] = facts.partitions[at].epoch
                ids.setdefault(at.topic, facts.ids[at.topic])
        return replace(begin, ends=moved, epochs=epochs, ids=ids)

    def report(self) -> Json | None:
        """The newest ends known, for the query's progress."""
        return None if self._latest is None else self._latest.to_json()

    # --- tasks ------------------------------------------------------------------------------------

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[ReadRange]:
        """The tasks of a micro-batch. Works from the offsets alone, so that a batch that is
        repeated after a restart reads the same."""
        return ranges_between(self._options, start, end)

    def _publish(self, done: StreamOffset) -> None:
        """Tell ``groupId`` how far the query is: Spark asks for the next batch when the former one
        is done, the last one of a run included. A failure is only logged."""
        if not self._options.group or done.to_text() == self._published:
            return
        try:
            self._cluster.publish(self._options.group, done.ends)
        except PacelineError as error:
            LOG.warning("group %s was not told of the progress: %s", self._options.group, error)
        else:
            self._published = done.to_text()


def ranges_between(
    options: SourceOptions, start: Mapping[str, Any], end: Mapping[str, Any]
) -> list[ReadRange]:
    """The tasks that read what lies between two offsets of a streaming query."""
    if offsets.is_marker(start) or offsets.is_marker(end):
        return []
    first, last = StreamOffset.from_json(start), StreamOffset.from_json(end)
    ranges = [
        ReadRange(
            at.topic,
            at.partition,
            last.start_of(at, first),
            until,
            last.ids[at.topic],
            last.epochs.get(at, -1),
        )
        for at, until in last.ends.items()
    ]
    return split(
        ranges,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )


def _offset(facts: Facts, ends: Mapping[TopicPartition, int]) -> StreamOffset:
    return StreamOffset(
        facts.cluster,
        {at.topic: facts.ids[at.topic] for at in ends},
        dict(ends),
        {at: facts.partitions[at].epoch for at in ends},
    )
