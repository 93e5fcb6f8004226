"""End markers: the control batches that say how a producer's transaction ended in a partition.

One record in a batch with attributes 0x30 (transactional, control), the producer's id and epoch,
base sequence -1. It takes one offset. Big-endian (Kafka's layout)::

    key    i16 version 0 | i16 type: 0 abort, 1 commit
    value  i16 version 0 | i32 coordinator epoch

The coordinator epoch is the leader epoch of ``__transactions`` in which the marker was decided to
be written; a partition refuses one older than it has seen.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from paceline.errors import CorruptMessage
from paceline.wire.batch import build_batch
from paceline.wire.batch_header import CONTROL, TRANSACTIONAL, BatchHeader, Buffer
from paceline.wire.records import Record, decode_records

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0
_ABORT, _COMMIT = 0, 1
_FLAGS = CONTROL | TRANSACTIONAL


class EndMarker(NamedTuple):
    commits: bool
    coordinator_epoch: int


def is_end_marker(header: BatchHeader) -> bool:
    """Whether a stored batch ends a transaction, going by its header."""
    return header.attributes & _FLAGS == _FLAGS and header.producer_id >= 0


def build_end_marker(
    marker: EndMarker, *, producer_id: int, producer_epoch: int, timestamp_ms: int
) -> bytearray:
    """The batch, for a leader to append."""
    return build_batch(
        [_record(marker, timestamp_ms)],
        flags=_FLAGS,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def build_passing_marker(placeholder: BatchHeader) -> bytearray:
    """What a Kafka client is sent in the place of an empty batch where nothing else is sent: a
    commit marker of no producer at the batch's last offset, which it passes over without a word.

    librdkafka takes an answer without a record for one that was too small. aiokafka fails at a
    control batch without a record, hence it has one.
    """
    return build_batch(
        [_record(EndMarker(commits=True, coordinator_epoch=0), placeholder.max_timestamp)],
        base_offset=placeholder.last_offset,
        leader_epoch=placeholder.leader_epoch,
        flags=CONTROL,
    )


def _record(marker: EndMarker, timestamp_ms: int) -> Record:
    return Record(
        -1,
        timestamp_ms,
        _KEY.pack(_VERSION, _COMMIT if marker.commits else _ABORT),
        _VALUE.pack(_VERSION, marker.coordinator_epoch),
    )


def read_end_marker(buffer: Buffer, position: int = 0) -> EndMarker:
    """What the marker at ``position`` says. Raises CorruptMessage."""
    records = decode_records(buffer, position)
    key = records[0].key if len(records) == 1 else None
    value = records[0].value if len(records) == 1 else None
    if key is None or value is None or len(key) != _KEY.size or len(value) < _VALUE.size:
        raise CorruptMessage("an end marker without its key and value")
    version, kind = _KEY.unpack(key)
    if version != _VERSION or kind not in (_ABORT, _COMMIT):
        raise CorruptMessage(f"an end marker of version {version}, type {kind}")
    return EndMarker(kind == _COMMIT, _VALUE.unpack_from(value)[1])
