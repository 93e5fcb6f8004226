"""One run: warm-up, faults, healing, liveness, the final reading, the verdict."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from paceline.client.client import Client
from paceline.errors import PacelineError
from paceline.types import NodeId, TopicPartition
from paceline_cluster.checker.findings import Outcome as Judgement
from paceline_cluster.sim import loop
from paceline_cluster.sim.budget import LossBudget
from paceline_cluster.sim.cluster import Shape, SimCluster
from paceline_cluster.sim.fabric import Fabric
from paceline_cluster.sim.faults import Faults
from paceline_cluster.sim.history import Recorder
from paceline_cluster.sim.liveness import Health
from paceline_cluster.sim.machine import Machine
from paceline_cluster.sim.oracle import Oracle, Violation
from paceline_cluster.sim.plan import Plan
from paceline_cluster.sim.timeline import Timeline
from paceline_cluster.sim.workload import KINDS, Reader, Writer, read_all, while_connected

WARM_UP_S = 20.0
LIVE_S = 40.0
FINISH_S = 30.0
_CALM = 0.5


@dataclass(frozen=True)
class Verdict:
    """What came of a run; ``violation`` is None when all was well. ``trace`` is a checksum of
    everything that was sent: equal for equal seeds."""

    plan: Plan
    violation: Violation | None
    trace: int
    virtual_s: float
    acknowledged: int
    unknown: int
    refused: int
    read: int
    faults: int
    elections: int
    pieces: int
    timeline: Timeline


Script = Callable[["Run"], Awaitable[None]]


class Run:
    """A plan carried out once. ``script``, if given, stands for the faults of the plan: it is
    called when the cluster serves, with this run."""

    def __init__(self, plan: Plan, script: Script | None = None) -> None:
        self.plan = plan
        self._script = script
        self.timeline = Timeline()
        self.recorder = Recorder(trio.current_time)
        self._scope = trio.CancelScope()
        self._rng = random.Random(f"{plan.seed}/{plan.profile}/run")
        self._revival = random.Random(self._rng.getrandbits(64))
        self.keeps_up = True
        """Whether machines that go down are started again."""
        self.is_over = False
        """Set by a script that leaves the cluster in a state that does not heal by itself."""
        self.fabric: Fabric
        self.cluster: SimCluster
        self.oracle: Oracle
        self.faults: Faults
        self._has_begun = False
        self._virtual_s = 0.0

    def execute(self) -> Verdict:
        """The whole run."""
        with self.timeline.recording():
            loop.run(self._main, seed=self._rng.getrandbits(64), step=self._step)
        violation = self.oracle.violation
        return Verdict(
            self.plan,
            violation,
            self.fabric.trace,
            self._virtual_s,
            self.recorder.acknowledged,
            self.recorder.unknown,
            self.recorder.refused,
            self.recorder.read,
            self.faults.struck,
            self.oracle.metadata.elections,
            self.fabric.sent_pieces,
            self.timeline,
        )

    def _step(self) -> None:
        if self._has_begun and self.oracle.violation is None:
            self.oracle.step()

    def _violated(self, violation: Violation) -> None:
        self.timeline.note(f"VIOLATION {violation}")
        self._scope.cancel()

    # --- the cluster ------------------------------------------------------------------------------

    async def _main(self) -> None:
        with tempfile.TemporaryDirectory(prefix="paceline-sim-") as directory:
            secret = Path(directory) / "cluster.secret"
            secret.write_text("0123456789abcdef" * 2)
            secret.chmod(0o600)
            async with trio.open_nursery() as nursery:
                with self._scope:
                    await self._set_up(nursery, secret)
                    await self._phases(nursery)
                self._virtual_s = trio.current_time()
                self._tear_down()
                nursery.cancel_scope.cancel()

    async def _set_up(self, nursery: trio.Nursery, secret: Path) -> None:
        plan, rng = self.plan, self._rng
        self.fabric = Fabric(random.Random(rng.getrandbits(64)), plan.weather)
        await nursery.start(self.fabric.run)
        shape = Shape(plan.nodes, plan.voters, plan.settings)
        cluster = self.cluster = SimCluster(
            shape,
            self.fabric,
            random.Random(rng.getrandbits(64)),
            nursery,
            secret,
            self.timeline.note,
        )
        self.oracle = Oracle(cluster.machines, trio.current_time, self._violated)
        budget = LossBudget(cluster.machines, self.oracle, limit=1, voters=plan.voters)
        self.faults = Faults(plan, cluster, self.oracle, budget, self._struck, self.operate)
        self._has_begun = True
        await cluster.format()
        for machine in cluster.machines:
            machine.went_down = self._went_down
            cluster.start(machine)

    def _tear_down(self) -> None:
        """Let nothing wait for a disk or a signal any more."""
        self.keeps_up = False
        for machine in self.cluster.machines:
            machine.disk.heal()
            machine.kill()

    def _struck(self, kind: str, target: str, nodes: Sequence[int]) -> None:
        self.timeline.note(f"FAULT {kind} {target}")
        self.recorder.fault(kind, target, nodes)

    def _went_down(self, machine: Machine) -> None:
        if self.keeps_up:
            wait = self._revival.uniform(0.1, 0.5 if self.faults.is_over else 2.0)
            self.fabric.at(trio.current_time() + wait, lambda: self.revive(machine))

    def revive(self, machine: Machine) -> None:
        """Start a machine that is down."""
        self.cluster.nursery.start_soon(self._revive, machine)

    async def _revive(self, machine: Machine) -> None:
        if machine.is_up:
            return
        if machine.must_wipe:
            machine.must_wipe = False
            await self.cluster.wipe(machine)
        self.cluster.start(machine)

    # --- phases -----------------------------------------------------------------------------------

    async def _phases(self, nursery: trio.Nursery) -> None:
        health = Health(self.plan, self.cluster, self.oracle)
        if not await health.within(WARM_UP_S, health.serves):
            self.oracle.fail("V2", f"no service after {WARM_UP_S} s: {health.complaint()}")
            return
        await while_connected(self.cluster, "10.0.2.1", self._rng, self._create_topics)
        writers, readers = self._clients()
        async with trio.open_nursery() as clients:
            workload: list[Writer | Reader] = [*writers, *readers]
            for number, client in enumerate(workload):
                clients.start_soon(self._run_client, client, f"10.0.1.{number + 1}")
            await self._with_clients(clients, writers, health)
            clients.cancel_scope.cancel()

    async def _with_clients(
        self, clients: trio.Nursery, writers: list[Writer], health: Health
    ) -> None:
        """From the first fault to the verdict, while clients are at work."""
        if self._script is not None:
            await self._script(self)
            self._revive_all()
        else:
            await self._strike()
        if self.is_over:
            return
        self.timeline.note("healing")
        self.faults.heal()
        if not await health.within(LIVE_S, health.is_whole):
            self.oracle.fail("V3", f"not whole {LIVE_S} s after: {health.complaint()}")
            return
        await trio.sleep(_CALM)
        for writer in writers:
            writer.stopping = True
        clients.cancel_scope.deadline = trio.current_time() + FINISH_S + 1.0
        await self._finish(writers)

    def _revive_all(self) -> None:
        self.keeps_up = True
        for machine in self.cluster.machines:
            if not machine.is_up:
                self.revive(machine)

    async def _run_client(self, client: Writer | Reader, host: str) -> None:
        try:
            await client.run(self.cluster, host)
        except* trio.Cancelled:
            raise
        except* Exception as group:  # noqa: BLE001  a client that fails is a finding
            self.oracle.fail("C", f"client {client.name} failed with {group.exceptions!r}")

    async def _strike(self) -> None:
        begun = trio.current_time()
        for fault in self.plan.faults:
            self.fabric.at(begun + fault.at_s, partial(self.faults.strike, fault))
        await trio.sleep(self.plan.seconds)

    async def _finish(self, writers: list[Writer]) -> None:
        """Writers come to an end, then everything is read and judged."""
        with trio.move_on_after(FINISH_S) as scope:
            for writer in writers:
                await writer.ended.wait()
            await while_connected(self.cluster, "10.0.2.1", self._rng, self._read_all)
        if scope.cancelled_caught:
            self.oracle.fail("V7", f"writers and the last reading take longer than {FINISH_S} s")
            return
        self.oracle.check_end()
        self._judge()

    def _judge(self) -> None:
        verdict = self.recorder.checker.verdict()
        if verdict.outcome is Judgement.INVALID:
            self.oracle.fail("H", "; ".join(verdict.lines()[:6]))

    def _clients(self) -> tuple[list[Writer], list[Reader]]:
        rng = self._rng
        writers = []
        for number in range(self.plan.writers):
            kind = KINDS[0] if number == 0 else rng.choice(KINDS)
            seeded = random.Random(rng.getrandbits(64))
            writers.append(Writer(f"w{number}", kind, self.plan, self.recorder, seeded))
        readers = [
            Reader(f"r{number}", self.plan, self.recorder, random.Random(rng.getrandbits(64)))
            for number in range(self.plan.readers)
        ]
        return writers, readers

    # --- the operator -----------------------------------------------------------------------------

    async def _create_topics(self, client: Client) -> None:
        for topic in self.plan.topics:
            await client.admin.create_topic(
                topic.name,
                partitions=topic.partitions,
                replication_factor=topic.replicas,
                configs=topic.configs,
                if_not_exists=True,
            )

    async def _read_all(self, client: Client) -> None:
        partitions = [
            TopicPartition(topic.name, number)
            for topic in self.plan.topics
            for number in range(topic.partitions)
        ]
        await read_all(client, partitions, self.recorder)

    def operate(self, what: str, rng: random.Random) -> None:
        """An operator moves a leader or changes min ISR; what is refused is refused."""
        topic = rng.choice(self.plan.topics)
        partition = rng.randrange(topic.partitions)
        node = NodeId(rng.randrange(self.plan.nodes))
        value = rng.choice((topic.min_isr, topic.min_isr, topic.min_isr + 1))

        async def act(client: Client) -> None:
            try:
                if what == "move":
                    await client.admin.elect_leader(topic.name, partition, node)
                else:
                    await client.admin.alter_topic(topic.name, {"min.insync.replicas": str(value)})
            except PacelineError as error:
                self.timeline.note(f"operator refused: {error}")

        async def operate() -> None:
            with trio.move_on_after(3.0):
                await while_connected(self.cluster, "10.0.2.2", rng, act)

        self._struck(what, f"{topic.name}/{partition} n{node} {value}", ())
        self.faults.struck += 1
        self.cluster.nursery.start_soon(operate)


def run(plan: Plan) -> Verdict:
    """Carry a plan out."""
    return Run(plan).execute()
