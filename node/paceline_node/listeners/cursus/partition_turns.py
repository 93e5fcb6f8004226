"""Which partition comes next for what has no key: each topic's in turns."""

from __future__ import annotations

from paceline.types import TopicId

_TOPICS_MAX = 10_000


class PartitionTurns:
    """Of ``most`` topics, for topics come and go: one that was not used for longest begins with its
    first partition again."""

    def __init__(self, most: int = _TOPICS_MAX) -> None:
        self._most = most
        self._turns: dict[TopicId, int] = {}

    def __len__(self) -> int:
        return len(self._turns)

    def next(self, topic: TopicId, partitions: int) -> int:
        """The partition for the next record of a topic that has so many."""
        turn = self._turns.pop(topic, -1) + 1
        self._turns[topic] = turn
        if len(self._turns) > self._most:
            del self._turns[next(iter(self._turns))]
        return turn % partitions
