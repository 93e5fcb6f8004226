"""Consumers of the coordinator protocol in the simulation: the client library's, told what to read,
pinged, stopped and started by whoever coordinates. They commit by themselves now and then, fall
silent, and come back as others. No partition is read by two at a time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress

import trio

from paceline.client.client import Client
from paceline.client.coordinated_consumer import CoordinatedConsumer
from paceline.client.driven_membership import DrivenSettings
from paceline.client.group_settings import RebalanceListener
from paceline.errors import PacelineError
from paceline.types import TopicPartition
from paceline_cluster.checker import events
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.foreign_clients.kafka import is_commit_open
from paceline_cluster.sim.foreign_clients.links import AGAIN_S
from paceline_cluster.sim.foreign_clients.member import LIFE_S, is_to_commit
from paceline_cluster.sim.history import Recorder, at
from paceline_cluster.sim.plan import TopicPlan
from paceline_cluster.sim.workload import values_of, while_connected

GROUP = "driven"
_SETTINGS = DrivenSettings(auto_commit=False, heartbeat_interval_ms=500, max_heartbeat_retries=4)
"""Silence is noticed later than another coordinator may be there."""
_DOZE_S = (0.5, 3.0)
"""How long a member may be at work on what it has read; its pings are answered meanwhile."""


class Owners:
    """Who of a group reads what: the coordinator gives nothing to anybody while another one may
    still read it."""

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, str] = {}

    def begins(self, name: str, partitions: Sequence[TopicPartition]) -> None:
        """A member reads these from now on, and nothing else."""
        self.ends(name)
        for each in partitions:
            owner = self._by_partition.setdefault(each, name)
            assert owner == name, f"{each} is given to {name}, and {owner} still reads it"

    def ends(self, name: str) -> None:
        """A member reads nothing any more."""
        kept = {at: owner for at, owner in self._by_partition.items() if owner != name}
        self._by_partition = kept


class DrivenMember:
    """One member after another, each for a few seconds."""

    def __init__(
        self, name: str, topic: TopicPlan, recorder: Recorder, owners: Owners, rng: random.Random
    ) -> None:
        self.name = name
        self._topic = topic
        self._recorder = recorder
        self._owners = owners
        self._rng = rng
        self._lives = 0

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Be one member after another, until cancelled."""

        async def live(client: Client) -> None:
            while True:
                self._lives += 1
                name = f"{self.name}.{self._lives}"
                life = _Membership(name, self._topic, self._recorder, self._owners, self._rng)
                try:
                    with trio.move_on_after(self._rng.uniform(*LIFE_S)):
                        await life.run(client)
                except PacelineError:
                    await trio.sleep(AGAIN_S)
                finally:
                    self._owners.ends(name)

        await while_connected(cluster, host, self._rng, live)


class _Membership(RebalanceListener):
    """A member; leaving it in the middle is a crash."""

    def __init__(
        self, name: str, topic: TopicPlan, recorder: Recorder, owners: Owners, rng: random.Random
    ) -> None:
        self._name = name
        self._topic = topic
        self._recorder = recorder
        self._owners = owners
        self._rng = rng
        self._consumer: CoordinatedConsumer | None = None
        self._join = -1
        self._questions: dict[str, int] = {}

    async def run(self, client: Client) -> None:
        """Be a member until cancelled. Raises PacelineError."""
        async with client.coordinated_consumer(
            self._topic.name,
            group=GROUP,
            driven=_SETTINGS,
            auto_offset_reset="smallest",
            consumer_id=self._name,
            listener=self,
        ) as consumer:
            self._consumer = consumer
            self._ask()
            async for batch in consumer.batches():
                self._recorder.given(
                    self._name,
                    str(batch.at),
                    batch.first_offset,
                    batch.header.leader_epoch,
                    values_of(batch),
                )
                if await is_to_commit(self._rng, _DOZE_S):
                    await self._commit(consumer, batch.at, batch.end_offset)

    def _ask(self) -> None:
        """From here on the next Start may come: its generation, and where to begin."""
        recorder = self._recorder
        self._join = recorder.next_op()
        recorder.say(events.Join(recorder.t, self._join, GROUP, self._name))
        for number in range(self._topic.partitions):
            where = at(self._topic.name, number)
            self._questions[where] = recorder.next_op()
            recorder.say(events.AskOffset(recorder.t, self._questions[where], GROUP, where))

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Note what the Start said. Where the group has committed nothing members begin at 0,
        which they never commit."""
        await trio.lowlevel.checkpoint()
        consumer, recorder = self._consumer, self._recorder
        assert consumer is not None, "nothing is assigned before the member exists"
        recorder.say(events.Joined(recorder.t, self._join, consumer.generation))
        self._owners.begins(self._name, partitions)
        known = consumer.positions()
        for each in partitions:
            where = str(each)
            recorder.seek(self._name, where, known.get(each, 0))
            if each in known:
                told = events.OffsetTold(recorder.t, self._questions[where], known[each] or -1)
                recorder.say(told)
        self._ask()

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """All of them are given up; the coordinator is told afterwards."""
        await trio.lowlevel.checkpoint()
        self._owners.ends(self._name)

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """The coordinator was silent for too long, or sent this member away."""
        await self.revoked(partitions)

    async def _commit(self, consumer: CoordinatedConsumer, where: TopicPartition, to: int) -> None:
        commit = self._recorder.committing(
            GROUP, str(where), to, consumer.generation, is_open=is_commit_open
        )
        with suppress(PacelineError), commit:
            await consumer.commit({where: to})


async def ask_committed(client: Client, topic: TopicPlan, recorder: Recorder) -> None:
    """Ask once what the group has committed. Raises PacelineError."""
    asked = {number: recorder.next_op() for number in range(topic.partitions)}
    for number, op in asked.items():
        recorder.say(events.AskOffset(recorder.t, op, GROUP, at(topic.name, number)))
    found = await client.admin.groups.offsets(GROUP, family="coordinator")
    for number, op in asked.items():
        committed = found.get(TopicPartition(topic.name, number))
        offset = -1 if committed is None else committed.offset
        recorder.say(events.OffsetTold(recorder.t, op, offset))
