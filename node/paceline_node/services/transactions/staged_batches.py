"""The batches that a committed transaction's staged records become. Pure.

The same records always give the same batches, so that appending them again, by whoever
coordinates next, is recognised by their sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.wire.batch import TRANSACTIONAL, build_batch
from paceline.wire.peer.names import PartitionName
from paceline.wire.records import Record
from paceline_node.transaction_names import ProducerIdentity
from paceline_node.transactions.records import Staged

_BATCH_BYTES = 512 * 1024


def staged_batches(
    staged: Sequence[Staged], where: PartitionName, who: ProducerIdentity
) -> Iterator[bytearray]:
    """The batches for one partition, in order, with sequences from 0."""
    records: list[Record] = []
    size = 0
    sequence = 0
    for each in staged:
        if (each.topic, each.partition) != (where.topic, where.partition):
            continue
        if records and size + each.size_bytes > _BATCH_BYTES:
            yield _batch(records, who, sequence)
            sequence += len(records)
            records, size = [], 0
        headers = tuple((header.name, header.value) for header in each.headers)
        records.append(Record(-1, each.timestamp_ms, each.key, each.value, headers))
        size += each.size_bytes
    if records:
        yield _batch(records, who, sequence)


def _batch(records: Sequence[Record], who: ProducerIdentity, sequence: int) -> bytearray:
    return build_batch(
        records,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        base_sequence=sequence,
        flags=TRANSACTIONAL,
    )
