"""When bytes count as stored: one name for settings, topics, and what a process leaves behind."""

from __future__ import annotations

import enum


class FlushMode(enum.Enum):
    """How a topic's records become durable (storage/DESIGN 2.2)."""

    GROUP = "group"
    BATCH = "batch"
    INTERVAL = "interval"
    NONE = "none"

    @property
    def counts_durable(self) -> bool:
        """Whether only fsynced bytes are acknowledged."""
        return self.weakness <= FlushMode.GROUP.weakness

    @property
    def weakness(self) -> int:
        """0 for the strongest promise, 3 for the weakest."""
        return _BY_STRENGTH.index(self)

    @classmethod
    def of_weakness(cls, weakness: int) -> FlushMode:
        """The mode with this :attr:`weakness`. Raises ValueError."""
        if not 0 <= weakness < len(FlushMode):
            raise ValueError(f"flush mode {weakness}: expected 0 to {len(FlushMode) - 1}")
        return _BY_STRENGTH[weakness]


_BY_STRENGTH = (FlushMode.BATCH, FlushMode.GROUP, FlushMode.INTERVAL, FlushMode.NONE)


def weakest(*modes: FlushMode) -> FlushMode:
    """The mode with the weakest promise of several."""
    return max(modes, key=lambda mode: mode.weakness)
