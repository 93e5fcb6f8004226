"""Every metric of a node, by name (prefix ``paceline_``; spec ecosystem 3).

One :class:`Metrics` per node, with a registry of its own: many nodes share a test process. What
counts events is an instrument here, fed where the event happens. What describes a state is asked
for at scrape, through callbacks, so that deleted topics and closed links vanish by themselves.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric

from paceline.errors import ErrorCode
from paceline_node.observe.instruments import Counter, Counters, Histogram, Histograms, gauge

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Gauge(enum.Enum):
    """States asked for at scrape: name, meaning, labels."""

    READY = ("ready", "Whether the node passes its readiness checks.", ())
    CONTROLLER_IS_LEADER = (
        "controller_is_leader",
        "Whether this node is the active controller.",
        (),
    )
    CONTROLLER_TERM = ("controller_term", "Term of the metadata quorum.", ())
    METADATA_OFFSET = ("metadata_offset", "Metadata offset applied on this node.", ())
    CONNECTIONS_ACTIVE = ("connections_active", "Open client connections.", ("protocol",))
    CHANNEL_DEPTH = ("channel_depth", "Items or bytes waiting in a queue.", ("name",))
    LOOP_LAG = ("loop_lag_seconds", "Longest delay of the event loop in the last minute.", ())
    PEER_LINK_UP = ("peer_link_up", "Whether a link to a node is open.", ("peer", "lane"))
    PEER_QUEUED = ("peer_queued_bytes", "Bytes waiting on a link.", ("peer", "lane"))
    DISK_FREE = ("disk_free_bytes", "Free space of the data directory.", ())

    def __init__(self, suffix: str, doc: str, labels: tuple[str, ...]) -> None:
        self.metric_name = f"paceline_{suffix}"
        self.doc = doc
        self.labels = labels


Sample = tuple[tuple[str, ...], float]
GaugeSource = Callable[[], Iterable[Sample]]


@dataclass(frozen=True, slots=True)
class PartitionSample:
    """One partition as this node sees it. ``leader`` is -1 when it has none; ``replica_lag`` maps
    follower node ids to records behind, known on the leader."""

    topic: str
    partition: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    leader: int
    is_leader: bool
    in_sync_replicas: int
    replicas: int
    min_in_sync_replicas: int
    log_bytes: int
    segments: int
    replica_lag: tuple[tuple[int, int], ...] = ()


PartitionSource = Callable[[], Iterable[PartitionSample]]

_PER_PARTITION: tuple[tuple[str, str, Callable[[PartitionSample], float]], ...] = (
    ("partition_log_start_offset", "First offset kept.", lambda p: p.log_start_offset),
    ("partition_high_watermark", "First offset not yet visible.", lambda p: p.high_watermark),
    ("partition_log_end_offset", "Next offset to be written.", lambda p: p.log_end_offset),
    ("partition_leader_epoch", "Leader epoch.", lambda p: p.leader_epoch),
    ("partition_in_sync_replicas", "Replicas in sync.", lambda p: p.in_sync_replicas),
    ("partition_replicas", "Replicas assigned.", lambda p: p.replicas),
    ("partition_is_leader", "Whether this node leads the partition.", lambda p: p.is_leader),
    ("log_bytes", "Size of the partition's log on this node.", lambda p: p.log_bytes),
    ("segments", "Segment files of the partition on this node.", lambda p: p.segments),
)

_COUNTED: tuple[tuple[str, str, Callable[[PartitionSample], bool]], ...] = (
    (
        "under_replicated_partitions",
        "Partitions led here with fewer replicas in sync than assigned.",
        lambda p: p.is_leader and p.in_sync_replicas < p.replicas,
    ),
    (
        "under_min_isr_partitions",
        "Partitions led here with fewer replicas in sync than acks=all needs.",
        lambda p: p.is_leader and p.in_sync_replicas < p.min_in_sync_replicas,
    ),
    (
        "leaderless_partitions",
        "Partitions with a replica here and no leader.",
        lambda p: p.leader < 0,
    ),
)


class RequestMeter:
    """Counts and times one protocol's requests of one kind."""

    __slots__ = ("_api", "_by_code", "_counters", "_duration", "_protocol")

    def __init__(self, counters: Counters, duration: Histogram, *, protocol: str, api: str) -> None:
        self._counters = counters
        self._duration = duration
        self._protocol = protocol
        self._api = api
        self._by_code: dict[int, Counter] = {}

    def done(self, code: ErrorCode, seconds: float) -> None:
        """One request was answered with ``code`` after ``seconds``."""
        counter = self._by_code.get(code)
        if counter is None:
            counter = self._counters.of(self._protocol, self._api, code.name.lower())
            self._by_code[code] = counter
        counter.value += 1
        self._duration.observe(seconds)


class Metrics:
    """``per_partition`` False leaves out the series of single partitions, not their totals."""

    def __init__(self, *, version: str, per_partition: bool = True) -> None:
        self._version = version
        self._per_partition = per_partition
        self._sources: dict[Gauge, list[GaugeSource]] = {}
        self._partitions: PartitionSource = tuple
        self._requests = Counters(
            "paceline_requests", "Requests answered.", ("protocol", "api", "code")
        )
        self._request_duration = Histograms(
            "paceline_request_duration_seconds",
            "Time from a request's last byte to its answer.",
            ("protocol", "api"),
        )
        self.isr_changes = Counters(
            "paceline_isr_changes", "Changes of in-sync sets led here.", ("change",)
        )
        self.leader_elections = Counters(
            "paceline_leader_elections", "Leaders elected by this controller.", ("reason",)
        )
        self.records_appended = Counters(
            "paceline_records_appended", "Records appended by leaders here.", ("topic",)
        )
        self.records_fetched = Counters(
            "paceline_records_fetched", "Records given to consumers.", ("topic",)
        )
        self.appended_bytes = Counters(
            "paceline_appended_bytes", "Batch bytes appended by leaders here.", ("topic",)
        )
        self.fetched_bytes = Counters(
            "paceline_fetched_bytes", "Batch bytes given to consumers.", ("topic",)
        )
        self.fsync_duration = Histograms(
            "paceline_fsync_duration_seconds", "Time of one group's fdatasync."
        )
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def requests(self, protocol: str, api: str) -> RequestMeter:
        """The meter of one kind of request; make it once, keep it."""
        duration = self._request_duration.of(protocol, api)
        return RequestMeter(self._requests, duration, protocol=protocol, api=api)

    def provide(self, which: Gauge, source: GaugeSource) -> None:
        """Ask ``source`` for samples of a gauge at each scrape, beside other sources of it."""
        self._sources.setdefault(which, []).append(source)

    def provide_partitions(self, source: PartitionSource) -> None:
        """Ask ``source`` for the partitions with a replica here at each scrape."""
        self._partitions = source

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of a deleted topic."""
        for family in (
            self.records_appended,
            self.records_fetched,
            self.appended_bytes,
            self.fetched_bytes,
        ):
            family.forget(topic)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """All metrics of this moment (called by the registry)."""
        yield gauge("paceline_build_info", "Version.", ("version",), [((self._version,), 1)])
        for which in Gauge:
            samples = [s for source in self._sources.get(which, ()) for s in source()]
            if which in self._sources:
                yield gauge(which.metric_name, which.doc, which.labels, samples)
        yield from self._of_partitions()
        for family in (
            self._requests,
            self._request_duration,
            self.isr_changes,
            self.leader_elections,
            self.records_appended,
            self.records_fetched,
            self.appended_bytes,
            self.fetched_bytes,
            self.fsync_duration,
        ):
            yield from family.collect()

    def _of_partitions(self) -> Iterator[Metric]:
        partitions = list(self._partitions())
        for name, doc, holds in _COUNTED:
            count = sum(1 for partition in partitions if holds(partition))
            yield gauge(f"paceline_{name}", doc, (), [((), count)])
        if not self._per_partition:
            return
        labels = [(p.topic, str(p.partition)) for p in partitions]
        for name, doc, value in _PER_PARTITION:
            samples = [(at, float(value(p))) for at, p in zip(labels, partitions, strict=True)]
            yield gauge(f"paceline_{name}", doc, ("topic", "partition"), samples)
        lags = [
            ((*at, str(node)), float(lag))
            for at, partition in zip(labels, partitions, strict=True)
            for node, lag in partition.replica_lag
        ]
        doc = "Records a follower is behind its leader here."
        yield gauge("paceline_replica_lag_records", doc, ("topic", "partition", "replica"), lags)
