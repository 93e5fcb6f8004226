"""How far a group's member has read, and how far it has said so. Pure.

A record counts as *done* when the next one is asked for: only then has its reader surely finished
with it. What is committed without being told to is what is done, so a member that dies repeats the
record in its hands instead of losing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from paceline.types import TopicPartition
from paceline.values import dataclass

Offsets = Mapping[TopicPartition, int]


@dataclass(slots=True)
class Progress:
    """Offsets are the next ones to read. Only partitions that are owned count."""

    _done: dict[TopicPartition, int] = field(default_factory=dict)
    _committed: dict[TopicPartition, int] = field(default_factory=dict)
    _in_hand: tuple[TopicPartition, int, int] | None = None
    """Of which partition, how far the program was given it, and where it ends."""
    _dropped: set[TopicPartition] = field(default_factory=set)
    """Of which something was in hand that will never count: what lies behind does not, either."""

    @property
    def holds(self) -> bool:
        """Whether something was handed out that may still be worked on."""
        return self._in_hand is not None

    def begin(self, positions: Offsets, *, are_committed: bool = True) -> None:
        """These partitions are owned from now on, and read from these offsets, which the group has
        committed or ought to."""
        self._done.update(positions)
        if are_committed:
            self._committed.update(positions)

    def end(self, partitions: Iterable[TopicPartition]) -> None:
        """These are owned no more: what is in hand of them will never count."""
        for at in partitions:
            self._done.pop(at, None)
            self._committed.pop(at, None)
            self._dropped.discard(at)
            if self._in_hand is not None and self._in_hand[0] == at:
                self._in_hand = None

    def hand_out(self, at: TopicPartition, next_offset: int) -> None:
        """A record or batch up to ``next_offset`` is about to be worked on."""
        self._dropped.discard(at)
        self._in_hand = (at, next_offset, next_offset)

    def give(self, at: TopicPartition, next_offset: int) -> None:
        """Of what is in hand the program has been given what lies before ``next_offset``, one
        record after another: those before the last one are done."""
        if self._in_hand is not None and self._in_hand[0] == at:
            _, given, end = self._in_hand
            if given < next_offset:
                self._is_done(at, given)
            self._in_hand = (at, next_offset, end)

    def put_back(self, at: TopicPartition, offset: int) -> None:
        """What is in hand of a partition ends at ``offset`` now: the rest was not given."""
        if self._in_hand is not None and self._in_hand[0] == at:
            self._in_hand = (at, offset, offset)

    def hand_back(self) -> None:
        """Whatever was in hand is done."""
        if self._in_hand is not None:
            at, _, end = self._in_hand
            self._is_done(at, end)
            self._in_hand = None

    def finish(self) -> None:
        """The program asks for no more, and is done with what it was given."""
        if self._in_hand is not None:
            at, given, end = self._in_hand
            self._is_done(at, given)
            self._in_hand = None
            if given < end:
                self._dropped.add(at)

    def _is_done(self, at: TopicPartition, offset: int) -> None:
        if at in self._done:
            self._done[at] = max(offset, self._done[at])

    def pass_over(self, at: TopicPartition, offset: int) -> None:
        """Nothing that is to be read lies before ``offset``, but for what is, or was, in hand."""
        is_in_hand = self._in_hand is not None and self._in_hand[0] == at
        if not is_in_hand and at not in self._dropped:
            self._done[at] = max(offset, self._done.get(at, offset))

    def drop(self) -> None:
        """What was in hand could not be read after all, or its reader failed on it."""
        if self._in_hand is not None:
            self._dropped.add(self._in_hand[0])
            self._in_hand = None

    def say(self, offsets: Offsets) -> None:
        """The program says itself that all before these is done."""
        for at, offset in offsets.items():
            if at in self._done:
                self._done[at] = max(offset, self._done[at])

    def move(self, at: TopicPartition, offset: int) -> None:
        """The reader was told to go on at ``offset``, maybe backwards."""
        if self._in_hand is not None and self._in_hand[0] == at:
            self._in_hand = None
        self._dropped.discard(at)
        if at in self._done:
            self._done[at] = offset

    def done(self) -> dict[TopicPartition, int]:
        """How far all that is owned is done."""
        return dict(self._done)

    def uncommitted(self) -> dict[TopicPartition, int]:
        """What is done and not committed, by partition in order."""
        return {
            at: offset
            for at, offset in sorted(self._done.items())
            if self._committed.get(at) != offset
        }

    def committed(self, offsets: Offsets) -> None:
        """The coordinator has these."""
        for at, offset in offsets.items():
            if at in self._done:
                self._committed[at] = offset
