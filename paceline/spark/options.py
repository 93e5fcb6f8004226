"""Options of the source and the sink: names, defaults, and what is refused. Pure.

Names are those of Spark's Kafka source where it has one; ``kafka.X`` stands for ``paceline.X``.
Spark hands them over in lower case, as text.
"""

from __future__ import annotations

import difflib
import enum
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from paceline.spark import values
from paceline.spark.errors import OptionError
from paceline.types import Compression, Isolation, TopicPartition

SPARKS_OWN = frozenset({"path", "checkpointlocation", "queryname"})
ARROW_COLUMNS = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
    "leaderEpoch",
    "timestampMs",
    "rawHeaders",
)

_INSTEAD = {
    "group.id": "groupId publishes progress; the source joins no group",
    "auto.offset.reset": "startingOffsets",
    "key.deserializer": "cast the binary column, or paceline.spark.decode",
    "value.deserializer": "cast the binary column, or paceline.spark.decode",
    "enable.auto.commit": "Spark's checkpoint keeps the offsets; groupId publishes them",
    "interceptor.classes": "a transformation of the data frame",
}
"""Settings of Kafka that would do harm -> what to use."""


class Use(enum.Flag):
    """Where an option makes sense."""

    BATCH = enum.auto()
    STREAM = enum.auto()
    WRITE = enum.auto()
    READ = BATCH | STREAM
    ALL = BATCH | STREAM | WRITE


class BoundKind(enum.Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIME = "timestamp"
    TIMES = "timestamps"


@dataclass(frozen=True)
class Bound:
    """One end of what is read. ``places``: offsets or timestamps (ms) by partition."""

    kind: BoundKind
    places: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp_ms: int = -1

    @property
    def is_explicit(self) -> bool:
        """Whether it is the same whenever it is asked."""
        return self.kind is BoundKind.OFFSETS and all(n >= 0 for n in self.places.values())


EARLIEST, LATEST = Bound(BoundKind.EARLIEST), Bound(BoundKind.LATEST)


class View(enum.Enum):
    """What a row is."""

    RECORDS = "records"
    BATCHES = "batches"
    OFFSETS = "offsets"


@dataclass(frozen=True)
class Topics:
    """What is read: exactly one of the three."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True)
class Link:
    """How to reach the cluster, in every process of the query."""

    bootstrap: tuple[str, ...]
    client_id: str = "spark-paceline"


@dataclass(frozen=True)
class SourceOptions:
    """All that a reader needs to know; see the table in README.md."""

    link: Link
    topics: Topics
    start: Bound
    end: Bound
    late_start: bool
    between: tuple[Mapping[str, Any], Mapping[str, Any]] | None
    fail_on_data_loss: bool
    topic_ids: Mapping[str, str]
    max_offsets: int | None
    min_offsets: int | None
    max_trigger_delay_ms: int
    max_bytes: int | None
    min_partitions: int | None
    max_records_per_partition: int | None
    columns: tuple[str, ...]
    isolation: Isolation
    poll_timeout_ms: int
    fetch_retries: int
    fetch_retry_ms: int
    partition_fetch_bytes: int
    batch_rows: int
    batch_bytes: int
    group: str
    wait_for_topics: bool
    view: View
    replicas: str
    deep: bool


class Guarantee(enum.Enum):
    EXACTLY_ONCE = "exactly_once"
    IDEMPOTENT = "idempotent"
    AT_LEAST_ONCE = "at_least_once"


class Forgotten(enum.Enum):
    """What to do with a batch of which nobody knows whether it was committed."""

    FAIL = "fail"
    WRITE = "write"
    SKIP = "skip"


@dataclass(frozen=True)
class SinkOptions:
    """All that a writer needs to know."""

    link: Link
    topic: str
    include_headers: bool
    guarantee: Guarantee
    transaction_timeout_ms: int
    compression: Compression
    batch_bytes: int
    app_id: str
    version: int
    planned_ms: int
    dead_letter_topic: str
    max_record_bytes: int
    forgotten: Forgotten


@dataclass(frozen=True)
class _Option:
    name: str
    use: Use
    read: values.Reader
    default: Any = None


def _text(_name: str, text: str) -> str:
    return text


def _bound(name: str, text: str) -> Bound:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    return Bound(BoundKind.OFFSETS, values.offsets(name, text))


def _time(name: str, text: str) -> Bound:
    return Bound(BoundKind.TIME, timestamp_ms=values.number(name, text, least=0))


def _times(name: str, text: str) -> Bound:
    return Bound(BoundKind.TIMES, values.offsets(name, text, least=0))


def _columns(name: str, text: str) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for column in chosen:
        if column not in ARROW_COLUMNS:
            raise OptionError(f"paceline: {name}: {column!r} is none of {', '.join(ARROW_COLUMNS)}")
    return chosen


_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""What comes first counts."""
_WHOLE: Callable[[str, str], int] = values.number
_COUNT: Callable[[str, str], int] = partial(values.number, least=0)
_STRATEGY = {"error": False, "latest": True}
_ISOLATION = {
    "read_committed": Isolation.READ_COMMITTED,
    "read_uncommitted": Isolation.READ_UNCOMMITTED,
}

_TABLE = (
    _Option("paceline.bootstrap.servers", Use.ALL, _text),
    _Option("groupIdPrefix", Use.ALL, _text, "spark-paceline"),
    _Option("subscribe", Use.READ, values.topic_list),
    _Option("subscribePattern", Use.READ, values.pattern),
    _Option("assign", Use.READ, values.assignment),
    _Option("startingOffsets", Use.READ, _bound),
    _Option("startingTimestamp", Use.READ, _time),
    _Option("startingOffsetsByTimestamp", Use.READ, _times),
    _Option(
        "startingOffsetsByTimestampStrategy",
        Use.READ,
        partial(values.one_of, choices=_STRATEGY),
        False,
    ),
    _Option("endingOffsets", Use.BATCH, _bound),
    _Option("endingTimestamp", Use.BATCH, _time),
    _Option("endingOffsetsByTimestamp", Use.BATCH, _times),
    _Option("between", Use.BATCH, values.two_offsets),
    _Option("failOnDataLoss", Use.READ, values.boolean, True),
    _Option("topicIds", Use.STREAM, values.topic_ids, MappingProxyType({})),
    _Option("maxOffsetsPerTrigger", Use.STREAM, _WHOLE),
    _Option("minOffsetsPerTrigger", Use.STREAM, _WHOLE),
    _Option("maxTriggerDelay", Use.STREAM, values.duration_ms, 15 * 60_000),
    _Option("maxBytesPerTrigger", Use.STREAM, values.size),
    _Option("minPartitions", Use.READ, _WHOLE),
    _Option("maxRecordsPerPartition", Use.READ, _WHOLE),
    _Option("includeHeaders", Use.ALL, values.boolean, False),
    _Option("columns", Use.READ, _columns),
    _Option(
        "isolationLevel",
        Use.READ,
        partial(values.one_of, choices=_ISOLATION),
        Isolation.READ_COMMITTED,
    ),
    _Option("consumer.pollTimeoutMs", Use.READ, _WHOLE, 120_000),
    _Option("fetchOffset.numRetries", Use.READ, _COUNT, 10),
    _Option("fetchOffset.retryIntervalMs", Use.READ, _COUNT, 1000),
    _Option("maxPartitionFetchBytes", Use.READ, values.size, 4 << 20),
    _Option("arrow.batchRows", Use.READ, _WHOLE, 10_000),
    _Option("arrow.batchBytes", Use.READ, values.size, 8 << 20),
    _Option("groupId", Use.STREAM, _text, ""),
    _Option("waitForTopics", Use.STREAM, values.boolean, False),
    _Option(
        "view",
        Use.BATCH,
        partial(values.one_of, choices={view.value: view for view in View}),
        View.RECORDS,
    ),
    _Option("replicas", Use.BATCH, _text, "all"),
    _Option("deep", Use.BATCH, values.boolean, False),
    _Option("topic", Use.WRITE, _text, ""),
    _Option(
        "deliveryGuarantee",
        Use.WRITE,
        partial(values.one_of, choices={each.value: each for each in Guarantee}),
        Guarantee.EXACTLY_ONCE,
    ),
    _Option("transactionTimeoutMs", Use.WRITE, _WHOLE, 900_000),
    _Option(
        "compression",
        Use.WRITE,
        partial(values.one_of, choices={each.name.lower(): each for each in Compression}),
        Compression.NONE,
    ),
    _Option("batchBytes", Use.WRITE, values.size, 1 << 20),
    _Option("maxRequestBytes", Use.WRITE, values.size, 16 << 20),
    _Option("txnAppId", Use.WRITE, _text, ""),
    _Option("txnVersion", Use.WRITE, _COUNT, -1),
    _Option("txnPlannedMs", Use.WRITE, _COUNT, -1),
    _Option(
        "onForgottenSink",
        Use.WRITE,
        partial(values.one_of, choices={each.value: each for each in Forgotten}),
        Forgotten.FAIL,
    ),
    _Option(
        "onBadRow",
        Use.WRITE,
        partial(values.one_of, choices={"fail": False, "dead_letter": True}),
        False,
    ),
    _Option("deadLetterTopic", Use.WRITE, _text, ""),
)
_BY_NAME = {option.name.lower(): option for option in _TABLE}
_ALIASES = {
    "kafka.bootstrap.servers": "paceline.bootstrap.servers",
    "kafkaconsumer.polltimeoutms": "consumer.polltimeoutms",
}


class Chosen:
    """The options of one query: read, defaulted, and checked for their use."""

    def __init__(self, given: Mapping[str, str], use: Use) -> None:
        """Raises OptionError; warns of settings of Kafka that mean nothing here."""
        self.use = use
        self._values: dict[str, Any] = {}
        for key, text in given.items():
            lowered = key.lower()
            if lowered not in SPARKS_OWN:
                self._take(lowered, str(text))

    def _take(self, key: str, text: str) -> None:
        if key.removeprefix("kafka.") in _INSTEAD:
            name = key.removeprefix("kafka.")
            raise OptionError(f"paceline: option {key} is not supported; use {_INSTEAD[name]}")
        option = _BY_NAME.get(_ALIASES.get(key, key))
        if option is None:
            if key.startswith("kafka."):
                warnings.warn(f"paceline: option {key} means nothing here, ignored", stacklevel=2)
                return
            raise OptionError(f"paceline: unknown option {key}{_closest(key)}")
        if not option.use & self.use:
            raise OptionError(f"paceline: option {option.name} {_misplaced(option.use)}")
        self._values[option.name] = option.read(option.name, text)

    def __getitem__(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        return _BY_NAME[name.lower()].default

    def has(self, *names: str) -> list[str]:
        """Those of ``names`` that were given."""
        return [name for name in names if name in self._values]

    def link(self) -> Link:
        """The cluster."""
        servers = self["paceline.bootstrap.servers"] or ""
        addresses = tuple(part.strip() for part in servers.split(",") if part.strip())
        if not addresses:
            raise OptionError(
                "paceline: option paceline.bootstrap.servers is required, for example "
                "127.0.0.1:7400"
            )
        return Link(addresses, self["groupIdPrefix"])


def _closest(key: str) -> str:
    found = difflib.get_close_matches(key, list(_BY_NAME), n=1, cutoff=0.4)
    return f"; did you mean {_BY_NAME[found[0]].name}?" if found else ""


def _misplaced(use: Use) -> str:
    if use == Use.WRITE:
        return "is for writing"
    if use == Use.STREAM:
        return "is for streaming queries (readStream)"
    return "is for batch queries (read)" if use == Use.BATCH else "is for reading"


def parse_source(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """The options of a reader. Raises OptionError."""
    chosen = Chosen(given, Use.STREAM if streaming else Use.BATCH)
    if chosen["minOffsetsPerTrigger"] and chosen["maxOffsetsPerTrigger"]:
        least, most = chosen["minOffsetsPerTrigger"], chosen["maxOffsetsPerTrigger"]
        if least > most:
            raise OptionError(
                f"paceline: minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}"
            )
    start = _start(chosen, LATEST if streaming else EARLIEST)
    if not streaming and start == LATEST:
        raise OptionError("paceline: startingOffsets=latest makes no sense for a batch query")
    return SourceOptions(
        link=chosen.link(),
        topics=_topics(chosen),
        start=start,
        end=_end(chosen),
        late_start=chosen["startingOffsetsByTimestampStrategy"],
        between=_between(chosen),
        fail_on_data_loss=chosen["failOnDataLoss"],
        topic_ids=chosen["topicIds"],
        max_offsets=chosen["maxOffsetsPerTrigger"],
        min_offsets=chosen["minOffsetsPerTrigger"],
        max_trigger_delay_ms=chosen["maxTriggerDelay"],
        max_bytes=chosen["maxBytesPerTrigger"],
        min_partitions=chosen["minPartitions"],
        max_records_per_partition=chosen["maxRecordsPerPartition"],
        columns=columns_of(chosen["columns"], chosen["includeHeaders"]),
        isolation=chosen["isolationLevel"],
        poll_timeout_ms=chosen["consumer.pollTimeoutMs"],
        fetch_retries=chosen["fetchOffset.numRetries"],
        fetch_retry_ms=chosen["fetchOffset.retryIntervalMs"],
        partition_fetch_bytes=chosen["maxPartitionFetchBytes"],
        batch_rows=chosen["arrow.batchRows"],
        batch_bytes=chosen["arrow.batchBytes"],
        group=chosen["groupId"],
        wait_for_topics=chosen["waitForTopics"],
        view=chosen["view"],
        replicas=chosen["replicas"],
        deep=chosen["deep"],
    )


def columns_of(chosen: tuple[str, ...] | None, include_headers: bool) -> tuple[str, ...]:
    """The columns of the records view."""
    if chosen is not None:
        return chosen
    return ARROW_COLUMNS[: 8 if include_headers else 7]


def _topics(chosen: Chosen) -> Topics:
    given = chosen.has("subscribe", "subscribePattern", "assign")
    if len(given) != 1:
        said = ", ".join(given) or "none"
        raise OptionError(
            f"paceline: exactly one of subscribe, subscribePattern, assign is needed, got {said}"
        )
    return Topics(
        chosen["subscribe"] or (), chosen["subscribePattern"] or "", chosen["assign"] or ()
    )


def _start(chosen: Chosen, default: Bound) -> Bound:
    for name in _STARTS:
        if (found := chosen[name]) is not None:
            bound: Bound = found
            return bound
    return default


def _end(chosen: Chosen) -> Bound:
    for name in _ENDS:
        if (found := chosen[name]) is not None:
            bound: Bound = found
            if bound == EARLIEST or -2 in bound.places.values():
                raise OptionError(f"paceline: {name}: an end of earliest (-2) makes no sense")
            return bound
    return LATEST


def _between(chosen: Chosen) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    found: tuple[Mapping[str, Any], Mapping[str, Any]] | None = chosen["between"]
    if found is not None and (other := chosen.has(*_STARTS, *_ENDS, "view")):
        raise OptionError(f"paceline: between says what is read; {other[0]} has no place beside it")
    return found


def of_batch(given: Mapping[str, str]) -> dict[str, str]:
    """Those of a stream's options that a batch query has too, but for where it starts and ends."""
    bounds = {name.lower() for name in (*_STARTS, *_ENDS)}

    def is_shared(key: str) -> bool:
        option = _BY_NAME.get(_ALIASES.get(key, key))
        return option is None or (Use.BATCH in option.use and key not in bounds)

    return {name: text for name, text in given.items() if is_shared(name.lower())}


def parse_sink(given: Mapping[str, str]) -> SinkOptions:
    """The options of a writer. Raises OptionError."""
    chosen = Chosen(given, Use.WRITE)
    if bool(chosen["txnAppId"]) != bool(chosen.has("txnVersion")):
        raise OptionError("paceline: txnAppId and txnVersion go together")
    if chosen.has("txnPlannedMs") and not chosen["txnAppId"]:
        raise OptionError(
            "paceline: txnPlannedMs says when the write that txnAppId names was planned"
        )
    if chosen["onBadRow"] and not chosen["deadLetterTopic"]:
        raise OptionError("paceline: onBadRow=dead_letter needs deadLetterTopic")
    return SinkOptions(
        link=chosen.link(),
        topic=chosen["topic"],
        include_headers=chosen["includeHeaders"],
        guarantee=chosen["deliveryGuarantee"],
        transaction_timeout_ms=chosen["transactionTimeoutMs"],
        compression=chosen["compression"],
        batch_bytes=min(max(chosen["batchBytes"], 1024), 1 << 20),
        app_id=chosen["txnAppId"],
        version=chosen["txnVersion"],
        planned_ms=chosen["txnPlannedMs"],
        dead_letter_topic=chosen["deadLetterTopic"] if chosen["onBadRow"] else "",
        max_record_bytes=min(chosen["maxRequestBytes"], 16 << 20),
        forgotten=chosen["onForgottenSink"],
    )
