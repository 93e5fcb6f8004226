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
from paceline.errors import TopicAlreadyExists
from paceline_cluster.checker.findings import Outcome as Judgement
from paceline_cluster.sim import loop
from paceline_cluster.sim.budget import LossBudget
from paceline_cluster.sim.cluster import Shape, SimCluster
from paceline_cluster.sim.copier import what_is_wrong_with_copies
from paceline_cluster.sim.fabric import Fabric
from paceline_cluster.sim.faults import Faults
from paceline_cluster.sim.foreign_clients.copied import what_is_wrong_with_foreign_copies
from paceline_cluster.sim.history import Recorder
from paceline_cluster.sim.liveness import Health
from paceline_cluster.sim.machine import Machine
from paceline_cluster.sim.operator import Operator
from paceline_cluster.sim.oracle import Oracle, Violation
from paceline_cluster.sim.plan import LEDGER, Plan
from paceline_cluster.sim.retention.retention_clients import RetentionClients
from paceline_cluster.sim.segments.events import DEEP
from paceline_cluster.sim.segments.judge import SegmentJudge
from paceline_cluster.sim.segments.keeper import insist
from paceline_cluster.sim.timeline import Timeline
from paceline_cluster.sim.workers import Worker, Workers, gather, read_everything, stop
from paceline_cluster.sim.workload import while_connected

WARM_UP_S = 20.0
LIVE_S = 40.0
FINISH_S = 30.0
_CALM = 0.5
MOST_TURNS = 20_000
"""Of the loop while no time passes; runs take a hundred."""


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
    segment_bytes: int
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
        self.recorder = Recorder(trio.current_time, hides=LEDGER)
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
        self.judge: SegmentJudge
        self.retention: RetentionClients
        self.operator: Operator
        self.faults: Faults
        self.budget: LossBudget
        self.hosts: dict[str, str] = {}
        """Where each client lives, by its name."""
        self._has_begun = False
        self._virtual_s = 0.0
        self._turns = 0
        self._turned_at = -1.0

    def execute(self) -> Verdict:
        """The whole run."""
        with self.timeline.recording():
            loop.run(self._main, seed=self._rng.getrandbits(64), step=self._step)
        violation = self.oracle.violation
        return Verdict(
            plan=self.plan,
            violation=violation,
            trace=self.fabric.trace,
            virtual_s=self._virtual_s,
            acknowledged=self.recorder.acknowledged,
            unknown=self.recorder.unknown,
            refused=self.recorder.refused,
            read=self.recorder.read,
            segment_bytes=self.judge.stored_bytes,
            faults=self.faults.struck,
            elections=self.oracle.metadata.elections,
            pieces=self.fabric.sent_pieces,
            timeline=self.timeline,
        )

    def _step(self) -> None:
        if not self._has_begun:
            return
        if self.oracle.violation is None:
            self.oracle.step()
        now = trio.current_time()
        self._turns, self._turned_at = self._turns + 1 if now == self._turned_at else 0, now
        if self._turns == MOST_TURNS:
            self._end_standstill()

    def _end_standstill(self) -> None:
        """Time passes only while everybody waits. Where some task never does, no limit of time is
        ever reached, that of a clean-up neither."""
        if self.oracle.violation is None:
            text = f"a task never waits: {MOST_TURNS} turns of the loop while no time passed"
            self.oracle.fail("V8", text)
        self._tear_down()

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
        shape = Shape(
            plan.nodes, plan.voters, plan.spares, plan.node_settings, plan.foreign_clients
        )
        cluster = self.cluster = SimCluster(
            shape,
            self.fabric,
            random.Random(rng.getrandbits(64)),
            nursery,
            secret,
            self.timeline.note,
        )
        self.oracle = Oracle(cluster.machines, trio.current_time, self._violated)
        self.judge = SegmentJudge(self.oracle.fail)
        if plan.streamers:
            self.oracle.judges.append(self.judge)
        self.retention = RetentionClients(plan, self.recorder, self.oracle.fail)
        self.oracle.watchers.append(self.retention.starts.look)
        budget = self.budget = LossBudget(
            cluster.machines, self.oracle, limit=plan.losses, voters=plan.voters
        )
        self.operator = Operator(plan, cluster, self.oracle, self._struck, self.timeline.note)
        self.faults = Faults(plan, cluster, self.oracle, budget, self._struck, self.operator)
        self._has_begun = True
        await cluster.format()
        for machine in cluster.machines:
            machine.went_down = self._went_down
        for machine in cluster.machines[: plan.nodes]:
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
            due = max(trio.current_time() + wait, machine.down_until)
            self.fabric.at(due, lambda: self.revive(machine))

    def revive(self, machine: Machine) -> None:
        """Start a machine that is down."""
        self.cluster.nursery.start_soon(self._revive, machine)

    async def _revive(self, machine: Machine) -> None:
        if machine.must_wipe and not machine.is_up:
            await self.cluster.wipe(machine)
        if not machine.is_up and not machine.is_being_wiped:
            self.cluster.start(machine)

    # --- phases -----------------------------------------------------------------------------------

    async def _phases(self, nursery: trio.Nursery) -> None:
        health = Health(self.plan, self.cluster, self.oracle)
        if not await health.within(WARM_UP_S, health.serves):
            self.oracle.fail("V2", f"no service after {WARM_UP_S} s: {health.complaint()}")
            return
        await while_connected(self.cluster, "10.0.2.1", self._rng, self._create_topics)
        workers = self.workers = gather(
            self.plan, self.recorder, self.judge, self.retention, self._rng
        )
        async with trio.open_nursery() as clients:
            for number, client in enumerate(workers.all):
                host = self.hosts[client.name] = f"10.0.1.{number + 1}"
                clients.start_soon(self._run_client, client, host)
            await self._with_clients(clients, workers, health)
            clients.cancel_scope.cancel()

    async def _with_clients(self, clients: trio.Nursery, workers: Workers, health: Health) -> None:
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
        stop(workers.crowd)
        if not await health.within(LIVE_S, health.is_whole):
            if self.plan.may_halt and health.has_halted():
                self.timeline.note(f"halted: {health.complaint()}")
                return
            self.oracle.fail("V3", f"not whole {LIVE_S} s after: {health.complaint()}")
            return
        if not self.plan.may_halt and not await self._mended(health):
            return
        await trio.sleep(_CALM)
        stop(workers.writers)
        clients.cancel_scope.deadline = trio.current_time() + FINISH_S + 1.0
        await self._finish(workers)

    async def _mended(self, health: Health) -> bool:
        """Whether every disk is whole again. What a running process has no reason to read is found
        by the next one: nodes whose disk still has a fault are restarted for it."""
        for machine in self.budget.hurt():
            self.timeline.note(f"n{machine.number} is restarted: its disk is not whole")
            machine.kill()
        if await health.within(LIVE_S, lambda: health.is_whole() and not self.budget.hurt()):
            return True
        left = "; ".join(self.budget.complaints()) or health.complaint()
        self.oracle.fail("V3", f"not mended {LIVE_S} s after: {left}")
        return False

    def _revive_all(self) -> None:
        self.keeps_up = True
        for machine in self.cluster.members:
            if not machine.is_up:
                self.revive(machine)

    async def _run_client(self, client: Worker, host: str) -> None:
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

    async def _finish(self, workers: Workers) -> None:
        """Writers come to an end, then everything is read and judged."""
        with trio.move_on_after(FINISH_S) as scope:
            for writer in workers.writers:
                await writer.ended.wait()
            await read_everything(
                self.plan,
                self.recorder,
                self.judge,
                self.retention,
                self.cluster,
                "10.0.2.1",
                self._rng,
            )
            if self.plan.copiers:
                await while_connected(self.cluster, "10.0.2.1", self._rng, self._judge_copies)
            problem = await what_is_wrong_with_foreign_copies(
                workers.writers, self.cluster, "10.0.2.1", self._rng
            )
            if problem is not None:
                self.oracle.fail("EOS", problem)
        if scope.cancelled_caught:
            late = [each.name for each in workers.writers if not each.ended.is_set()]
            who = ", ".join(late) or "the last reading"
            self.oracle.fail("V7", f"{who}: not at an end within {FINISH_S} s")
            return
        self.oracle.check_end()
        self.retention.judge(self.oracle)
        self._judge()

    async def _judge_copies(self, client: Client) -> None:
        problem = await what_is_wrong_with_copies(client, self.plan)
        if problem is not None:
            self.oracle.fail("EOS", problem)

    def _judge(self) -> None:
        verdict = self.recorder.checker.verdict()
        if verdict.outcome is Judgement.INVALID:
            self.oracle.fail("H", "; ".join(verdict.lines()[:6]))
        if self.recorder.named_twice:
            self.oracle.fail("I18", f"producer ids given out twice: {self.recorder.named_twice}")

    # --- the operator -----------------------------------------------------------------------------

    async def _create_topics(self, client: Client) -> None:
        topics = self.plan.all_topics
        for topic in (*topics, *self.plan.all_copies):
            await client.admin.create_topic(
                topic.name,
                partitions=topic.partitions,
                replication_factor=topic.replicas,
                configs=topic.configs,
                if_not_exists=True,
            )
        await self.retention.make_topics(client, self.cluster, "10.0.2.1")
        if self.plan.streamers:
            async with client.segments() as segments:
                for name in DEEP:
                    await insist(partial(segments.create, name), TopicAlreadyExists)


def run(plan: Plan) -> Verdict:
    """Carry a plan out."""
    return Run(plan).execute()
