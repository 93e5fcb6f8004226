"""Long polls of one partition: who waits until there is more to read."""

from __future__ import annotations

from collections.abc import Callable

from paceline.types import Isolation
from paceline_node.replication.replica import Replica
from paceline_node.replication.waiters import OffsetWaiters
from paceline_node.storage.log import Log

_Readers = OffsetWaiters[Callable[[], None]]


class LongPolls:
    """Knows how far the readers of each isolation see."""

    def __init__(self, replica: Replica, log: Log) -> None:
        self._replica = replica
        self._log = log
        self._of_all: _Readers = OffsetWaiters()
        self._of_stable: _Readers = OffsetWaiters()

    @property
    def last_stable_offset(self) -> int:
        """End of what read-committed readers see."""
        log, high_watermark = self._log, self._replica.high_watermark
        stable = log.producers.transactions.first_unstable(high_watermark)
        return max(stable, min(log.log_start_offset, high_watermark))

    def readable_end(self, isolation: Isolation) -> int:
        """End of what readers of ``isolation`` see."""
        if isolation == Isolation.READ_COMMITTED:
            return self.last_stable_offset
        return self._replica.high_watermark

    def when_readable(
        self,
        offset: int,
        callback: Callable[[], None],
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> object:
        """Call ``callback`` once: when the high watermark, or for READ_COMMITTED the last stable
        offset, is above ``offset`` (at once if it is), or when the role changes. Returns a token
        for :meth:`Partition.cancel`."""
        if isolation == Isolation.READ_COMMITTED:
            waiter = self._of_stable.add(offset, callback, _call)
            self._of_stable.advance(self.last_stable_offset)
        else:
            waiter = self._of_all.add(offset, callback, _call)
            self._of_all.advance(self._replica.high_watermark)
        return waiter

    def wake(self) -> None:
        """The high watermark may have moved."""
        self._log.producers.transactions.settled(self._replica.high_watermark)
        self._of_all.advance(self._replica.high_watermark)
        if len(self._of_stable):
            self._of_stable.advance(self.last_stable_offset)

    def role_changed(self) -> None:
        """Nobody waits across leader epochs."""
        for callback in (*self._of_all.drain(), *self._of_stable.drain()):
            callback()


def _call(callback: Callable[[], None]) -> None:
    callback()
