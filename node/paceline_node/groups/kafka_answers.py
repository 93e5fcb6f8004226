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
from paceline_node.groups.context import GroupContext
from paceline_node.groups.keys import GroupKey
from paceline_node.state_machines.machine import Deferred

AT_ONCE = 50
T = TypeVar("T")


class Answers:
    """What is owed to members of each group; the group's alarms give it to them."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._owed: dict[GroupKey, deque[Callable[[], None]]] = {}
        self._refusal: PacelineError | None = None

    def give(
        self,
        key: GroupKey,
        waiting: Iterable[tuple[str, Deferred[T]]],
        answer_of: Callable[[str], T | PacelineError],
    ) -> None:
        """Answer members in this order: now where they are few, else at the next alarms.
        ``answer_of`` says what, by what is known now."""

        def deliver(member_id: str, answer: Deferred[T]) -> None:
            answer.deliver(self._refusal or answer_of(member_id))

        owed = self._owed.setdefault(key, deque())
        owed.extend(partial(deliver, member_id, answer) for member_id, answer in waiting)
        if len(owed) > AT_ONCE:
            self._context.alarms.ask(key, self._context.now())
        else:
            self.go_on(key)

    def go_on(self, key: GroupKey) -> bool:
        """Give the next ones; whether there are more."""
        owed = self._owed.get(key)
        if owed is None:
            return False
        for _ in range(min(AT_ONCE, len(owed))):
            owed.popleft()()
        if not owed:
            del self._owed[key]
        return bool(owed)

    def clear(self, error: PacelineError) -> None:
        """Tell everyone who waits."""
        self._refusal = error
        for owed in self._owed.values():
            for deliver in owed:
                deliver()
        self._owed.clear()
        self._refusal = None
