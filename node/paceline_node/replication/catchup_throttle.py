"""How much a leader sends to replicas that are not in sync: new ones, and those that come back.

What they fetch is taken from what clients are served, and nobody waits for it. So it may be
bounded: a bucket of bytes for all of a node's followers, in the manner of KIP-73. Sans-I/O; the
caller has the clock. Members of the ISR are never held up, nor is anybody while a partition has
fewer of them than acks=all needs: then clients do wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_BURST_S = 1.0
"""What was not sent for so long may be sent at once."""
_LEAST_SHARE = 0.25
"""Of a burst: less is not sent, but saved up. Small answers would cost more than they bring."""
_SHORTEST_S = 0.02
_LONGEST_S = 1.0
"""The rate may be raised meanwhile; 0 is what holds up replicas altogether."""

UNLIMITED = math.inf


class CatchupThrottle:
    """``rate`` is read at each use, for it may change at any time: bytes a second, less than 0
    being no bound."""

    def __init__(self, rate: Callable[[], float]) -> None:
        self._rate = rate
        self._level = UNLIMITED
        self._at = 0.0
        self.sent = 0
        """Bytes since the process began, bounded or not."""

    def allowed(self, now: float) -> float:
        """How many bytes may be sent now; 0: wait for :meth:`wait_s`."""
        rate = self._rate()
        if rate < 0:
            self._level = UNLIMITED
            return UNLIMITED
        burst = rate * _BURST_S
        self._level = min(burst, self._level + rate * (now - self._at))
        self._at = now
        return self._level if self._level >= burst * _LEAST_SHARE else 0

    def take(self, size: int) -> None:
        """So much was sent. A batch goes as a whole, so it may be more than was allowed: what is
        too much is waited for before the next."""
        self.sent += size
        self._level -= size

    def wait_s(self) -> float:
        """When to ask again, as of the last call of :meth:`allowed`."""
        rate = self._rate()
        if rate < 0:
            return 0.0
        wait_s = (rate * _BURST_S * _LEAST_SHARE - self._level) / max(rate, 1.0)
        return min(max(wait_s, _SHORTEST_S), _LONGEST_S)
