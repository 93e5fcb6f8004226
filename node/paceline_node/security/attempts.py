"""Who guesses, is slowed down: by address (DESIGN 5.3).

Each failure costs time. What an address owes up to ``burst`` failures is nobody's business; beyond
that its next log-ins wait, one behind the other, until it owes no more than that; and those that
would wait for longer than ``longest_wait_s`` are refused at once. Each look is paid for before it
is taken, and success gives that back: who comes meanwhile, or goes away, has no look for nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from paceline.errors import AuthenticationFailed

ADDRESSES_MAX = 10_000
TOO_MANY = "too many failed log-ins from this address; wait"


class Attempts:
    """``now``: monotonic seconds."""

    def __init__(
        self,
        now: Callable[[], float],
        *,
        burst: int = 10,
        cost_s: float = 1.0,
        longest_wait_s: float = 10.0,
    ) -> None:
        self._now = now
        self._allowed_s = burst * cost_s
        self._cost_s = cost_s
        self._longest_wait_s = longest_wait_s
        self._paid_at: dict[str, float] = {}
        """When an address owes nothing any more."""
        self.failures = 0
        self.refused = 0

    def owes_s(self, source: str) -> float:
        """What an address owes now."""
        return max(0.0, self._paid_at.get(source, 0.0) - self._now())

    @asynccontextmanager
    async def attempt(self, source: str) -> AsyncIterator[None]:
        """Around looking at a proof. AuthenticationFailed within is a failure; it is raised at the
        start where the address has to wait for too long."""
        waits_s = self.owes_s(source) - self._allowed_s
        if waits_s > self._longest_wait_s:
            self.refused += 1
            raise AuthenticationFailed(TOO_MANY)
        self._charge(source)  # who comes behind waits for longer
        if waits_s > 0:
            await trio.sleep(waits_s)
        try:
            yield
        except AuthenticationFailed:
            self.failures += 1
            raise
        else:
            self._give_back(source)

    def _charge(self, source: str) -> None:
        self._paid_at[source] = max(self._paid_at.pop(source, 0.0), self._now()) + self._cost_s
        if len(self._paid_at) > ADDRESSES_MAX:
            self._forget()

    def _give_back(self, source: str) -> None:
        paid_at = self._paid_at.get(source, 0.0) - self._cost_s
        if paid_at > self._now():
            self._paid_at[source] = paid_at
        else:
            self._paid_at.pop(source, None)

    def _forget(self) -> None:
        """Those that owe nothing; else the one that was slowed down longest ago."""
        now = self._now()
        for source in [each for each, paid_at in self._paid_at.items() if paid_at <= now]:
            del self._paid_at[source]
        if len(self._paid_at) > ADDRESSES_MAX:
            del self._paid_at[next(iter(self._paid_at))]
