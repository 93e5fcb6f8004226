"""Judging a cluster from its nodes' answers: ready, healthy, and why not."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio

from paceline.documents.survey import Survey, health_document
from paceline.health import OF_CLUSTER, OF_NODE, Level
from paceline.types import INTERNAL_TOPICS, NodeId
from paceline.wire.native.data import BrokerInfo, StatusReply
from paceline.wire.native.status_details import HealthFinding, RangeStanding
from paceline_cluster import processes, questions, readiness
from paceline_cluster.cli.survey_report import (
    health_tables,
    status_data,
    status_tables,
)
from paceline_cluster.errors import NodeEnded
from paceline_cluster.launch import Children
from paceline_cluster.processes import ProcessState
from paceline_cluster.readiness import PATIENCE_S, wait_in_sync
from paceline_cluster.state import ClusterState, NodeEntry
from paceline_cluster.survey import NodeView
from paceline_cluster.verdicts import to_text
from paceline_node.controller.context import ControllerSettings

ALL_WELL = StatusReply(
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
    brokers=tuple(BrokerInfo(NodeId(node), ()) for node in range(3)),
    topic_count=2,
    partition_count=17,
    leaderless_count=0,
    under_replicated_count=0,
    under_min_isr_count=0,
    leading_count=6,
    hosting_count=17,
    degraded=False,
    uptime_ms=1000,
)


def _view(node: int, status: StatusReply | None = ALL_WELL, *, error: str = "") -> NodeView:
    found = None if status is None else replace(status, node_id=NodeId(node))
    return NodeView(node, f"h:{node}", ProcessState.RUNNING, found, error)


def _survey(*changes: StatusReply | None) -> Survey:
    answers = (*changes, *[ALL_WELL] * (3 - len(changes)))
    return Survey(tuple(_view(node, status) for node, status in enumerate(answers)))


def test_nodes_that_do_not_tell_whoever_asks_run_all_the_same() -> None:
    closed = [replace(_view(n, None, error="may not"), is_closed=True) for n in range(3)]
    seen = Survey(tuple(closed))
    assert seen.is_closed()
    assert seen.is_healthy() is None, "it is not known"
    assert status_data(None, seen)["healthy"] is None
    *_, counts, _ = status_tables(None, seen)
    assert counts.rows == [(None, *["unknown"] * 5)]
    assert Survey((closed[0], _view(1))).is_healthy() is None
    assert Survey((closed[0], _view(1, None))).is_healthy() is False
    assert [view.state for view in seen.nodes] == ["no-access"] * 3
    [told] = Survey((closed[0],)).reasons()
    assert told == (
        "node 0 runs, and does not say how it is (may not): say who you are by "
        "PACELINE_CLIENT_USERNAME and PACELINE_CLIENT_PASSWORD_FILE"
    )
    [told] = Survey((replace(closed[0], error="alice may not describe cluster"),)).reasons()
    assert "--principal alice --operation describe --cluster" in told
    assert "say who you are" not in told
    assert not Survey((*closed[:2], _view(2, None))).is_closed()
    stopped = replace(closed[2], process=ProcessState.STOPPED, is_closed=False)
    assert not Survey((*closed[:2], stopped)).is_closed()


def test_what_nodes_that_do_not_tell_need_is_told_once() -> None:
    """The same command stood behind each of them."""
    views = [
        NodeView(node, f"h:{node}", None, None, f"h:{node}: it wants a log-in", is_closed=True)
        for node in range(3)
    ]
    seen = Survey((*views[:2], replace(views[2], error="alice may not describe cluster")))
    first, second = seen.reasons()
    assert first.startswith("nodes 0, 1 run, and do not say how they are (it wants a log-in): say ")
    assert second.startswith("node 2 runs, and does not say how it is (alice may not describe ")
    [table] = health_tables(health_document(seen))
    assert table.rows == [(first,), (second,)]
    text = to_text(questions.health(seen))
    assert text.count("say who you are by") == 1
    assert text.count("--principal alice") == 1
    assert [each.node for each in seen.checks()] == [0, 1, 2]


def test_all_well() -> None:
    seen = _survey()
    assert seen.is_ready()
    assert seen.is_healthy()
    assert seen.controller == 1
    assert seen.reasons() == []


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (None, "node 0 is unreachable"),
        (replace(ALL_WELL, state="fenced", reasons=("no quorum",)), "node 0 is fenced (no quorum)"),
        (replace(ALL_WELL, controller=NodeId(2)), "the nodes do not agree on the controller yet"),
        (replace(ALL_WELL, image_offset=11, topic_count=1), "the internal topics are not made yet"),
        (
            replace(ALL_WELL, image_offset=11, brokers=ALL_WELL.brokers[:2]),
            "node 2 is not an active broker",
        ),
        (
            replace(
                ALL_WELL,
                image_offset=11,
                brokers=(*ALL_WELL.brokers[:2], BrokerInfo(NodeId(2), (), fenced=True)),
            ),
            "node 2 is not an active broker",
        ),
        (
            replace(ALL_WELL, image_offset=11, leaderless_count=4),
            "4 of 17 partitions without leader: nobody can write or read them",
        ),
    ],
)
def test_what_keeps_a_cluster_from_being_ready(changed: StatusReply | None, reason: str) -> None:
    seen = _survey(changed)
    assert not seen.is_ready()
    assert reason in seen.reasons()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"under_replicated_count": 2}, "2 of 17 partitions under-replicated"),
        (
            {"under_min_isr_count": 1},
            (
                "1 of 17 partitions below min.insync.replicas: writes with acks=all to them are "
                "refused"
            ),
        ),
        (
            {"findings": (HealthFinding("damage", Level.WARNING, "orders/0 is rotten", "wait"),)},
            "node 0: orders/0 is rotten",
        ),
        (
            {"findings": (HealthFinding("disk-speed", Level.CRITICAL, "the disk is slow", ""),)},
            "node 0: the disk is slow",
        ),
        (
            {"findings": (HealthFinding("a-later-check", Level.CRITICAL, "it hurts", ""),)},
            "node 0: it hurts",
        ),
    ],
)
def test_ready_but_not_healthy(changed: dict[str, Any], reason: str) -> None:
    seen = _survey(replace(ALL_WELL, image_offset=11, **changed))
    assert seen.is_ready()
    assert seen.reasons() == [reason]


def test_why_a_node_does_not_run_is_told_once() -> None:
    findings = (
        HealthFinding("state", Level.CRITICAL, "broker is fenced", "see"),
        HealthFinding("session", Level.CRITICAL, "no session with a controller", "see"),
        HealthFinding("damage", Level.CRITICAL, "orders/0 is rotten", ""),
    )
    reasons = ("broker is fenced", "no session with a controller")
    seen = _survey(replace(ALL_WELL, state="fenced", reasons=reasons, findings=findings))
    assert seen.reasons() == [
        "node 0 is fenced (broker is fenced, no session with a controller)",
        "node 0: orders/0 is rotten",
    ]
    failed = [(each.name, each.node) for each in seen.checks() if each.level]
    assert failed == [("state", 0), ("session", 0), ("damage", 0)]


def test_a_stall_that_is_over_is_told_and_makes_no_cluster_unhealthy() -> None:
    stall = HealthFinding("event-loop", Level.CRITICAL, "it stood still", "more of a processor")
    seen = _survey(replace(ALL_WELL, findings=(stall,)))
    assert seen.is_healthy()
    [told] = [each for each in seen.checks() if each.level]
    assert (told.name, told.node, told.reason) == ("event-loop", 0, "node 0: it stood still")


def test_a_drained_node_is_remarked_and_makes_no_cluster_unhealthy() -> None:
    drained = replace(ALL_WELL.brokers[2], drained=True)
    told = replace(ALL_WELL, image_offset=11, brokers=(*ALL_WELL.brokers[:2], drained))
    seen = _survey(told)
    assert (seen.is_healthy(), seen.is_ready()) == (True, True)
    assert [node["state"] for node in status_data(None, seen)["nodes"]] == [
        *("running", "running", "drained")
    ]
    health, remarks = health_tables(health_document(seen))
    assert health.rows == [("healthy",)]
    [[remark]] = remarks.rows
    assert remark.startswith("node 2 is drained")
    fenced = replace(ALL_WELL, state="fenced")
    assert _survey(told, ALL_WELL, fenced).states()[2] == "fenced", "its own word matters more"


def test_checks_that_pass_are_told_of_every_node_and_the_cluster() -> None:
    seen = _survey()
    assert {each.level for each in seen.checks()} == {Level.OK}
    assert [each.name for each in seen.checks()] == [*OF_NODE, *OF_NODE, *OF_NODE, *OF_CLUSTER]


def test_lost_ranges_are_named_by_node_and_those_given_up_hurt_nobody() -> None:
    given_up = RangeStanding("orders", 0, 5, 8, "given-up", "the log start lies behind it")
    seen = _survey(ALL_WELL, replace(ALL_WELL, ranges=(given_up,)))
    assert seen.ranges() == [(1, given_up)]
    assert seen.is_healthy()


def test_counts_come_from_the_newest_metadata() -> None:
    seen = _survey(replace(ALL_WELL, leaderless_count=9, image_offset=3))
    assert seen.is_ready()


def _dead(node: int, process: ProcessState = ProcessState.STOPPED) -> NodeView:
    return replace(_view(node, None), process=process)


ALONE = replace(ALL_WELL, leading_count=11, controller=NodeId(-1))
LED = replace(ALL_WELL, leading_count=11)
OTHERS_FENCED = replace(
    LED,
    leaderless_count=2,
    brokers=(LED.brokers[0], *(BrokerInfo(NodeId(node), (), fenced=True) for node in (1, 2))),
)


@pytest.mark.parametrize(
    ("views", "count"),
    [
        ((_view(0, ALONE), _dead(1), _dead(2)), 6),
        ((_view(0, LED), _dead(1), _dead(2, ProcessState.SUSPENDED)), 6),
        ((_view(0, OTHERS_FENCED), _dead(1), _dead(2)), 2),
        ((_view(0, OTHERS_FENCED), _view(1, None), _view(2, None)), 2),
        ((_view(0, LED), _view(1, None), _view(2, None)), None),
        ((_view(0, ALONE), _view(1, None), _dead(2)), None),
        ((_view(0, LED), _view(1), _view(2, None)), 0),
        ((_view(0, LED), _view(1, LED), _view(2, LED)), 0),
        ((_dead(0),), None),
    ],
)
def test_partitions_whose_leaders_are_dead_have_none(
    views: tuple[NodeView, ...], count: int | None
) -> None:
    """LEADERLESS was 0 for as long as the metadata had not heard of a node's end."""
    seen = Survey(views)
    assert seen.leaderless() == count
    assert status_data(None, seen)["leaderless_partitions"] == count
    told = [each for each in seen.reasons() if "without leader" in each]
    assert bool(told) == bool(count)


async def test_leaders_that_do_not_lead_yet_are_waited_for(autojump_clock: object) -> None:
    """'up' showed LEADS 0 of every node."""
    leading = [0, 3, 6]

    async def look() -> Survey:
        status = replace(ALL_WELL, leading_count=leading.pop(0))
        return _survey(status, status, status)

    none = replace(ALL_WELL, leading_count=0)
    seen = await wait_in_sync(look, _survey(none, none, none))
    assert [view.status.leading_count for view in seen.nodes if view.status] == [6, 6, 6]


def test_no_controller_anywhere() -> None:
    nobody = replace(ALL_WELL, controller=NodeId(-1))
    seen = _survey(nobody, nobody, nobody)
    assert seen.controller is None
    [told] = [each for each in seen.reasons() if each.startswith("there is no controller")]
    assert told.endswith("writes are refused once the nodes' sessions are over")
    lost = HealthFinding("session", Level.CRITICAL, "no session with a controller", "")
    alone = replace(nobody, findings=(lost,))
    seen = Survey((_view(0, alone), _view(1, None), _view(2, None)))
    assert "there is no controller: writes to all 17 partitions are refused" in seen.reasons()


def test_what_to_do_stands_below_what_is_wrong() -> None:
    seen = _survey(replace(ALL_WELL, image_offset=11, under_min_isr_count=1, leaderless_count=1))
    health, todo = health_tables(health_document(seen))
    assert len(health.rows) == 2
    assert todo.columns == ("what to do",)
    assert [each for [each] in todo.rows] == [
        check.what_to_do for check in seen.checks() if check.level
    ]
    stopped = Survey((replace(_view(0, None), process=ProcessState.STOPPED),))
    [health] = health_tables(health_document(stopped))
    assert health.rows == [("node 0 is stopped: start it with 'paceline node restart 0'",)]
    assert len(health_tables(health_document(_survey()))) == 1


def test_of_a_node_that_is_down_one_thing_is_told() -> None:
    """That it is no active broker, too, was said behind it, with 'start it' to do."""
    known = replace(ALL_WELL, image_offset=11, brokers=ALL_WELL.brokers[:2])
    stopped = replace(_view(2, None), process=ProcessState.STOPPED)
    seen = Survey((_view(0, known), _view(1, known), stopped))
    assert seen.reasons() == ["node 2 is stopped: start it with 'paceline node restart 2'"]
    assert not seen.is_ready()


def test_what_to_do_names_the_node() -> None:
    lost = HealthFinding("session", Level.CRITICAL, "no session with a controller", "see whether")
    _, todo = health_tables(health_document(_survey(replace(ALL_WELL, findings=(lost,)))))
    assert todo.rows == [("node 0: see whether",)]
    both = replace(ALL_WELL, findings=(lost,))
    _, todo = health_tables(health_document(_survey(both, both)))
    assert todo.rows == [("nodes 0, 1: see whether",)]


def test_what_is_to_be_done_for_all_is_not_told_of_a_node_again() -> None:
    voters = "start enough voters of the quorum: 'paceline quorum describe' names them"
    lost = HealthFinding("controller", Level.CRITICAL, "no active controller is known", voters)
    alone = replace(ALL_WELL, controller=NodeId(-1), findings=(lost,))
    _, todo = health_tables(health_document(_survey(alone, alone, alone)))
    assert todo.rows == [(voters,)]


def test_nobody_answers() -> None:
    seen = Survey(tuple(_view(node, None, error="refused") for node in range(2)))
    assert not seen.is_ready()
    assert seen.reasons() == [f"node {node} is unreachable (refused)" for node in range(2)]


@pytest.mark.parametrize(
    ("process", "what_to_do"),
    [
        (ProcessState.STOPPED, "start it with 'paceline node restart 3'"),
        (ProcessState.SUSPENDED, "let it go on with 'paceline node resume 3'"),
    ],
)
def test_state_of_the_process_comes_first(process: ProcessState, what_to_do: str) -> None:
    view = NodeView(3, "h:0", process, None)
    assert view.state == str(process)
    assert view.problems() == [f"node 3 is {process}: {what_to_do}"]


def test_of_a_cluster_that_is_stopped_one_thing_is_to_be_done() -> None:
    """'node restart' was advised once a node, which fails: none of them serves alone."""
    views = [NodeView(node, "h:0", ProcessState.STOPPED, None) for node in range(3)]
    seen = Survey(tuple(views), start_with="'paceline up'")
    said = "the cluster is stopped: start it with 'paceline up'"
    assert seen.reasons() == [said]
    [health] = health_tables(health_document(seen))
    assert health.rows == [(said,)]
    assert seen.is_healthy() is False
    assert [each.reason for each in questions.disk(seen, None, None).findings] == [said]
    ended = replace(views[1], ended=True, complaint="no space left")
    [told] = Survey((views[0], ended, views[2]), start_with="'paceline up'").reasons()
    assert told == (
        "the cluster is stopped (node 1: nobody stopped it; its log said last: no space left): "
        "start it with 'paceline up'"
    )


def test_topics_of_the_brokers_own_are_told_from_the_others() -> None:
    """A cluster on which nobody had made any had two."""
    seen = replace(_survey(), internal_topics=2)
    *_, counts = status_tables(None, seen)
    assert counts.rows[0][1] == "2 (2 internal)"
    *_, counts = status_tables(None, _survey())
    assert counts.rows[0][1] == 2
    made = ControllerSettings()
    names = [name for name, _ in (*made.internal_topics, *made.topics_on_demand)]
    assert names == list(INTERNAL_TOPICS)


def test_a_node_that_ended_says_why() -> None:
    words = "the data directory failed: [Errno 30] Read-only file system"
    view = NodeView(3, "h:0", ProcessState.STOPPED, None, complaint=words, ended=True)
    [said] = view.problems()
    assert said == (
        f"node 3 is stopped (nobody stopped it; its log said last: {words}): "
        "start it with 'paceline node restart 3'"
    )


async def test_replicas_that_come_nearer_to_sync_are_waited_for(autojump_clock: object) -> None:
    """'up' of a cluster that had been killed ended with UNDER-REPLICATED 17."""
    lacking = [17, 17, 5, 5, 0]
    began = trio.current_time()

    async def look() -> Survey:
        await trio.sleep(4)
        return _survey(replace(ALL_WELL, image_offset=11, under_replicated_count=lacking.pop(0)))

    seen = await wait_in_sync(look, _survey(replace(ALL_WELL, under_replicated_count=17)))
    assert seen.is_healthy()
    assert trio.current_time() - began == pytest.approx(20, abs=1)
    assert await wait_in_sync(look, seen) is seen


async def test_a_replica_that_cannot_come_into_sync_keeps_nobody_waiting(
    autojump_clock: object,
) -> None:
    damaged = _survey(replace(ALL_WELL, image_offset=11, under_replicated_count=3))

    async def look() -> Survey:
        return damaged

    began = trio.current_time()
    assert await wait_in_sync(look, damaged) is damaged
    assert trio.current_time() - began == pytest.approx(PATIENCE_S, abs=0.1)


async def test_the_time_for_up_is_for_replicas_too(autojump_clock: object) -> None:
    """'up --timeout 3' went on for 10 s after it."""
    damaged = _survey(replace(ALL_WELL, image_offset=11, under_replicated_count=3))

    async def look() -> Survey:
        return damaged

    began = trio.current_time()
    assert await wait_in_sync(look, damaged, deadline=began + 3) is damaged
    assert trio.current_time() - began == pytest.approx(3, abs=0.1)


async def test_a_cluster_that_does_not_answer_is_not_in_sync(autojump_clock: object) -> None:
    """That nobody said anything was taken for nothing lacking."""
    nobody = _survey(None, None, None)
    views = [nobody, nobody, _survey()]

    async def look() -> Survey:
        return views.pop(0)

    seen = await wait_in_sync(look, _survey(replace(ALL_WELL, under_replicated_count=3)))
    assert seen.is_healthy()
    assert views == []


def _process() -> subprocess.Popen[bytes]:
    """One that runs until it is killed, or its input ends."""
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


async def test_a_node_that_ends_while_replicas_are_waited_for_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """'up' said that all was well, or waited 10 s."""
    damaged = _survey(replace(ALL_WELL, image_offset=11, under_replicated_count=3))
    looks = 0
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    with _process() as child:

        async def look(_current: ClusterState) -> Survey:
            nonlocal looks
            looks += 1
            if looks == 2:
                child.kill()
                child.wait()
            return damaged

        monkeypatch.setattr(readiness, "survey", look)
        port = listener.socket.getsockname()[1]
        entry = NodeEntry(
            0,
            tmp_path,
            {"native": f"127.0.0.1:{port}"},
            child.pid,
            processes.start_time(child.pid),
        )
        with pytest.raises(NodeEnded, match="node 0"):
            await readiness.wait_until_ready(
                ClusterState("c", (entry,)), Children({0: child}), timeout_s=60, in_sync=True
            )
    await listener.aclose()
    assert looks == 2
