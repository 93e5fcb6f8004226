"""OFFSET_FETCH looks up much a little at a time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from paceline.wire.kafka import offsets as wire
from paceline_node.client_memory import Portion, unlimited
from paceline_node.groups.keys import Family, GroupKey, TopicAndNumber
from paceline_node.groups.records import Offset
from paceline_node.listeners.kafka.call import Call
from paceline_node.listeners.kafka.offsets import KafkaOffsets
from paceline_node.loop_turns import Turns
from paceline_node.request_pace import Pace
from paceline_node.security.principals import ANONYMOUS
from paceline_node.services.groups.open_kafka_group import OpenKafkaGroup

STORED = {("t" + str(at % 3), at): Offset(at) for at in range(2000)}


class Groups:
    """A service that opens a group, which it coordinates, and the group's engine, which counts what
    one command looks up."""

    commit_s = 1.0

    def __init__(self) -> None:
        self.key = GroupKey(Family.KAFKA, "g")
        self.store = SimpleNamespace(offsets={self.key: STORED})
        self.offsets = self
        self.most = self._count = 0

    def open_kafka(self, *_: object) -> OpenKafkaGroup:
        here = cast(Any, self)
        return OpenKafkaGroup(here, here, Turns(), self.key, "")

    def may_see_offsets(self, _principal: object) -> Callable[[str], bool]:
        return lambda _topic: True

    def partition(self, _key: GroupKey) -> int:
        return 0

    def fetch(self, _key: GroupKey, *at: Any) -> Offset | None:
        self._count += 1
        return None if at[1] == 7 else STORED[cast(TopicAndNumber, at)]

    async def perform(
        self, _number: int, _key: object, operation: Callable[[Any], Any], *, commit_s: float
    ) -> Any:
        self._count = 0
        result = operation(self)
        self.most = max(self.most, self._count)
        return result


@pytest.mark.parametrize("named", [True, False])
async def test_offsets_are_looked_up_some_at_a_time(named: bool) -> None:
    """All of a group's, 45,000, were in one step of 0.19 s, whatever the request's size."""
    groups = Groups()
    room = Portion(unlimited())
    call = Call(8, ANONYMOUS, "c", "h:1", room, Pace(Turns(), room))
    by_topic = {name: [at for topic, at in STORED if topic == name] for name in ("t0", "t1", "t2")}
    topics = tuple(
        wire.OffsetFetchRequestGroupTopic(name=name, partition_indexes=tuple(numbers))
        for name, numbers in by_topic.items()
    )
    asked = wire.OffsetFetchRequestGroup(group_id="g", topics=topics if named else None)
    told = await KafkaOffsets(cast(Any, groups)).fetch(
        wire.OffsetFetchRequest(groups=(asked,)), call
    )
    [group] = told.groups
    found = {
        topic.name: {each.partition_index: each.committed_offset for each in topic.partitions}
        for topic in group.topics
    }
    expected = {name: {at: at for at in numbers} for name, numbers in by_topic.items()}
    if named:
        expected["t1"][7] = -1
    else:
        del expected["t1"][7]  # of a topic that is no more
    assert found == expected
    assert groups.most <= 200
    assert call.pace.took_turns
