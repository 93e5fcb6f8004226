"""Arrow batches from decoded records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from paceline.types import TopicPartition
from paceline.wire.batch_header import BatchHeader, TimestampType
from paceline.wire.records import Header, Record


def _headers_type(name: pa.DataType) -> pa.DataType:
    header = pa.struct([pa.field("key", name), pa.field("value", pa.binary())])
    return pa.list_(pa.field("element", header))


HEADERS = _headers_type(pa.string())
RAW_HEADERS = _headers_type(pa.binary())
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
    "timestampMs": pa.field("timestampMs", pa.int64()),
    "rawHeaders": pa.field("rawHeaders", RAW_HEADERS),
}
NO_TIMESTAMP = -1
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""Years 1 to 9999, which Spark's and Python's calendars share. A record may have any time: what has
no date is null in ``timestamp``, and itself in ``timestampMs``."""


def schema(columns: Sequence[str]) -> pa.Schema:
    """The exact schema that Spark expects of each batch."""
    return pa.schema([_FIELDS[name] for name in columns])


class RecordColumns:
    """Collects the records of one partition and cuts them into Arrow batches.

    A batch closes at ``rows`` records or ``size_bytes`` bytes, whichever comes first: between
    stored batches, which are at most 1 MiB, or one larger record, or inside of compressed ones.
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
        self._kinds: list[TimestampType] = []
        self._epochs: list[int] = []

    def add(self, header: BatchHeader, records: list[Record]) -> Iterator[pa.RecordBatch]:
        """Take in a stored batch; yields what is full."""
        if not header.compression:
            yield from self._add(header, records, header.size_bytes)
            return
        # What it has on disk says nothing of what it holds.
        first, size = 0, 0
        for end, record in enumerate(records, 1):
            size += _record_bytes(record)
            if self._size + size >= self._size_bytes:
                yield from self._add(header, records[first:end], size)
                first, size = end, 0
        yield from self._add(header, records[first:], size)

    def _add(
        self, header: BatchHeader, records: list[Record], size: int
    ) -> Iterator[pa.RecordBatch]:
        self._records += records
        count = len(records)
        if "timestampType" in self._columns:
            self._kinds += [header.timestamp_type] * count
        if "leaderEpoch" in self._columns:
            self._epochs += [header.leader_epoch] * count
        self._size += size
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
        kinds, self._kinds = self._kinds[:count], self._kinds[count:]
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
            "timestampType": lambda: _types(kinds, stamps),
            "headers": lambda: _headers(headers),
            "leaderEpoch": lambda: pa.array(epochs, pa.int32()),
            "timestampMs": lambda: pa.array(stamps, pa.int64()),
            "rawHeaders": lambda: _raw_headers(headers),
        }
        return pa.record_batch([made[name]() for name in self._columns], schema=self._schema)


def _record_bytes(record: Record) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")
    return size


def _types(kinds: Sequence[TimestampType], stamps: Sequence[int]) -> pa.Array:
    """-1 where a record has no time of its own, and got none."""
    if NO_TIMESTAMP not in stamps and kinds.count(kinds[0]) == len(kinds):
        return pa.repeat(pa.scalar(int(kinds[0]), pa.int32()), len(kinds))
    types = [
        -1 if kind is TimestampType.CREATE and stamp == NO_TIMESTAMP else int(kind)
        for kind, stamp in zip(kinds, stamps, strict=True)
    ]
    return pa.array(types, pa.int32())


def _timestamps(stamps: Sequence[int]) -> pa.Array:
    if stamps.count(stamps[0]) == len(stamps):  # as a producer stamps a whole batch
        return pa.repeat(_timestamps_of(stamps[:1])[0], len(stamps))
    return _timestamps_of(stamps)


def _timestamps_of(stamps: Sequence[int]) -> pa.Array:
    micros = [
        each * 1000 if FIRST_MS <= each <= LAST_MS and each != NO_TIMESTAMP else None
        for each in stamps
    ]
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
    return name if name.isascii() else name_bytes(name).decode("utf-8", "replace")


def _raw_headers(columns: Sequence[tuple[Header, ...]]) -> pa.Array:
    """Null where ``headers`` has all there is: every name is UTF-8."""
    rows = [
        [{"key": name_bytes(name), "value": value} for name, value in headers]
        if any(not _is_text(name) for name, _ in headers)
        else None
        for headers in columns
    ]
    return pa.array(rows, RAW_HEADERS)


def name_bytes(name: str) -> bytes:
    """A header's name as it is stored."""
    return name.encode("utf-8", "surrogateescape")


def name_of(stored: bytes) -> str:
    """The opposite of :func:`name_bytes`."""
    return stored.decode("utf-8", "surrogateescape")


def _is_text(name: str) -> bool:
    return name.isascii() or not any("\udc80" <= each <= "\udcff" for each in name)
