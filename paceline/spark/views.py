"""Views over replicas: stored batches and offsets, as Arrow (DESIGN 5).

A row of ``batches`` is a stored batch as it lies on one node, checked here and not there. What
cannot be read is a row too: ``status`` says why, the rest is null, so that an audit sees it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from paceline.client import blocking
from paceline.errors import CorruptMessage, PacelineError
from paceline.types import Compression, NodeId, TopicPartition
from paceline.values import dataclass
from paceline.wire.batch_header import (
    CRC_START,
    DELETE_HORIZON,
    EXTENDED,
    BatchHeader,
    batch_crc,
    iter_batches,
)
from paceline.wire.records import decode_records

OK = "ok"
_PLACE = [
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("replica", pa.int32(), nullable=False),
]
BATCHES = pa.schema(
    [
        *_PLACE,
        pa.field("baseOffset", pa.int64()),
        pa.field("lastOffset", pa.int64()),
        pa.field("leaderEpoch", pa.int32()),
        pa.field("recordCount", pa.int32()),
        pa.field("sizeBytes", pa.int64()),
        pa.field("storedCrc", pa.int64()),
        pa.field("computedCrc", pa.int64()),
        pa.field("contentHash", pa.binary()),
        pa.field("codec", pa.string()),
        pa.field("producerId", pa.int64()),
        pa.field("producerEpoch", pa.int32()),
        pa.field("baseSequence", pa.int32()),
        pa.field("isTransactional", pa.bool_()),
        pa.field("isControl", pa.bool_()),
        pa.field("isThinned", pa.bool_()),
        pa.field("minTimestamp", pa.int64()),
        pa.field("maxTimestamp", pa.int64()),
        pa.field("status", pa.string()),
    ]
)
OFFSETS = pa.schema(
    [
        *_PLACE,
        pa.field("isLeader", pa.bool_()),
        pa.field("inSync", pa.bool_()),
        pa.field("logStart", pa.int64()),
        pa.field("highWatermark", pa.int64()),
        pa.field("lastStable", pa.int64()),
        pa.field("logEnd", pa.int64()),
        pa.field("leaderEpoch", pa.int32()),
        pa.field("sizeBytes", pa.int64()),
        pa.field("status", pa.string()),
    ]
)
ROWS = 5000
"""Rows of one Arrow batch."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReplicaRange:
    """What one task of the view ``batches`` reads: a partition's copy on one node."""

    topic: str
    partition: int
    replica: int
    start: int
    end: int

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def content_hash(header: BatchHeader, data: memoryview) -> bytes:
    """What replication promises to keep equal: everything of a batch but nothing that a leader
    stamps after the CRC was made; base offset and leader epoch are stamped once, so they count."""
    digest = hashlib.blake2b(data[:CRC_START], digest_size=16)
    digest.update(data[CRC_START : header.size_bytes])
    return digest.digest()


def read_replica(
    client: blocking.Client, wanted: ReplicaRange, *, fetch_bytes: int, deep: bool
) -> Iterator[Row]:
    """The stored batches of one replica. The first thing that cannot be read ends it with a row
    whose ``status`` says what."""
    offset = wanted.start
    while offset < wanted.end:
        try:
            _, data = client.admin.read_replica(
                NodeId(wanted.replica), wanted.at, offset, fetch_bytes
            )
        except PacelineError as error:
            yield _failure(wanted, offset, f"error: {error}")
            return
        if not data:
            yield _failure(wanted, offset, "error: nothing stored where a committed record must be")
            return
        try:
            for position, header in iter_batches(data):
                yield _row(wanted, header, data[position : position + header.size_bytes], deep=deep)
                offset = header.next_offset
        except CorruptMessage as error:
            yield _failure(wanted, offset, f"error: {error}")
            return


def _failure(wanted: ReplicaRange, offset: int, why: str) -> Row:
    return {**_place(wanted), "baseOffset": offset, "status": why}


def _place(wanted: ReplicaRange) -> Row:
    return {"topic": wanted.topic, "partition": wanted.partition, "replica": wanted.replica}


def _row(wanted: ReplicaRange, header: BatchHeader, data: memoryview, *, deep: bool) -> Row:
    return {
        **_place(wanted),
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "leaderEpoch": header.leader_epoch,
        "recordCount": header.record_count,
        "sizeBytes": header.size_bytes,
        "storedCrc": header.crc,
        "computedCrc": batch_crc(data, 0, header.size_bytes),
        "contentHash": content_hash(header, data),
        "codec": _codec(header),
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "baseSequence": header.base_sequence,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "isThinned": _is_thinned(header),
        "minTimestamp": header.base_timestamp,
        "maxTimestamp": header.max_timestamp,
        "status": _look_inside(header, data) if deep else OK,
    }


def _is_thinned(header: BatchHeader) -> bool:
    """Whether the cleaner of a compacted topic has rewritten the batch: each replica has its own,
    which comes when it comes."""
    holds_all = header.record_count == header.next_offset - header.base_offset
    return not holds_all or bool(header.attributes & DELETE_HORIZON)


def _codec(header: BatchHeader) -> str:
    try:
        return Compression(header.compression).name.lower()
    except ValueError:
        return f"codec {header.compression}"


def _look_inside(header: BatchHeader, data: memoryview) -> str:
    """Whether the records fit their header (audit A8)."""
    try:
        records = decode_records(data)
    except PacelineError as error:
        return f"malformed: {error}"
    if not header.attributes & EXTENDED and len(records) != header.record_count:
        return f"malformed: {len(records)} records, the header says {header.record_count}"
    return OK


def to_arrow(rows: Iterator[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows in Arrow batches; missing columns are null."""
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == ROWS:
            yield _batch(chunk, schema)
            chunk = []
    yield _batch(chunk, schema)


def _batch(chunk: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array([row.get(field.name) for row in chunk], field.type) for field in schema]
    return pa.record_batch(columns, schema=schema)
