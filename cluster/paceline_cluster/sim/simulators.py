"""The three simulators behind one call: run a seed, get what is worth keeping of it."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict

from paceline.values import dataclass
from paceline_cluster.sim.plan import Plan, draw
from paceline_cluster.sim.profiles import PROFILES
from paceline_cluster.sim.raft.checks import Violation as RaftViolation
from paceline_cluster.sim.raft.world import World, simulate
from paceline_cluster.sim.replicas import runs as replicas
from paceline_cluster.sim.run import run

NODE, REPLICAS, RAFT = "node", "replicas", "raft"


@dataclass(frozen=True, slots=True)
class Result:
    """One seed's outcome, a line of the results file. ``trace`` is equal for equal runs."""

    tier: str
    profile: str
    seed: int
    violation: str | None
    trace: int
    virtual_s: float
    cpu_s: float
    faults: int
    acknowledged: int
    elections: int

    @property
    def key(self) -> tuple[str, str, int]:
        return self.tier, self.profile, self.seed

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def profiles_of(tier: str) -> tuple[str, ...]:
    """The names of a tier's profiles."""
    return _PROFILES[tier]


def plan_of(profile: str, seed: int) -> Plan:
    """The plan of whole nodes. ``mixed@6`` is profile ``mixed`` with 6 seconds of faults, as
    tests run it. Raises KeyError for an unknown profile, ValueError for no number of seconds."""
    name, _, seconds = profile.partition("@")
    return draw(seed, PROFILES[name], seconds=float(seconds) if seconds else None)


def run_seed(tier: str, profile: str, seed: int) -> Result:
    """Run one seed of a tier."""
    begun = time.process_time()
    return _RUN[tier](profile, seed, begun)


def _node(profile: str, seed: int, begun: float) -> Result:
    verdict = run(plan_of(profile, seed))
    return Result(
        tier=NODE,
        profile=profile,
        seed=seed,
        violation=None if verdict.violation is None else str(verdict.violation),
        trace=verdict.trace,
        virtual_s=round(verdict.virtual_s, 3),
        cpu_s=round(time.process_time() - begun, 3),
        faults=verdict.faults,
        acknowledged=verdict.acknowledged,
        elections=verdict.elections,
    )


def _replicas(profile: str, seed: int, begun: float) -> Result:
    chosen = replicas.PROFILES[profile]
    verdict = replicas.run(seed, chosen)
    return Result(
        tier=REPLICAS,
        profile=profile,
        seed=seed,
        violation=verdict.violation,
        trace=zlib.crc32("\n".join(verdict.trace).encode()),
        virtual_s=replicas.WARM_UP_S + chosen.seconds + replicas.HEAL_S,
        cpu_s=round(time.process_time() - begun, 3),
        faults=verdict.faults,
        acknowledged=verdict.acknowledged,
        elections=verdict.elections,
    )


def _raft(profile: str, seed: int, begun: float) -> Result:
    violation: str | None = None
    world: World | None = None
    try:
        world = simulate(seed)
    except RaftViolation as error:
        violation = str(error)
    return Result(
        tier=RAFT,
        profile=profile,
        seed=seed,
        violation=violation,
        trace=0
        if world is None
        else zlib.crc32(repr(sorted(world.checker.digests.items())).encode()),
        virtual_s=0.0 if world is None else world.now / 1000,
        cpu_s=round(time.process_time() - begun, 3),
        faults=0 if world is None else world.faults,
        acknowledged=0 if world is None else world.proposals,
        elections=0 if world is None else len(world.checker.leaders),
    )


_RUN: Mapping[str, Callable[[str, int, float], Result]] = {
    NODE: _node,
    REPLICAS: _replicas,
    RAFT: _raft,
}
_PROFILES: Mapping[str, tuple[str, ...]] = {
    NODE: tuple(PROFILES),
    REPLICAS: tuple(replicas.PROFILES),
    RAFT: ("swarm",),
}
TIERS = tuple(_RUN)
