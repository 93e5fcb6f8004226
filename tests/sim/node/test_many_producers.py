"""Clients that open producers without end, in whole nodes, while leaders move and die: each
partition remembers so many of them, the same on all replicas, and whoever else writes there is not
harmed.

``tests/integration/node/test_many_producers.py`` plays the same over real sockets, and the machine
of ``tests/unit/replication/test_producer_quota.py`` each rule alone.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from unittest import mock

import pytest
import trio

from paceline.client import Client, Position, TransactionalProducer
from paceline.errors import ErrorCode, PacelineError, Throttled
from paceline.wire.batch import build_value_batch
from paceline.wire.batch_header import read_header
from paceline.wire.kafka import records as wire
from paceline_cluster.sim.foreign_clients.kafka import KafkaCluster, kafka_cluster, raise_for
from paceline_cluster.sim.foreign_clients.links import AGAIN_S
from paceline_cluster.sim.plan import ForeignClient, Plan
from paceline_cluster.sim.retention.producer_state_check import differing_producer_states
from paceline_cluster.sim.workload import wall_ms, while_connected
from paceline_node.replication import producer_quota
from paceline_node.replication.appends import Appends
from paceline_node.replication.partition import Partition
from paceline_node.replication.producer_quota import ProducerQuota
from paceline_node.storage.producer_state import ProducerKey
from paceline_node.storage.producers import read_detail
from tests.sim.node.story import Story, find, plan_of, play

pytestmark = pytest.mark.timeout(600)

BOUND = 40
MARKERS = 2
"""Beyond the bound: markers are never refused."""
TOPIC = "crowded"
STRANGERS = ("10.0.9.1", "10.0.9.2")
HONEST, NEWCOMER = "10.0.9.3", "10.0.9.4"
REFUSED = ErrorCode.NOT_ENOUGH_REPLICAS
"""How Kafka clients are told to come again later."""
_FIRST_ID = 2**40
"""Numbers of producers that the cluster gives nobody."""


def plan() -> Plan:
    settings = {"limits.partition_producers": str(BOUND)}
    return replace(
        plan_of(),
        settings=settings,
        pause_s=0.5,
        foreign_clients=(ForeignClient.KAFKA,),
        pipelines=0,
        readers=0,
    )


class Stranger:
    """Opens one producer after the other in the topic; what each was told."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.told: Counter[int] = Counter()

    async def run(self, story: Story) -> None:
        first = _FIRST_ID * (1 + STRANGERS.index(self.host))
        async with kafka_cluster(story.run.cluster, self.host, random.Random(first)) as known:
            while True:
                try:
                    self.told[await _open(known, first + self.told.total())] += 1
                except PacelineError:
                    known.forget()
                    await trio.sleep(AGAIN_S)
                await trio.sleep(0.01)


async def _open(known: KafkaCluster, producer: int) -> int:
    link = await known.leader((TOPIC, 0))
    batch = build_value_batch(
        [b"stranger"],
        timestamp_ms=wall_ms(),
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
    )
    part = wire.ProduceRequestTopicPartition(index=0, records=bytes(batch))
    topic = wire.ProduceRequestTopic(name=TOPIC, partition_data=(part,))
    told = await link.ask(
        wire.ProduceRequest(acks=-1, timeout_ms=1500, topic_data=(topic,)), 9, wire.ProduceResponse
    )
    code = told.responses[0].partition_responses[0].error_code
    if code != REFUSED:
        raise_for(code, "PRODUCE")
    return code


def replicas(story: Story) -> list[Partition]:
    """Those that run, wherever they are."""
    found = []
    for machine in story.machines:
        broker = None if machine.node is None else machine.node.broker
        partition = None if broker is None else broker.replicas.table.get(TOPIC, 0)
        if partition is not None:
            found.append(partition)
    return found


class Honest:
    """Writes by one producer, and in transactions by another, all the while."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.written = 0
        self.refused: list[PacelineError] = []

    async def write(self) -> None:
        async with self._client.producer() as producer:
            while True:
                try:
                    await producer.send(TOPIC, b"honest %d" % self.written, partition=0)
                except Throttled as error:
                    self.refused.append(error)
                    return
                self.written += 1
                await trio.sleep(0.05)

    async def seen(self, prefix: bytes) -> list[bytes]:
        async with self._client.consumer(TOPIC, stop=Position.LATEST) as consumer:
            found = [record.value or b"" async for record in consumer]
        return [each for each in found if each.startswith(prefix)]


async def a_crowd(story: Story) -> None:
    """Two strangers fill a partition in which others write, begin to, and have a transaction
    open; the leader moves, and a follower dies and comes back."""

    async def work(client: Client) -> None:
        await client.admin.create_topic(TOPIC, partitions=1, replication_factor=3)
        honest = Honest(client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(honest.write)
            await story.until("there are honest records", lambda: honest.written > 3)
            async with client.transactional_producer("careful") as careful:
                await careful.begin()
                await careful.send(TOPIC, b"open 0", partition=0)
                await _crowded(story, client, honest, careful, nursery)
            nursery.cancel_scope.cancel()
        found = await honest.seen(b"honest")
        wanted = [b"honest %d" % each for each in range(honest.written)]
        story.check(found[: len(wanted)] == wanted, "honest records are lost, or there twice")
        story.check(await honest.seen(b"open") == [b"open 0", b"open 1"], "a transaction is torn")

    await while_connected(story.run.cluster, HONEST, random.Random(1), work)
    await story.in_sync()
    await story.until(
        "all remember the same",
        lambda: differing_producer_states(story.run.oracle) is None,
        within=20,
    )


async def _crowded(
    story: Story,
    client: Client,
    honest: Honest,
    careful: TransactionalProducer,
    nursery: trio.Nursery,
) -> None:
    strangers = [Stranger(host) for host in STRANGERS]
    for each in strangers:
        nursery.start_soon(each.run, story)
    await story.until("they are refused", lambda: all(_is_refused(each) for each in strangers), 20)
    before = honest.written
    await _newcomer(story, b"newcomer 0")
    leader = (await client.admin.describe_topic(TOPIC)).partitions[0].leader
    other = next(each for each in story.machines if each.number != leader)
    await client.admin.elect_leader(TOPIC, 0, other.number)
    for each in strangers:
        each.told.clear()
    await story.until("there too", lambda: all(_is_refused(each) for each in strangers), 20)
    await _newcomer(story, b"newcomer 1")
    victim = next(each for each in story.machines if each.number not in (leader, other.number))
    victim.kill()
    story.start(victim)
    await story.until("honest records go on", lambda: honest.written > before + 20, within=20)
    story.check(not honest.refused, f"who wrote all the time was refused: {honest.refused}")
    story.check(not await honest.seen(b"open"), "what is not decided is read")
    await careful.send(TOPIC, b"open 1", partition=0)
    await careful.commit()
    for replica in replicas(story):
        count = replica.log.producers.producer_count
        story.check(count <= BOUND + MARKERS, f"{replica} knows {count} producers")


def _is_refused(stranger: Stranger) -> bool:
    return stranger.told[REFUSED] > 3


async def _newcomer(story: Story, value: bytes) -> None:
    """Who has none yet finds room at once."""

    async def write(client: Client) -> None:
        async with client.producer() as producer:
            try:
                await producer.send(TOPIC, value, partition=0)
            except Throttled as error:
                story.check(False, f"a newcomer finds no room: {error}")

    with trio.move_on_after(15) as scope:
        await while_connected(story.run.cluster, NEWCOMER, random.Random(2), write)
    story.check(not scope.cancelled_caught, "a newcomer finds no room")


def test_who_opens_very_many_harms_nobody_else() -> None:
    play(a_crowd, plan())


def _forgotten_here_only(self: Appends, keys: Sequence[ProducerKey]) -> None:
    """Nobody else is told."""
    record = self.log.producers.eviction(keys, wall_ms())
    header = read_header(record)
    self.log.producers.note(header, read_detail(record, 0, header), self.log.log_end_offset)


@contextlib.contextmanager
def _open_ones_go() -> Iterator[None]:
    with (
        mock.patch.object(producer_quota, "may_go", return_value=True),
        mock.patch.object(producer_quota, "_needed_s", return_value=0.0),
    ):
        yield


@pytest.mark.parametrize(
    "away",
    [
        pytest.param(
            lambda: mock.patch.object(ProducerQuota, "admit"),
            id="nobody is asked",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda: mock.patch.object(Appends, "_forget", _forgotten_here_only),
            id="only the leader forgets",
        ),
        pytest.param(
            lambda: mock.patch.object(ProducerQuota, "_greediest", return_value=[]),
            id="nobody gives way",
            marks=pytest.mark.slow,
        ),
        pytest.param(_open_ones_go, id="open ones go", marks=pytest.mark.slow),
    ],
)
def test_without_the_rule_it_does(
    away: Callable[[], contextlib.AbstractContextManager[object]],
) -> None:
    with away():
        find(a_crowd, plan(), "", seeds=3)
