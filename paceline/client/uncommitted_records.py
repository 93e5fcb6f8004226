"""Which records of a group's member nobody has committed yet, and whether they still may be. Pure.

A transaction may hold records of several batches and partitions, taken one after the other. What
was taken before its partition was given up is *stale*, also when the same member has won it back:
it is read again from the committed offset. Offsets behind stale records are refused, or they would
commit a second copy. The program is told so once: what it takes after that is new.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from paceline.client.progress import Offsets
from paceline.types import TopicPartition
from paceline.wire.native.groups import NO_GENERATION

_NEVER = -1


class Holder(Protocol):
    """Who knows which records a program has taken."""

    def check_held(self, offsets: Offsets) -> None:
        """Raises IllegalGeneration for what others may read by now, or will read again."""

    def offsets_sent(self, offsets: Offsets) -> None:
        """A transaction has these."""

    def offsets_refused(self, offsets: Offsets) -> None:
        """The transaction that should have had these is lost."""


class GroupMember(NamedTuple):
    """Who commits offsets in a group; ``generation`` -1 and no id: nobody in particular."""

    group: str
    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None
    holder: Holder | None = None


class UncommittedRecords:
    """``moves`` counts how often the member's partitions were given up."""

    __slots__ = ("_taken", "_told")

    def __init__(self) -> None:
        self._taken: dict[TopicPartition, int] = {}
        """The moves before the first record that no offset was sent for."""
        self._told: set[TopicPartition] = set()

    def take(self, at: TopicPartition, moves: int) -> None:
        """A record, or a batch, is handed out."""
        if at not in self._taken or at in self._told:
            self._taken[at] = moves
            self._told.discard(at)

    def lose(self, at: TopicPartition) -> None:
        """It is no longer what it was, while no other partition moves."""
        if at in self._taken:
            self._taken[at] = _NEVER

    def stale(self, partitions: Iterable[TopicPartition], moves: int) -> list[TopicPartition]:
        """Those of which something was taken before the last move."""
        return [at for at in partitions if self._taken.get(at, moves) != moves]

    def drop_all(self) -> None:
        """The program lets go of all it has."""
        self._taken.clear()
        self._told.clear()

    def sent(self, partitions: Iterable[TopicPartition]) -> None:
        """A transaction has their offsets."""
        for at in partitions:
            self.drop(at)

    def refused(self, partitions: Iterable[TopicPartition]) -> None:
        """The program knows that its transaction is lost, and what it took of these with it."""
        self._told.update(at for at in partitions if at in self._taken)

    def drop(self, at: TopicPartition) -> None:
        """The program goes on elsewhere, and lets go of what it has."""
        self._taken.pop(at, None)
        self._told.discard(at)
