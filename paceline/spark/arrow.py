"""Arrow batches from decoded records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from paceline.types import TopicPartition
from paceline.wire.batch_header import BatchHeader, TimestampType
from paceline.wire.records import Header, Record

HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
_FIELDS = {
    "key": pa.field("key", pa.binary()),
    "value": pa.field("value", pa.binary()),
    "topic": pa.field("topic", pa.string(), nullable=False),
    "partition": pa.field("partition", pa.int32(), nullable=False),
    "offset": pa.field("offset", pa.int64(), nullable=False),
    "timestamp": pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    "timestampType": pa.field("timestampType", pa.int32()),
    "headers": pa.field("headers", HEADERS),
    "leaderEpoch": pa.field("leaderEpoch", pa.int32()),
}


def schema(columns: Sequence[str]) -> pa.Schema:
    """The exact schema that Spark expects of each batch."""
    return pa.schema([_FIELDS[name] for name in columns])


class RecordColumns:
    """Collects the records of one partition and cuts them into Arrow batches.

    A batch closes at ``rows`` records or ``size_bytes`` bytes of keys and values, whichever comes
    first, between stored batches: those are at most 1 MiB, or one larger record.
    """

    def __init__(
        self, at: TopicPartition, columns: Sequence[str], *, rows: int, size_bytes: int
    ) -> None:
        self._at = at
        self._columns = tuple(columns)
        self._schema = schema(columns)
        self._rows = rows
        self._size_bytes = size_bytes
        self._records: list[Record] = []
        self._size = 0
        self._types: list[int] = []
        self._epochs: list[int] = []

    def add(self, header: BatchHeader, records: list[Record]) -> Iterator[pa.RecordBatch]:
        """Take in a stored batch; yields what is full."""
        self._records += records
        count = len(records)
        kind = header.timestamp_type
        if "timestampType" in self._columns:
            self._types += [
                -1 if kind is TimestampType.CREATE and each.timestamp_ms < 0 else int(kind)
                for each in records
            ]
        if "leaderEpoch" in self._columns:
            self._epochs += [header.leader_epoch] * count
        self._size += header.size_bytes
        while len(self._records) >= self._rows:
            yield self._cut(self._rows)
        if self._size >= self._size_bytes and self._records:
            yield self._cut(len(self._records))

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is left; nothing when nothing is."""
        if self._records:
            yield self._cut(len(self._records))

    def _cut(self, count: int) -> pa.RecordBatch:
        chunk, self._records = self._records[:count], self._records[count:]
        types, self._types = self._types[:count], self._types[count:]
        epochs, self._epochs = self._epochs[:count], self._epochs[count:]
        self._size -= self._size * count // (count + len(self._records))
        offsets, stamps, keys, values, headers = zip(*chunk, strict=True)
        made: dict[str, Callable[[], pa.Array]] = {
            "key": lambda: pa.array(keys, pa.binary()),
            "value": lambda: pa.array(values, pa.binary()),
            "topic": lambda: pa.repeat(pa.scalar(self._at.topic, pa.string()), count),
            "partition": lambda: pa.repeat(pa.scalar(self._at.partition, pa.int32()), count),
            "offset": lambda: pa.array(offsets, pa.int64()),
            "timestamp": lambda: _timestamps(stamps),
            "timestampType": lambda: pa.array(types, pa.int32()),
            "headers": lambda: _headers(headers),
            "leaderEpoch": lambda: pa.array(epochs, pa.int32()),
        }
        return pa.record_batch([made[name]() for name in self._columns], schema=self._schema)


def _timestamps(stamps: Sequence[int]) -> pa.Array:
    micros = [None if each < 0 else each * 1000 for each in stamps]
    return pa.array(micros, pa.int64()).cast(pa.timestamp("us", tz="UTC"))


def _headers(columns: Sequence[tuple[Header, ...]]) -> pa.Array:
    """Null where a record has none, as Spark's Kafka source shows it."""
    if not any(columns):
        return pa.nulls(len(columns), HEADERS)
    rows = [
        [{"key": _name(name), "value": value} for name, value in headers] if headers else None
        for headers in columns
    ]
    return pa.array(rows, HEADERS)


def _name(name: str) -> str:
    """Names are text here; bytes of one that is not UTF-8 become U+FFFD."""
    return (
        name
        if name.isascii()
        else name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    )
