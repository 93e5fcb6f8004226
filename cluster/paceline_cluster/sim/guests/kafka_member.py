"""Members of a Kafka group in the simulation: join, deal out, sync, read, commit; some are static.
They fall silent now and then, and come back as others."""

from __future__ import annotations

import contextlib
import random

import trio

from paceline.errors import ErrorCode, PacelineError
from paceline.wire.consumer_protocol import PROTOCOL_TYPE, Assignment, Subscription
from paceline.wire.kafka import groups as wire
from paceline.wire.kafka import offsets
from paceline_cluster.checker import events
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.guests.kafka import (
    KafkaCluster,
    KafkaLink,
    fetch,
    is_commit_open,
    kafka_cluster,
    raise_for,
)
from paceline_cluster.sim.guests.links import AGAIN_S
from paceline_cluster.sim.guests.member import be_many, is_to_commit
from paceline_cluster.sim.history import Recorder, at
from paceline_cluster.sim.plan import TopicPlan

GROUP = "fetchers"
_SESSION_MS = 2000
_REBALANCE_MS = 3000
_JOIN_S = 8.0
"""Longer than a rebalance may take."""
_STATIC = 0.4
_AGAIN = frozenset(
    (
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.MEMBER_ID_REQUIRED,
    )
)
"""What a member joins again for."""
_ANEW = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID))
"""What it joins again for as another one."""


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
        self._count = topic.partitions
        self._recorder = recorder
        self._rng = rng
        self._known = known
        self._version = rng.choice((11, 12))
        self._id = ""
        self._generation = -1

    async def run(self) -> None:
        """Join, and read until the group moves on; again and again."""
        while True:
            try:
                link = await self._known.coordinator(GROUP)
                await self._read(link, await self._join(link))
            except PacelineError as error:
                if error.code in _ANEW:
                    self._id = ""
                if error.code not in _AGAIN:
                    await trio.sleep(AGAIN_S)

    async def leave(self) -> None:
        """Be no member any more, if the coordinator can be asked."""
        with contextlib.suppress(PacelineError):
            link = await self._known.coordinator(GROUP)
            leaver = wire.LeaveGroupRequestMember(
                member_id=self._id, group_instance_id=self._instance
            )
            request = wire.LeaveGroupRequest(group_id=GROUP, members=(leaver,))
            await link.ask(request, 3, wire.LeaveGroupResponse)

    # --- joining ----------------------------------------------------------------------------------

    async def _join(self, link: KafkaLink) -> list[int]:
        """The partitions to read. Raises PacelineError."""
        recorder = self._recorder
        op = recorder.next_op()
        recorder.say(events.Join(recorder.t, op, GROUP, self._name))
        protocol = wire.JoinGroupRequestProtocol(
            name="range", metadata=Subscription((self._topic,)).to_bytes()
        )
        request = wire.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            member_id=self._id,
            group_instance_id=self._instance,
            protocol_type=PROTOCOL_TYPE,
            protocols=(protocol,),
        )
        told = await link.ask(request, 5, wire.JoinGroupResponse, within_s=_JOIN_S)
        if told.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = told.member_id
        raise_for(told.error_code, "JOIN_GROUP")
        self._id, self._generation = told.member_id, told.generation_id
        recorder.say(events.Joined(recorder.t, op, self._generation))
        dealt = self._dealt(told) if told.leader == self._id else ()
        sync = wire.SyncGroupRequest(
            group_id=GROUP,
            generation_id=self._generation,
            member_id=self._id,
            group_instance_id=self._instance,
            assignments=dealt,
        )
        synced = await link.ask(sync, 3, wire.SyncGroupResponse, within_s=_JOIN_S)
        raise_for(synced.error_code, "SYNC_GROUP")
        found = Assignment.from_bytes(bytes(synced.assignment)).partitions
        return sorted(found.get(self._topic, ()))

    def _dealt(self, told: wire.JoinGroupResponse) -> tuple[wire.SyncGroupRequestAssignment, ...]:
        members = sorted(each.member_id for each in told.members)
        return tuple(
            wire.SyncGroupRequestAssignment(
                member_id=member,
                assignment=Assignment(
                    {self._topic: tuple(range(number, self._count, len(members)))}
                ).to_bytes(),
            )
            for number, member in enumerate(members)
        )

    # --- reading ----------------------------------------------------------------------------------

    async def _read(self, link: KafkaLink, partitions: list[int]) -> None:
        """Read until the group moves on. A reader is named anew with each assignment."""
        recorder, reader = self._recorder, f"{self._name}.{self._generation}"
        positions: dict[int, int] = {}
        for number, offset in (await committed(link, self._topic, partitions, recorder)).items():
            positions[number] = max(0, offset)
            recorder.seek(reader, at(self._topic, number), positions[number])
        while True:
            for number, offset in positions.items():
                positions[number] = await self._fetch(reader, number, offset)
                if positions[number] > offset and await is_to_commit(self._rng):
                    await self._commit(link, number, positions[number])
            beat = wire.HeartbeatRequest(
                group_id=GROUP,
                generation_id=self._generation,
                member_id=self._id,
                group_instance_id=self._instance,
            )
            told = await link.ask(beat, 3, wire.HeartbeatResponse)
            raise_for(told.error_code, "HEARTBEAT")
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
            generation_id=self._generation,
            member_id=self._id,
            group_instance_id=self._instance,
            topics=(offsets.OffsetCommitRequestTopic(name=self._topic, partitions=(part,)),),
        )
        where = at(self._topic, number)
        with self._recorder.committing(
            GROUP, where, offset, self._generation, is_open=is_commit_open
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
