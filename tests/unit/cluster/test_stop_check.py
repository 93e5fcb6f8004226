"""What would break if a node stopped now."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from paceline.documents.survey import Survey
from paceline.types import NO_NODE, LeaderEpoch, NodeId, TopicId
from paceline.wire.native.data import (
    BrokerInfo,
    MetadataReply,
    PartitionInfo,
    StatusReply,
    TopicInfo,
)
from paceline_cluster.processes import ProcessState
from paceline_cluster.stop_check import breaks, next_of, not_back
from paceline_cluster.survey import NodeView

NODES = tuple(BrokerInfo(NodeId(node), ()) for node in range(3))
STATUS = StatusReply(
    node_id=NodeId(0),
    cluster_id=UUID(int=1),
    software="paceline",
    state="running",
    reasons=(),
    role="follower",
    term=3,
    controller=NodeId(1),
    voters=(NodeId(0), NodeId(1), NodeId(2)),
    image_offset=10,
    commit_offset=10,
    brokers=NODES,
    topic_count=1,
    partition_count=1,
    leaderless_count=0,
    under_replicated_count=0,
    under_min_isr_count=0,
    leading_count=1,
    hosting_count=1,
    degraded=False,
    uptime_ms=1000,
)


def _seen(status: StatusReply = STATUS, running: Sequence[int] = (0, 1, 2)) -> Survey:
    return Survey(
        tuple(
            NodeView(node, f"h:{node}", ProcessState.RUNNING, replace(status, node_id=NodeId(node)))
            if node in running
            else NodeView(node, f"h:{node}", ProcessState.STOPPED, None)
            for node in range(3)
        )
    )


def _told(
    replicas: Sequence[int] = (0, 1, 2),
    isr: Sequence[int] = (0, 1, 2),
    *,
    least: int | None = 2,
    leader: int = 0,
    drained: Sequence[int] = (),
) -> MetadataReply:
    partition = PartitionInfo(
        0,
        0,
        NodeId(leader),
        LeaderEpoch(1),
        tuple(map(NodeId, replicas)),
        tuple(map(NodeId, isr)),
    )
    configs = None if least is None else {"min.insync.replicas": str(least)}
    topic = TopicInfo("orders", 0, TopicId(UUID(int=7)), (partition,), configs=configs)
    brokers = tuple(replace(each, drained=each.node_id in drained) for each in NODES)
    return MetadataReply(UUID(int=1), NodeId(1), 10, brokers, (topic,))


def test_nothing_breaks_where_enough_are_left() -> None:
    assert breaks(_seen(), _told(), 0).all() == ()
    assert breaks(_seen(), _told(isr=(0, 1), least=1), 0).all() == ()


def test_replicas_that_would_be_missing_are_waited_for() -> None:
    found = breaks(_seen(), _told(isr=(0, 1)), 0)
    assert found.lasting == ()
    assert found.passing == ("1 partition would lack replicas in sync: orders/0",)
    # The node that is behind takes nothing away, and yet its partition needs it.
    assert breaks(_seen(), _told(isr=(1,)), 0).passing
    assert not breaks(_seen(), _told((0, 1), (0, 1)), 2).all(), "it has no replica"
    assert breaks(_seen(), _told(leader=-1), 0).passing


@pytest.mark.parametrize("replicas", [(0,), (0, 1)])
def test_too_few_replicas_do_not_become_more_by_waiting(replicas: tuple[int, ...]) -> None:
    found = breaks(_seen(), _told(replicas, replicas), 0)
    assert found.lasting == (
        "1 partition cannot be written to without it, by the number of replicas: orders/0",
    )
    assert found.passing == ()


def test_the_others_are_to_be_complete_where_writes_stop_in_any_case() -> None:
    assert breaks(_seen(), _told((0, 1), (0,)), 0).passing
    assert breaks(_seen(), _told((0, 1), (0,)), 0).lasting


def test_drained_nodes_lead_nothing() -> None:
    [said] = breaks(_seen(), _told(drained=(1, 2)), 0).lasting
    assert said == "1 partition would be led by nobody, for the other nodes are drained: orders/0"
    assert not breaks(_seen(), _told(drained=(1,)), 0).all()


def test_the_quorum_keeps_its_majority() -> None:
    down = replace(STATUS, brokers=(*NODES[:2], replace(NODES[2], fenced=True)))
    assert breaks(_seen(down), _told(), 0).passing == (
        "the metadata quorum would have no majority without node 2",
    )
    alone = replace(STATUS, voters=(NodeId(0),))
    assert breaks(_seen(alone), _told(), 0).lasting == (
        "nobody votes without it: a majority of 1 voter needs it",
    )
    assert not breaks(_seen(alone), _told(), 1).all()
    lost = replace(STATUS, controller=NO_NODE)
    assert breaks(_seen(lost), _told(), 0).passing == ("there is no controller",)


def test_a_node_that_does_not_answer_is_no_help_though_metadata_do_not_know_it_yet() -> None:
    quorum, lacking = breaks(_seen(running=(0, 1)), _told(), 0).passing
    assert quorum == "the metadata quorum would have no majority without node 2"
    assert lacking == "1 partition would lack replicas in sync: orders/0"


def test_what_is_not_shown_is_not_taken_for_well() -> None:
    [said] = breaks(_seen(), _told(least=None), 0).passing
    assert said.endswith("(describe-configs) of 1 topic: orders")
    more = replace(STATUS, partition_count=4)
    assert breaks(_seen(more), _told(), 0).passing == (
        "who asks is not shown 3 partitions (describe)",
    )
    assert breaks(_seen(running=()), None, 0).passing


def test_a_node_is_back_when_it_is_in_sync() -> None:
    assert not_back(_seen(), _told(), 2) == ""
    assert not_back(_seen(), _told(isr=(0, 1)), 2) == "1 replica of it is not in sync: orders/0"
    assert not_back(_seen(), _told(isr=(0, 1)), 1) == ""
    assert not_back(_seen(), _told(leader=-1), 2) == "1 partition has no leader: orders/0"
    assert "node 2" in not_back(_seen(running=(0, 1)), _told(), 2)
    starting = replace(STATUS, state="starting")
    assert "node 2 is starting" in not_back(_seen(starting), _told(), 2)


def test_who_is_down_comes_first_and_the_controller_last() -> None:
    assert next_of([0, 1, 2], [], 0) == 1
    assert next_of([0, 1, 2], [2], 0) == 2
    assert next_of([2, 0], [], 1) == 2
    assert next_of([1], [], 1) == 1
