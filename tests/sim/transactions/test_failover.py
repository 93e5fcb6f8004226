"""Transactions through failovers of coordinator and leaders, from seeds; and rules left out."""

from __future__ import annotations

import os

import pytest

from tests.sim.transactions.world import World

SEEDS = int(os.environ.get("PACELINE_SIM_SEEDS", "12"))
STEPS = 4000
MUTANT_SEEDS = 80


def test_all_or_nothing_whatever_happens() -> None:
    completed = elections = committed = 0
    for seed in range(SEEDS):
        world = World(seed)
        try:
            world.run(STEPS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        completed += world.completed
        elections += world.cluster.epoch
        committed += sum(each.told == "commit" for each in world.written.values())
    # The runs did something: many transactions ended, across many failovers.
    assert completed > SEEDS * 5
    assert committed > SEEDS * 2
    assert elections > SEEDS


@pytest.mark.parametrize(("rule", "first"), [("verification", 0), ("void", 100)])
def test_a_rule_left_out_is_noticed(rule: str, first: int) -> None:
    """Among the seeds from ``first`` on: of 400, five notice that answers are not voided."""
    for seed in range(first, first + MUTANT_SEEDS):
        try:
            World(seed, breaks=rule).run(STEPS)
        except AssertionError:
            return
    pytest.fail(f"{MUTANT_SEEDS} runs without the rule {rule!r} went well")


def test_nobody_is_told_what_did_not_happen_after_an_unclean_election() -> None:
    committed = losses = 0
    for seed in range(SEEDS):
        world = World(seed, sets_back=True)
        try:
            world.run(2 * STEPS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        losses += world.cluster.losses
        committed += sum(
            each.told == "commit" and each.told_in == world.cluster.losses
            for each in world.written.values()
        )
    assert losses > SEEDS * 2
    assert committed > SEEDS


@pytest.mark.slow
def test_without_knowing_of_the_loss_it_goes_wrong() -> None:
    for seed in range(MUTANT_SEEDS):
        try:
            World(seed, breaks="set back", sets_back=True).run(2 * STEPS)
        except AssertionError:
            return
    pytest.fail(f"{MUTANT_SEEDS} runs in which no coordinator knew of it went well")
