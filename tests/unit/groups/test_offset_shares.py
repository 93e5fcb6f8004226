"""Nobody uses up the offsets that others need, and who has most gives way."""

from __future__ import annotations

from itertools import count
from sys import getsizeof

import pytest

from paceline.errors import GroupFull
from paceline_node.groups.committed_offsets import Commit, OffsetRule
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.limits import GroupLimits
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


def commit_text(desk: Desk, group: str, client: str, size: int, *parts: int) -> None:
    commits = [Commit("t", part, 1, metadata="m" * size) for part in parts]
    desk.engine.offsets.commit(kafka(group), commits, OffsetRule.FREE, client)


def test_metadata_takes_places_of_offsets() -> None:
    """4,096 bytes with each of 250,000 offsets were a gigabyte on every node, and counted as
    nothing."""
    desk = Desk(GroupLimits(offsets_max=MOST))
    counts, shares = desk.engine.store.offset_counts, desk.engine.offsets.shares
    commit_text(desk, "long", "mallory", 4096, 0, 1)
    assert counts[Family.KAFKA] == shares.count(Family.KAFKA, "mallory") == 2 * 17
    with pytest.raises(GroupFull, match="256 bytes of metadata"):
        commit_text(desk, "long", "mallory", 4096, 2)
    commit_text(desk, "long", "mallory", 4096, 0)
    commit_text(desk, "long", "mallory", 255, 0)
    assert counts[Family.KAFKA] == shares.count(Family.KAFKA, "mallory") == 18
    desk.engine.offsets.forget_group(kafka("long"))
    assert counts[Family.KAFKA] == shares.count(Family.KAFKA, "mallory") == 0


def test_who_has_long_metadata_gives_way() -> None:
    desk = Desk(GroupLimits(offsets_max=MOST))
    commit_text(desk, "oscar", "oscar", 4096, 0)
    for client in ("mallory", "trudy"):
        commit_text(desk, client, client, 4096, 0, 1)
    for number in range(10):
        commit(desk, f"new-{number}", "honest", 0, 1)
    assert sum(has(desk, f"new-{number}") for number in range(10)) == 20
    assert desk.engine.store.offset_counts[Family.KAFKA] <= MOST


def test_what_open_transactions_will_commit_takes_places_too() -> None:
    """Each was bounded, and nobody counted how many there were."""
    desk = Desk(GroupLimits(offsets_max=MOST))
    offsets, pending = desk.engine.transactional, [Commit("t", part, 1) for part in range(7)]

    def stage(producer: int, client: str) -> None:
        ticket = offsets.ticket(kafka("g"), producer)
        offsets.stage(ticket, 0, 1, pending, client)

    for producer in range(7):
        stage(producer, "mallory")
    with pytest.raises(GroupFull):
        stage(8, "mallory")
    stage(6, "mallory")
    counts, shares = desk.engine.store.offset_counts, desk.engine.offsets.shares
    assert counts[Family.KAFKA] == shares.count(Family.KAFKA, "mallory") == 49
    assert offsets.settle(kafka("g"), 0, 1, (), commits=True)
    assert counts[Family.KAFKA] == 49
    for producer in range(1, 7):
        assert offsets.settle(kafka("g"), producer, 1, (), commits=True)
    assert counts[Family.KAFKA] == shares.count(Family.KAFKA, "mallory") == has(desk, "g") == 7
    desk.check_fold()


def test_metadata_is_kept_as_bytes() -> None:
    """One rare character made 16 KB of 4,096."""
    desk = Desk()
    commits = [Commit("t", 0, 1, metadata="m" * 4092 + "\N{PILE OF POO}")]
    desk.engine.offsets.commit(kafka("g"), commits, OffsetRule.FREE)
    [(_, found)] = desk.engine.offsets.fetch_all(kafka("g"))
    assert getsizeof(found.metadata) < 4200
    desk.check_fold()
