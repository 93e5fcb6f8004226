"""Consumer groups of both families while their coordinators fall: what was committed stays so.

The mutant of this file needs a coordinator to fall within the round trip in which it replicates a
commit; random runs hit that too rarely, so it is scripted. Others: ``tests/sim/groups``.
"""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest
import trio

from paceline_cluster.checker import events
from paceline_cluster.sim.fabric import Weather
from paceline_cluster.sim.plan import Plan
from paceline_node.state_machines.replica import MachineReplica
from tests.sim.node.story import SESSION_S, Story, find, plan_of, play

pytestmark = pytest.mark.timeout(600)


def plan() -> Plan:
    """Members of both families, who commit all the time over slow links."""
    weather = Weather(latency_s=(0.01, 0.02), slow_share=0.0)
    return replace(plan_of(partitions=3), weather=weather, members=2, line_members=2)


def committed(story: Story) -> int:
    return sum(isinstance(event, events.CommitOk) for event in story.recorder.events)


async def isolate_each(story: Story) -> None:
    """Each node in turn is cut off from the others, long enough to be deposed; clients reach it."""
    for machine in story.machines:
        await more_commits(story)
        story.isolate(machine)
        await trio.sleep(SESSION_S + 1.0)
        story.heal()
        await story.in_sync()


async def kill_each(story: Story) -> None:
    """Each node in turn is killed and comes back."""
    for machine in story.machines:
        await more_commits(story)
        machine.kill()
        story.start(machine)
        await story.in_sync()


async def more_commits(story: Story) -> None:
    goal = committed(story) + 5
    await story.until("commits", lambda: committed(story) >= goal, within=20)


def test_commits_outlive_coordinators_that_are_cut_off() -> None:
    play(isolate_each, plan())


@pytest.mark.slow
def test_commits_outlive_coordinators_that_are_killed() -> None:
    play(kill_each, plan())


@pytest.mark.slow
def test_commits_answered_before_they_are_replicated_are_found_out() -> None:
    with mock.patch.object(MachineReplica, "uncommitted", return_value=None):
        find(isolate_each, plan(), "stale committed offset", "generation went back")
