"""Members of a Kafka group in the simulation: join, deal out, sync, read, commit; some are static.
They fall silent now and then, and come back as others."""

from __future__ import annotations

import contextlib
import random

import trio

from paceline.errors import PacelineError
from paceline.wire.kafka import offsets
from paceline_cluster.checker import events
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.foreign_clients.kafka import (
    KafkaCluster,
    KafkaLink,
    fetch,
    is_commit_open,
    kafka_cluster,
    raise_for,
)
from paceline_cluster.sim.foreign_clients.kafka_seat import AGAIN, ANEW, KafkaSeat
from paceline_cluster.sim.foreign_clients.links import AGAIN_S
from paceline_cluster.sim.foreign_clients.member import be_many, is_to_commit
from paceline_cluster.sim.history import Recorder, at
from paceline_cluster.sim.plan import TopicPlan

GROUP = "fetchers"
_SESSION_MS = 2000
_STATIC = 0.4


class KafkaMember:
    """One member after another, each for a few seconds."""

    def __init__(self, name: str, topic: TopicPlan, recorder: Recorder, rng: random.Random) -> None:
        self.name = name
        self._topic = topic
        self._recorder = recorder
        self._rng = rng
        self._instance = name if rng.random() < _STATIC else None

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Be one member after another, until cancelled."""
        rng = self._rng
        async with kafka_cluster(cluster, host, rng) as known:

            def begin(name: str) -> _Membership:
                return _Membership(name, self._instance, self._topic, self._recorder, rng, known)

            await be_many(self.name, begin, rng)


class _Membership:
    """A member, until cancelled."""

    def __init__(
        self,
        name: str,
        instance: str | None,
        topic: TopicPlan,
        recorder: Recorder,
        rng: random.Random,
        known: KafkaCluster,
    ) -> None:
        self._name = name
        self._instance = instance
        self._topic = topic.name
        self._seat = KafkaSeat(
            GROUP, topic.name, topic.partitions, session_ms=_SESSION_MS, instance=instance
        )
        self._recorder = recorder
        self._rng = rng
        self._known = known
        self._version = rng.choice((11, 12))

    async def run(self) -> None:
        """Join, and read until the group moves on; again and again."""
        while True:
            try:
                link = await self._known.coordinator(GROUP)
                await self._read(link, await self._join(link))
            except PacelineError as error:
                if error.code in ANEW:
                    self._seat.id = ""
                if error.code not in AGAIN:
                    await trio.sleep(AGAIN_S)

    async def leave(self) -> None:
        """Be no member any more, if the coordinator can be asked."""
        with contextlib.suppress(PacelineError):
            link = await self._known.coordinator(GROUP)
            await self._seat.leave(link)

    # --- joining ----------------------------------------------------------------------------------

    async def _join(self, link: KafkaLink) -> list[int]:
        """The partitions to read. Raises PacelineError."""
        recorder = self._recorder
        op = recorder.next_op()
        recorder.say(events.Join(recorder.t, op, GROUP, self._name))
        await self._seat.join(link)
        recorder.say(events.Joined(recorder.t, op, self._seat.generation))
        return await self._seat.sync(link)

    # --- reading ----------------------------------------------------------------------------------

    async def _read(self, link: KafkaLink, partitions: list[int]) -> None:
        """Read until the group moves on. A reader is named anew with each assignment."""
        recorder, reader = self._recorder, f"{self._name}.{self._seat.generation}"
        positions: dict[int, int] = {}
        for number, offset in (await committed(link, self._topic, partitions, recorder)).items():
            positions[number] = max(0, offset)
            recorder.seek(reader, at(self._topic, number), positions[number])
        while True:
            for number, offset in positions.items():
                positions[number] = await self._fetch(reader, number, offset)
                if positions[number] > offset and await is_to_commit(self._rng):
                    await self._commit(link, number, positions[number])
            await self._seat.beat(link)
            await trio.sleep(self._rng.uniform(0.0, 0.2))

    async def _fetch(self, reader: str, number: int, offset: int) -> int:
        """Read some; leaders that move are asked for again."""
        where = (self._topic, number)
        try:
            return await fetch(
                self._known, reader, where, offset, self._recorder, version=self._version, wait_ms=0
            )
        except PacelineError:
            self._known.forget()
            return offset

    async def _commit(self, link: KafkaLink, number: int, offset: int) -> None:
        part = offsets.OffsetCommitRequestTopicPartition(
            partition_index=number, committed_offset=offset
        )
        request = offsets.OffsetCommitRequest(
            group_id=GROUP,
            generation_id=self._seat.generation,
            member_id=self._seat.id,
            group_instance_id=self._instance,
            topics=(offsets.OffsetCommitRequestTopic(name=self._topic, partitions=(part,)),),
        )
        where = at(self._topic, number)
        with self._recorder.committing(
            GROUP, where, offset, self._seat.generation, is_open=is_commit_open
        ):
            told = await link.ask(request, 7, offsets.OffsetCommitResponse)
            raise_for(told.topics[0].partitions[0].error_code, f"OFFSET_COMMIT {where}")


async def committed(
    link: KafkaLink, topic: str, partitions: list[int], recorder: Recorder
) -> dict[int, int]:
    """Ask what the group has committed; -1 for nothing. Raises PacelineError."""
    asked = {number: recorder.next_op() for number in partitions}
    for number, op in asked.items():
        recorder.say(events.AskOffset(recorder.t, op, GROUP, at(topic, number)))
    wanted = offsets.OffsetFetchRequestTopic(name=topic, partition_indexes=tuple(partitions))
    request = offsets.OffsetFetchRequest(group_id=GROUP, topics=(wanted,))
    told = await link.ask(request, 5, offsets.OffsetFetchResponse)
    raise_for(told.error_code, "OFFSET_FETCH")
    found: dict[int, int] = {}
    for part in told.topics[0].partitions if told.topics else ():
        raise_for(part.error_code, f"OFFSET_FETCH {at(topic, part.partition_index)}")
        found[part.partition_index] = part.committed_offset
    for number, op in asked.items():
        recorder.say(events.OffsetTold(recorder.t, op, found[number]))
    return found
