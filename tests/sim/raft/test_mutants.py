"""The checker of checkers: a quorum with one rule broken must be caught by some seed.

Rules that random runs do not find (sim/DESIGN 4.3: commit by counting older terms, membership
change before a commit in the term) are broken in test_scenarios.py instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from paceline_cluster.sim.raft.durable import Durable
from paceline_cluster.sim.raft.node import Node
from paceline_cluster.sim.raft.profile import Profile
from paceline_cluster.sim.raft.world import World
from paceline_node.controller.raft import Raft
from paceline_node.controller.raft_effects import Effects
from paceline_node.controller.raft_leader import Leader
from paceline_node.controller.raft_log import RaftLog
from paceline_node.controller.raft_messages import Append, VoteRequest
from paceline_node.controller.raft_types import RaftTiming


def rough() -> Profile:
    """Elections all the time, slow disks."""
    return Profile(
        nodes=3,
        voters=3,
        delay_ms=10.0,
        slow=0.05,
        sync_ms=40.0,
        fault_every_ms=600.0,
        snapshot_every=100,
        membership=False,
        timing=RaftTiming(0.05, 1, 5),
    )


def is_caught(seeds: int, make: Callable[[int], World]) -> bool:
    for seed in range(seeds):
        world = make(seed)
        try:
            world.run(15_000)
        except (AssertionError, KeyError):
            return True
    return False


def regular(seed: int) -> World:
    return World(seed, profile=rough())


def test_the_profile_itself_is_sound() -> None:
    for seed in range(5):
        world = regular(seed)
        world.run(15_000)
        world.finish()


class Hasty(World):
    """Answers before anything is stored."""

    def hold(self, node: Node, effects: Effects) -> None:
        for message in effects.after_persist:
            self.send(message)

    def release(self, node: Node, effects: Effects) -> None:
        """Sent already."""


def test_answers_before_persisting() -> None:
    assert is_caught(40, lambda seed: Hasty(seed, profile=rough()))


def test_leader_counts_what_it_has_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Leader.advance_commit

    def mutant(self: Leader) -> None:
        log = self._state.log
        log.stable_index = log.last_index
        honest(self)

    monkeypatch.setattr(Leader, "advance_commit", mutant)
    assert is_caught(40, regular)


def test_vote_for_a_shorter_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RaftLog, "is_up_to_date", lambda *_: True)
    assert is_caught(40, regular)


def test_two_votes_in_a_term(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Raft._on_vote_request

    def mutant(self: Raft, request: VoteRequest) -> None:
        self.state.vote = None
        self.state.leader = None
        honest(self, request)

    monkeypatch.setattr(Raft, "_on_vote_request", mutant)
    assert is_caught(40, regular)


def test_conflicting_entries_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Raft._on_append

    def mutant(self: Raft, message: Append) -> None:
        last = self.log.last_index
        new = tuple(entry for entry in message.entries if entry.index > last)
        honest(self, replace(message, entries=new))

    monkeypatch.setattr(Raft, "_on_append", mutant)
    assert is_caught(40, regular)


class Amnesia(World):
    """A wiped node comes back under its old identity."""

    def restart(self, node: Node, wipe: bool) -> None:
        if wipe and self.nodes[node.number] is node:
            self.lost.discard(node.id)
            self._place(node.number, node.disk, Durable())
        else:
            super().restart(node, wipe)


def test_wiped_voter_votes_again() -> None:
    assert is_caught(40, lambda seed: Amnesia(seed, profile=rough()))
