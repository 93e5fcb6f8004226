"""Members of a Cursus group in the simulation, as shipped clients are: they ask who coordinates,
join, read at the leaders and commit; fall silent now and then, and come back as others."""

from __future__ import annotations

import contextlib
import random

import trio

from paceline.errors import PacelineError
from paceline.wire.cursus.errors import CursusError
from paceline.wire.cursus.replies import parse_assignment
from paceline_cluster.checker import events
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.foreign_clients.cursus import (
    CursusLink,
    CursusLinks,
    Leaders,
    coordinator_of,
    cursus_links,
    fields_of,
    is_fencing,
    is_open,
)
from paceline_cluster.sim.foreign_clients.links import AGAIN_S, Address
from paceline_cluster.sim.foreign_clients.member import be_many, is_to_commit
from paceline_cluster.sim.history import Recorder, at
from paceline_cluster.sim.plan import TopicPlan

GROUP = "cursors"
_BATCH_COMMIT = 0.5


class CursusMember:
    """One member after another, each for a few seconds."""

    def __init__(self, name: str, topic: TopicPlan, recorder: Recorder, rng: random.Random) -> None:
        self.name = name
        self._topic = topic
        self._recorder = recorder
        self._rng = rng

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Be one member after another, until cancelled."""
        async with cursus_links(cluster, host, self._rng) as links:

            def begin(name: str) -> _Membership:
                return _Membership(name, self._topic, self._recorder, self._rng, links)

            await be_many(self.name, begin, self._rng)


class _Membership:
    """A member, until cancelled."""

    def __init__(
        self,
        name: str,
        topic: TopicPlan,
        recorder: Recorder,
        rng: random.Random,
        links: CursusLinks,
    ) -> None:
        self._name = name
        self._member = name
        self._topic = topic.name
        self._count = topic.partitions
        self._recorder = recorder
        self._rng = rng
        self._links = links
        self._generation = -1
        self._leaders = Leaders(links, topic.name)

    async def run(self) -> None:
        """Join, and read until the group moves on; again and again."""
        while True:
            try:
                coordinator = await coordinator_of(self._links, f"group={GROUP}")
                while True:
                    assigned = await self._join(coordinator)
                    try:
                        await self._read(coordinator, assigned)
                    except CursusError as error:
                        if not is_fencing(error):
                            raise
            except PacelineError:
                await trio.sleep(AGAIN_S)

    async def leave(self) -> None:
        """Be no member any more, if the coordinator can be asked."""
        with contextlib.suppress(PacelineError):
            link = await self._links.to(await coordinator_of(self._links, f"group={GROUP}"))
            await link.ask(f"LEAVE_GROUP topic={self._topic} group={GROUP} member={self._member}")

    async def _join(self, coordinator: Address) -> list[int]:
        recorder = self._recorder
        op = recorder.next_op()
        recorder.say(events.Join(recorder.t, op, GROUP, self._name))
        link = await self._links.to(coordinator)
        # Python's clients join again under their full id, Java's under the name.
        member = self._rng.choice((self._member, self._name))
        line = f"JOIN_GROUP topic={self._topic} group={GROUP} member={member}"
        told = await link.say(line)
        fields = fields_of(told)
        self._member, self._generation = fields["member"], int(fields["generation"])
        recorder.say(events.Joined(recorder.t, op, self._generation))
        return sorted(parse_assignment(told))

    @property
    def _who(self) -> str:
        return f"group={GROUP} member={self._member} generation={self._generation}"

    async def _read(self, coordinator: Address, partitions: list[int]) -> None:
        """Read until refused. A reader is named anew with each assignment."""
        reader = f"{self._name}.{self._generation}"
        positions: dict[int, int] = {}
        link = await self._links.to(coordinator)
        for number in partitions:
            offset = max(0, await committed(link, self._topic, number, self._recorder))
            positions[number] = offset
            self._recorder.seek(reader, at(self._topic, number), offset)
        while True:
            for number in partitions:
                has_read = await self._consume(reader, number, positions)
                if has_read and await is_to_commit(self._rng):
                    await self._commit(coordinator, number, positions[number])
            link = await self._links.to(coordinator)
            await link.ask(f"HEARTBEAT topic={self._topic} {self._who}")
            await trio.sleep(self._rng.uniform(0.0, 0.2))

    async def _consume(self, reader: str, number: int, positions: dict[int, int]) -> bool:
        """Read some at the leader; whether there was any. Leaders that move are asked for again."""
        line = f"CONSUME topic={self._topic} partition={number} offset={positions[number]}"
        try:
            leader = await self._leaders.of(number)
            if leader is None:
                return False
            link = await self._links.to(leader)
            records = await link.consume(f"{line} {self._who} batch=20")
        except PacelineError as error:
            if is_fencing(error):
                raise
            self._leaders.forget()
            return False
        if not records:
            return False
        where = at(self._topic, number)
        values = [record.payload for record in records]
        self._recorder.given(reader, where, records[0].offset, -1, values)
        positions[number] = records[-1].offset + 1
        return True

    async def _commit(self, coordinator: Address, number: int, offset: int) -> None:
        link = await self._links.to(coordinator)
        if self._rng.random() < _BATCH_COMMIT:
            line = f"BATCH_COMMIT topic={self._topic} {self._who} P{number}:{offset}"
        else:
            place = f"topic={self._topic} partition={number} offset={offset}"
            line = f"COMMIT_OFFSET {place} {self._who}"
        where = at(self._topic, number)
        with self._recorder.committing(GROUP, where, offset, self._generation, is_open=is_open):
            await link.ask(line)


async def committed(link: CursusLink, topic: str, partition: int, recorder: Recorder) -> int:
    """Ask what the group has committed; -1 for nothing, for which Cursus says 0. (Members never
    commit 0.)"""
    op = recorder.next_op()
    recorder.say(events.AskOffset(recorder.t, op, GROUP, at(topic, partition)))
    try:
        told = await link.ask(f"FETCH_OFFSET topic={topic} partition={partition} group={GROUP}")
    except CursusError as error:
        if error.word != "group_not_found":
            raise
        told = {"offset": "0"}
    offset = int(told["offset"]) or -1
    recorder.say(events.OffsetTold(recorder.t, op, offset))
    return offset
