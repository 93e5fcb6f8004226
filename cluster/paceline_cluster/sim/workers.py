"""Who works on the cluster during a run: writers, readers and members of groups, by protocol."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import trio

from paceline.client.client import Client
from paceline.errors import PacelineError
from paceline.types import TopicPartition
from paceline_cluster.chaos.member import AUDITORS, Asking, ask_offsets
from paceline_cluster.sim.cluster import SEGMENT_PORT, SimCluster
from paceline_cluster.sim.copier import SimCopier
from paceline_cluster.sim.foreign_clients.workers import foreign_workers, last_questions
from paceline_cluster.sim.history import Recorder
from paceline_cluster.sim.members import Asker, GroupMember, TroubledMembers
from paceline_cluster.sim.plan import Plan
from paceline_cluster.sim.processing_members import OVERSEERS, ProcessingMember
from paceline_cluster.sim.retention.retention_clients import RetentionClients
from paceline_cluster.sim.segments.events import DEEP
from paceline_cluster.sim.segments.judge import SegmentJudge
from paceline_cluster.sim.segments.keeper import Keeper
from paceline_cluster.sim.segments.reader import StreamReader, read_whole
from paceline_cluster.sim.segments.streamer import Streamer
from paceline_cluster.sim.segments.wiretap import tapped
from paceline_cluster.sim.segments.writers import SegmentWriters
from paceline_cluster.sim.transactor import Transactor
from paceline_cluster.sim.v1_clients import Link, V1Member, V1Writer, committed, over_links
from paceline_cluster.sim.workload import (
    AGAIN_S,
    KINDS,
    Reader,
    Writer,
    read_all,
    while_connected,
)


class Worker(Protocol):
    """A client; runs until it is cancelled, or by itself once it was told to stop."""

    name: str

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Work from ``host``."""


class Finite(Worker, Protocol):
    """One that comes to an end once it was told to stop."""

    stopping: bool
    ended: trio.Event


@dataclass(frozen=True)
class Workers:
    """``writers`` are told to stop and come to an end, the ``crowd`` among them before the others;
    ``others`` are cancelled."""

    writers: Sequence[Finite]
    others: Sequence[Worker]
    crowd: Sequence[Finite]

    @property
    def all(self) -> Sequence[Worker]:
        return [*self.writers, *self.others]


def gather(
    plan: Plan,
    recorder: Recorder,
    judge: SegmentJudge,
    retention: RetentionClients,
    rng: random.Random,
) -> Workers:
    """The clients of a plan. The first writer always is an idempotent one."""
    fork: Callable[[], random.Random] = lambda: random.Random(rng.getrandbits(64))  # noqa: E731
    writers: list[Finite] = []
    for number in range(plan.writers):
        kind = KINDS[0] if number == 0 else rng.choice(KINDS)
        writers.append(Writer(f"w{number}", kind, plan, recorder, fork()))
    crowd = writers[plan.writers - plan.crowd :]
    for number in range(plan.line_writers):
        writers.append(V1Writer(f"l{number}", plan, recorder, fork()))
    for number in range(plan.copiers):
        writers.append(SimCopier(f"c{number}", plan, fork()))
    for number in range(plan.transactors):
        writers.append(Transactor(f"t{number}", plan, recorder, fork()))
    topic = plan.topics[0]
    others: list[Worker] = [
        Reader(f"r{number}", plan, recorder, fork()) for number in range(plan.readers)
    ]
    others += [
        V1Member(f"lm{number}", topic, recorder, fork()) for number in range(plan.line_members)
    ]
    if plan.members:
        others.append(Asker("asker", topic, recorder, fork()))
        others += [
            GroupMember(f"m{number}", topic, recorder, fork())
            for number in range(plan.members - plan.troubled)
        ]
        others += [
            TroubledMembers(f"tm{number}", topic, recorder, fork())
            for number in range(plan.troubled)
        ]
    if plan.labourers:
        others.append(Asker("overseer", topic, recorder, fork(), OVERSEERS))
        others += [
            ProcessingMember(f"lb{number}", topic, recorder, fork())
            for number in range(plan.labourers)
        ]
    if plan.streamers:
        writers += [Streamer(f"s{number}", plan, judge, fork()) for number in range(plan.streamers)]
        writers.append(SegmentWriters("crew", plan, judge, fork()))
        others.append(StreamReader("sr", judge, fork()))
        others.append(Keeper("keeper", plan, judge, fork()))
    foreign_writers, foreign_readers = foreign_workers(plan, recorder)
    writers += [*foreign_writers, *retention.writers]
    others += [*foreign_readers, *retention.others]
    return Workers(writers, others, crowd)


def stop(workers: Iterable[Finite]) -> None:
    """Have them come to an end."""
    for worker in workers:
        worker.stopping = True


async def read_everything(
    plan: Plan,
    recorder: Recorder,
    judge: SegmentJudge,
    retention: RetentionClients,
    cluster: SimCluster,
    host: str,
    rng: random.Random,
) -> None:
    """The last reading, of all partitions, of what the groups have committed, of segments."""

    async def read(client: Client) -> None:
        if plan.labourers:
            await _ask_until_told(client, plan, recorder, OVERSEERS)
        await read_all(
            client,
            [
                TopicPartition(topic.name, number)
                for topic in plan.all_topics
                for number in range(topic.partitions)
            ]
            + [*retention.read_at_last],
            recorder,
        )
        if plan.members:
            await _ask_until_told(client, plan, recorder, AUDITORS)
        for name in DEEP if plan.streamers else ():
            await read_whole(client, judge, name)

    async def ask(link: Link) -> None:
        for number in range(plan.topics[0].partitions):
            await committed(link, plan.topics[0].name, number, recorder)

    dial = tapped(cluster.dial_from(host), SEGMENT_PORT, judge)
    await while_connected(cluster, host, rng, read, dial=dial)
    if plan.line_members:
        await over_links(cluster, host, rng, ask)
    await last_questions(plan, recorder, cluster, host, rng)
    await retention.last_look(cluster, host)


async def _ask_until_told(client: Client, plan: Plan, recorder: Recorder, asking: Asking) -> None:
    topic = plan.topics[0]
    while True:
        try:
            await ask_offsets(client, topic.name, topic.partitions, recorder, asking)
            return
        except PacelineError:
            await trio.sleep(AGAIN_S)
