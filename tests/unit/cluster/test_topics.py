"""What ``topic describe`` tells where nobody can tell it for sure."""

from __future__ import annotations

from uuid import UUID

from paceline.documents.topics import stale
from paceline.errors import ErrorCode
from paceline.types import LeaderEpoch, NodeId, TopicId
from paceline.wire.native.data import PartitionDescription, TopicDescription
from paceline_cluster.cli.topics import _described


def partition(number: int, error: int = 0, message: str = "") -> PartitionDescription:
    nodes = (NodeId(0), NodeId(1))
    at = 7 if not message else -1
    return PartitionDescription(
        number,
        error,
        message,
        NodeId(0),
        LeaderEpoch(1),
        1,
        nodes,
        nodes,
        at,
        at,
        at,
        at,
        at,
        1,
        (),
    )


def topic(*partitions: PartitionDescription) -> TopicDescription:
    return TopicDescription("orders", TopicId(UUID(int=1)), partitions)


def test_what_the_leaders_say_is_not_stale() -> None:
    assert stale([partition(0), partition(1)], has_controller=True) is None


def test_without_a_controller_leaders_may_be_others() -> None:
    told = stale([partition(0)], has_controller=False)
    assert told == "there is no controller, so leaders and replicas in sync may be others by now"


def test_partitions_without_an_answer_are_named() -> None:
    silent = partition(1, 0, "the leader did not answer")
    leaderless = partition(2, ErrorCode.LEADER_NOT_AVAILABLE, "no leader")
    told = stale([partition(0), silent, leaderless], has_controller=True)
    assert told == (
        "no leader answered for partitions 1, 2, of which only what was decided last is known"
    )
    data, [table] = _described(topic(partition(0), silent, leaderless), has_controller=True)
    assert data["stale"] == told
    assert [row[-1] for row in table.rows] == [None, "the leader did not answer", "no leader"]
