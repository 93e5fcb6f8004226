"""Mutants that random runs of whole nodes did not find within their budget: scripted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline_cluster.sim.plan import Plan
from tests.sim.node.mutants import core
from tests.sim.node.story import Story, perform, plan_of, play

pytestmark = pytest.mark.timeout(600)


def plan() -> Plan:
    """Enough voters for a controller without two of the replicas; high watermarks are hardly ever
    written down."""
    settings = {"log.checkpoint_ms": "60000"}
    return replace(plan_of(nodes=5, writers=2), voters=5, settings=settings)


async def wipe_a_candidate(story: Story) -> None:
    """Two followers leave, so that the last one to go stays eligible; then its disk is lost."""
    first, second = story.followers
    first.kill()
    await story.until("the first is out", lambda: first.number not in story.isr)
    story.wipe(second)
    await story.until("the second is out", lambda: second.number not in story.isr)
    story.check(second.number in story.registered.elr, "it is not eligible")
    before = story.broker(second).broker_epoch
    story.start(second)
    await story.until("it is back", lambda: story.broker(second).broker_epoch != before)
    story.start(first)
    await story.in_sync()


async def return_behind_a_new_leader(story: Story) -> None:
    """A follower falls behind; the rest commits on, then dies together before the new high
    watermark is on any disk. Whoever leads then must not let the follower in at the old one. Its
    disk is slow, so that this would show."""
    leader = story.leader
    behind, beside = story.followers
    story.cut([leader], [behind])
    await story.until("it is out", lambda: behind.number not in story.isr)
    await story.acknowledged(3)
    for machine in (leader, beside):
        machine.kill()
    behind.sync_s = (0.6, 0.7)
    story.heal()
    story.start(beside)
    await story.acknowledged(3, within=20)
    story.start(leader)
    await story.in_sync()


def test_a_wiped_candidate_is_none_any_more() -> None:
    play(wipe_a_candidate, plan())


def test_trusting_a_wiped_candidate_is_found() -> None:
    with core("always trusted")():
        violation = perform(wipe_a_candidate, plan()).violation
    assert violation is not None
    assert violation.invariant == "I16"


def test_a_follower_behind_a_new_leader_has_to_catch_up() -> None:
    play(return_behind_a_new_leader, plan())


def test_letting_it_in_at_the_old_high_watermark_is_found() -> None:
    with core("expand without ack >= LESO")():
        violation = perform(return_behind_a_new_leader, plan()).violation
    assert violation is not None
    assert violation.invariant == "I4"
