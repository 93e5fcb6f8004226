"""The record that forgets producers by name, when there are more than a partition may have.

Pure. Which producers go is the leader's choice (``replication/producer_quota.py``), by what it
alone knows: whose they are and when they wrote last. Like every forgetting it is a batch in the
log, so all replicas forget the same ones at the same place, a truncation brings them back, and a
new leader knows what its predecessor knew (DESIGN 8.2).

It is an extended batch of kind EXPIRE without records, whose producer key begins with 2. Its
payload names the producers, 17 bytes each: namespace and key. Its numbers are -1: a version that
does not know the form takes it for a cut-off before which nobody has written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from paceline.errors import CorruptMessage
from paceline.wire.batch import build_raw_batch
from paceline.wire.batch_header import (
    BatchExtension,
    BatchHeader,
    Buffer,
    PayloadKind,
    ProducerNamespace,
)
from paceline_node.storage.state_map import Key

_FORM = b"\x02" + bytes(15)
_KEY_BYTES = 16
_ROW_BYTES = 1 + _KEY_BYTES
MOST = 4096
"""Producers that one record may name."""


class Eviction(NamedTuple):
    """The record's extension, and whom it names."""

    extension: BatchExtension
    keys: tuple[Key, ...]


def eviction_batch(
    keys: Sequence[Key],
    timestamp_ms: int,
    *,
    namespace: ProducerNamespace = ProducerNamespace.NONE,
    base_position: int = 0,
) -> bytearray:
    """The record that forgets ``keys``. ``namespace`` and ``base_position`` are those that every
    batch of a segment has, in the log of one."""
    assert len(keys) <= MOST, f"{len(keys)} producers in one record"
    return build_raw_batch(
        b"".join(bytes((number,)) + key for number, key in keys),
        record_count=0,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        extension=BatchExtension(
            PayloadKind.EXPIRE,
            namespace,
            producer_key=_FORM,
            producer_epoch=-1,
            first_sequence=-1,
            last_sequence=-1,
            base_position=base_position,
            event_count=0,
        ),
    )


def read_eviction(
    data: Buffer, position: int, header: BatchHeader, extension: BatchExtension
) -> Eviction | None:
    """Whom the batch at ``position`` names; None when it is no such record. Raises
    CorruptMessage."""
    if extension.kind is not PayloadKind.EXPIRE or extension.producer_key != _FORM:
        return None
    names = bytes(data[position + header.payload_start : position + header.size_bytes])
    if len(names) % _ROW_BYTES or len(names) > MOST * _ROW_BYTES:
        raise CorruptMessage(
            f"batch at byte {position}: {len(names)} bytes of names, expected {_ROW_BYTES} for "
            f"each of at most {MOST} producers"
        )
    return Eviction(
        extension,
        tuple(
            (names[at], names[at + 1 : at + _ROW_BYTES]) for at in range(0, len(names), _ROW_BYTES)
        ),
    )
