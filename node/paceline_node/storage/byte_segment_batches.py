"""Building the batches of a segment's log (their fields: ``byte_segment_state.py``)."""

from __future__ import annotations

from typing import NamedTuple

from paceline.wire.batch import (
    BatchExtension,
    PayloadKind,
    ProducerNamespace,
    build_raw_batch,
)
from paceline.wire.batch_header import Buffer
from paceline_node.storage.byte_segment_state import NO_WRITER, SegmentMarks

NO_EPOCH = -1


class Run(NamedTuple):
    """What one writer appends at once: whole Events, in order, or raw bytes, which count as one.
    Its level goes from ``start`` to ``end``."""

    namespace: ProducerNamespace
    writer: bytes
    start: int
    end: int
    event_count: int
    payload: Buffer
    kind: PayloadKind = PayloadKind.EVENTS


def run_batch(run: Run, marks: SegmentMarks, timestamp_ms: int) -> bytearray:
    """A run as one batch, to be appended behind ``marks``."""
    return build_raw_batch(
        run.payload,
        record_count=run.event_count,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        extension=BatchExtension(
            kind=run.kind,
            namespace=run.namespace,
            producer_key=run.writer,
            producer_epoch=NO_EPOCH,
            first_sequence=run.start,
            last_sequence=run.end,
            base_position=marks.end_position,
            event_count=run.event_count,
        ),
    )


def seal_batch(marks: SegmentMarks, timestamp_ms: int) -> bytearray:
    """The record that ends a segment."""
    return _mark(PayloadKind.SEAL, -1, marks, timestamp_ms)


def truncate_batch(start: int, marks: SegmentMarks, timestamp_ms: int) -> bytearray:
    """The record that moves a segment's start to byte ``start``."""
    return _mark(PayloadKind.TRUNCATE, start, marks, timestamp_ms)


def expire_batch(
    cutoff_ms: int, marks: SegmentMarks, timestamp_ms: int, key: bytes = NO_WRITER
) -> bytearray:
    """The record that forgets writers whose last batch is older than ``cutoff_ms``; ``key`` names
    a slice of them (``state_map.expiry_key``)."""
    return _mark(PayloadKind.EXPIRE, cutoff_ms, marks, timestamp_ms, key)


def _mark(
    kind: PayloadKind,
    value: int,
    marks: SegmentMarks,
    timestamp_ms: int,
    key: bytes = NO_WRITER,
) -> bytearray:
    """An empty batch that takes one offset."""
    return build_raw_batch(
        b"",
        record_count=0,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        extension=BatchExtension(
            kind=kind,
            namespace=ProducerNamespace.SEGMENT_SEED,
            producer_key=key,
            producer_epoch=NO_EPOCH,
            first_sequence=value,
            last_sequence=value,
            base_position=marks.end_position,
            event_count=1,
        ),
    )
