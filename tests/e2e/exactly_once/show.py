"""``scripts/show-exactly-once``: clients copy records in transactions while nodes and copiers die.

The input is written first. Every client copies all of it into a topic of its own; when all are
done, what is there is compared with what each was told.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import trio

from paceline.client import Client, ClientSettings, Position, connect
from paceline_cluster.errors import TooLate
from paceline_cluster.faulty.fleet import Fleet, open_fleet
from paceline_cluster.verification import verify_directories
from tests.e2e.exactly_once import journal
from tests.e2e.exactly_once.clients import CLIENTS, NotHere
from tests.e2e.exactly_once.copiers import Copier
from tests.e2e.exactly_once.copying import Course
from tests.e2e.exactly_once.judge import Copy, Expected, decode, judge
from tests.e2e.exactly_once.nemesis import HEAL_S, Nemesis

NODES, PARTITIONS = 3, 2
INPUT = "eo-in"
OPERATION_S = 120.0
SHOWN = 20
"""Differences of a kind that are said; the report has all."""


@dataclass(frozen=True)
class Plan:
    records: int
    seed: int
    clients: tuple[str, ...]
    batch: int
    abort_every: int
    members: int
    folder: Path

    @property
    def ends(self) -> list[int]:
        return [len(range(at, self.records, PARTITIONS)) for at in range(PARTITIONS)]

    def courses(self, fleet: Fleet, client: str) -> list[Course]:
        """One for each member of the client's group."""
        return [
            Course(
                servers=fleet.state.addresses(CLIENTS[client].listener),
                group=f"eo-{client}",
                member=member,
                members=self.members,
                input=INPUT,
                output=f"eo-out-{client}",
                ends=self.ends,
                batch=self.batch,
                abort_every=self.abort_every,
                journal=str(self.folder / f"{client}-{member}.journal.jsonl"),
            )
            for member in range(self.members)
        ]


@dataclass
class Outcome:
    """Of the whole run."""

    clients: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    never_struck: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def word(self) -> str:
        if self.problems or any(each["differences"] for each in self.clients.values()):
            return "failed"
        return "vacuous" if self.never_struck or not self.clients else "ok"


class Run:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._outcome = Outcome()
        self._courses: dict[str, list[Course]] = {}
        self._copiers: dict[str, Copier] = {}

    async def whole(self) -> Outcome:
        """All of it. SIGTERM ends nodes and copiers as Ctrl-C does."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_interrupted_by, signal.SIGTERM)
            await self._whole()
            nursery.cancel_scope.cancel()
        return self._outcome

    async def _whole(self) -> None:
        began = time.monotonic()
        async with open_fleet(self._plan.folder / "cluster", NODES, {}) as fleet:
            async with connect(
                fleet.bootstrap, ClientSettings(operation_timeout_s=OPERATION_S)
            ) as client:
                await self._prepare(fleet, client)
                await self._copy(fleet)
                await self._judge(client)
            fleet.look_for_deaths()
            self._outcome.problems += fleet.deaths
            await fleet.stop()
        await self._verify(fleet)
        self._outcome.seconds = round(time.monotonic() - began, 1)

    async def _prepare(self, fleet: Fleet, client: Client) -> None:
        plan = self._plan
        await client.admin.create_topic(INPUT, partitions=PARTITIONS, replication_factor=NODES)
        async with client.producer() as producer:
            for at in range(0, plan.records, 1000):
                for number in range(at, min(at + 1000, plan.records)):
                    await producer.submit(INPUT, b"%d" % number, partition=number % PARTITIONS)
                await producer.flush()
        for name in plan.clients:
            try:
                await self._prepare_copiers(name, plan.courses(fleet, name))
            except NotHere as reason:
                self._outcome.skipped[name] = str(reason)
                say(f"{name}: skipped, {reason}")
                continue
            await client.admin.create_topic(
                f"eo-out-{name}", partitions=PARTITIONS, replication_factor=NODES
            )

    async def _prepare_copiers(self, name: str, courses: list[Course]) -> None:
        """Raises NotHere."""
        kind = CLIENTS[name]
        for course in courses:
            saved = self._plan.folder / f"{course.name}.course.json"
            course.save(saved)
            command = await trio.to_thread.run_sync(kind.command, saved)
            errors = self._plan.folder / f"{course.name}.err"
            self._copiers[course.name] = Copier(
                course.name, command, kind.dump, Path(course.journal), errors, kind.hangs_in
            )
        self._courses[name] = courses

    async def _copy(self, fleet: Fleet) -> None:
        """Until every copier is done, while the nemesis strikes."""
        outputs = tuple(f"eo-out-{name}" for name in self._courses)
        rng = random.Random(self._plan.seed)
        nemesis = Nemesis(fleet, self._copiers, outputs, rng, say)
        problems = self._outcome.problems
        stop = trio.Event()
        try:
            async with trio.open_nursery() as striking, trio.open_nursery() as telling:
                striking.start_soon(nemesis.run, stop)
                telling.start_soon(self._tell)
                async with trio.open_nursery() as copying:
                    for copier in self._copiers.values():
                        copying.start_soon(copier.run)
                telling.cancel_scope.cancel()
                stop.set()
        except* TooLate as errors:
            problems += [f"the cluster did not recover: {each}" for each in errors.exceptions]
        for copier in self._copiers.values():
            problems += copier.problems
            self._outcome.hangs += copier.hangs
        self._outcome.struck = nemesis.struck
        self._outcome.never_struck = sorted(set(nemesis.kinds) - set(nemesis.struck))
        fleet.heal()
        await fleet.wait_healthy(HEAL_S)

    async def _tell(self) -> None:
        while True:
            await trio.sleep(15)
            parts = []
            for name in self._courses:
                book = await trio.to_thread.run_sync(self._book, name)
                done = sum(
                    end - first
                    for each in book.attempts.values()
                    if each.told is journal.Told.COMMITTED
                    for first, end in each.slices.values()
                )
                parts.append(f"{name} {done}")
            say(f"  copied: {', '.join(parts)}")

    def _book(self, name: str) -> journal.Book:
        """What all members of a client's group were told."""
        return journal.together(journal.read(Path(each.journal)) for each in self._courses[name])

    async def _judge(self, client: Client) -> None:
        for name, [course, *_] in self._courses.items():
            book = self._book(name)
            seen = await read_committed(client, course.output)
            committed = await CLIENTS[name].committed(client, course)
            expected = Expected(dict(enumerate(course.ends)), book.attempts)
            differences = judge(expected, seen, committed).lines()
            counts = {told.value: book.count(told) for told in journal.Told}
            reasons = Counter(
                f"{each.told.value}: {each.why}" for each in book.attempts.values() if each.why
            )
            self._outcome.clients[name] = {
                "records": sum(map(len, seen.values())),
                **counts,
                "kills": sum(self._copiers[each.name].kills for each in self._courses[name]),
                "reasons": dict(reasons.most_common()),
                "stops": dict(Counter(book.stops).most_common()),
                "differences": differences,
            }

    async def _verify(self, fleet: Fleet) -> None:
        """Compare all replicas byte for byte."""
        found = await verify_directories([entry.dir for entry in fleet.state.nodes])
        self._outcome.problems += [
            f"{path}: {finding.message}"
            for path, finding in found.findings
            if finding.problem.is_error
        ]


async def _interrupted_by(number: signal.Signals) -> None:
    with trio.open_signal_receiver(number) as signals:
        async for _ in signals:
            raise KeyboardInterrupt


async def read_committed(client: Client, topic: str) -> dict[int, list[Copy]]:
    """What is visible in each partition, in order."""
    seen: dict[int, list[Copy]] = {at: [] for at in range(PARTITIONS)}
    with trio.fail_after(OPERATION_S * 5):
        async with client.consumer(topic, stop=Position.LATEST) as consumer:
            async for record in consumer:
                seen[record.partition].append(decode(record.value or b""))
    return seen


def say(line: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {line}")
    sys.stdout.flush()


def tell(outcome: Outcome) -> None:
    for name, found in outcome.clients.items():
        told = ", ".join(f"{found[each.value]} {each.value}" for each in journal.Told)
        differences = found["differences"]
        say(f"{name}: {found['records']} records; told {told}; {len(differences)} differences")
        for kind in ("reasons", "stops"):
            for why, count in found[kind].items():
                say(f"    {count} x {why}")
        for line in differences[:SHOWN]:
            say(f"  {line}")
    for problem in outcome.problems:
        say(f"problem: {problem}")
    for hang in outcome.hangs:
        say(f"a fault of the client: {hang}")
    say("blows: " + ", ".join(f"{count} x {kind}" for kind, count in outcome.struck.items()))
    if outcome.never_struck:
        say(f"never struck while a copier worked: {', '.join(outcome.never_struck)}")


@click.command()
@click.option("--records", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--client", "clients", multiple=True, type=click.Choice(sorted(CLIENTS)))
@click.option("--batch", type=click.IntRange(1), default=100, show_default=True)
@click.option("--abort-every", type=click.IntRange(2), default=7, show_default=True)
@click.option("--members", type=click.IntRange(1, PARTITIONS), default=2, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="build/exactly-once-SEED.")
def main(
    records: int,
    seed: int,
    clients: tuple[str, ...],
    batch: int,
    abort_every: int,
    members: int,
    folder: Path | None,
) -> None:
    """Copy records with each client through restarts, kills and leader moves. Exit code 0: no
    difference between what clients were told and what is there. 1: there are some, or a copier
    failed or hung; the folder keeps the cluster. 2: a kind of blow never fell while copiers
    worked: take more records."""
    folder = (folder or Path("build") / f"exactly-once-{seed}").resolve()
    folder.mkdir(parents=True)
    chosen = clients or tuple(sorted(CLIENTS))
    outcome = trio.run(Run(Plan(records, seed, chosen, batch, abort_every, members, folder)).whole)
    report = {"records": records, "seed": seed, "verdict": outcome.word, **vars(outcome)}
    (folder / "report.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
    tell(outcome)
    if outcome.word != "failed":
        shutil.rmtree(folder / "cluster")
    say(f"verdict: {outcome.word}; {outcome.seconds:.0f} s; report: {folder / 'report.json'}")
    sys.exit({"ok": 0, "failed": 1, "vacuous": 2}[outcome.word])


if __name__ == "__main__":
    main()
