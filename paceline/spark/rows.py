"""Rows of a data frame as records to be written: which columns there may be, and what is wrong with
a row. Pure but for Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa

from paceline.spark.arrow import RAW_HEADERS, name_bytes, name_of
from paceline.spark.errors import OptionError
from paceline.spark.options import SinkOptions
from paceline.types import is_internal_topic, is_valid_topic_name
from paceline.values import dataclass
from paceline.wire.records import Header, Record

_TYPES: Mapping[str, tuple[str, ...]] = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "rawHeaders": ("array<struct<key:binary,value:binary>>",),
    "timestamp": ("timestamp",),
    "timestampMs": ("bigint",),
}
_AS_BYTES: Mapping[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.binary(),
    "headers": RAW_HEADERS,
}
REASON_HEADER = "paceline.error"
ORIGIN_HEADER = "paceline.topic"
KEPT_BYTES = 64 * 1024
"""How much of an oversized key or value a dead letter keeps; larger headers it does without."""


class BadRow(Exception):
    """A row that cannot be written, and why."""


def check_columns(columns: Iterable[tuple[str, str]], options: SinkOptions) -> None:
    """Judge (name, type) pairs of the input. Raises OptionError in the words of Kafka's sink."""
    found = dict(columns)
    if "value" not in found:
        raise OptionError("paceline: Required attribute 'value' not found")
    if "topic" not in found and not options.topic:
        raise OptionError(
            "paceline: topic option required when no 'topic' attribute is present. Use the topic "
            "option for setting a topic."
        )
    for name, kind in found.items():
        expected = _TYPES.get(name)
        if expected is None:
            raise OptionError(
                f"paceline: {name} attribute is not written; drop it, or pack it into value "
                f"(known are {', '.join(_TYPES)})"
            )
        if kind not in expected:
            raise OptionError(
                f"paceline: {name} attribute unsupported type {kind}. {name} must be a(n) "
                f"{' or '.join(expected)}"
            )
    for name in ("headers", "rawHeaders"):
        if name in found and not options.include_headers:
            raise OptionError(f"paceline: a {name} attribute needs the option includeHeaders=true")


class Row(NamedTuple):
    """A record with its target; ``partition`` None is for the writer to choose."""

    topic: str | None
    partition: int | None
    record: Record


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads Arrow batches of the input. ``now_ms`` stamps records that have no time:
    ``timestampMs`` counts, where it is null or not given ``timestamp``; ``rawHeaders`` likewise
    before ``headers``."""

    options: SinkOptions
    now_ms: int

    def read(self, batch: pa.RecordBatch) -> Iterator[Row]:
        """The rows, in order."""
        count = batch.num_rows
        names = set(batch.schema.names)

        def column(name: str, default: object = None) -> Sequence[Any]:
            if name not in names:
                return [default] * count
            values = batch.column(name)
            # Text of Spark may be any bytes: what Arrow takes for UTF-8 is read as bytes.
            if as_bytes := _AS_BYTES.get(name):
                values = values.cast(as_bytes)
            read: list[Any] = values.to_pylist()
            return read

        topics: Sequence[str | None] = [self.options.topic] * count
        if not self.options.topic:
            topics = [None if each is None else name_of(each) for each in column("topic")]
        stamps = self._stamps(batch, names)
        given = column("headers")
        if "rawHeaders" in names:
            exact = column("rawHeaders")
            given = [text if raw is None else raw for raw, text in zip(exact, given, strict=True)]
        headers = [_headers(each) if each else () for each in given]
        # No Python for each row: these are most of what a task writes.
        make: Any = tuple.__new__
        fields = zip(
            repeat(-1, count), stamps, column("key"), column("value"), headers, strict=True
        )
        records = map(make, repeat(Record), fields)
        return map(make, repeat(Row), zip(topics, column("partition"), records, strict=True))

    def _stamps(self, batch: pa.RecordBatch, names: set[str]) -> list[int]:
        exact: list[int | None] = [None] * batch.num_rows
        if "timestampMs" in names:
            exact = batch.column("timestampMs").to_pylist()
        if "timestamp" in names and None in exact:
            column = batch.column("timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
            dated = (None if each is None else each // 1000 for each in column.to_pylist())
            exact = [
                date if given is None else given for given, date in zip(exact, dated, strict=True)
            ]
        return [self.now_ms if each is None else each for each in exact]


def _headers(given: Sequence[Any]) -> tuple[Header, ...]:
    return tuple((name_of(each["key"] or b""), each["value"]) for each in given if each is not None)


def check_row(row: Row, size: int, options: SinkOptions) -> str:
    """The topic of a row that may be written. Raises BadRow."""
    topic = row.topic
    if topic is None:
        raise BadRow("null topic in the data. Use the topic option for setting a topic.")
    if not _is_writable(topic):
        raise BadRow(f"{topic!r} is no topic to write to")
    if size > options.max_record_bytes:
        raise BadRow(
            f"record of {size} bytes for {topic}, at most {options.max_record_bytes} "
            "(maxRequestBytes)"
        )
    return topic


@lru_cache(maxsize=1024)
def _is_writable(topic: str) -> bool:
    return is_valid_topic_name(topic) and not is_internal_topic(topic)


def dead_letter(row: Row, reason: str) -> Record:
    """What is left of a bad row: its key and value, shortened where they are too long, and why."""
    record = row.record
    key, value = record.key, record.value
    size = sum(len(name) + len(text or b"") for name, text in record.headers)
    headers = (
        *(record.headers if size <= KEPT_BYTES else ()),
        (REASON_HEADER, reason.encode()),
        (ORIGIN_HEADER, name_bytes(row.topic or "")),
    )
    return Record(
        -1,
        record.timestamp_ms,
        None if key is None else key[:KEPT_BYTES],
        None if value is None else value[:KEPT_BYTES],
        headers,
    )
