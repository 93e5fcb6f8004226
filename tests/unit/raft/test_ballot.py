"""Which answers to a campaign are enough (controller/RAFT 2.6)."""

from __future__ import annotations

import pytest

from paceline_cluster.sim.raft.durable import member
from paceline_node.controller.raft_ballot import Ballot
from paceline_node.controller.raft_messages import Grant
from paceline_node.controller.raft_types import Config

REFUSED, SURE, UNSURE, WAITS = Grant.REFUSED, Grant.SURE, Grant.UNSURE, Grant.WAITS
MEMBERS = [member(number) for number in range(3)]
A, B, C = (each.id for each in MEMBERS)
THREE = Config(tuple(MEMBERS), ())
ALONE = Config((MEMBERS[0],), tuple(MEMBERS[1:]))
WAIT = 5
LIFE = 9


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def ballot(*grants: Grant, clock: Clock | None = None) -> Ballot:
    """Of A, B and C, as many as answered."""
    made = Ballot(clock or Clock(), fresh_ms=300)
    for voter, grant in zip((A, B, C), grants, strict=False):
        made.note(voter, grant, LIFE)
    return made


@pytest.mark.parametrize(
    ("grants", "at_once", "in_the_end"),
    [
        ((SURE,), False, False),
        ((SURE, SURE), True, True),
        ((WAITS, SURE, SURE), True, True),
        ((SURE, WAITS), False, False),
        ((SURE, WAITS, REFUSED), False, False),
        ((WAITS, WAITS, WAITS), True, True),
        ((SURE, UNSURE), False, True),
        ((UNSURE, UNSURE, REFUSED), False, True),
        ((UNSURE, WAITS), False, False),
    ],
)
def test_when_pre_votes_are_enough(
    grants: tuple[Grant, ...], at_once: bool, in_the_end: bool
) -> None:
    made = ballot(*grants)
    assert made.has_ripened(THREE, 7, WAIT, is_newest=True) is at_once
    assert made.has_ripened(THREE, 7 + WAIT - 1, WAIT, is_newest=True) is at_once
    assert made.has_ripened(THREE, 7 + WAIT, WAIT, is_newest=True) is in_the_end
    assert made.knows_every_term(THREE) is at_once


def test_the_wait_begins_anew_with_what_is_enough() -> None:
    made = ballot(SURE, UNSURE)
    assert not made.has_ripened(THREE, 7, WAIT, is_newest=True)
    made.note(B, WAITS, LIFE)
    assert not made.has_ripened(THREE, 8, WAIT, is_newest=True)
    made.note(B, UNSURE, LIFE)
    assert not made.has_ripened(THREE, 7 + WAIT, WAIT, is_newest=True)


@pytest.mark.parametrize(
    ("pre_votes", "votes", "is_won"),
    [
        ((SURE, SURE, WAITS), (SURE, SURE), True),
        ((SURE, SURE, WAITS), (SURE, REFUSED, WAITS), False),
        ((SURE, UNSURE), (SURE, UNSURE), True),
        ((SURE, UNSURE), (SURE, WAITS), False),
        ((WAITS, WAITS, WAITS), (WAITS, WAITS), True),
        ((SURE, UNSURE, WAITS), (SURE, REFUSED, WAITS), False),
    ],
)
def test_whose_votes_count(
    pre_votes: tuple[Grant, ...], votes: tuple[Grant, ...], is_won: bool
) -> None:
    """Who started again since its pre-vote may have forgotten for whom it voted meanwhile."""
    made = ballot(*pre_votes)
    made.begin(THREE, after_pre_votes=True)
    for voter, vote in zip((A, B, C), votes, strict=False):
        made.note(voter, vote, LIFE)
    assert made.is_won(THREE) is is_won


def test_without_pre_votes_the_sure_ones_count() -> None:
    made = ballot(WAITS, WAITS, WAITS)
    made.begin(THREE, after_pre_votes=False)
    made.note(A, SURE, LIFE)
    made.note(B, WAITS, LIFE)
    assert not made.is_won(THREE)
    made.note(C, SURE, LIFE)
    assert made.is_won(THREE)


def test_everybodys_word_is_needed_at_the_same_time() -> None:
    clock = Clock()
    made = ballot(WAITS, SURE, clock=clock)
    clock.now_ms = 301
    made.note(C, WAITS, LIFE)
    assert not made.knows_every_term(THREE)
    assert made.to_ask(THREE) == [A, B, C]
    made.note(A, WAITS, LIFE)
    made.note(B, SURE, LIFE)
    assert made.knows_every_term(THREE)


def test_who_is_asked() -> None:
    assert ballot(SURE).to_ask(THREE) == [B, C]
    assert ballot(SURE, REFUSED).to_ask(THREE) == [C]
    assert ballot(SURE, UNSURE).to_ask(THREE) == [A, B, C]


def test_a_lone_voter_that_has_just_started_asks_who_listened() -> None:
    """Its disk may be from before they voted."""
    made = ballot(WAITS)
    assert made.to_ask(ALONE) == [A, B, C]
    assert not made.has_ripened(ALONE, 7, WAIT, is_newest=True)
    assert not made.has_ripened(ALONE, 7 + WAIT, WAIT, is_newest=True)
    made.note(B, SURE, LIFE)
    made.note(C, SURE, LIFE)
    assert made.has_ripened(ALONE, 8 + WAIT, WAIT, is_newest=True)
    assert ballot(UNSURE).has_ripened(ALONE, 0, 0, is_newest=True)
    assert ballot(SURE).knows_every_term(ALONE)
    assert ballot(WAITS).knows_every_term(Config((MEMBERS[0],), ()))
