"""The plan of a batch query over records: what lies between the two bounds, now."""

from __future__ import annotations

import logging

from paceline.spark import bounds
from paceline.spark.cluster import Cluster
from paceline.spark.errors import PacelineDataLoss
from paceline.spark.facts import Facts
from paceline.spark.options import BoundKind, SourceOptions
from paceline.spark.planner import ranges_between
from paceline.spark.planning import ReadRange, split
from paceline.types import TopicPartition

LOG = logging.getLogger("paceline.spark")


def plan(options: SourceOptions) -> list[ReadRange]:
    """The ranges to read. Raises PacelineDataLoss when the start names offsets that are gone,
    OptionError."""
    if options.between is not None:
        return ranges_between(options, *options.between)
    cluster = Cluster(options)
    try:
        return cluster.retrying(lambda: _plan(options, cluster))
    finally:
        cluster.close()


def _plan(options: SourceOptions, cluster: Cluster) -> list[ReadRange]:
    facts = cluster.facts({})
    cluster.require(facts.ids)
    starts = bounds.resolve(options, cluster, facts)
    ends = bounds.resolve_end(options, cluster, facts)
    ranges = [
        ReadRange(
            at.topic,
            at.partition,
            _begin(at, start, ends[at], facts, options),
            _end(at, ends[at], facts, options),
            facts.ids[at.topic],
            facts.partitions[at].epoch,
        )
        for at, start in starts.items()
    ]
    return split(
        ranges,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )


def _begin(at: TopicPartition, start: int, end: int, facts: Facts, options: SourceOptions) -> int:
    """``start``, or where the log begins now if the query may go on without what is gone."""
    if options.start.kind is BoundKind.OFFSETS:
        _require_within(at, "startingOffsets", start, facts, options)
    log_start = facts.partitions[at].log_start
    if start >= log_start or end <= start:
        return start
    if options.fail_on_data_loss:
        raise PacelineDataLoss(
            "D1", f"{at}: offsets [{start}, {log_start}) are gone (log starts at {log_start})"
        )
    return log_start


def _end(at: TopicPartition, end: int, facts: Facts, options: SourceOptions) -> int:
    """``end``, or the log's end: times are looked up a little later than that."""
    if options.end.kind is BoundKind.OFFSETS:
        _require_within(at, "endingOffsets", end, facts, options)
    return min(end, facts.partitions[at].end)


def _require_within(
    at: TopicPartition, name: str, offset: int, facts: Facts, options: SourceOptions
) -> None:
    """Raise PacelineDataLoss for an offset that the log does not reach, unless the query takes what
    there is: whoever names it has seen a log that did."""
    log_end = facts.partitions[at].end
    if offset <= log_end:
        return
    what = f"{at}: {name} {offset} is beyond the log, which ends at {log_end}"
    if options.fail_on_data_loss:
        raise PacelineDataLoss("D2", what)
    LOG.warning("reading what there is: %s", what)
