"""Every metric of a node, by name (prefix ``paceline_``; DESIGN 4.1).

One :class:`Metrics` per node, with a registry of its own: many nodes share a test process. What
counts events is an instrument here, fed where the event happens. What describes a state is asked
for at scrape, through callbacks, so that deleted topics and closed links vanish by themselves.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from paceline.errors import ErrorCode
from paceline.values import dataclass
from paceline_node.observe.metric_types import (
    Counter,
    Counters,
    Family,
    Histogram,
    Histograms,
    Kind,
    LabelValues,
    gauge,
)

WRITES = frozenset({"produce", "publish", "batch", "append"})
"""The ``api`` labels of requests that write records, whatever the protocol."""
OK = ErrorCode.NONE.name.lower()
"""The ``code`` label of a request that succeeded, in every protocol."""
UNKNOWN_API = "unknown"
GROUP_BOUNDS = tuple(float(2**exponent) for exponent in range(15))

_CODE_LABELS = {int(code): code.name.lower() for code in ErrorCode}


def code_label(code: int) -> str:
    """An ErrorCode number as the ``code`` label shows it."""
    return _CODE_LABELS.get(code, UNKNOWN_API)


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
    CLIENT_MEMORY = (
        "client_memory_bytes",
        "What is held on behalf of clients: messages in arrival, requests, answers not taken.",
        ("protocol",),
    )
    PRODUCERS = ("producers", "Producers that partitions led here remember.", ())
    CHANNEL_DEPTH = ("channel_depth", "Items or bytes waiting in a queue.", ("name",))
    LOOP_LAG = (
        "loop_lag_seconds",
        "Longest delay of the event loop in the last half minute to minute.",
        (),
    )
    LONGEST_SLICE = (
        "loop_longest_slice_seconds",
        "Longest time above 10 ms that a task kept the event loop, last half minute to minute.",
        ("task",),
    )
    PEER_LINK_UP = ("peer_link_up", "Whether a link to a node is open.", ("peer", "lane"))
    PEER_QUEUED = ("peer_queued_bytes", "Bytes waiting on a link.", ("peer", "lane"))
    DIRTIEST_LOG = (
        "compaction_dirtiest_ratio",
        "Largest share of a compacted log here that no compaction has seen.",
        (),
    )
    GROUPS = ("groups", "Groups coordinated by this node.", ("family", "state"))
    GROUP_MEMBERS = ("group_members", "Members of those groups.", ("family",))
    TRANSACTIONS = (
        "transactions",
        "Transactional ids coordinated by this node, by family and state.",
        ("family", "state"),
    )
    TRANSACTION_AGE = (
        "transaction_oldest_open_seconds",
        "How long the oldest open transaction coordinated by this node has been open.",
        (),
    )
    CERTIFICATE_EXPIRY = (
        "tls_certificate_expiry_timestamp_seconds",
        "When the first certificate in a file ends, in seconds since 1970; by the file's setting.",
        ("setting",),
    )
    CERTIFICATES_REFUSED = (
        "tls_reload_failed",
        "Whether the files of certificates cannot be used, and those read before are in force.",
        (),
    )
    DISK_FREE = ("disk_free_bytes", "Free space of the data directory.", ())

    def __init__(self, suffix: str, doc: str, labels: tuple[str, ...]) -> None:
        self.metric_name = f"paceline_{suffix}"
        self.doc = doc
        self.labels = labels


class Total(enum.Enum):
    """Counts kept elsewhere and asked for at scrape: name without ``_total``, meaning, labels."""

    LEADER_ELECTIONS = (
        "leader_elections",
        "Leaders elected by this node as controller.",
        ("reason",),
    )
    LONG_SLICES = (
        "loop_long_slices",
        "Times that a task kept the event loop for more than 10 ms.",
        ("task",),
    )
    COMPACTIONS = ("compactions", "Rounds of compaction over a log.", ())
    COMPACTION_BYTES = (
        "compaction_bytes",
        "Bytes that compaction read, wrote, and freed.",
        ("kind",),
    )
    COMPACTED_RECORDS = ("compacted_records", "Records that compaction dropped.", ())
    GROUP_REBALANCES = (
        "group_rebalances",
        "Rebalances begun by this node as coordinator since it coordinates.",
        ("family",),
    )
    TRANSACTIONS_ENDED = (
        "transactions_ended",
        "Transactions completed by this node as coordinator.",
        ("result",),
    )
    CLIENTS_THROTTLED = (
        "clients_throttled_seconds",
        "Time for which clients waited because they were over a quota.",
        (),
    )
    CLIENTS_ENDED = (
        "clients_ended",
        "Client connections ended because memory for clients was short.",
        (),
    )
    PRODUCERS_EVICTED = (
        "producers_evicted",
        "Producers forgotten because their partition, or their client, had too many.",
        (),
    )
    PRODUCERS_REFUSED = (
        "producers_refused",
        "Requests of new producers refused because none could be forgotten for them.",
        (),
    )
    CONNECTIONS_ACCEPTED = ("connections_accepted", "Client connections accepted.", ("protocol",))
    BROKERS_FENCED = ("brokers_fenced", "Brokers fenced by this node as controller.", ("cause",))

    def __init__(self, suffix: str, doc: str, labels: tuple[str, ...]) -> None:
        self.metric_name = f"paceline_{suffix}"
        self.doc = doc
        self.labels = labels


Sample = tuple[LabelValues, float]
Source = Callable[[], Iterable[Sample]]


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

    __slots__ = ("_api", "_bounds", "_by_code", "_counters", "_counts", "_duration", "_protocol")

    def __init__(self, counters: Counters, duration: Histogram, *, protocol: str, api: str) -> None:
        self._counters = counters
        self._duration = duration
        self._bounds = duration.bounds
        self._counts = duration.counts
        self._protocol = protocol
        self._api = api
        self._by_code: dict[str, Counter] = {}

    def done(self, code: str, seconds: float) -> None:
        """One request was answered with ``code``, one of a bounded set, after ``seconds``."""
        counter = self._by_code.get(code)
        if counter is None:
            counter = self._counters.of(self._protocol, self._api, code)
            self._by_code[code] = counter
        counter.value += 1
        # Histogram.observe, without the call: this runs for every request.
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._duration.total += seconds


K = TypeVar("K")


class RequestMeters(dict[K, RequestMeter]):
    """Meters of one protocol, each made when its kind of request first comes, by what tells the
    kinds apart on the wire. Clients choose that freely, so all unknown ones share a meter."""

    __slots__ = ("_make", "_names", "_unknown")

    def __init__(self, make: Callable[[str], RequestMeter], names: Mapping[K, str]) -> None:
        super().__init__()
        self._make = make
        self._names = names
        self._unknown: RequestMeter | None = None

    def __missing__(self, kind: K) -> RequestMeter:
        name = self._names.get(kind)
        if name is None:
            self._unknown = self._unknown or self._make(UNKNOWN_API)
            return self._unknown
        meter = self[kind] = self._make(name)
        return meter


class TopicTraffic:
    """Counters of one topic; whoever appends or reads its batches keeps them at hand."""

    __slots__ = ("appended_bytes", "appended_records", "fetched_bytes", "fetched_records")

    def __init__(
        self,
        *,
        appended_records: Counter,
        appended_bytes: Counter,
        fetched_records: Counter,
        fetched_bytes: Counter,
    ) -> None:
        self.appended_records = appended_records
        self.appended_bytes = appended_bytes
        self.fetched_records = fetched_records
        self.fetched_bytes = fetched_bytes

    def appended(self, records: int, size_bytes: int) -> None:
        """Batches were appended by their leader."""
        self.appended_records.value += records
        self.appended_bytes.value += size_bytes

    def fetched(self, records: int, size_bytes: int) -> None:
        """Batches were given to a consumer."""
        self.fetched_records.value += records
        self.fetched_bytes.value += size_bytes


class Traffic(NamedTuple):
    """``writes`` and ``syncs`` are counts by bucket, of which there is one more than bounds."""

    appended_records: float
    appended_bytes: float
    fetched_records: float
    fetched_bytes: float
    requests: float
    bounds_s: Sequence[float]
    writes: Sequence[int]
    syncs: Sequence[int]


class Metrics:
    """``per_partition`` False leaves out the series of single partitions, not their totals."""

    def __init__(self, *, version: str, per_partition: bool = True) -> None:
        self._version = version
        self._per_partition = per_partition
        self._sources: dict[Gauge | Total, list[Source]] = {}
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
            "paceline_fetched_bytes",
            "Bytes given to consumers: batches, or the replies of line protocols.",
            ("topic",),
        )
        self._fsync_duration = Histograms(
            "paceline_fsync_duration_seconds", "Time of one group's fdatasync."
        )
        self._fsync_logs = Histograms(
            "paceline_fsync_group_logs", "Logs that shared one fdatasync.", bounds=GROUP_BOUNDS
        )
        self._fsync_records = Histograms(
            "paceline_fsync_group_records", "Records that shared one.", bounds=GROUP_BOUNDS
        )
        self._fsync = (self._fsync_duration.of(), self._fsync_logs.of(), self._fsync_records.of())

    def requests(self, protocol: str, api: str) -> RequestMeter:
        """The meter of one kind of request; make it once, keep it."""
        duration = self._request_duration.of(protocol, api)
        return RequestMeter(self._requests, duration, protocol=protocol, api=api)

    def requests_by(self, protocol: str, names: Mapping[K, str]) -> RequestMeters[K]:
        """The meters of a protocol whose kinds of request are called ``names``."""
        return RequestMeters(lambda api: self.requests(protocol, api), names)

    def topic(self, name: str) -> TopicTraffic:
        """The counters of a topic; get them once, keep them."""
        return TopicTraffic(
            appended_records=self.records_appended.of(name),
            appended_bytes=self.appended_bytes.of(name),
            fetched_records=self.records_fetched.of(name),
            fetched_bytes=self.fetched_bytes.of(name),
        )

    def synced(self, seconds: float, logs: int, records: int) -> None:
        """A group's fdatasync of so many logs and records took ``seconds``."""
        duration, log_count, record_count = self._fsync
        duration.observe(seconds)
        log_count.observe(logs)
        record_count.observe(records)

    def traffic(self) -> Traffic:
        """What was done since the process began, of all topics and protocols together."""
        return Traffic(
            appended_records=sum(self.records_appended.values()),
            appended_bytes=sum(self.appended_bytes.values()),
            fetched_records=sum(self.records_fetched.values()),
            fetched_bytes=sum(self.fetched_bytes.values()),
            requests=sum(self._requests.values()),
            bounds_s=self._request_duration.bounds,
            writes=self._request_duration.counts(WRITES),
            syncs=list(self._fsync_duration.of().counts),
        )

    def provide(self, which: Gauge | Total, source: Source) -> None:
        """Ask ``source`` for samples at each scrape, beside other sources of the same."""
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

    def collect(self) -> Iterator[Family]:
        """All metrics of this moment."""
        yield gauge("paceline_build_info", "Version.", ("version",), [((self._version,), 1)])
        for which, sources in self._sources.items():
            samples = [sample for source in sources for sample in source()]
            kind = Kind.GAUGE if isinstance(which, Gauge) else Kind.COUNTER
            yield Family(kind, which.metric_name, which.doc, which.labels, samples)
        yield from self._of_partitions()
        for family in (
            self._requests,
            self._request_duration,
            self.isr_changes,
            self.records_appended,
            self.records_fetched,
            self.appended_bytes,
            self.fetched_bytes,
            self._fsync_duration,
            self._fsync_logs,
            self._fsync_records,
        ):
            yield family.collect()

    def _of_partitions(self) -> Iterator[Family]:
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
