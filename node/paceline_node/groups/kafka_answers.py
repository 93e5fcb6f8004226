"""Answers that many members wait for, given in turns.

Each wakes the task of a connection, which says it to its client, and the loop runs all that were
woken before it looks at sockets again: a thousand at once would hold it for a tenth of a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from paceline.errors import PacelineError
from paceline_node.state_machines.machine import Deferred

AT_ONCE = 50
T = TypeVar("T")


class Answers:
    """What is owed to members of a group; its alarms give it to them: ``wake`` asks for one now."""

    __slots__ = ("_owed", "_refusal", "_wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._owed: deque[Callable[[], None]] | None = None
        self._refusal: PacelineError | None = None

    @property
    def are_owed(self) -> bool:
        """Whether somebody still waits for one."""
        return bool(self._owed)

    def give(
        self,
        waiting: Iterable[tuple[str, Deferred[T]]],
        answer_of: Callable[[str], T | PacelineError],
    ) -> None:
        """Answer members in this order: now where they are few, else at the next alarms.
        ``answer_of`` says what, by what is known now."""

        def deliver(member_id: str, answer: Deferred[T]) -> None:
            answer.deliver(self._refusal or answer_of(member_id))

        owed = self._owed = self._owed or deque()
        owed.extend(partial(deliver, member_id, answer) for member_id, answer in waiting)
        if len(owed) > AT_ONCE:
            self._wake()
        else:
            self.go_on()

    def go_on(self) -> bool:
        """Give the next ones; whether there are more."""
        owed = self._owed
        if owed is None:
            return False
        for _ in range(min(AT_ONCE, len(owed))):
            owed.popleft()()
        if not owed:
            self._owed = None
        return bool(owed)

    def refuse(self, error: PacelineError) -> None:
        """Tell everyone who waits."""
        owed, self._owed = self._owed, None
        self._refusal = error
        for deliver in owed or ():
            deliver()
        self._refusal = None
