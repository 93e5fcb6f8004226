"""Nobody uses up the offsets that others need, and who has most gives way."""

from __future__ import annotations

from itertools import count

import pytest

from paceline.errors import GroupFull
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.offsets import Commit, OffsetRule
from tests.unit.groups.desk import Desk

MOST = 100


def kafka(name: str) -> GroupKey:
    return GroupKey(Family.KAFKA, name)


def commit(desk: Desk, group: str, client: str, *parts: int) -> None:
    commits = [Commit("t", part, 1) for part in parts]
    desk.engine.offsets.commit(kafka(group), commits, OffsetRule.FREE, client)


def has(desk: Desk, group: str) -> int:
    return len(desk.engine.offsets.fetch_all(kafka(group)))


def full(*greedy: str) -> Desk:
    """A family whose offsets are all taken, by one honest group and these."""
    desk = Desk(GroupLimits(offsets_max=MOST))
    commit(desk, "old", "honest", 0)
    for client in greedy:
        fill(desk, client)
    return desk


def fill(desk: Desk, client: str) -> None:
    for number in count():
        try:
            commit(desk, f"{client}-{number}", client, *range(7))
        except GroupFull:
            return


def test_one_client_has_half_at_most() -> None:
    desk = full("mallory")
    assert desk.engine.store.offset_counts[Family.KAFKA] <= MOST // 2 + 1
    for number in range(7):
        commit(desk, f"other-{number}", "other", *range(7))
    assert has(desk, "mallory-0") == 7


def test_the_greediest_gives_way_and_never_the_small_one() -> None:
    desk = full("mallory", "trudy", "oscar")
    for number in range(10):
        commit(desk, f"new-{number}", "honest", 0, 1)
    commit(desk, "old", "honest", 0, 1, 2)
    assert [has(desk, f"new-{number}") for number in range(10)] == [2] * 10
    assert has(desk, "old") == 3
    assert desk.engine.store.offset_counts[Family.KAFKA] <= MOST
    assert desk.engine.offsets.shares.evicted_count


def test_what_was_committed_before_may_be_committed_again() -> None:
    desk = full("mallory", "trudy")
    for client in ("mallory", "trudy", "honest"):
        commit(desk, f"{client}-0" if client != "honest" else "old", client, 0)


def test_a_new_leader_does_not_know_whose_they_are_and_forgets_of_the_largest() -> None:
    desk = full("mallory", "trudy")
    desk.fail_over()
    for number in range(5):
        commit(desk, f"new-{number}", "honest", 0, 1)
    assert has(desk, "old") == 1
    assert [has(desk, f"new-{number}") for number in range(5)] == [2] * 5


def test_who_has_as_much_as_anybody_is_refused_and_takes_from_nobody() -> None:
    desk = full("mallory", "trudy")
    before = {key: len(found) for key, found in desk.engine.store.offsets.items()}
    for client in ("mallory", "trudy"):
        with pytest.raises(GroupFull):
            commit(desk, "more", client, *range(30))
    assert {key: len(found) for key, found in desk.engine.store.offsets.items()} == before


def test_counts_follow_what_is_forgotten_and_who_commits() -> None:
    desk = Desk(GroupLimits(offsets_max=MOST))
    shares = desk.engine.offsets.shares
    commit(desk, "g", "a", 0, 1, 2)
    commit(desk, "h", "a", 0)
    assert shares.count(Family.KAFKA, "a") == 4
    desk.engine.offsets.forget(kafka("g"), [("t", 1)])
    assert shares.count(Family.KAFKA, "a") == 3
    commit(desk, "g", "b", 5)
    assert (shares.count(Family.KAFKA, "a"), shares.count(Family.KAFKA, "b")) == (1, 3)
    desk.engine.offsets.forget_group(kafka("h"))
    assert shares.count(Family.KAFKA, "a") == 0
