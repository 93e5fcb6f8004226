"""What is judged of event streams and of the quorum's promises, from what is told of them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from paceline.types import NodeId
from paceline.wire.cursus.batch import CursusRecord
from paceline_cluster.sim.promises import Promises
from paceline_cluster.sim.retention.event_streams import EventStreamJudge
from paceline_node.controller.quorum import Quorum
from paceline_node.controller.raft_types import MemberId


class Found:
    """What a judge has found."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def fail(self, invariant: str, text: str) -> None:
        self.texts.append(f"{invariant} {text}")


@pytest.fixture
def found() -> Found:
    return Found()


@pytest.fixture
def judge(found: Found) -> EventStreamJudge:
    """Of a stream with the versions 1 and 2."""
    judge = EventStreamJudge(found.fail)
    for version in (1, 2):
        judge.offered("fox", version, f"v{version}")
        judge.stored("fox", version, f"v{version}")
    return judge


def event(version: int, text: str) -> CursusRecord:
    return CursusRecord(payload=text.encode(), aggregate_version=version)


def test_a_stream_may_be_ahead_of_what_was_acknowledged(
    judge: EventStreamJudge, found: Found
) -> None:
    judge.offered("fox", 3, "v3")
    judge.told("fox", 3, 2)
    judge.told("fox", 2, 2)
    judge.read("fox", (1, "as of fox 1"), [event(2, "v2"), event(3, "v3")])
    assert not found.texts
    assert judge.newest["fox"] == 3


@pytest.mark.parametrize(
    ("tell", "what"),
    [
        (lambda judge: judge.told("fox", 1, 2), "it was at 2"),
        (lambda judge: judge.told("fox", 3, 2), "the highest that anybody has written"),
        (lambda judge: judge.stored("fox", 2, "other"), "which nobody wrote"),
        (lambda judge: judge.read("fox", None, [event(1, "v1"), event(3, "v3")]), "in a row"),
        (lambda judge: judge.read("fox", (2, "as of fox 1"), []), "the snapshot of version 2"),
    ],
)
def test_what_cannot_be_is_found(
    tell: Callable[[EventStreamJudge], None], what: str, judge: EventStreamJudge, found: Found
) -> None:
    tell(judge)
    assert what in found.texts[0]


def test_a_version_that_is_given_twice_is_found(judge: EventStreamJudge, found: Found) -> None:
    judge.offered("fox", 2, "another")
    judge.stored("fox", 2, "another")
    assert found.texts == ["E fox: version 2 says 'another', and said 'v2'"]


def member(number: int, *, last: int, commit: int = 0, told: Any = None) -> Quorum:
    me = MemberId(NodeId(number), bytes(16))
    return cast(
        Quorum,
        SimpleNamespace(
            member_id=me, last_index=last, commit_index=commit, acknowledged=told or {}
        ),
    )


def test_a_member_that_has_less_than_it_acknowledged_is_found(found: Found) -> None:
    promises = Promises(found.fail)
    leader = member(0, last=9, commit=7, told={MemberId(NodeId(1), bytes(16)): 8})
    promises.look(leader)
    promises.began(1, member(1, last=7))
    promises.began(2, member(2, last=0))
    assert not found.texts, "what is not committed may be cut, and another promised nothing"
    promises.began(1, member(1, last=6))
    assert "it had acknowledged 7" in found.texts[0]
