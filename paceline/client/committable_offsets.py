"""What a program may still say of what it was handed, once partitions have moved. Pure.

A program commits an offset because it was handed what lies before. When the partition was given up
in between, others may have read on and committed more, and this member, if it has won the partition
back, begins where they ended. An offset of before is then *stale*: it is the place of something
that was handed out under an assignment that is over, and not again since. What was handed out and
not committed when a partition was given up is *owed*: a program that commits all that it was handed
must hear that this part is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paceline.client.progress import Offsets
from paceline.types import TopicPartition
from paceline.values import dataclass


@dataclass(slots=True)
class _Held:
    """A partition under the present assignment. Offsets are the next ones to read."""

    began: int
    kept: int
    """The furthest that was committed."""
    handed: int
    """How far the program has got, but for what was handed out last."""
    last: int
    """Where that ends."""


class CommittableOffsets:
    """``positions`` are the next offsets that will be handed out, of what is held."""

    __slots__ = ("_before", "_held", "_owed", "_told")

    def __init__(self) -> None:
        self._held: dict[TopicPartition, _Held] = {}
        self._before: dict[TopicPartition, int] = {}
        """How far the program has got under assignments that are over."""
        self._owed: dict[TopicPartition, int] = {}
        self._told: set[TopicPartition] = set()

    def begin(self, offsets: Offsets) -> None:
        """These are held from now on, and read from here; or the program goes on here, and lets go
        of what it had."""
        for at, offset in offsets.items():
            self._held[at] = _Held(offset, offset, offset, offset)

    def take(self, at: TopicPartition, end: int) -> None:
        """The program is handed a batch, or a record, which may be one of the batch that was handed
        out last."""
        for each in self._told:
            self._owed.pop(each, None)
        self._told.clear()
        held = self._held.get(at)
        if held is None:
            self.take_late(at, end)
            return
        if end > held.last:
            held.handed = max(held.handed, held.last)
        held.last = end

    def put_back(self, at: TopicPartition, offset: int) -> None:
        """Of what was handed out last the program has not been given what lies from there on."""
        if (held := self._held.get(at)) is not None:
            held.last = min(held.last, offset)

    def take_late(self, at: TopicPartition, end: int) -> None:
        """The same, of an assignment that is over."""
        self._before[at] = max(end, self._before.get(at, end))
        self._owed[at] = max(end, self._owed.get(at, end))

    def keep(self, offsets: Offsets) -> None:
        """These are committed."""
        for at, offset in offsets.items():
            held = self._held.get(at)
            if held is not None:
                held.kept = max(held.kept, offset)
            if offset >= self._owed.get(at, offset + 1):
                del self._owed[at]

    def give_up(self, positions: Offsets) -> None:
        """All are held no more; what is not committed is owed."""
        for at, held in list(self._held.items()):
            end = max(held.handed, held.last)
            if end > held.kept:
                self._owed[at] = max(end, self._owed.get(at, end))
        self.end({at: positions.get(at, 0) for at in self._held})

    def end(self, positions: Offsets) -> None:
        """These are held no more, and nothing of them is owed: they are gone for everybody."""
        for at, position in positions.items():
            held = self._held.pop(at, None)
            if held is not None:
                end = max(held.handed, held.last, position)
                self._before[at] = max(end, self._before.get(at, end))

    def let_go(self, partitions: Iterable[TopicPartition]) -> None:
        """The program goes on elsewhere, on purpose: what it names from now on is meant so."""
        for at in list(partitions):
            self._before.pop(at, None)
            self._owed.pop(at, None)
            self._told.discard(at)

    def let_go_of_all(self) -> None:
        """The same, of all it ever had."""
        self.let_go([*self._before, *self._owed])

    def stale(self, offsets: Offsets, positions: Offsets) -> list[TopicPartition]:
        """Those whose offsets were handed out under an assignment that is over, and not since."""
        return [
            at for at, offset in offsets.items() if self._is_stale(at, offset, positions.get(at))
        ]

    def _is_stale(self, at: TopicPartition, offset: int, position: int | None) -> bool:
        before, held = self._before.get(at), self._held.get(at)
        if before is None or offset > before:
            return False
        return held is None or position is None or not held.began <= offset <= position

    def owed(self, positions: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Those of which something was handed out, and given up before it was committed; but for
        what is held again, and read as far. A commit of all that is read settles those."""
        for at, end in list(self._owed.items()):
            if positions.get(at, -1) >= end:
                del self._owed[at]
                self._told.discard(at)
        return sorted(self._owed)

    def tell(self, partitions: Iterable[TopicPartition]) -> None:
        """The program is told that these are not committed; what it takes after that is new."""
        self._told.update(partitions)
