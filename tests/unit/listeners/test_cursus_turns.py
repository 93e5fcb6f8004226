"""Partitions of records without keys, in turns; what is kept of topics that are gone is bounded."""

from __future__ import annotations

from uuid import UUID

from paceline.types import TopicId
from paceline_node.listeners.cursus.partition_turns import PartitionTurns


def test_partitions_take_turns_and_topics_are_forgotten() -> None:
    turns = PartitionTurns(most=3)
    used, *others = [TopicId(UUID(int=number)) for number in range(50)]
    found = []
    for each in others:
        found.append(turns.next(used, 4))
        turns.next(each, 4)
    assert found == [number % 4 for number in range(49)]
    assert len(turns) == 3
    assert turns.next(others[-1], 4) == 1
    assert turns.next(others[0], 4) == 0
