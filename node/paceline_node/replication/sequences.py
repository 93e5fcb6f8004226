"""Idempotence of one produce request (spec replication 4.4, step 4 of 4.1).

Pure. The producer table judges the first batch against the log; the further batches of a request
must follow each other by themselves, so that a request is appended wholly or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from paceline.errors import OutOfOrderSequence
from paceline.wire.batch_header import BatchHeader
from paceline_node.storage.producers import Duplicate, ProducerTable


class Judgement(NamedTuple):
    """``duplicates`` lie in the log already, first to last; ``skip_bytes`` of the request are
    theirs. What is left, if anything, is to be appended."""

    duplicates: tuple[Duplicate, ...]
    skip_bytes: int


NEW = Judgement((), 0)


def judge(producers: ProducerTable, headers: Sequence[BatchHeader]) -> Judgement:
    """Compare a request's batches with what their producer has written.

    Raises InvalidProducerEpoch, OutOfOrderSequence or DuplicateSequence; nothing may be appended
    then.
    """
    for header in headers:
        if header.producer_id >= 0:
            break
    else:
        return NEW
    duplicates: list[Duplicate] = []
    skip_bytes = 0
    before: BatchHeader | None = None
    for header in headers:
        if before is None:
            duplicate = producers.check(header)
            if duplicate is not None:
                duplicates.append(duplicate)
                skip_bytes += header.size_bytes
                continue
        else:
            _require_succession(before, header)
        before = header
    return Judgement(tuple(duplicates), skip_bytes)


def _require_succession(before: BatchHeader, header: BatchHeader) -> None:
    """Batches of one request that are not in the log yet must be of one producer, without gaps."""
    expected = (before.last_sequence + 1) & 0x7FFFFFFF
    same = (
        header.producer_id == before.producer_id and header.producer_epoch == before.producer_epoch
    )
    if not same or header.base_sequence != expected:
        raise OutOfOrderSequence(
            f"producer {header.producer_id}: sequence {header.base_sequence} follows "
            f"{before.last_sequence} of producer {before.producer_id} in one request"
        )
