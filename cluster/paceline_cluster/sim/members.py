"""Members of a native consumer group in the simulation, and whoever asks what it has committed.

What a member does is what it does under real chaos (``chaos/member.py``); here it lives on virtual
time, and falls silent after a few seconds.
"""

from __future__ import annotations

import random

import trio

from paceline.client.client import Client
from paceline.client.consumed import ConsumedBatch
from paceline.client.group_settings import GroupSettings
from paceline_cluster.chaos.member import Member, keep_asking
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.history import Recorder
from paceline_cluster.sim.plan import TopicPlan
from paceline_cluster.sim.workload import values_of, while_connected

_MEMBERSHIP = GroupSettings(auto_commit_s=None, session_timeout_s=2.0, rebalance_timeout_s=4.0)


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
        self._recorder.given(
            reader,
            str(batch.at),
            batch.first_offset,
            batch.header.leader_epoch,
            values_of(batch),
        )


class Asker:
    """Asks for the group's committed offsets, again and again."""

    def __init__(self, name: str, topic: TopicPlan, recorder: Recorder, rng: random.Random) -> None:
        self.name = name
        self._topic = topic
        self._recorder = recorder
        self._rng = rng

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Ask until cancelled."""

        async def ask(client: Client) -> None:
            await keep_asking(client, self._topic.name, self._topic.partitions, self._recorder)

        await while_connected(cluster, host, self._rng, ask)
