"""Reading for Cursus: frames of records from an offset on, here or from the partition's leader.

CONSUME and STREAM read through a :class:`ReadSource`: the log of this node where it leads, or, for
clients that cannot follow a redirection (the positional forms), whoever leads, which is asked
(``CursusRecordsAsked``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import NamedTuple, Protocol

from paceline.errors import InvalidRecord, NotLeader, RequestTimedOut
from paceline.types import Isolation, NodeId
from paceline.values import dataclass
from paceline.wire.cursus.batch import Dialect, encode_head, encode_record, parse_batch
from paceline.wire.cursus.errors import CursusError
from paceline.wire.cursus.requests import OffsetReset, ReadPlace
from paceline.wire.cursus_record_mapping import cursus_of
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.cursus import CursusRecordsAsked, CursusRecordsFound
from paceline.wire.records import Record
from paceline_node.env import Env
from paceline_node.listeners.cursus.session import Waiting
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.services.partitions.readable_topic import ReadableReplica, ReadableTopic
from paceline_node.services.partitions.record_scan import RecordScan
from paceline_node.settings import NonUtf8

MAX_FRAME_BYTES = 1024 * 1024
"""Data frames stay near this; one record is always sent, however large it is."""
_READ_BYTES = 1024 * 1024
_FORWARD_SLACK_S = 1.0
_LEADER_WAIT_S = 2.0


class Found(NamedTuple):
    """A data frame's body, where the reader goes on, and how many records it holds."""

    body: bytes
    next_offset: int
    records: int


class OutOfRange(CursusError):
    """The log does not have the offset any more."""

    def __init__(self, requested: int, earliest: int, latest: int) -> None:
        super().__init__(
            "OFFSET_OUT_OF_RANGE", f"requested={requested} earliest={earliest} latest={latest}"
        )
        self.requested = requested
        self.earliest = earliest
        self.latest = latest


class ReadSource(Protocol):
    """Where one reader's records come from."""

    async def read(self, offset: int, wait_s: float) -> Found:
        """Records from ``offset`` on; none of them after ``wait_s`` seconds without any. Raises
        OutOfRange, NotLeader and what the log raises. Cancel-safe."""


class RecordFrames:
    """Encodes records as the body of a data frame, up to its limits."""

    def __init__(self, place: ReadPlace) -> None:
        self._place = place
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def is_full(self) -> bool:
        return len(self._parts) >= self._place.max_records or self._size >= MAX_FRAME_BYTES

    @property
    def count(self) -> int:
        return len(self._parts)

    def add(self, part: bytes) -> bool:
        """Add a record's bytes; False when they do not fit any more."""
        if self.is_full or (self._parts and self._size + len(part) > MAX_FRAME_BYTES):
            return False
        self._parts.append(part)
        self._size += len(part)
        return True

    def body(self) -> bytes:
        """The frame's body, under the name that the reader asked for."""
        place = self._place
        head = encode_head(place.dialect, place.topic, place.partition, count=len(self._parts))
        return b"".join((head, *self._parts))


def _raw(record: Record) -> bytes | None:
    return encode_record(cursus_of(record))


def _replaced(record: Record) -> bytes | None:
    shown = cursus_of(record)
    text = shown.payload.decode("utf-8", "replace")
    return encode_record(shown._replace(payload=text.encode()))


def _skipped(record: Record) -> bytes | None:
    shown = cursus_of(record)
    try:
        shown.payload.decode()
    except UnicodeDecodeError:
        return None
    return encode_record(shown)


_SHOWN: Mapping[NonUtf8, Callable[[Record], bytes | None]] = {
    NonUtf8.RAW: _raw,
    NonUtf8.REPLACE: _replaced,
    NonUtf8.SKIP: _skipped,
}
"""A record's bytes in a frame; None for one that is not shown."""


async def fill(frames: RecordFrames, scan: RecordScan, non_utf8: NonUtf8) -> int:
    """Put what ``scan`` gives into ``frames``; the offset to go on at.

    Raises InvalidRecord when the first record of all cannot be shown in Cursus; a later one ends
    the frame before it.
    """
    show = _SHOWN[non_utf8]
    while not frames.is_full:
        records = await scan.next_batch()
        if records is None:
            break
        for record in records:
            try:
                part = show(record)
            except InvalidRecord:
                if frames.count:
                    return record.offset
                raise
            if part is not None and not frames.add(part):
                return record.offset
    return scan.position


@dataclass(frozen=True, slots=True)
class LocalSource:
    """The log of this node, which leads."""

    replica: ReadableReplica
    place: ReadPlace
    non_utf8: NonUtf8
    waiting: Waiting = nullcontext

    async def read(self, offset: int, wait_s: float) -> Found:
        replica, isolation = self.replica, self.place.isolation
        replica.check_leading()
        if offset < replica.start:
            raise OutOfRange(offset, replica.start, replica.readable_end(isolation))
        if offset >= replica.readable_end(isolation) and wait_s > 0:
            async with self.waiting():
                await replica.wait_readable(offset, isolation, wait_s)
        frames = RecordFrames(self.place)
        if not replica.start <= offset < replica.readable_end(isolation):
            return Found(frames.body(), offset, 0)
        scan = replica.scan(offset, isolation=isolation, max_bytes=_READ_BYTES)
        next_offset = await fill(frames, scan, self.non_utf8)
        body = frames.body()
        replica.fetched(frames.count, len(body))
        return Found(body, next_offset, frames.count)


@dataclass(frozen=True, slots=True)
class ForwardedSource:
    """The leader, wherever it is: this node's log, or one question for each read."""

    env: Env
    routing: LeaderRouting
    topic: ReadableTopic
    place: ReadPlace
    non_utf8: NonUtf8

    async def read(self, offset: int, wait_s: float) -> Found:
        """As :class:`ReadSource` says. A leader that is gone is waited for, two seconds more than
        for records; then NotLeader. RequestTimedOut when one did not answer."""
        self.topic.ask()
        until = self.env.now() + max(wait_s, 0.0)

        async def here() -> Found:
            replica = self.topic.leader(self.place.partition)
            source = LocalSource(replica, self.place, self.non_utf8)
            return await source.read(offset or replica.start, max(0.0, until - self.env.now()))

        async def there(leader: NodeId) -> Found:
            return await self._ask(leader, offset, max(0.0, until - self.env.now()))

        return await self.routing.on_leader(
            self.place.topic,
            self.place.partition,
            here=here,
            there=there,
            until=until + _LEADER_WAIT_S,
            again=(NotLeader,),
        )

    async def _ask(self, leader: NodeId, offset: int, wait_s: float) -> Found:
        place = self.place
        budget_s = wait_s + _FORWARD_SLACK_S
        ask = CursusRecordsAsked(
            int(budget_s * 1000),
            place.topic,
            place.partition,
            offset,
            place.isolation is Isolation.READ_COMMITTED,
            place.max_records,
            int(wait_s * 1000),
        )
        frame = await self.routing.ask(
            leader, PeerApi.CURSUS_RECORDS, ask, budget_s=budget_s, changes_nothing=True
        )
        found = CursusRecordsFound.unpack(frame.body)
        if found.is_out_of_range:
            raise OutOfRange(offset, found.earliest, found.latest)
        return _translated(bytes(frame.payload), place, offset)


@dataclass(frozen=True, slots=True)
class PatientSource:
    """Another source, whose leader may be away for as long as it likes: a stream goes on then."""

    source: ReadSource
    place: ReadPlace

    async def read(self, offset: int, wait_s: float) -> Found:
        """Nothing, while nobody can be asked."""
        try:
            return await self.source.read(offset, wait_s)
        except (NotLeader, RequestTimedOut):
            return Found(RecordFrames(self.place).body(), offset, 0)


def _translated(body: bytes, place: ReadPlace, offset: int) -> Found:
    """Another node's data frame in the dialect of the reader's own request."""
    batch = parse_batch(body)
    frames = RecordFrames(place)
    next_offset = offset
    for record in batch.records:
        if not frames.add(encode_record(record)):
            break
        next_offset = record.offset + 1
    return Found(frames.body(), next_offset, frames.count)


def start_offset(place: ReadPlace, *, committed: int | None, earliest: int, latest: int) -> int:
    """Where a reader begins (DESIGN 5.3). Raises OutOfRange for an offset it named that the
    log has no more; one that it did not name, or 0 without a commit, is the earliest there is."""
    given = place.offset
    if place.dialect is Dialect.SEED or committed is None:
        start = given
    else:
        start = max(committed, given or 0)
    if start is None:
        return latest if place.reset is OffsetReset.LATEST else earliest
    if start < earliest:
        if given is None or (given == 0 and committed is None):
            return earliest
        raise OutOfRange(start, earliest, latest)
    return start
