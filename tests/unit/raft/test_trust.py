"""Whose answers count for a leader (controller/RAFT 2.9)."""

from __future__ import annotations

from paceline_cluster.sim.raft.durable import member_id
from paceline_node.controller.raft_messages import AppendResponse, Grant
from paceline_node.controller.raft_trust import Trust

SURE, UNSURE, WAITS = Grant.SURE, Grant.UNSURE, Grant.WAITS


def answer(life: int, word: Grant, match: int = 0) -> AppendResponse:
    return AppendResponse(member_id(1), member_id(0), 7, True, match, 0, 0, 0, life, word)


def test_who_is_sure_counts_and_no_later_process_by_its_own_word() -> None:
    trust = Trust()
    trust.note(answer(1, SURE))
    assert trust.counts()
    assert not trust.needs_round()
    for word in (SURE, UNSURE, WAITS):
        trust.note(answer(2, word))
        assert not trust.counts()
        assert trust.needs_round()


def test_a_round_and_what_the_leader_had_at_its_end_make_it_count() -> None:
    trust = Trust()
    trust.note(answer(1, WAITS, match=5))
    trust.begin(3)
    trust.confirmed(2, 9)
    assert trust.is_open()
    trust.confirmed(3, 9)
    trust.confirmed(4, 12)
    assert not trust.counts()
    assert trust.tell() == 0
    trust.note(answer(1, WAITS, match=9))
    assert trust.counts()
    assert trust.has_news()
    assert trust.tell() == 1
    assert not trust.has_news()
    trust.note(answer(2, SURE, match=12))
    assert not trust.counts(), "another process"


def test_the_process_that_it_was_elected_with_counts_and_no_other() -> None:
    trust = Trust(elected_with=1)
    trust.note(answer(1, UNSURE))
    assert trust.counts()
    trust.note(answer(2, UNSURE))
    assert not trust.counts()
    assert trust.would_be_elected_with()
    late = Trust(elected_with=1)
    late.note(answer(2, UNSURE))
    assert not late.counts(), "its vote was its predecessor's"
