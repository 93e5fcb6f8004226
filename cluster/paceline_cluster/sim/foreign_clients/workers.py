"""Which clients each foreign protocol of a run brings, and what groups are asked in the end."""

from __future__ import annotations

import random
from collections.abc import Callable

from paceline.client.client import Client
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.foreign_clients import cursus_member, kafka_member
from paceline_cluster.sim.foreign_clients.audience import Audience
from paceline_cluster.sim.foreign_clients.copied import copying_of
from paceline_cluster.sim.foreign_clients.copier import ForeignCopier
from paceline_cluster.sim.foreign_clients.copy_rule import CopyRule
from paceline_cluster.sim.foreign_clients.cursus import coordinator_of, cursus_links
from paceline_cluster.sim.foreign_clients.cursus_copier import CursusCopier
from paceline_cluster.sim.foreign_clients.cursus_member import CursusMember
from paceline_cluster.sim.foreign_clients.cursus_reader import CursusReader
from paceline_cluster.sim.foreign_clients.cursus_writer import CursusWriter
from paceline_cluster.sim.foreign_clients.driven_member import DrivenMember, Owners, ask_committed
from paceline_cluster.sim.foreign_clients.kafka import kafka_cluster
from paceline_cluster.sim.foreign_clients.kafka_copier import KafkaCopier
from paceline_cluster.sim.foreign_clients.kafka_member import KafkaMember
from paceline_cluster.sim.foreign_clients.kafka_namer import KafkaNamer
from paceline_cluster.sim.foreign_clients.kafka_pipeline import KafkaPipeline
from paceline_cluster.sim.foreign_clients.kafka_reader import KafkaReader
from paceline_cluster.sim.foreign_clients.kafka_writer import KafkaWriter
from paceline_cluster.sim.foreign_clients.links import keep_on
from paceline_cluster.sim.foreign_clients.writer import ForeignWriter
from paceline_cluster.sim.history import Recorder
from paceline_cluster.sim.plan import ForeignClient, Plan
from paceline_cluster.sim.workload import while_connected

ForeignReader = CursusReader | CursusMember | KafkaReader | KafkaMember | KafkaNamer | DrivenMember
Producer = ForeignWriter | KafkaPipeline | ForeignCopier | Audience
_MEMBERS = 2
_COPIERS = {ForeignClient.CURSUS: CursusCopier, ForeignClient.KAFKA: KafkaCopier}


def foreign_workers(plan: Plan, recorder: Recorder) -> tuple[list[Producer], list[ForeignReader]]:
    """Those who come to an end when they are told to stop, and those who are cancelled. What they
    do is drawn apart, so that all others of a seed do what they would without them."""
    rng = random.Random(f"{plan.seed}/{plan.profile}/guests at work")
    fork: Callable[[], random.Random] = lambda: random.Random(rng.getrandbits(64))  # noqa: E731
    writers: list[Producer] = []

    def add_writers(kind: type[CursusWriter] | type[KafkaWriter], name: str) -> None:
        writers.append(kind(f"{name}0", plan, recorder, fork(), is_numbered=True))
        is_numbered = rng.random() < 0.5
        writers.append(kind(f"{name}1", plan, recorder, fork(), is_numbered=is_numbered))

    others: list[ForeignReader] = []
    topic = plan.topics[0]
    if ForeignClient.CURSUS in plan.foreign_clients:
        add_writers(CursusWriter, "cw")
        others.append(CursusReader("cr", plan, recorder, fork()))
        others += [CursusMember(f"cm{n}", topic, recorder, fork()) for n in range(_MEMBERS)]
    if ForeignClient.KAFKA in plan.foreign_clients:
        add_writers(KafkaWriter, "kw")
        writers += [KafkaPipeline(f"kp{n}", plan, recorder, fork()) for n in range(plan.pipelines)]
        others.append(KafkaReader("kr", plan, recorder, fork()))
        others += [KafkaMember(f"km{n}", topic, recorder, fork()) for n in range(_MEMBERS)]
        others += [KafkaNamer(f"kn{n}", recorder, fork()) for n in range(plan.namers)]
    if ForeignClient.COORDINATOR in plan.foreign_clients:
        owners = Owners()
        others += [
            DrivenMember(f"dm{n}", topic, recorder, owners, fork()) for n in range(_MEMBERS + 1)
        ]
    for client in plan.foreign_copiers:
        rule = CopyRule(copying_of(plan, client))
        kind = _COPIERS[client]
        writers += [kind(f"{client.value}-copier{n}", rule, fork()) for n in range(_MEMBERS)]
    if plan.audience:
        writers.append(Audience("audience", plan.audience, fork()))
    return writers, others


async def last_questions(
    plan: Plan, recorder: Recorder, cluster: SimCluster, host: str, rng: random.Random
) -> None:
    """Ask what the foreign clients' groups have committed, until all is told."""
    topic = plan.topics[0]
    if ForeignClient.CURSUS in plan.foreign_clients:
        async with cursus_links(cluster, host, rng) as cursus:

            async def ask_cursus() -> None:
                link = await cursus.to(await coordinator_of(cursus, f"group={cursus_member.GROUP}"))
                for number in range(topic.partitions):
                    await cursus_member.committed(link, topic.name, number, recorder)

            await keep_on(ask_cursus)
    if ForeignClient.KAFKA in plan.foreign_clients:
        async with kafka_cluster(cluster, host, rng) as known:

            async def ask_kafka() -> None:
                link = await known.coordinator(kafka_member.GROUP)
                partitions = list(range(topic.partitions))
                await kafka_member.committed(link, topic.name, partitions, recorder)

            await keep_on(ask_kafka)
    if ForeignClient.COORDINATOR in plan.foreign_clients:

        async def ask_coordinator(client: Client) -> None:
            await keep_on(lambda: ask_committed(client, topic, recorder))

        await while_connected(cluster, host, rng, ask_coordinator)
