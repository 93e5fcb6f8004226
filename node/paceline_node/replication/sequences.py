"""Idempotence of one produce request (DESIGN 4.4, 4.5).

Pure. The producer table judges the first batch against the log; the further batches of a request
must follow each other by themselves, so that a request is appended wholly or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from paceline.errors import NotEnoughReplicas, OutOfOrderSequence
from paceline.wire.batch_header import BatchHeader
from paceline_node.storage.producer_state import Duplicate
from paceline_node.storage.producers import ProducerTable

_FENCED_MAX = 4096
_FENCED_S = 300.0
"""How long a refused batch may still come again: the longest that clients try by default."""


class _Lowest(NamedTuple):
    epoch: int
    sequence: int
    at: float


class SequenceFence:
    """The lowest sequence that each unknown producer has sent, for one leadership.

    An unknown producer may begin with any sequence. So if its first batch is refused for the moment
    and the one behind it, sent at the same time, is taken, the first can never be stored any more.
    Therefore nothing above the lowest sequence seen is taken, until that one is (as KIP-890 has it
    for transactions under verification). It is forgotten after five minutes: a producer that has
    given it up must be able to go on.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        """``now``: seconds of a clock that never goes back."""
        self._now = now
        self._lowest: dict[int, _Lowest] = {}

    def __len__(self) -> int:
        return len(self._lowest)

    def seen(self, producers: ProducerTable, headers: Sequence[BatchHeader]) -> None:
        """A request has come, whatever becomes of it."""
        if not headers or headers[0].producer_id < 0:
            return
        header = headers[0]
        producer_id, sequence = header.producer_id, header.base_sequence
        if producers.producer(producer_id) is not None:
            self._lowest.pop(producer_id, None)  # the table judges it now
            return
        now, lowest = self._now(), self._lowest.get(producer_id)
        if lowest is not None and now < lowest.at + _FENCED_S:
            if header.producer_epoch < lowest.epoch:
                return
            if header.producer_epoch == lowest.epoch and sequence >= lowest.sequence:
                return
        self._lowest.pop(producer_id, None)
        if len(self._lowest) >= _FENCED_MAX:
            del self._lowest[next(iter(self._lowest))]
        self._lowest[producer_id] = _Lowest(header.producer_epoch, sequence, now)

    def check(self, producers: ProducerTable, header: BatchHeader) -> None:
        """Raise OutOfOrderSequence for a batch that must wait for one before it; what is not
        refused here is to be appended."""
        lowest = self._lowest.get(header.producer_id)
        if lowest is None:
            return
        if (
            producers.producer(header.producer_id) is None
            and header.producer_epoch == lowest.epoch
            and header.base_sequence > lowest.sequence
            and self._now() < lowest.at + _FENCED_S
        ):
            raise OutOfOrderSequence(
                f"producer {header.producer_id}: sequence {header.base_sequence}, while "
                f"{lowest.sequence} was sent before and is not stored"
            )

    def stored(self, producer_id: int) -> None:
        """The log was found to hold what an unknown producer sent first."""
        self._lowest.pop(producer_id, None)

    def clear(self) -> None:
        """The leadership is over."""
        self._lowest.clear()


class Judgement(NamedTuple):
    """``duplicates`` lie in the log already, first to last; ``skip_bytes`` of the request are
    theirs. What is left, if anything, is to be appended."""

    duplicates: tuple[Duplicate, ...]
    skip_bytes: int


NEW = Judgement((), 0)


def judge(
    producers: ProducerTable, headers: Sequence[BatchHeader], fence: SequenceFence
) -> Judgement:
    """Compare a request's batches, which ``fence`` has seen, with what their producer has written.

    Raises InvalidProducerEpoch, OutOfOrderSequence or DuplicateSequence; nothing may be appended
    then.
    """
    for header in headers:
        if header.producer_id >= 0:
            break
    else:
        return NEW
    if producers.transactions.known_to is not None:
        raise NotEnoughReplicas("producers are being read from the log; try again")
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
            fence.check(producers, header)
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
