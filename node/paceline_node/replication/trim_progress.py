"""Log starts that were moved forward: how far all replicas that count have that on disk
(DESIGN 5.7).

A follower learns its leader's log start from REPLICA_FETCH, writes it down, and then tells it in
its position. Only when every replica that might lead has done so is it sure that records once
deleted stay deleted, whatever ends or leads next.
"""

from __future__ import annotations

from collections.abc import Callable

from paceline_node.replication.replica import Replica
from paceline_node.replication.waiters import OffsetWaiters, Waiter


class TrimProgress:
    """Of one partition, at its leader: the low watermark, and who waits for it."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._waiters: OffsetWaiters[Callable[[], None]] = OffsetWaiters()

    @property
    def low_watermark(self) -> int:
        """The log start that all replicas have on disk that are in sync, or may be elected all the
        same; -1 on a follower."""
        leader = self._replica.leader
        if leader is None:
            return -1
        return leader.low_watermark(own=self._replica.durable_start)

    def when_reached(self, offset: int, callback: Callable[[], None]) -> Waiter[Callable[[], None]]:
        """Call ``callback`` once: when the low watermark is at ``offset`` or above (at once if it
        is), or when the role changes. Forget it with :meth:`cancel`."""
        waiter = self._waiters.add(offset - 1, callback, _call)
        self.settle()
        return waiter

    def cancel(self, waiter: Waiter[Callable[[], None]]) -> None:
        """Forget a callback; idempotent."""
        self._waiters.cancel(waiter)

    def settle(self) -> None:
        """A replica's log start may have reached its disk."""
        if self._waiters:
            self._waiters.advance(self.low_watermark)

    def role_changed(self) -> None:
        """Nobody waits across leader epochs."""
        for callback in self._waiters.drain():
            callback()


def _call(callback: Callable[[], None]) -> None:
    callback()
