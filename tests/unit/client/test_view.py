"""What a client knows of topics when nodes tell it different things."""

from __future__ import annotations

from uuid import UUID

import pytest

from paceline.client.metadata import ClusterView
from paceline.error_codes import ErrorCode
from paceline.types import LeaderEpoch, NodeId, TopicId, TopicPartition
from paceline.wire.native.data import MetadataReply, PartitionInfo, TopicInfo

OLD, NEW = TopicId(UUID(int=1)), TopicId(UUID(int=2))
AT = TopicPartition("t", 0)


def reply(topic_id: TopicId | None, *, at: int, leader: int = 0) -> MetadataReply:
    """What a node says of ``t`` whose metadata end ``at``; None: there is no such topic."""
    partition = PartitionInfo(0, 0, NodeId(leader), LeaderEpoch(0), (), ())
    missing = topic_id is None
    topic = TopicInfo(
        "t",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if missing else 0,
        topic_id,
        () if missing else (partition,),
    )
    return MetadataReply(UUID(int=0), NodeId(0), at, (), (topic,))


def test_a_node_that_lags_brings_no_deleted_topic_back() -> None:
    """Readers of the new one took it for made anew, and read it again from its start."""
    view = ClusterView()
    view.update(reply(OLD, at=10), whole=False)
    view.update(reply(NEW, at=20, leader=1), whole=False)
    assert not view.update(reply(OLD, at=15, leader=2), whole=False)
    found = view.leader(AT)
    assert (view.topic_id("t"), found and found.node) == (NEW, 1)
    view.update(reply(OLD, at=30), whole=False)
    assert view.topic_id("t") == OLD


@pytest.mark.parametrize("whole", [False, True])
def test_nor_does_it_where_another_has_heard_of_neither(whole: bool) -> None:
    view = ClusterView()
    view.update(reply(NEW, at=20), whole=False)
    if whole:
        view.update(MetadataReply(UUID(int=0), NodeId(0), 5, (), ()), whole=True)
    else:
        view.update(reply(None, at=5), whole=False)
    assert view.topic_id("t") is None
    view.update(reply(OLD, at=15), whole=False)
    assert view.topic_id("t") is None
    view.update(reply(NEW, at=20), whole=False)
    assert view.topic_id("t") == NEW
