"""One run: a cluster, a workload, faults, healing, the last reading, the verdict."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any

import trio

from paceline.errors import PacelineError
from paceline.values import dataclass
from paceline.version import __version__
from paceline_cluster.chaos.copies import Judgement
from paceline_cluster.chaos.nemesis import Nemesis, Strike
from paceline_cluster.chaos.recorder import Recorder
from paceline_cluster.chaos.scenario import Scenario
from paceline_cluster.chaos.schedule import plan
from paceline_cluster.chaos.timeline import Timeline, timeline
from paceline_cluster.chaos.workload import Workload
from paceline_cluster.checker import Outcome, Verdict, judge
from paceline_cluster.checker.history import read_history
from paceline_cluster.errors import TooLate
from paceline_cluster.faulty.fleet import Fleet, open_fleet
from paceline_cluster.verification import verify_directories

HISTORY = "history.jsonl"
HEAL_S = 90.0
"""A healed cluster is healthy within this, and the time to copy what a wiped node has lost if one
was wiped, or that is a finding."""
_COPY_BYTES_PER_S = 1024 * 1024
"""How fast that is at least, beside the workload and with all nodes on one machine."""
REST_S = 120.0
"""The workload of a healed cluster is at rest within this, and then no part of the last reading
takes longer: what was not read would count as lost, so a long run's reading may take its time."""
WARM_RECORDS = 200
"""Acknowledged before the first fault and after the last."""


@dataclass(slots=True)
class Report:
    """All about a run. ``problems`` are what the history cannot show: nodes that died by
    themselves, a cluster that did not heal, replicas that differ."""

    scenario: Scenario
    seconds: float
    seed: int
    strikes: list[Strike]
    verdict: Verdict
    timeline: Timeline
    problems: list[str]
    verified_logs: int
    copied: int = 0
    """Records that the copiers copied, each once."""

    @property
    def outcome(self) -> Outcome:
        """The verdict's, unless there are problems."""
        return Outcome.INVALID if self.problems else self.verdict.outcome

    def to_json(self) -> dict[str, Any]:
        """For machines; ``outcome`` is what counts."""
        struck = [strike for strike in self.strikes if strike.nodes]
        return {
            "outcome": str(self.outcome),
            "scenario": self.scenario.name,
            "seed": self.seed,
            "seconds": self.seconds,
            "nodes": self.scenario.nodes,
            "version": __version__,
            "fault_count": len(struck),
            "problems": self.problems,
            "verified_logs": self.verified_logs,
            "copied": self.copied,
            "verdict": self.verdict.to_json(),
            "faults": [fault.to_json() for fault in self.timeline.faults],
            "passed_over": [each.to_json() for each in self.strikes if not each.nodes],
        }

    def lines(self) -> list[str]:
        """For people."""
        worst = max((fault.stall_s for fault in self.timeline.faults), default=0.0)
        return [
            *self.verdict.lines(),
            *(f"problem: {problem}" for problem in self.problems),
            f"longest time without acknowledgement in a partition under a fault: {worst:.2f} s",
            *([f"{self.copied} records copied exactly once"] if self.copied else []),
            f"scenario {self.scenario.name}, seed {self.seed}: {self.outcome}",
        ]


@dataclass(slots=True)
class _Run:
    scenario: Scenario
    seconds: float
    seed: int
    folder: Path
    say: Callable[[str], None]
    tls: bool = False
    problems: list[str] = field(default_factory=list)
    strikes: list[Strike] = field(default_factory=list)
    copied: int = 0

    def rng(self, purpose: str) -> random.Random:
        """Each purpose draws from a stream of its own, so that one cannot disturb another."""
        return random.Random(f"{self.seed}-{purpose}")  # noqa: S311 - a schedule, no secret

    async def whole(self) -> Report:
        self.say(f"scenario {self.scenario.name}, seed {self.seed}: starting the cluster")
        async with open_fleet(
            self.folder / "cluster", self.scenario.nodes, self.scenario.settings, tls=self.tls
        ) as fleet:
            facts = {"scenario": self.scenario.name, "seed": self.seed, "version": __version__}
            with Recorder(self.folder / HISTORY, facts) as recorder:
                await self._struck(fleet, recorder)
            fleet.look_for_deaths()
            self.problems += fleet.deaths
            await self._stopped(fleet)
        logs = await self._verified(fleet)
        history = self.folder / HISTORY
        return Report(
            scenario=self.scenario,
            seconds=self.seconds,
            seed=self.seed,
            strikes=self.strikes,
            verdict=judge(read_history(history)),
            timeline=timeline(read_history(history)),
            problems=self.problems,
            verified_logs=logs,
            copied=self.copied,
        )

    async def _struck(self, fleet: Fleet, recorder: Recorder) -> None:
        workload = Workload(self.scenario.workload, fleet.bootstrap, recorder, self.rng("workload"))
        await workload.create_topics()
        await fleet.wait_healthy(HEAL_S)
        fleet.rng, fleet.tell = self.rng("harm"), self.say
        nemesis = Nemesis(fleet, recorder, self.rng("targets"), self.say)
        self.strikes = nemesis.strikes
        planned = plan(self.scenario.faults, self.scenario.schedule, self.seconds, self.rng("plan"))
        self.say(f"{len(planned)} faults in {self.seconds:.0f} s")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(workload.run)
            with trio.fail_after(REST_S):
                await workload.acknowledge(WARM_RECORDS)
            await nemesis.run(planned)
            await self._healed(fleet, workload)
            nursery.cancel_scope.cancel()

    async def _healed(self, fleet: Fleet, workload: Workload) -> None:
        self.say("healing")
        fleet.heal()
        within_s = HEAL_S
        if any(strike.kind == "wipe" and strike.nodes for strike in self.strikes):
            within_s += await fleet.largest_node() / _COPY_BYTES_PER_S
        try:
            await fleet.wait_healthy(within_s)
        except TooLate as error:
            self.problems.append(f"after all faults were taken back: {error}")
        with trio.move_on_after(REST_S) as scope:
            await workload.acknowledge(WARM_RECORDS)
            self.say("reading everything")
            try:
                self._judge_copies(await workload.rest(lambda: _extend(scope)))
            except PacelineError as error:
                self.problems.append(f"the healed cluster cannot be read: {error}")
        if scope.cancelled_caught:
            self.problems.append(f"the workload did not come to rest within {REST_S:.0f} s")

    def _judge_copies(self, judgement: Judgement | None) -> None:
        if judgement is None:
            return
        if judgement.problem is not None:
            self.problems.append(f"copied not exactly once: {judgement.problem}")
        elif not judgement.copied:
            self.problems.append("nothing was copied in transactions")
        else:
            self.copied = judgement.copied

    async def _stopped(self, fleet: Fleet) -> None:
        try:
            await fleet.stop()
        except TooLate as error:
            self.problems.append(str(error))

    async def _verified(self, fleet: Fleet) -> int:
        """Compare all replicas byte for byte."""
        self.say("comparing the replicas")
        found = await verify_directories([entry.dir for entry in fleet.state.nodes])
        self.problems += [
            f"{path}: {finding.message}"
            for path, finding in found.findings
            if finding.problem.is_error
        ]
        return len(found.logs)


def _extend(scope: trio.CancelScope) -> None:
    scope.deadline = trio.current_time() + REST_S


async def run(
    scenario: Scenario,
    *,
    seconds: float,
    seed: int,
    folder: Path,
    say: Callable[[str], None],
    tls: bool = False,
) -> Report:
    """Run a scenario in ``folder``, which exists and is empty; the history and the cluster's files
    stay there. Raises ClusterError, PacelineError, TooSlowError when the cluster cannot even be
    brought to work."""
    return await _Run(scenario, seconds, seed, folder, say, tls).whole()
