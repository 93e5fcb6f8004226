"""What time it is by more clocks than one: nothing expires for a single clock that is wrong.

Brokers say their wall clock's time in each heartbeat. The active controller answers with the median
of those that it hears, once that is a majority of all brokers. Pure: the caller says what its own
clocks show.
"""

from __future__ import annotations

_STAMP_SLACK_MS = 60_000
"""A clock that is further behind than this is not used for stamps."""


class ClusterTime:
    """The cluster's time as one node knows it, carried on by a clock that does not jump."""

    def __init__(self) -> None:
        self._is_shared = False
        self._base_ms: float | None = None

    def share(self) -> None:
        """This node has a cluster: its own clock alone decides nothing from now on."""
        self._is_shared = True

    def heard(self, cluster_ms: int, now: float) -> None:
        """A controller has told the cluster's time; negative: it does not know it."""
        if cluster_ms >= 0:
            self._base_ms = cluster_ms - now * 1000

    def cluster_ms(self, now: float) -> int | None:
        """The cluster's time; None: nobody has told it yet."""
        return None if self._base_ms is None else int(self._base_ms + now * 1000)

    def expiry_ms(self, own_ms: int, now: float) -> int:
        """By which time to judge what has expired: both clocks must agree that it has. 0: nothing
        has, since there is no other clock yet."""
        known = self.cluster_ms(now)
        if known is None:
            return 0 if self._is_shared else own_ms
        return min(own_ms, known)

    def stamp_ms(self, own_ms: int, now: float) -> int:
        """What time to write into records: this node's, unless that lies far behind. A record
        with such a time would have expired at once by all other clocks."""
        known = self.cluster_ms(now)
        return own_ms if known is None or own_ms >= known - _STAMP_SLACK_MS else known
