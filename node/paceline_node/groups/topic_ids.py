"""Which topic a stored offset is of: names are given again, ids never.

What a group stores of a topic carries the topic's id. It counts only while the topic of its name
has that id, as this node's metadata say; everything else is of a topic that was deleted, and is
forgotten when the partition's coordinator comes upon it (``topic_sweep.py``).

An id that the metadata do not know is that of a deleted topic, never of one that this node has not
heard of yet: only a leading coordinator writes, and only ids that it knows itself. Whoever leads
after it knows its own election, which came later than everything its predecessor knew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from paceline.types import TopicId

UNBOUND = TopicId(UUID(int=0))
"""Of offsets taken over from files: they are of the topic that has their name first."""


class TopicIds:
    """``ids`` gives the topics there are now, by name. It must not change what it gave before."""

    def __init__(self, ids: Callable[[], Mapping[str, TopicId]]) -> None:
        self._ids = ids
        self._first: Mapping[str, TopicId] | None = None

    def begin(self) -> None:
        """This node leads from now on."""
        self._first = self._ids()

    def end(self) -> None:
        """This node leads no longer."""
        self._first = None

    def current(self, topic: str) -> TopicId | None:
        """The id of the topic of that name; None when there is none."""
        return self._ids().get(topic)

    def holds(self, topic: str, topic_id: UUID | None) -> bool:
        """Whether what was stored for ``topic_id`` is of the topic that has the name now. None is
        that of older versions, which stored no ids: it is of the topic that had the name when this
        node began to lead."""
        if topic_id == UNBOUND:
            return True
        current = self.current(topic)
        if current is None:
            return False
        if topic_id is None:
            first = self._ids() if self._first is None else self._first
            return first.get(topic) == current
        return topic_id == current
