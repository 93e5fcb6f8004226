"""The news that transactions were decided or completed: engines tell it, and their ends wait."""

from __future__ import annotations

import trio


class EndingSignal:
    """Made before both sides of it."""

    def __init__(self) -> None:
        self.next = trio.Event()
        """Set by the news to come; another one stands here from then on."""

    def tell(self) -> None:
        """Wake all who wait."""
        news, self.next = self.next, trio.Event()
        news.set()
