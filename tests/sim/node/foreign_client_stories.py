"""What foreign clients' protocols are put through, and how their broken rules are looked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from unittest import mock

import pytest
import trio

from paceline_cluster.checker import events
from paceline_cluster.sim.fabric import Weather
from paceline_cluster.sim.machine import Machine
from paceline_cluster.sim.plan import ForeignClient, Plan
from paceline_node.groups.keys import GROUPS_TOPIC, GroupKey, partition_of
from paceline_node.replication.long_polls import LongPolls
from tests.sim.node.mutants import MUTANTS, Patch
from tests.sim.node.story import SESSION_S, Script, Story, find, plan_of


@dataclass(frozen=True)
class ForeignClientMutant:
    """A wrong version of a rule, and the story that shows it. ``sign`` is in what is said of it;
    empty where more than one thing goes wrong. ``seed`` is the first one that was found to show it;
    after a change it may be another one of those behind it. ``slow``: another protocol's mutant, or
    one of whole nodes, tells the same story in the tiers."""

    name: str
    patch: Patch
    script: Script
    sign: str
    seed: int = 1
    slow: bool = False

    @property
    def parameter(self) -> object:
        return pytest.param(self, id=self.name, marks=[pytest.mark.slow] if self.slow else [])


def plan(client: ForeignClient, *, partitions: int = 1) -> Plan:
    """Clients of ``client`` and hardly any others, over slow links."""
    weather = Weather(latency_s=(0.005, 0.02), slow_share=0.0)
    plain = plan_of(partitions=partitions)
    return replace(plain, weather=weather, foreign_clients=(client,), readers=0, pause_s=0.2)


# --- stories --------------------------------------------------------------------------------------


async def reset(story: Story) -> None:
    """Commits take long, and connections of clients are reset meanwhile."""
    for source, target in permutations(story.machines, 2):
        story.fabric.link(source.host, target.host).extra_s = 0.15
    for _ in range(6):
        await more(story, records=3)
        for machine in story.machines:
            reset_clients(story, machine)
    story.heal()


async def depose(story: Story) -> None:
    """Leaders are cut off from the others, while clients reach them; their connections are reset
    in the middle of that."""
    for _ in range(2):
        await more(story, commits=2)
        await cut_off(story, story.leader)


def depose_coordinator(key: GroupKey) -> Script:
    """As :func:`depose` does, whoever coordinates a group, while others lead what is read."""

    async def script(story: Story) -> None:
        for _ in range(2):
            await more(story, commits=3)
            machine = coordinator_of(story, key)
            if story.leader is machine:
                await story.move(story.followers[0])
            await cut_off(story, machine)

    return script


async def share(story: Story) -> None:
    """Members come and go."""
    await more(story, commits=15)


async def kill(story: Story) -> None:
    """Each node is killed once."""
    for machine in story.machines:
        await more(story, commits=1)
        machine.kill()
        await more(story)
        story.start(machine)
        await story.in_sync()


async def cut_off(story: Story, machine: Machine) -> None:
    """Long enough to be deposed."""
    story.isolate(machine)
    for _ in range(3):
        await trio.sleep(SESSION_S / 3)
        reset_clients(story, machine)
    await trio.sleep(1.0)
    story.heal()
    await story.in_sync()


def all_of(*scripts: Script) -> Script:
    """One story after the other."""

    async def script(story: Story) -> None:
        for each in scripts:
            await each(story)

    return script


def coordinator_of(story: Story, key: GroupKey) -> Machine:
    """Where a group's coordinator is."""
    topic = story.image.find_topic(GROUPS_TOPIC)
    assert topic is not None
    number = partition_of(key, len(topic.partitions))
    return story.machines[topic.partitions[number].leader]


async def more(story: Story, *, records: int = 10, commits: int = 0) -> None:
    """Some more is acknowledged, and committed by groups."""

    def count() -> int:
        return sum(isinstance(event, events.CommitOk) for event in story.recorder.events)

    goal = count() + commits
    await story.acknowledged(records, within=20)
    await story.until("commits", lambda: count() >= goal, within=60)


def reset_clients(story: Story, machine: Machine) -> None:
    """Cut the connections of clients, which live on hosts of their own."""
    nodes = {each.host for each in story.machines}
    for stream in story.fabric.connections(machine.host):
        if not {stream.out.source, stream.out.target} <= nodes:
            story.fabric.reset(stream)


def check_found(mutant: ForeignClientMutant, played: Plan) -> None:
    """The mutant does not survive its story."""
    with mutant.patch():
        find(mutant.script, replace(played, seed=mutant.seed), mutant.sign)


@contextlib.contextmanager
def readable_to_the_log_end() -> Iterator[None]:
    """Of all protocols."""
    reads = next(each.patch for each in MUTANTS if each.name == "reads go to the log end")
    end = lambda self, isolation: self._log.log_end_offset  # noqa: E731
    with reads(), mock.patch.object(LongPolls, "readable_end", end):
        yield
