"""Seeded runs of the whole quorum under faults, with every invariant checked at every event.

PACELINE_SEEDS sets how many seeds (default 30), PACELINE_FIRST_SEED where they begin. A failure
names its seed; repeat it with ``PACELINE_FIRST_SEED=<seed> PACELINE_SEEDS=1``.
"""

from __future__ import annotations

import os

import pytest

from paceline_cluster.sim.raft.profile import Profile
from paceline_cluster.sim.raft.world import World, simulate
from paceline_node.controller.raft_types import RaftLimits, RaftTiming

SEEDS = int(os.environ.get("PACELINE_SEEDS", "30"))
PARTS = 4
FIRST = int(os.environ.get("PACELINE_FIRST_SEED", "0"))


@pytest.mark.timeout(60 + 5 * SEEDS)
@pytest.mark.parametrize("part", range(PARTS))
def test_swarm(part: int) -> None:
    """In parts, for the test workers to share."""
    seeds = range(FIRST + part, FIRST + SEEDS, PARTS)
    worlds = [simulate(seed) for seed in seeds]
    if len(seeds) >= 15:
        # Not vacuous: the faults struck, and what they are to disturb happened.
        assert sum(world.faults for world in worlds) > 20 * len(seeds)
        assert sum(len(world.checker.leaders) for world in worlds) > 2 * len(seeds)
        assert sum(world.installs for world in worlds) > len(seeds)
        assert sum(world.config_changes for world in worlds) > len(seeds)
        assert sum(world.reads_done for world in worlds) > len(seeds)


def test_short_terms() -> None:
    """Timeouts close to the network's delay: elections nearly all the time, lost first entries."""
    for seed in range(FIRST, FIRST + max(1, SEEDS // 5)):
        profile = Profile(
            nodes=5,
            voters=3,
            drop=0.1,
            delay_ms=60.0,
            slow=0.1,
            fault_every_ms=150.0,
            limits=RaftLimits(append_entries=2, inflight_appends=2, keep_entries=2),
            timing=RaftTiming(0.05, 1, 3),
        )
        simulate(seed, profile=profile)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2168, 2246, 4321])
def test_a_disk_that_is_lost_does_not_become_a_voters(seed: int) -> None:
    """A learner died with its disk just before the only voter promoted it: no majority of the two
    was ever left, beyond the budget of faults."""
    simulate(seed)


def test_who_removed_itself_and_restarts_may_lead_to_the_end_of_it() -> None:
    """A leader took itself out and fell, and its commit index with it: nobody else had that entry,
    and by what it still knew to be committed it had not been a voter yet."""
    simulate(701316)


def test_quiet_quorum_keeps_its_leader() -> None:
    """Without faults there is one election in the whole run."""
    for seed in range(FIRST, FIRST + 3):
        profile = Profile(nodes=5, voters=3, slow=0.0, fault_every_ms=1e9, membership=False)
        world = World(seed, profile=profile)
        world.run(20_000)
        assert len(world.checker.leaders) == 1
        assert all(node.applied >= 100 for node in world.nodes.values())


def test_same_seed_same_run() -> None:
    first, second = simulate(FIRST + 3), simulate(FIRST + 3)
    assert first.events == second.events
    assert first.checker.digests == second.checker.digests
