"""Seeded runs in which one member's disk goes back in time and all come back in any order; and
rules broken, which seeds must find. PACELINE_SEEDS as in test_random.py, a quarter of them to find
broken rules, an eighth to find none."""

from __future__ import annotations

import os

import pytest

from paceline_cluster.sim.raft import node
from paceline_cluster.sim.raft.aged import simulate_aged
from paceline_cluster.sim.raft.checks import Violation
from paceline_node.controller import raft
from paceline_node.controller.raft_ballot import Ballot
from paceline_node.controller.raft_claims import NO_LOG, Claims
from paceline_node.controller.raft_state import NodeState
from paceline_node.controller.raft_trust import Trust
from paceline_node.controller.voter_starts import OldCopies

SEEDS = max(1, int(os.environ.get("PACELINE_SEEDS", "200")) // 4)
RUNS = max(1, SEEDS // 2)
FIRST = int(os.environ.get("PACELINE_FIRST_SEED", "0"))


@pytest.mark.slow
def test_an_old_disk() -> None:
    worlds = [simulate_aged(seed) for seed in range(FIRST, FIRST + RUNS)]
    if RUNS >= 25:
        lossy = [world for world in worlds if world.checker.lost]
        assert lossy, "what no rule can prevent has happened"
        assert len(lossy) < len(worlds) / 2


def is_caught(seeds: int, *, first: int = 0) -> bool:
    for seed in range(first, first + seeds):
        try:
            simulate_aged(seed)
        except Violation:
            return True
    return False


def test_the_vote_of_a_noted_copy_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OldCopies, "_holds_less", lambda *_: {})
    assert is_caught(SEEDS)


def test_no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Ballot, "has_ripened", lambda self, config, *_, **__: self.has_majority(config)
    )
    assert is_caught(SEEDS)


def test_another_history_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    def truncate(self: NodeState, index: int) -> None:
        self.log.truncate(index)

    monkeypatch.setattr(raft, "contradiction", lambda *_: None)
    monkeypatch.setattr(raft, "lacking", lambda *_: None)
    monkeypatch.setattr(NodeState, "truncate", truncate)
    assert is_caught(SEEDS)


@pytest.mark.slow
def test_what_is_committed_is_forgotten_in_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeState, "known_commit", property(lambda self: self.commit))
    assert is_caught(2 * SEEDS)


def test_terms_that_the_silent_have_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft, "TERMS_AHEAD", 0)
    monkeypatch.setattr(node, "EPOCH_MS", -(10**12))
    assert is_caught(SEEDS, first=50)


def test_nobody_says_that_it_has_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Claims, "newest", lambda *_: NO_LOG)
    assert is_caught(SEEDS, first=90)


def test_whoever_follows_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader was deposed in its sleep, and a voter has forgotten that."""
    monkeypatch.setattr(Trust, "counts", lambda _: True)
    assert is_caught(SEEDS, first=80)
