"""Giving batches their place in a log, before a byte is written. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from paceline.errors import CorruptMessage
from paceline.types import NO_EPOCH
from paceline.values import dataclass
from paceline.wire.batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    BatchHeader,
    iter_batches,
    stamp,
    verify,
)
from paceline.wire.compacted_batch import bare, is_bare
from paceline_node.storage.epochs import EpochCache

NEWEST_EPOCH = (1 << 31) - 1
"""Nothing is known of the newest leader epoch."""


NOTHING_TOLD = EpochCache()
"""By a leader of an earlier version."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Where an append went; offsets inclusive."""

    base_offset: int
    last_offset: int
    size_bytes: int


class Placed(NamedTuple):
    """A batch of an append: where it lies in the data, and the offset it gets."""

    position: int
    header: BatchHeader
    offset: int


def place_leader(
    batches: bytearray | memoryview,
    headers: Iterable[BatchHeader] | None,
    offset: int,
    leader_epoch: int,
) -> tuple[Sequence[Placed], int]:
    """Stamp validated batches in place with the offsets from ``offset`` on and the epoch.

    ``headers`` are theirs, if somebody has read them. Returns them and the offset behind the last
    one.
    """
    if headers is None:
        headers = [header for _, header in iter_batches(batches)]
    placed = []
    position = 0
    for header in headers:
        stamp(batches, position, offset, leader_epoch)
        placed.append(Placed(position, header, offset))
        offset += header.last_offset_delta + 1
        position += header.batch_length + LENGTH_OVERHEAD
    return placed, offset


def _without_known(data: memoryview, offset: int) -> memoryview:
    """A leader's batches from ``offset`` on, where the first one may be a placeholder that begins
    before it: the leader has joined those that this replica has one by one (DESIGN 9.1).

    Only the part behind is made anew. Raises CorruptMessage.
    """
    if len(data) < HEADER_BYTES or int.from_bytes(data[:8], "big") >= offset:
        return data
    header = verify(data)
    if not is_bare(header) or header.next_offset <= offset:
        return data
    return memoryview(bare(header, base_offset=offset) + data[header.size_bytes :])


def place_follower(
    data: memoryview, offset: int, last_epoch: int, newest_epoch: int, told: EpochCache
) -> tuple[memoryview, Sequence[Placed], int]:
    """Check a leader's batches: every CRC, offsets in a row from ``offset``, epochs from
    ``last_epoch`` to ``newest_epoch`` that never go back, and are those that the leader ``told`` by
    its table. The CRC covers neither offset nor epoch.

    Returns what to append, its batches, and the offset behind the last one. Raises CorruptMessage.
    """
    data = _without_known(data, offset)
    placed = []
    position = 0
    known, told_until = NO_EPOCH, -1.0
    while position < len(data):
        header = verify(data, position)
        epoch = header.leader_epoch
        if header.base_offset != offset or not last_epoch <= epoch <= newest_epoch:
            raise CorruptMessage(
                f"batch at offset {header.base_offset} epoch {epoch}, "
                f"expected offset {offset} epoch {last_epoch} to {newest_epoch}"
            )
        if header.last_offset >= told_until:
            known, told_until = told.span_at(header.last_offset)
        if known not in (NO_EPOCH, epoch):
            raise CorruptMessage(
                f"batch at offset {offset}: epoch {epoch}, the leader's table says {known}"
            )
        placed.append(Placed(position, header, offset))
        offset += header.last_offset_delta + 1
        last_epoch = epoch
        position += header.batch_length + LENGTH_OVERHEAD
    return data, placed, offset
