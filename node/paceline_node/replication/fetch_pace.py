"""How much a replica asks of its leader at a time, so that answers come in time over any link.

An answer holds up everything behind it on the connection, and one that is overdue is lost: asked
for again, as large as before, it would be overdue again. Sans-I/O; the caller has the clock.
"""

from __future__ import annotations

_LEAST_BYTES = 64 * 1024
_TOO_SLOW_S = 1.0
_QUICK_S = 0.5
_MOST_DOUBLINGS = 3


class FetchPace:
    """``max_bytes`` and ``patience_s`` are those of the next request: of bytes at most what was
    given to begin with, and 64 KiB at least; of patience that at least, and eight times at most.
    A batch that is larger than ``max_bytes`` comes all the same, alone."""

    def __init__(self, max_bytes: int, patience_s: float) -> None:
        self._most_bytes = max_bytes
        self._patience_s = patience_s
        self._overdue_in_row = 0
        self.max_bytes = max_bytes

    @property
    def patience_s(self) -> float:
        """How long to wait for an answer beyond what the request asks the leader to wait."""
        return self._patience_s * (1 << min(self._overdue_in_row, _MOST_DOUBLINGS))

    def answered(self, size: int, took_s: float) -> None:
        """An answer of ``size`` bytes of records came ``took_s`` after its request."""
        self._overdue_in_row = 0
        if took_s > _TOO_SLOW_S and size > _LEAST_BYTES:
            self._limit(min(self.max_bytes, int(size / took_s)))
        elif took_s < _QUICK_S and 2 * size >= self.max_bytes:
            self._limit(2 * self.max_bytes)

    def overdue(self) -> None:
        """No answer came in time."""
        self._overdue_in_row += 1
        self._limit(self.max_bytes // 8)

    def _limit(self, wanted: int) -> None:
        self.max_bytes = max(min(wanted, self._most_bytes), min(_LEAST_BYTES, self._most_bytes))
