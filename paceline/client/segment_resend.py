"""What a segment writer has sent and not had acknowledged: the half of exactly-once that is the
client's (DESIGN 4).

Pure. Offsets count stored bytes over the whole life of the writer's id, Event headers included.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from paceline.errors import InvalidProducerEpoch, UnknownProducerId


class ResendBuffer:
    """Runs of whole Events from ``acked`` to ``end``."""

    def __init__(self) -> None:
        self._runs: deque[tuple[int, bytes]] = deque()  # (start, stored bytes)
        self.acked: int | None = None
        """Level that was told last; None before the first set-up."""
        self.end = 0
        """Where the next Event goes."""
        self.size_bytes = 0

    def add(self, run: bytes) -> None:
        """Keep a run until it is acknowledged."""
        self._runs.append((self.end, run))
        self.end += len(run)
        self.size_bytes += len(run)

    def acknowledge(self, level: int) -> None:
        """All bytes before ``level`` are stored for good."""
        self.acked = max(level, self.acked or 0)
        while self._runs and self._runs[0][0] + len(self._runs[0][1]) <= level:
            _, run = self._runs.popleft()
            self.size_bytes -= len(run)

    def resume(self, level: int) -> None:
        """A connection was set up anew and told ``level``.

        Raises UnknownProducerId when the cluster has forgotten the writer, InvalidProducerEpoch
        when somebody else has written as this writer.
        """
        if self.acked is None:
            # The first set-up of this process: it goes on where an earlier one ended.
            self._runs = deque((start + level, run) for start, run in self._runs)
            self.end += level
        elif level < self.acked:
            raise UnknownProducerId(
                f"{self.acked} bytes of this writer were acknowledged, the cluster knows of "
                f"{level}: its state was lost (segment.writer_ttl_ms?), it must not go on"
            )
        elif level > self.end:
            raise InvalidProducerEpoch(
                f"this writer has written {self.end} bytes, the cluster has {level}: another "
                "process uses its id"
            )
        self.acknowledge(level)

    def from_offset(self, offset: int) -> Iterator[tuple[int, bytes]]:
        """(start, bytes) of what is kept from ``offset``, an Event boundary, on."""
        for start, run in tuple(self._runs):
            if start >= offset:
                yield start, run
            elif start + len(run) > offset:
                yield offset, run[offset - start :]
