"""Records as people look at them: a few at a time, from any node, whoever leads.

A look costs the leader a bounded piece of its log, however rare is what is looked for: it tells how
far it came, and who wants more asks on from there.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from paceline.errors import LeaderNotAvailable
from paceline.types import Isolation
from paceline.wire.frame import Frame
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.record_browsing import (
    LookedHeader,
    LookedRecord,
    LookFrom,
    RecordsLooked,
    RecordsLookedAt,
)
from paceline.wire.records import Record
from paceline_node.env import Env
from paceline_node.loop_turns import Turns
from paceline_node.peers.server import PeerServer, Session
from paceline_node.replication.offset_lookups import TimesNotKnown, find_offset
from paceline_node.replication.partition import Partition
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.services.partitions.partition_access import PartitionAccess
from paceline_node.services.partitions.record_scan import RecordScan
from paceline_node.services.topics.topic_service import TopicService
from paceline_node.sliced_work import Work

MOST_RECORDS = 1000
MOST_BYTES = 64 * 1024
"""Of a key or a value that are told."""
_MOST_HEADERS = 100
_ANSWER_S = 5.0
_TOLD_BYTES = 512 * 1024
"""Of all records together."""
_SCANNED_BYTES = 8 * 1024 * 1024
_READ_BYTES = 256 * 1024
_SCANNED_S = 1.0
_RECORD_UNITS = 1
_RECORD_BYTES = 64
"""What one takes in an answer besides its key, value and headers."""
_ASKED_EVERY_S = 0.05
_TIMES_ASKED = 40


class RecordBrowser:
    """Asks the node that leads, and answers where this one does."""

    def __init__(
        self,
        env: Env,
        records: PartitionAccess,
        topics: TopicService,
        routing: LeaderRouting,
        turns: Turns,
    ) -> None:
        self._env = env
        self._records = records
        self._topics = topics
        self._routing = routing
        self._turns = turns

    def register(self, server: PeerServer) -> None:
        """Answer other nodes."""
        server.register(PeerApi.LOOK_AT_RECORDS, self._serve)

    async def look(self, principal: Principal, asked: RecordsLookedAt) -> RecordsLooked:
        """Raises AuthorizationFailed, UnknownTopicOrPartition, and what keeps the leader from
        answering."""
        self._records.permit(principal, Operation.CONSUME, asked.topic)
        leader = self._topics.partition(asked.topic, asked.partition).leader
        if leader < 0:
            raise LeaderNotAvailable(f"{asked.topic}/{asked.partition} has no leader")
        if leader == self._routing.node_id:
            return await self._here(asked)
        frame = await self._routing.ask(
            leader, PeerApi.LOOK_AT_RECORDS, asked, budget_s=_ANSWER_S, changes_nothing=True
        )
        return RecordsLooked.unpack(frame.body)

    async def _serve(self, _session: Session, frame: Frame) -> tuple[RecordsLooked, bytes]:
        return await self._here(RecordsLookedAt.unpack(frame.body)), b""

    async def _here(self, asked: RecordsLookedAt) -> RecordsLooked:
        partition = self._records.leader(asked.topic, asked.partition)
        partition.replica.check_leading()
        end = partition.readable_end(Isolation.READ_COMMITTED)
        position = await _begin(partition, asked, end)
        found = _Found(asked, position)
        scan = RecordScan(self._env, partition, position, max_bytes=_READ_BYTES)
        began, size = self._env.now(), 0
        while not found.is_full and size < _SCANNED_BYTES:
            await self._turns.next()
            batch = await scan.next_batch()
            if batch is None:
                found.next_offset = max(position, end)
                break
            size += await self._turns.run(found.add(batch))
            if not found.is_full:
                found.next_offset = scan.position
            if self._env.now() - began > _SCANNED_S:
                break
        return RecordsLooked(
            tuple(found.records), partition.log_start_offset, end, found.next_offset
        )


class _Found:
    """What one look has found so far."""

    def __init__(self, asked: RecordsLookedAt, position: int) -> None:
        self._contained = asked.contained
        self._limit = max(1, min(asked.limit, MOST_RECORDS))
        self._most_bytes = max(0, min(asked.most_bytes, MOST_BYTES))
        self._size = 0
        self.records: list[LookedRecord] = []
        self.next_offset = position

    @property
    def is_full(self) -> bool:
        """Whether no more may be told."""
        return len(self.records) >= self._limit or self._size >= _TOLD_BYTES

    def add(self, batch: Sequence[Record]) -> Work[int]:
        """Look through a batch; how many bytes that were."""
        size = 0
        for each in batch:
            yield _RECORD_UNITS
            if self.is_full:
                break
            self.next_offset = each.offset + 1
            size += len(each.key or b"") + len(each.value or b"")
            if not self._contained or _holds(each, self._contained):
                told = _told(each, self._most_bytes)
                self._size += _size_of(told)
                self.records.append(told)
        return size


def _holds(record: Record, wanted: bytes) -> bool:
    return (
        wanted in (record.key or b"")
        or wanted in (record.value or b"")
        or any(wanted in _name(name) or wanted in (value or b"") for name, value in record.headers)
    )


def _name(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _told(record: Record, most_bytes: int) -> LookedRecord:
    headers = [
        LookedHeader(_cut(_name(name), most_bytes) or b"", _cut(value, most_bytes))
        for name, value in record.headers[:_MOST_HEADERS]
    ]
    return LookedRecord(
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=_cut(record.key, most_bytes),
        value=_cut(record.value, most_bytes),
        key_bytes=-1 if record.key is None else len(record.key),
        value_bytes=-1 if record.value is None else len(record.value),
        headers=tuple(headers),
    )


def _size_of(told: LookedRecord) -> int:
    headers = sum(len(each.name) + len(each.value or b"") for each in told.headers)
    return _RECORD_BYTES + len(told.key or b"") + len(told.value or b"") + headers


def _cut(data: bytes | None, most_bytes: int) -> bytes | None:
    """The beginning of it, which ends with a whole character where it is text."""
    if data is None or len(data) <= most_bytes:
        return data
    end = most_bytes
    while end > max(0, most_bytes - 4) and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]


async def _begin(partition: Partition, asked: RecordsLookedAt, end: int) -> int:
    start = partition.log_start_offset
    if asked.begin is LookFrom.LAST:
        return max(end - asked.number, start)
    if asked.begin is LookFrom.TIME:
        return await _by_time(partition, asked.number, end)
    return min(max(asked.number, start), end)


async def _by_time(partition: Partition, time_ms: int, end: int) -> int:
    for times_left in reversed(range(_TIMES_ASKED)):
        try:
            found = find_offset(partition, time_ms, Isolation.READ_COMMITTED).offset
        except TimesNotKnown:
            if not times_left:
                raise
            await trio.sleep(_ASKED_EVERY_S)
        else:
            break
    return end if found < 0 else found
