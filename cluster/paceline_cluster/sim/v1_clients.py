"""V1 clients in the simulation: request lines over the simulated network, to any node.

A line goes to whichever node a client is connected to, so every one of them also tries the ways by
which nodes hand requests on. Answers are taken at their word: ERR REPLICATION_TIMEOUT and INTERNAL
leave the outcome open, as a lost connection does; every other refusal says that nothing was done.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import trio

from paceline.errors import ConnectionLost, Outcome, PacelineError
from paceline.types import Acks
from paceline.wire.v1.client import (
    integer_field,
    list_field,
    parse_messages,
    parse_reply,
    produce_args,
    request_line,
)
from paceline.wire.v1.errors import V1Code, V1Error
from paceline.wire.v1.lines import LineReader
from paceline.wire.v1.partitioner import partition_for
from paceline_cluster.checker import events
from paceline_cluster.sim.cluster import V1_PORT, SimCluster
from paceline_cluster.sim.history import Recorder, Stream, at
from paceline_cluster.sim.plan import Plan, TopicPlan

GROUP = "liners"
_OPEN = frozenset({V1Code.REPLICATION_TIMEOUT, V1Code.INTERNAL})
_ANSWER_S = 6.0
"""Longer than a node may take to say that it does not know."""
_AGAIN_S = 0.2
_READ_BYTES = 64 * 1024
_COMMIT = 0.4
"""How likely a member commits what it has just read."""


def is_open(error: PacelineError) -> bool:
    """Whether what was asked for may have been done."""
    if isinstance(error, V1Error):
        return error.reason in _OPEN
    return error.outcome is Outcome.UNKNOWN


class Link:
    """A connection to one node; one request at a time."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._lines = LineReader()
        self._asked = 0

    async def ask(self, command: str, args: bytes | str) -> bytes:
        """The payload of the OK. Raises V1Error, and ConnectionLost when no answer came."""
        self._asked += 1
        name = f"c{self._asked}"
        with trio.move_on_after(_ANSWER_S):
            try:
                await self._stream.send_all(request_line(name, command, args))
                reply = parse_reply(await self._line())
            except trio.BrokenResourceError:
                raise ConnectionLost(f"{command}: the connection broke") from None
            assert reply.correlation == name, f"{reply} answers {name}"
            return reply.result()
        raise ConnectionLost(f"{command}: no answer within {_ANSWER_S} s")

    async def _line(self) -> bytes:
        while (line := self._lines.next_line()) is None:
            data = await self._stream.receive_some(_READ_BYTES)
            if not data:
                raise ConnectionLost("the node closed the connection")
            self._lines.feed(data)
        return line


async def over_links(
    cluster: SimCluster,
    host: str,
    rng: random.Random,
    work: Callable[[Link], Awaitable[None]],
) -> None:
    """Do ``work`` over a connection to one node after another, until it ends without an error."""
    while True:
        target = rng.choice(cluster.members).host
        try:
            with trio.fail_after(_ANSWER_S):
                stream = await cluster.fabric.connect(host, target, V1_PORT)
            async with stream:
                await work(Link(stream))
                return
        except (PacelineError, OSError, trio.TooSlowError):
            await trio.sleep(_AGAIN_S)


# --- writing --------------------------------------------------------------------------------------


class V1Writer:
    """Writes one line at a time until told to stop."""

    def __init__(self, name: str, plan: Plan, recorder: Recorder, rng: random.Random) -> None:
        self.name = name
        self._topics = plan.topics
        self._pause_s = plan.pause_s
        self._recorder = recorder
        self._rng = rng
        self._acks = rng.choice((Acks.ALL, Acks.ALL, Acks.LEADER))
        self._streams: dict[tuple[str, int], Stream] = {}
        self.stopping = False
        self.ended = trio.Event()

    async def run(self, cluster: SimCluster, host: str) -> None:
        async def write(link: Link) -> None:
            while not self.stopping:
                await self._write(link)
                await trio.sleep(self._rng.uniform(0.0, self._pause_s))

        await over_links(cluster, host, self._rng, write)
        self.ended.set()

    async def _write(self, link: Link) -> None:
        topic = self._rng.choice(self._topics)
        key = b"k%d" % self._rng.randrange(8)
        where = (topic.name, partition_for(key, topic.partitions))
        stream = self._streams.get(where)
        if stream is None:
            stream = self._streams[where] = self._recorder.open(
                self.name, at(*where), self._acks, idempotent=False
            )
        first, (value,) = self._recorder.invoke(stream, 1, self._rng.choice((0, 40)))
        word = "all" if self._acks is Acks.ALL else "1"
        try:
            told = await link.ask("PRODUCE", produce_args(topic.name, key, value, acks=word))
        except PacelineError as error:
            if is_open(error):
                self._recorder.unknown_outcome(stream, first, repr(error))
                del self._streams[where]
            else:
                self._recorder.fail(stream, first, repr(error))
            raise
        assert integer_field(told, "partition") == where[1], f"{told!r} to key {key!r}"
        self._recorder.ok(stream, first, integer_field(told, "offset"), -1)


# --- reading in a group ---------------------------------------------------------------------------


class V1Member:
    """A member of a V1 group: reads what is assigned to it and commits; falls silent now and then,
    and comes back as another one."""

    def __init__(self, name: str, topic: TopicPlan, recorder: Recorder, rng: random.Random) -> None:
        self.name = name
        self._topic = topic
        self._recorder = recorder
        self._rng = rng
        self._lives = 0

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Be one member after another, until cancelled."""
        while True:
            self._lives += 1
            with trio.move_on_after(self._rng.uniform(2.0, 10.0)):
                await over_links(cluster, host, self._rng, self._be_member)

    async def _be_member(self, link: Link) -> None:
        who = f"{self.name}.{self._lives}"
        while True:
            try:
                generation, partitions = await self._join(link, who)
                await self._read(link, who, generation, partitions)
            except V1Error as error:
                if error.reason is not V1Code.GENERATION_MISMATCH:
                    raise

    async def _join(self, link: Link, who: str) -> tuple[int, list[int]]:
        recorder = self._recorder
        op = recorder.next_op()
        recorder.say(events.Join(recorder.t, op, GROUP, who))
        told = await link.ask("JOIN", f"{GROUP} {self._topic.name} {who}")
        generation = integer_field(told, "generation")
        recorder.say(events.Joined(recorder.t, op, generation))
        return generation, [int(number) for number in list_field(told, "assigned")]

    async def _read(self, link: Link, who: str, generation: int, partitions: list[int]) -> None:
        """Read until the group moves on (GENERATION_MISMATCH)."""
        recorder, topic = self._recorder, self._topic.name
        positions: dict[int, int] = {}
        for partition in partitions:
            offset = max(0, await committed(link, topic, partition, recorder))
            positions[partition] = offset
            recorder.seek(who, at(topic, partition), offset)
        while True:
            for partition, position in positions.items():
                args = f"{topic} {partition} {position} enc=pct max=20"
                messages = parse_messages(await link.ask("CONSUME", args))
                where = at(topic, partition)
                for message in messages:
                    recorder.given(who, where, message.offset, -1, [message.value])
                    positions[partition] = message.offset + 1
                if messages and self._rng.random() < _COMMIT:
                    await self._commit(link, who, generation, partition, positions[partition])
            await link.ask("HEARTBEAT", f"{GROUP} {topic} {who} {generation}")
            await trio.sleep(self._rng.uniform(0.0, 0.3))

    async def _commit(
        self, link: Link, who: str, generation: int, partition: int, offset: int
    ) -> None:
        recorder, topic = self._recorder, self._topic.name
        where = at(topic, partition)
        with recorder.committing(GROUP, where, offset, generation, is_open=is_open):
            await link.ask("COMMIT", f"{GROUP} {topic} {who} {generation} {partition} {offset}")


async def committed(link: Link, topic: str, partition: int, recorder: Recorder) -> int:
    """Ask what the V1 group has committed; -1 for nothing, for which V1 says 0. (Members never
    commit 0.)"""
    op = recorder.next_op()
    recorder.say(events.AskOffset(recorder.t, op, GROUP, at(topic, partition)))
    told = integer_field(await link.ask("OFFSET", f"{GROUP} {topic} {partition}"), "offset")
    recorder.say(events.OffsetTold(recorder.t, op, told or -1))
    return told or -1
