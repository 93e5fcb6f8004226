"""Batches of records whose producers number them.

Pure. A batch with a producer holds records of one producer and epoch whose numbers are in a row, as
its extension says one range; records without a number lie in plain batches. Both stay
below 1 MiB unless one record alone is larger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import add
from typing import NamedTuple

from paceline.errors import MessageTooLarge
from paceline.types import MAX_BATCH_BYTES, MAX_RECORD_BYTES
from paceline.wire.batch import (
    BatchExtension,
    BatchHeader,
    PayloadKind,
    ProducerNamespace,
    build_raw_batch,
    read_header,
)
from paceline.wire.records import encode_values
from paceline_node.sequence_numbers import Number, SequencedRecords

EVERYBODY = bytes(16)
"""The producer key of a record that forgets silent producers, whoever they are."""
_RECORD_OVERHEAD = 64
"""More than a record's varints and its batch's share of header can be."""


class BuiltBatch(NamedTuple):
    """One batch, and which of the records (from, to) it holds."""

    data: bytearray
    header: BatchHeader
    start: int
    stop: int


def build_batches(
    records: SequencedRecords, *, timestamp_ms: int, batch_bytes: int = MAX_BATCH_BYTES
) -> Iterator[BuiltBatch]:
    """All records in batches of ``batch_bytes`` at most, unless one alone is larger, in their
    order. Raises MessageTooLarge for one that is larger than any batch may be."""
    sizes = _sizes(records)
    for start, stop in _ranges(records.numbers, sizes, min(batch_bytes, MAX_BATCH_BYTES)):
        payload = encode_values(
            records.values[start:stop],
            None if records.keys is None else records.keys[start:stop],
            encoded_headers=None if records.headers is None else records.headers[start:stop],
        )
        data = build_raw_batch(
            payload,
            record_count=stop - start,
            base_timestamp=timestamp_ms,
            max_timestamp=timestamp_ms,
            extension=_extension(records.numbers[start], stop - start),
        )
        yield BuiltBatch(data, read_header(data), start, stop)


def expire_batch(
    cutoff: int,
    timestamp_ms: int,
    namespace: ProducerNamespace = ProducerNamespace.CURSUS,
    *,
    producer_key: bytes = EVERYBODY,
) -> bytearray:
    """The record, empty to readers, that forgets producers of a kind that have been silent for
    long. ``cutoff``: of those that number their records the time (ms) since when, of namespace NONE
    (v2's own, whose clients choose their timestamps) the offset. ``producer_key`` names a slice of
    them (``state_map.expiry_key``)."""
    return build_raw_batch(
        b"",
        record_count=0,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        extension=BatchExtension(
            PayloadKind.EXPIRE,
            namespace,
            producer_key=producer_key,
            producer_epoch=-1,
            first_sequence=cutoff,
            last_sequence=cutoff,
            base_position=0,
            event_count=0,
        ),
    )


def _sizes(records: SequencedRecords) -> list[int]:
    sizes = [len(value) + _RECORD_OVERHEAD for value in records.values]
    if records.keys is not None:
        sizes = list(map(add, sizes, (0 if key is None else len(key) for key in records.keys)))
    if records.headers is not None:
        sizes = list(map(add, sizes, map(len, records.headers)))
    if max(sizes, default=0) > MAX_RECORD_BYTES:
        raise MessageTooLarge(
            f"a record of {max(sizes)} bytes with its overhead, limit {MAX_RECORD_BYTES}"
        )
    return sizes


def _ranges(
    numbers: Sequence[Number | None], sizes: Sequence[int], batch_bytes: int
) -> Iterator[tuple[int, int]]:
    start = total = 0
    for at, size in enumerate(sizes):
        fits = total + size <= batch_bytes
        if at > start and not (fits and _follows(numbers[at - 1], numbers[at])):
            yield start, at
            start, total = at, 0
        total += size
    if start < len(sizes):
        yield start, len(sizes)


def _follows(before: Number | None, number: Number | None) -> bool:
    """Whether a record may lie in the batch of the one before it."""
    if before is None or number is None:
        return before is number
    return (
        number.sequence == before.sequence + 1
        and number.epoch == before.epoch
        and number.key == before.key
    )


def _extension(first: Number | None, count: int) -> BatchExtension | None:
    if first is None:
        return None
    return BatchExtension(
        PayloadKind.RECORDS,
        ProducerNamespace.CURSUS,
        first.key,
        first.epoch,
        first.sequence,
        first.sequence + count - 1,
        base_position=0,
        event_count=0,
    )
