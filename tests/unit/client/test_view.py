"""What a client knows of topics when nodes tell it different things."""

from __future__ import annotations

from uuid import UUID

import pytest

from paceline.client.metadata import GONE_KEPT, ClusterView
from paceline.error_codes import ErrorCode
from paceline.types import LeaderEpoch, NodeId, TopicId, TopicPartition
from paceline.wire.native.data import BrokerInfo, MetadataReply, PartitionInfo, TopicInfo

OLD, NEW = TopicId(UUID(int=1)), TopicId(UUID(int=2))
AT = TopicPartition("t", 0)
BROKERS = tuple(BrokerInfo(NodeId(number), ()) for number in range(3))


def reply(
    topic_id: TopicId | None, *, at: int, leader: int = 0, epoch: int = 0, name: str = "t"
) -> MetadataReply:
    """What a node says of a topic whose metadata end ``at``; None: there is no such topic."""
    partition = PartitionInfo(0, 0, NodeId(leader), LeaderEpoch(epoch), (), ())
    missing = topic_id is None
    topic = TopicInfo(
        name,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if missing else 0,
        topic_id,
        () if missing else (partition,),
    )
    return MetadataReply(UUID(int=0), NodeId(0), at, BROKERS, (topic,))


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


# --- a node tells of a leader, and has not heard that its topic was made anew ---------------------


def hinted(view: ClusterView) -> None:
    """Of the old topic, to one who knows the new one."""
    view.update(reply(NEW, at=20, leader=0), whole=False)
    assert view.learn(AT, NodeId(1), LeaderEpoch(7))


def leads(view: ClusterView) -> tuple[int, int] | None:
    found = view.leader(AT)
    return found and (found.node, found.epoch)


def test_metadata_asked_for_since_then_say_who_leads() -> None:
    """The epoch of the old one is higher: nobody was found to lead the new one ever after."""
    view = ClusterView()
    hinted(view)
    view.doubt(AT, LeaderEpoch(7))
    assert view.update(reply(NEW, at=20, leader=2), whole=False, hints=view.hints)
    assert leads(view) == (2, 0)


def test_metadata_asked_for_before_do_not() -> None:
    view = ClusterView()
    before = view.hints
    hinted(view)
    view.doubt(AT, LeaderEpoch(7))
    assert not view.update(reply(NEW, at=20), whole=False, hints=before)
    assert leads(view) is None


def test_nor_do_those_of_a_node_that_lags() -> None:
    view = ClusterView()
    hinted(view)
    view.doubt(AT, LeaderEpoch(7))
    assert not view.update(reply(NEW, at=19), whole=False, hints=view.hints)
    assert leads(view) is None


def test_who_leads_as_told_is_believed_before_a_node_that_has_not_heard_of_it() -> None:
    view = ClusterView()
    hinted(view)
    assert not view.update(reply(NEW, at=21), whole=False, hints=view.hints)
    assert leads(view) == (1, 7)


def test_what_metadata_have_confirmed_is_no_hint_any_more() -> None:
    view = ClusterView()
    hinted(view)
    view.update(reply(NEW, at=30, leader=1, epoch=7), whole=False, hints=view.hints)
    view.doubt(AT, LeaderEpoch(7))
    assert not view.update(reply(NEW, at=31), whole=False, hints=view.hints)
    assert leads(view) is None


# --- topics that nobody asks for any more ---------------------------------------------------------


def test_what_is_remembered_of_topics_that_are_gone_is_bounded() -> None:
    """A client that looks at all topics, of a cluster where they come and go."""
    view = ClusterView()
    for number in range(3 * GONE_KEPT):
        at = 2 * number
        view.update(reply(NEW, at=at, name=f"t{number}"), whole=True)
    assert len(view._newest) <= GONE_KEPT + 1
    assert [each.name for each in view.topics()] == [f"t{number}"]


def test_nor_does_a_node_that_lags_bring_back_what_was_forgotten() -> None:
    view = ClusterView()
    view.update(reply(OLD, at=10), whole=True)
    view.update(reply(NEW, at=20), whole=True)
    for number in range(2 * GONE_KEPT):
        view.update(reply(NEW, at=30 + number, name=f"t{number}"), whole=True)
    view.update(reply(OLD, at=10), whole=False)
    assert view.topic_id("t") is None
    view.update(reply(NEW, at=30 + number), whole=False)
    assert view.topic_id("t") == NEW
