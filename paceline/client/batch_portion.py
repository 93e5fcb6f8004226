"""Records that were handed over together and went into one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.client.batching import Batch, BatchMetadata


class Portion:
    """A part of a :meth:`Producer.submit_many` call on its way.

    ``positions`` are the places of its records in the call's values, growing; they were stored at
    consecutive offsets in this order.
    """

    __slots__ = ("_place", "batch", "positions")

    def __init__(self, batch: Batch, place: int, positions: Sequence[int]) -> None:
        self.batch = batch
        self.positions = positions
        self._place = place

    @property
    def is_done(self) -> bool:
        return self.batch.is_done

    def result(self) -> BatchMetadata:
        """Where these records were stored (``base_offset`` is that of the first of them, -1 when
        the leader cannot say). Raises what they failed with, Closed when not done yet."""
        placed = self.batch.metadata()
        base = placed.base_offset
        return placed._replace(
            base_offset=base + self._place if base >= 0 else -1, record_count=len(self.positions)
        )

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call ``callback``, synchronously, once these records are stored or have failed; at once
        if they have already. They count as looked at: :meth:`Producer.flush` will not raise their
        failure."""
        self.batch.is_observed = True
        self.batch.when_done(callback)
