"""Scripted runs of whole nodes: the rows of replication/DESIGN 9.

A story is a script played on a quiet cluster under a workload, with all invariants watched, and the
same end as every run: healed, whole again, everything read and judged. ``topics`` of the plan have
three replicas and min ISR 2.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import trio

from paceline.client.client import Client
from paceline.types import NO_NODE, NodeId
from paceline_cluster.sim.fabric import Weather
from paceline_cluster.sim.machine import Machine
from paceline_cluster.sim.oracle import Violation
from paceline_cluster.sim.plan import Plan, TopicPlan
from paceline_cluster.sim.run import Run, Verdict
from paceline_cluster.sim.workload import while_connected
from paceline_node.controller.image import Broker, Image
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.replication.partition import Partition as HostedPartition
from paceline_node.settings.topic_config import FlushMode

SESSION_S = 1.2
"""``broker.session_ms`` of the simulated clusters."""
LAG_S = 1.5
"""``replication.lag_max_ms`` of the simulated clusters."""
TOPIC = "orders"
ANOTHER_SEED = "choose another seed"
"""How a story says that it does not fit the cluster of its seed."""
_OPERATOR = "10.0.2.3"

Script = Callable[["Story"], Awaitable[None]]


def plan_of(
    *, nodes: int = 3, partitions: int = 1, writers: int = 1, mode: FlushMode = FlushMode.GROUP
) -> Plan:
    topic = TopicPlan(TOPIC, partitions, 3, 2, mode, 65536)
    return Plan(
        seed=1,
        profile="story",
        nodes=nodes,
        voters=3,
        topics=(topic,),
        weather=Weather(slow_share=0.0),
        settings={},
        writers=writers,
        readers=1,
        pause_s=0.05,
        seconds=0.0,
    )


def perform(script: Script, plan: Plan | None = None) -> Verdict:
    """Play a story, whatever comes of it."""

    async def told(run: Run) -> None:
        run.keeps_up = False
        story = Story(run)
        await story.acknowledged(5)
        await script(story)

    return Run(plan or plan_of(), told).execute()


def play(script: Script, plan: Plan | None = None) -> Verdict:
    """Play a story; fails with the timeline when an invariant breaks."""
    verdict = perform(script, plan)
    assert verdict.violation is None, "\n".join(
        (*verdict.timeline.lines(80), str(verdict.violation))
    )
    return verdict


def play_where_it_fits(script: Script, plan: Plan, *, seeds: int = 8) -> Verdict:
    """Play a story from the first seed whose cluster is as the story needs it: who leads and who
    controls, depends on who is first at something."""
    for seed in range(plan.seed, plan.seed + seeds):
        if ANOTHER_SEED not in str(perform(script, replace(plan, seed=seed)).violation):
            break
    return play(script, replace(plan, seed=seed))


def find(script: Script, plan: Plan, *signs: str, seeds: int = 16) -> None:
    """Play a story of a broken cluster from one seed after the other, until what is broken shows by
    one of ``signs``: whether the story meets it, depends on who is first at something. Fails when
    it survives all of them."""
    seen: list[str] = []
    for seed in range(plan.seed, plan.seed + seeds):
        violation = perform(script, replace(plan, seed=seed)).violation
        if violation is not None and any(sign in str(violation) for sign in signs):
            return
        seen.append(str(violation))
    raise AssertionError("\n".join(("it survives:", *seen)))


class Story:
    """What a script looks at, and waits for. All times are virtual."""

    def __init__(self, run: Run, partition: int = 0) -> None:
        self.run = run
        self.partition = partition
        self.machines = run.cluster.machines
        self.fabric = run.fabric
        self.recorder = run.recorder

    # --- looking ----------------------------------------------------------------------------------

    @property
    def image(self) -> Image:
        newest = self.run.oracle.metadata.newest
        assert newest is not None
        return newest

    @property
    def registered(self) -> PartitionRegistration:
        """The watched partition as the newest metadata has it."""
        topic = self.image.find_topic(TOPIC)
        assert topic is not None
        return topic.partitions[self.partition]

    @property
    def leader(self) -> Machine:
        number = self.registered.leader
        assert number != NO_NODE, "there is no leader"
        return self.machines[number]

    @property
    def followers(self) -> list[Machine]:
        registered = self.registered
        return [self.machines[n] for n in registered.replicas if n != registered.leader]

    @property
    def isr(self) -> set[int]:
        return set(self.registered.isr)

    def broker(self, machine: Machine) -> Broker:
        return next(b for n, b in self.image.brokers.items() if n == machine.number)

    def partition_on(self, machine: Machine) -> HostedPartition:
        """The watched partition as ``machine`` serves it."""
        broker = None if machine.node is None else machine.node.broker
        partition = None if broker is None else broker.replicas.table.get(TOPIC, self.partition)
        assert partition is not None
        return partition

    @property
    def controller(self) -> Machine | None:
        for machine in self.machines:
            broker = None if machine.node is None else machine.node.broker
            if broker is not None and machine.is_running and broker.metadata.controller.active:
                return machine
        return None

    @property
    def others(self) -> Callable[[Machine], list[Machine]]:
        return lambda machine: [each for each in self.machines if each is not machine]

    # --- waiting ----------------------------------------------------------------------------------

    async def until(self, what: str, holds: Callable[[], bool], within: float = 10.0) -> float:
        """How long it took until ``holds``."""
        begun = trio.current_time()
        while not holds():
            if trio.current_time() - begun > within:
                self.run.oracle.fail("story", f"{what}: not within {within} s: {self.registered}")
                await trio.sleep_forever()
            await trio.sleep(0.02)
        return trio.current_time() - begun

    async def acknowledged(self, count: int = 5, within: float = 10.0) -> float:
        """How long it took until so many more records were acknowledged."""
        goal = self.recorder.acknowledged + count
        return await self.until(
            f"{count} more acknowledgements", lambda: self.recorder.acknowledged >= goal, within
        )

    async def silent(self, seconds: float) -> None:
        """Nothing is acknowledged for so long."""
        before = self.recorder.acknowledged
        await trio.sleep(seconds)
        self.check(self.recorder.acknowledged == before, "something was acknowledged")

    async def led_by_another(self, than: Machine, within: float = SESSION_S + 1.0) -> float:
        """V2: how long until another node leads."""
        return await self.until(
            "another leader",
            lambda: self.registered.leader not in (than.number, NO_NODE),
            within,
        )

    async def in_sync(self, *machines: Machine, within: float = 20.0) -> float:
        wanted = {machine.number for machine in machines} or set(self.registered.replicas)
        return await self.until(f"in sync {wanted}", lambda: self.isr == wanted, within)

    def check(self, holds: bool, text: str) -> None:
        """Fail the run, from within."""
        if not holds:
            self.run.oracle.fail("story", text)

    # --- doing ------------------------------------------------------------------------------------

    def cut(self, sources: Sequence[Machine], targets: Sequence[Machine]) -> None:
        """Nothing gets from these to those."""
        for source in sources:
            for target in targets:
                if source is not target:
                    self.fabric.cut(source.host, target.host)

    def isolate(self, *machines: Machine) -> None:
        """Cut these off from all other machines, both ways; clients still reach them."""
        rest = [each for each in self.machines if each not in machines]
        self.cut(machines, rest)
        self.cut(rest, machines)

    def heal(self) -> None:
        self.fabric.heal_all()

    async def perform(self, work: Callable[[Client], Awaitable[None]]) -> None:
        """Do something as an operator, from a machine of its own."""
        await while_connected(self.run.cluster, _OPERATOR, random.Random(1), work)

    async def move(self, target: Machine) -> None:
        """Let another replica lead, and wait until it knows."""
        node = NodeId(target.number)

        async def elect(client: Client) -> None:
            await client.admin.elect_leader(TOPIC, self.partition, node)

        await self.perform(elect)
        await self.until(f"{target} leads", lambda: self.partition_on(target).is_leader)

    def start(self, *machines: Machine) -> None:
        for machine in machines:
            self.run.revive(machine)

    def wipe(self, machine: Machine) -> None:
        """Lose a disk: the process is gone, the next one finds an empty directory."""
        machine.kill()
        machine.must_wipe = True

    def end_here(self) -> None:
        """Do not wait for the cluster to be whole: it cannot be."""
        self.run.is_over = True


__all__ = ["LAG_S", "SESSION_S", "TOPIC", "Story", "Violation", "plan_of", "play"]
