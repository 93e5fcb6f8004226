"""Who is writing to which segment through this node, so that a newcomer fences the one before.

An appender that lost its connection comes back on another one while the old one may still have
bytes on the way. Whoever sets up last writes; the compare-and-set of every append
(``storage/segment_state.py``) makes it safe, fencing here makes it clear.
"""

from __future__ import annotations

from collections.abc import Callable

from paceline_node.replication.partition import PartitionKey

Writer = tuple[PartitionKey, bytes]


class SegmentWriters:
    """Live writers of all connections of this node."""

    def __init__(self) -> None:
        self._fences: dict[Writer, Callable[[], None]] = {}

    def claim(self, writer: Writer, fence: Callable[[], None]) -> None:
        """Be the writer from now on; whoever was is told. ``fence`` is called at most once."""
        former = self._fences.pop(writer, None)
        self._fences[writer] = fence
        if former is not None:
            former()

    def release(self, writer: Writer, fence: Callable[[], None]) -> None:
        """Be it no longer; no effect when somebody else has claimed it meanwhile."""
        if self._fences.get(writer) == fence:
            del self._fences[writer]

    def __len__(self) -> int:
        return len(self._fences)
