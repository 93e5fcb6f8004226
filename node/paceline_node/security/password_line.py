"""Passwords are looked at in one line an address, one behind the other (DESIGN 5.3).

Looking at one takes milliseconds of a thread. Where all that come at once were looked at together,
each would find an address that owes nothing yet. Here the next one begins when it is known what the
one before costs; and an address, however many come from it, has one of them at work.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from paceline.errors import AuthenticationFailed
from paceline_node.security.attempts import TOO_MANY


class PasswordLine:
    """At most ``most_of_one`` passwords of an address wait or are looked at, and once there are
    ``most`` of all addresses, one. Nobody waits for longer than ``longest_wait_s``."""

    def __init__(
        self, *, most_of_one: int = 1000, most: int = 5000, longest_wait_s: float = 10.0
    ) -> None:
        self._most_of_one = most_of_one
        self._most = most
        self._longest_wait_s = longest_wait_s
        self._lines: dict[str, _Line] = {}
        self._count = 0
        self.refused = 0

    @asynccontextmanager
    async def turn(self, source: str) -> AsyncIterator[None]:
        """Around what is to happen when it is this one's turn. Raises AuthenticationFailed where
        too many are there, or it does not come to that."""
        line = self._lines.get(source) or _Line()
        if line.count >= (self._most_of_one if self._count < self._most else 1):
            self.refused += 1
            raise AuthenticationFailed(TOO_MANY)
        self._lines[source] = line
        line.count += 1
        self._count += 1
        try:
            with trio.move_on_after(self._longest_wait_s) as patience:
                await line.head.acquire()
            if patience.cancelled_caught:
                self.refused += 1
                raise AuthenticationFailed(TOO_MANY)
            try:
                yield
            finally:
                line.head.release()
        finally:
            line.count -= 1
            self._count -= 1
            if not line.count:
                del self._lines[source]


class _Line:
    def __init__(self) -> None:
        self.count = 0
        self.head = trio.Semaphore(1)
