"""Coordinators fall, come back, are deposed unawares: from seeds; and some broken on purpose."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from paceline_node.state_machines.replica import MachineReplica
from tests.sim.groups.world import World

SEEDS = int(os.environ.get("PACELINE_SIM_SEEDS", "20"))
STEPS = 800
MUTANT_SEEDS = 150


def test_whatever_happens_nothing_told_is_taken_back() -> None:
    answered = elections = 0
    for seed in range(SEEDS):
        world = World(seed)
        try:
            world.run(STEPS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        answered += world.answered
        elections += world.cluster.epoch
    # The runs did something: many answers, across many failovers.
    assert answered > SEEDS * 80
    assert elections > SEEDS * 5


class LeadsTooEarly(MachineReplica):
    """Decides before the rest of its log is committed."""

    @property
    def _is_loaded(self) -> bool:
        return True

    def uncommitted(self, scope):
        offset = self._last_writes.get(scope, -1)
        return offset if offset >= self._log.high_watermark else None


class ReadsCommittedOnly(MachineReplica):
    """Takes over without what its own log has beyond the high watermark."""

    def role_changed(self) -> None:
        super().role_changed()
        self._load_end = min(self._load_end, self._log.high_watermark)

    def write(self, scope, entries) -> None:
        self.applied = self._log.log_end_offset
        super().write(scope, entries)


class KeepsWhatIsTruncated(MachineReplica):
    """Goes on from a state that its next leader does not have."""

    def _start_over(self) -> None:
        self.applied = min(self.applied, self._log.high_watermark)


class FoldsOn(MachineReplica):
    """Goes on where tombstones are gone that it has yet to fold, in its log or in another one."""

    def step(self) -> bool:
        self._start = self._log.fold_start()
        return super().step()


def is_found_out(make: Callable[[int], World]) -> bool:
    """Whether some seed shows that something is wrong."""
    for seed in range(MUTANT_SEEDS):
        try:
            make(seed).run(STEPS)
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize(
    "broken",
    [
        LeadsTooEarly,
        pytest.param(ReadsCommittedOnly, marks=pytest.mark.slow),
        KeepsWhatIsTruncated,
        FoldsOn,
    ],
)
def test_a_broken_replica_is_found_out(broken: type[MachineReplica]) -> None:
    assert is_found_out(lambda seed: World(seed, broken))


def test_answers_that_leave_too_early_are_found_out() -> None:
    assert is_found_out(lambda seed: World(seed, holds_back=False))
