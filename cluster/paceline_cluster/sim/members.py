"""Members of a native consumer group in the simulation, and whoever asks what it has committed.

What a member does is what it does under real chaos (``chaos/member.py``); here it lives on virtual
time, and falls silent after a few seconds.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import trio

from paceline.client.client import Client
from paceline.client.consumed import ConsumedBatch
from paceline.client.group_settings import GroupSettings
from paceline.errors import PacelineError
from paceline.types import TopicPartition
from paceline_cluster.chaos.member import AUDITORS, Asking, Member, keep_asking
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.history import Recorder
from paceline_cluster.sim.plan import TopicPlan
from paceline_cluster.sim.workload import AGAIN_S, values_of, while_connected

_MEMBERSHIP = GroupSettings(auto_commit_s=None, session_timeout_s=2.0, rebalance_timeout_s=4.0)


SINGLE = "single"
"""A topic beside, of single replicas: without their nodes its partitions are dead."""
_SLOW_S = 3.0
_HANGS_S = 6.0


class TroubledMember(Member):
    """A member whose callbacks take their time, and whose program hangs now and then; it reads a
    topic beside whose partitions come and go."""

    async def _work(self) -> None:
        if self._rng.random() < 0.02:
            await trio.sleep(_HANGS_S)

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        if self._rng.random() < 0.5:
            await trio.sleep(self._rng.uniform(0.0, _SLOW_S))


class TroubledMembers:
    """One after another as :class:`GroupMember`, every second a static one that comes back; some
    are closed, the others crash."""

    def __init__(self, name: str, topic: TopicPlan, recorder: Recorder, rng: random.Random) -> None:
        self.name = name
        self._topic = topic
        self._recorder = recorder
        self._rng = rng
        self._lives = 0

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Be a member until cancelled."""

        async def live(client: Client) -> None:
            await self._create(client)
            while True:
                self._lives += 1
                is_static = self._rng.random() < 0.5
                member = TroubledMember(
                    f"{self.name}.{self._lives}",
                    self._topic.name,
                    client,
                    self._recorder,
                    self._rng,
                    self._note,
                    membership=replace(
                        _MEMBERSHIP,
                        instance_id=self.name if is_static else None,
                        max_poll_interval_s=_HANGS_S / 2,
                    ),
                    beside=(SINGLE,),
                )
                with trio.move_on_after(self._rng.uniform(2.0, 10.0)):
                    await member.run()

        await while_connected(cluster, host, self._rng, live)

    async def _create(self, client: Client) -> None:
        while True:
            try:
                await client.admin.create_topic(
                    SINGLE, partitions=3, replication_factor=1, if_not_exists=True
                )
                return
            except PacelineError:
                await trio.sleep(AGAIN_S)

    def _note(self, reader: str, batch: ConsumedBatch) -> None:
        given(self._recorder, reader, batch)


def given(recorder: Recorder, reader: str, batch: ConsumedBatch) -> None:
    """Note a batch that a member was given."""
    recorder.given(
        reader, str(batch.at), batch.first_offset, batch.header.leader_epoch, values_of(batch)
    )


class GroupMember:
    """One member after another, each for a few seconds."""

    def __init__(self, name: str, topic: TopicPlan, recorder: Recorder, rng: random.Random) -> None:
        self.name = name
        self._topic = topic
        self._recorder = recorder
        self._rng = rng
        self._lives = 0

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Be a member until cancelled."""

        async def live(client: Client) -> None:
            while True:
                self._lives += 1
                member = Member(
                    f"{self.name}.{self._lives}",
                    self._topic.name,
                    client,
                    self._recorder,
                    self._rng,
                    self._note,
                    membership=_MEMBERSHIP,
                )
                with trio.move_on_after(self._rng.uniform(2.0, 10.0)):
                    await member.run()

        await while_connected(cluster, host, self._rng, live)

    def _note(self, reader: str, batch: ConsumedBatch) -> None:
        given(self._recorder, reader, batch)


class Asker:
    """Asks for the committed offsets of a group, again and again."""

    def __init__(
        self,
        name: str,
        topic: TopicPlan,
        recorder: Recorder,
        rng: random.Random,
        asking: Asking = AUDITORS,
    ) -> None:
        self.name = name
        self._topic = topic
        self._recorder = recorder
        self._rng = rng
        self._asking = asking

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Ask until cancelled."""
        topic = self._topic

        async def ask(client: Client) -> None:
            await keep_asking(client, topic.name, topic.partitions, self._recorder, self._asking)

        await while_connected(cluster, host, self._rng, ask)
