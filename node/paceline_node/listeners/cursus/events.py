"""Event sourcing in Cursus (DESIGN 5.6): any node takes it, READ_STREAM redirects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from paceline.errors import NotLeader, OffsetNotAvailable
from paceline.types import NodeId
from paceline.wire.cursus import replies, requests
from paceline.wire.cursus.batch import CursusRecord, Dialect, encode_head, encode_record
from paceline.wire.cursus.errors import CursusError
from paceline.wire.cursus.partitioner import partition_for
from paceline.wire.cursus_record_mapping import cursus_of, record_of
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.cursus import CursusFrame
from paceline_node.env import Env
from paceline_node.listeners.cursus.session import CursusCall, Reply, text
from paceline_node.listeners.cursus.topic_lookup import TopicLookup
from paceline_node.services.event_streams.event_streams import KIND, SnapshotAhead, VersionConflict
from paceline_node.services.event_streams.open_event_streams import (
    EventStreamService,
    ReadableStreams,
)
from paceline_node.services.leader_routing import LeaderRouting

_LEADER_WAIT_S = 2.0
_ACK_TIMEOUT_S = 3.5
_ANSWER_S = 0.1

Serve = Callable[[int], Awaitable[Reply]]
"""Answers where the partition of that number is led."""


class CursusEvents:
    """Answers APPEND_STREAM, STREAM_VERSION, SAVE_SNAPSHOT, READ_SNAPSHOT and READ_STREAM."""

    def __init__(
        self,
        env: Env,
        places: TopicLookup,
        routing: LeaderRouting,
        streams: EventStreamService,
    ) -> None:
        self._env = env
        self._places = places
        self._routing = routing
        self._streams = streams

    async def append(self, request: requests.AppendStream, call: CursusCall) -> Reply:
        """Append one event; its version must follow the stream's."""
        key = request.key.encode()
        record = CursusRecord(
            producer_id=request.producer_id.encode(),
            key=key,
            payload=request.message.encode(),
            event_type=request.event_type.encode(),
            schema_version=request.schema_version,
            aggregate_version=request.version,
            metadata=request.metadata.encode(),
        )
        event = record_of(record, timestamp_ms=self._env.stamp_ms())
        streams = self._streams.open_to_write(call.principal, request.topic)

        async def serve(number: int) -> Reply:
            try:
                offset = await streams.append(
                    number, key, request.version, event, timeout_s=self._timeout_s(call)
                )
            except VersionConflict as error:
                detail = f"current={error.current} expected={error.wanted}"
                raise CursusError("version_conflict", detail) from None
            return text(replies.ok(version=request.version, offset=offset, partition=number))

        return await self._at_leader(request.topic, key, call, serve)

    async def version(self, request: requests.StreamVersion, call: CursusCall) -> Reply:
        """A stream's newest version."""
        key = request.key.encode()
        streams = self._streams.open_to_read(call.principal, request.topic)

        async def serve(number: int) -> Reply:
            return text(replies.ok(version=await streams.version(number, key)))

        return await self._at_leader(request.topic, key, call, serve)

    async def save_snapshot(self, request: requests.SaveSnapshot, call: CursusCall) -> Reply:
        """Keep a snapshot, on all in-sync replicas before the answer."""
        key = request.key.encode()
        streams = self._streams.open_to_write(call.principal, request.topic)

        async def serve(number: int) -> Reply:
            try:
                await streams.save_snapshot(
                    number,
                    key,
                    request.version,
                    request.message.encode(),
                    timeout_s=self._timeout_s(call),
                )
            except SnapshotAhead as error:
                detail = f"version={error.wanted} current={error.current}"
                raise CursusError("snapshot_version_exceeds_stream", detail) from None
            return text(replies.ok(version=request.version, partition=number))

        return await self._at_leader(request.topic, key, call, serve)

    async def read_snapshot(self, request: requests.ReadSnapshot, call: CursusCall) -> Reply:
        """A stream's newest snapshot."""
        key = request.key.encode()
        streams = self._streams.open_to_read(call.principal, request.topic)

        async def serve(number: int) -> Reply:
            found = await streams.snapshot(number, key)
            if found is None:
                return text(replies.NO_SNAPSHOT)
            return text(replies.snapshot(found[0], found[1].decode("utf-8", "replace")))

        return await self._at_leader(request.topic, key, call, serve)

    async def read(self, request: requests.ReadStream, call: CursusCall) -> Reply:
        """Two frames: what there is, with the snapshot that the events go on from; the events."""
        key = request.key.encode()
        streams = self._streams.open_to_read(call.principal, request.topic)
        with suppress(NotLeader):
            return await self._at_leader(
                request.topic,
                key,
                call,
                lambda number: self._read(request, key, streams, number),
                redirects=True,
            )
        topic = await self._places.topic(request.topic)
        raise self._places.redirect(request.topic, partition_for(key, len(topic.partitions)))

    async def _read(
        self,
        request: requests.ReadStream,
        key: bytes,
        streams: ReadableStreams,
        number: int,
    ) -> Reply:
        found = await streams.snapshot(number, key)
        first, snapshot = request.from_version, None
        if found is not None and found[0] >= request.from_version:
            first = found[0] + 1
            snapshot = (found[0], found[1].decode("utf-8", "replace"))
        events = await streams.read(number, key, first)
        records = [encode_record(cursus_of(event)) for event in events]
        head = replies.stream_head(request.topic, request.key, number, len(records), snapshot)
        frame = encode_head(Dialect.REAL, request.topic, number, count=len(records))
        return (head.encode(), b"".join((frame, *records)))

    # --- where ------------------------------------------------------------------------------------

    def _timeout_s(self, call: CursusCall) -> float:
        return max(0.0, min(_ACK_TIMEOUT_S, call.deadline - self._env.now() - _ANSWER_S))

    async def _at_leader(
        self,
        name: str,
        key: bytes,
        call: CursusCall,
        serve: Serve,
        *,
        redirects: bool = False,
    ) -> Reply:
        """What ``serve`` answers where the key's partition is led; with ``redirects`` another node
        than this one is a NotLeader."""
        topic = await self._places.topic(name)
        if topic.kind != KIND:
            raise CursusError("event_sourcing_not_enabled", f"topic={name}")
        number = partition_for(key, len(topic.partitions))
        until = min(self._env.now() + _LEADER_WAIT_S, call.deadline - _ANSWER_S)
        if redirects:
            patience = self._env.now() if call.forwarded else until
            await self._routing.wait_leading(name, number, until=patience)
            return await serve(number)

        async def there(leader: NodeId) -> Reply:
            budget_s = call.deadline - self._env.now() - _ANSWER_S
            ask = CursusFrame(int(budget_s * 1000), call.session.classed)
            frame = await self._routing.ask(
                leader, PeerApi.CURSUS_FRAME, ask, call.body, budget_s=budget_s
            )
            return (bytes(frame.payload),)

        return await self._routing.on_leader(
            name,
            number,
            here=lambda: serve(number),
            there=None if call.forwarded else there,
            until=self._env.now() if call.forwarded else until,
            again=(NotLeader, OffsetNotAvailable),
        )
