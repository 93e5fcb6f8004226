"""Commits by name of members that read a topic which was deleted, and made anew under its name."""

from __future__ import annotations

import pytest

from paceline.errors import RebalanceInProgress
from paceline.wire.consumer_protocol import Assignment
from paceline_node.groups.committed_offsets import Commit, OffsetRule
from paceline_node.groups.records import Phase
from tests.unit.groups.desk import Desk
from tests.unit.groups.members import DELAY_S, KEY, Client

READS = Assignment({"t": [0], "u": [0]}).to_bytes()


def settled() -> tuple[Desk, Client]:
    """A member that reads ``t`` and ``u``."""
    desk = Desk()
    member = Client(desk)
    rejoin(member)
    return desk, member


def rejoin(member: Client) -> None:
    member.ask()
    member.desk.advance(DELAY_S + 0.01)
    member.take()
    member.sync((member.id, READS))


def commit(member: Client, *topics: str) -> None:
    engine = member.desk.engine
    engine.kafka.check_commit(KEY, member.generation, member.id, None, topics)
    engine.offsets.commit(KEY, [Commit(each, 0, 500) for each in topics], OffsetRule.FREE)


@pytest.mark.parametrize("fails_over", [False, True])
def test_what_was_reached_in_the_old_topic_counts_not_for_the_new(fails_over: bool) -> None:
    desk, member = settled()
    commit(member, "t", "u")
    desk.delete_topic("t", recreate=True)
    if fails_over:
        desk.fail_over()
    with pytest.raises(RebalanceInProgress):
        commit(member, "t")
    assert desk.engine.offsets.fetch(KEY, "t", 0) is None
    assert desk.engine.kafka.state(KEY) == "PreparingRebalance"
    with pytest.raises(RebalanceInProgress):
        commit(member, "t")  # what it commits when it gives its partitions up
    commit(member, "u")
    rejoin(member)
    commit(member, "t")
    assert desk.engine.store.groups[KEY].phase is Phase.STABLE
    found = desk.engine.offsets.fetch(KEY, "t", 0)
    assert found is not None
    assert found.topic_id == desk.topics["t"]
    desk.check_fold()


def test_a_deleted_topic_makes_no_rebalance() -> None:
    desk, member = settled()
    desk.delete_topic("t")
    commit(member, "t", "u")
    assert desk.engine.offsets.fetch(KEY, "t", 0) is None
    assert desk.engine.offsets.fetch(KEY, "u", 0) is not None
    assert desk.engine.kafka.state(KEY) == "Stable"


def test_other_protocol_types_are_not_read() -> None:
    desk = Desk()
    member = Client(desk, kind="connect")
    rejoin(member)
    desk.delete_topic("t", recreate=True)
    commit(member, "t")
    assert desk.engine.kafka.state(KEY) == "Stable"
