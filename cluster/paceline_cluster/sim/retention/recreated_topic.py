"""A topic that is deleted and made again under the same name, season after season, while a group
has offsets in it: what the group has of a season never outlives it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import trio

from paceline.client.client import Client
from paceline.errors import PacelineError, UnknownTopicOrPartition
from paceline.types import TopicId, TopicPartition
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.history import is_open
from paceline_cluster.sim.plan import Plan
from paceline_cluster.sim.workload import AGAIN_S, while_connected

TOPIC = "seasons"
_GROUP = "almanac"
_AT = TopicPartition(TOPIC, 0)


class RecreatedTopic:
    """The only client of the topic and of the group; ``fail`` is told what broke, and how."""

    def __init__(
        self, name: str, plan: Plan, fail: Callable[[str, str], None], rng: random.Random
    ) -> None:
        self.name = name
        self._topic = replace(plan.topics[0], name=TOPIC, partitions=1)
        self._fail = fail
        self._rng = rng
        self._season: TopicId | None = None
        self._committed = -1
        self._is_unsure = False
        """A commit is on its way, and may come late."""
        self.seasons = 0

    async def run(self, cluster: SimCluster, host: str) -> None:
        """One season after the other, until cancelled."""

        async def work(client: Client) -> None:
            while True:
                try:
                    await self._live(client)
                except PacelineError:
                    await trio.sleep(AGAIN_S)

        await while_connected(cluster, host, self._rng, work)

    async def _live(self, client: Client) -> None:
        await client.admin.create_topic(
            TOPIC,
            partitions=1,
            replication_factor=self._topic.replicas,
            configs=self._topic.configs,
            if_not_exists=True,
        )
        season = (await client.admin.topic(TOPIC)).topic_id
        if season is None:
            return
        if season != self._season:
            self._season, before = season, self._committed
            self._committed = -1
            self.seasons += 1
            await self._ask(client, f"in a new season, {before} was committed in the one before")
            self._is_unsure = False
        for _ in range(self._rng.choice((1, 1, 2))):
            await self._commit(client)
            await trio.sleep(self._rng.uniform(0.0, 0.6))
            await self._ask(client, "in the same season")
        await self._end(client)
        await trio.sleep(self._rng.uniform(0.0, 0.3))

    async def _ask(self, client: Client, when: str) -> None:
        """Ask for what is committed."""
        told = (await client.admin.groups.offsets(_GROUP)).get(_AT)
        offset = -1 if told is None else told.offset
        if offset != self._committed and not self._is_unsure:
            self._fail("G", f"{_GROUP}: {offset} is committed, expected {self._committed}: {when}")

    async def _commit(self, client: Client) -> None:
        offset = self._rng.randrange(1, 1000)
        try:
            await client.admin.groups.alter_offsets(_GROUP, {_AT: offset})
        except PacelineError as error:
            self._is_unsure = self._is_unsure or is_open(error)
            raise
        self._committed = offset

    async def _end(self, client: Client) -> None:
        try:
            await client.admin.delete_topic(TOPIC)
        except UnknownTopicOrPartition:
            return
