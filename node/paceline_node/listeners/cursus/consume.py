"""CONSUME and STREAM: whom to read from, from where on, and who may (DESIGN 5.3)."""

from __future__ import annotations

from dataclasses import replace

from paceline.errors import NotLeader, UnknownTopicOrPartition
from paceline.types import Isolation
from paceline.values import dataclass
from paceline.wire.cursus.batch import Dialect
from paceline.wire.cursus.errors import CursusError, topic_not_found
from paceline.wire.cursus.requests import Consume, OffsetReset, ReadPlace
from paceline.wire.cursus.wildcards import is_pattern
from paceline.wire.peer.cursus import CursusRecordsAsked, CursusRecordsFound
from paceline_node.env import Env
from paceline_node.listeners.cursus.group_readers import GroupReaders
from paceline_node.listeners.cursus.record_frames import (
    ForwardedSource,
    LocalSource,
    OutOfRange,
    PatientSource,
    ReadSource,
    RecordFrames,
    fill,
    start_offset,
)
from paceline_node.listeners.cursus.session import CursusCall, FrameSink, PeerAnswer, Reply
from paceline_node.listeners.cursus.streams import CursusStream
from paceline_node.listeners.cursus.topic_lookup import TopicLookup
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.services.partitions.readable_topic import ReadableReplica, ReadableTopic
from paceline_node.services.records.fetch import FetchService
from paceline_node.settings import NonUtf8

_ANSWER_S = 0.1
_READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Opened:
    place: ReadPlace
    source: ReadSource
    offset: int


class CursusConsume:
    """Opens readers; answers CONSUME."""

    def __init__(
        self,
        env: Env,
        fetch: FetchService,
        places: TopicLookup,
        routing: LeaderRouting,
        readers: GroupReaders,
        *,
        keepalive_s: float,
        leader_wait_s: float,
        non_utf8: NonUtf8 = NonUtf8.RAW,
    ) -> None:
        self._env = env
        self._fetch = fetch
        self._places = places
        self._routing = routing
        self._readers = readers
        self._keepalive_s = keepalive_s
        self._leader_wait_s = leader_wait_s
        self._non_utf8 = non_utf8

    async def consume(self, request: Consume, call: CursusCall) -> Reply:
        """One data frame, after waiting for a first record if the client wants to."""
        if is_pattern(request.place.topic):
            return await self._consume_all(request.place, call)
        opened = await self._open(request.place, call)
        wait_s = min(request.wait_ms / 1000, call.deadline - self._env.now() - _ANSWER_S)
        try:
            found = await opened.source.read(opened.offset, wait_s)
        except NotLeader:
            if call.forwarded:
                raise
            place = opened.place
            raise self._places.redirect(place.topic, place.partition) from None
        return (found.body,)

    async def records_asked(self, ask: CursusRecordsAsked, call: CursusCall) -> PeerAnswer:
        """For another node: records of a partition that this node leads. Raises NotLeader, and
        UnknownTopicOrPartition."""
        isolation = Isolation.READ_COMMITTED if ask.committed else Isolation.READ_UNCOMMITTED
        place = ReadPlace(
            ask.topic,
            ask.partition,
            ask.offset,
            group=None,
            member=None,
            generation=None,
            isolation=isolation,
            reset=OffsetReset.EARLIEST,
            max_records=ask.max_records,
            dialect=Dialect.REAL,
        )
        try:
            opened = await self._open(place, call)
            wait_s = min(ask.wait_ms / 1000, call.deadline - self._env.now() - _ANSWER_S)
            found = await opened.source.read(opened.offset, wait_s)
        except OutOfRange as error:
            return CursusRecordsFound(True, error.earliest, error.latest), b""
        except CursusError as error:
            raise UnknownTopicOrPartition(str(error)) from error
        return CursusRecordsFound(), found.body

    async def stream(self, place: ReadPlace, call: CursusCall, sink: FrameSink) -> CursusStream:
        """A stream that is ready to run."""
        if is_pattern(place.topic):
            matching = await self._places.matching(place.topic, call.principal)
            if not matching:
                raise topic_not_found(place.topic)
            place = replace(place, topic=matching[0].name)
        opened = await self._open(place, call)
        source = opened.source
        if place.dialect is Dialect.SEED:
            source = PatientSource(source, place)
        return CursusStream(place, source, sink, opened.offset, keepalive_s=self._keepalive_s)

    async def _open(self, place: ReadPlace, call: CursusCall) -> _Opened:
        topic = self._fetch.open(call.principal, place.topic)
        group = self._readers.open(place, call)
        await self._places.with_partition(place.topic, place.partition)
        if place.dialect is Dialect.SEED and not call.forwarded:
            elsewhere = ForwardedSource(self._env, self._routing, topic, place, self._non_utf8)
            return _Opened(place, elsewhere, place.offset or 0)
        replica = await self._led_here(topic, place.topic, place.partition, call)
        committed = None if call.forwarded else await self._readers.fence(place, group)
        offset = start_offset(
            place,
            committed=committed,
            earliest=replica.start,
            latest=replica.readable_end(place.isolation),
        )
        source = LocalSource(replica, place, self._non_utf8, call.waiting)
        return _Opened(place, source, offset)

    async def _led_here(
        self, opened: ReadableTopic, topic: str, number: int, call: CursusCall
    ) -> ReadableReplica:
        """The partition, which this node must lead; others are told who does."""
        until = min(self._env.now() + self._leader_wait_s, call.deadline - _ANSWER_S)
        try:
            await self._routing.wait_leading(topic, number, until=until)
            return opened.leader(number)
        except NotLeader:
            if call.forwarded:
                raise
            raise self._places.redirect(topic, number) from None

    async def _consume_all(self, place: ReadPlace, call: CursusCall) -> Reply:
        """One frame of the same partition of every topic that matches, in the order of names; its
        header names the pattern."""
        frames = RecordFrames(place)
        for topic in await self._places.matching(place.topic, call.principal):
            if place.partition not in topic.partitions or frames.is_full:
                continue
            opened = self._fetch.open(call.principal, topic.name)
            replica = await self._led_here(opened, topic.name, place.partition, call)
            start = max(place.offset or 0, replica.start)
            if start < replica.readable_end(place.isolation):
                scan = replica.scan(start, isolation=place.isolation, max_bytes=_READ_BYTES)
                await fill(frames, scan, self._non_utf8)
        return (frames.body(),)
