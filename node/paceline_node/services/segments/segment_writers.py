"""Who is writing to which segment through this node, so that a newcomer fences the one before.

An appender that lost its connection comes back on another one while the old one may still have
bytes on the way. Whoever sets up last writes; the compare-and-set of every append
(``storage/byte_segment_state.py``) makes it safe, fencing here makes it clear.

Last is whose set-up arrived last. One that arrived earlier may be carried out later, because it
stands in line behind others of its connection that wait for commits; it must not take over from
the connection that its client has used since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NewType

from paceline.values import dataclass
from paceline_node.replication.partition import PartitionKey

Writer = tuple[PartitionKey, bytes]
Turn = NewType("Turn", int)
"""When a set-up arrived, among all of the node."""


@dataclass(frozen=True, slots=True)
class _Claim:
    turn: Turn
    fence: Callable[[], None]


class SegmentWriters:
    """Live writers of all connections of this node."""

    def __init__(self) -> None:
        self._claims: dict[Writer, _Claim] = {}
        self._turns = 0

    def arrived(self) -> Turn:
        """The turn of a set-up that was read just now; to be asked before anything is awaited."""
        self._turns += 1
        return Turn(self._turns)

    def claim(self, writer: Writer, turn: Turn, fence: Callable[[], None]) -> None:
        """Be the writer from now on; whoever was is told. ``fence`` is called at most once: here,
        when a set-up that arrived after ``turn`` has the writer."""
        former = self._claims.get(writer)
        if former is not None and former.turn > turn:
            fence()
            return
        self._claims[writer] = _Claim(turn, fence)
        if former is not None:
            former.fence()

    def release(self, writer: Writer, fence: Callable[[], None]) -> None:
        """Be it no longer; no effect when somebody else has claimed it meanwhile."""
        claim = self._claims.get(writer)
        if claim is not None and claim.fence == fence:
            del self._claims[writer]

    def __contains__(self, writer: object) -> bool:
        return writer in self._claims

    def __len__(self) -> int:
        return len(self._claims)
