"""Reading ahead for a consumer: which partitions to fetch from whom, and what came back.

As the sender does, the fetcher works in passes: it groups the partitions that want data by leader
and posts one long-polling FETCH for each, never two for one partition. Answers arrive as calls and
are kept, as they came, until the consumer takes batches out of them.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable
from functools import partial

import trio

from paceline.client.connection import Answer, Connection
from paceline.client.consumed import ConsumedBatch, Slice
from paceline.client.corruption import CorruptionReports, Judgement
from paceline.client.metadata import Leader, Metadata
from paceline.client.offsets import MISSING_PARTITION_S, OffsetFinder
from paceline.client.partition_queue import Pauses
from paceline.client.pool import ConnectionPool, Lane
from paceline.client.position import Position
from paceline.client.settings import ConsumerSettings
from paceline.client.single_error_nursery import open_scope
from paceline.errors import (
    ConnectionLost,
    CorruptMessage,
    OffsetNotAvailable,
    OffsetOutOfRange,
    PacelineError,
    RemoteProtocolError,
    UnknownTopicOrPartition,
    error_for,
)
from paceline.types import Isolation, TopicId, TopicPartition
from paceline.wire.batch_header import iter_batches
from paceline.wire.frame import Frame
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import Fetch, FetchedPartition, FetchPartition, FetchReply

MAX_FETCHES_PER_NODE = 4
"""A partition that wants data again need not wait for the long poll of the others."""


class OutOfRange(enum.Enum):
    """What to do when the next offset is no longer, or not yet, in the log; in a group also where
    to begin without an offset. LATEST begins only partitions that are as old as the group at their
    end, newer ones at their start (``new_partitions.py``)."""

    FAIL = "fail"
    EARLIEST = "earliest"
    LATEST = "latest"


class PartitionReader:
    """One assigned partition.

    ``position`` is the next offset to hand out, ``fetch_offset`` the next to ask for; between them
    lie ``slices``. They are places in the topic ``topic_id``, and in no other of its name; None:
    in the one that is looked up next. ``version`` changes with every seek, so that answers to older
    requests are dropped.
    """

    __slots__ = (
        "at",
        "buffered_bytes",
        "corrupt_at",
        "error",
        "failures",
        "fetch_offset",
        "is_fetching",
        "is_paused",
        "missing_since",
        "position",
        "repaired_by",
        "retry_at",
        "slices",
        "stop_offset",
        "topic_id",
        "version",
    )

    def __init__(self, at: TopicPartition, position: int, stop_offset: int | None) -> None:
        self.at = at
        self.topic_id: TopicId | None = None
        self.position = position
        self.fetch_offset = position
        self.stop_offset = stop_offset
        self.slices: list[Slice] = []
        self.buffered_bytes = 0
        self.version = 0
        self.retry_at = 0.0
        self.failures = 0
        self.is_fetching = False
        self.is_paused = False
        self.error: PacelineError | None = None
        self.corrupt_at = -1
        self.repaired_by = 0.0
        self.missing_since = math.inf

    @property
    def is_at_end(self) -> bool:
        """Whether all up to ``stop_offset`` was handed out."""
        return self.stop_offset is not None and self.position >= self.stop_offset

    @property
    def wants_data(self) -> bool:
        wants = not (self.is_fetching or self.is_paused or self.error is not None)
        return wants and (self.stop_offset is None or self.fetch_offset < self.stop_offset)

    def seek(self, offset: int) -> None:
        """Go on at ``offset``; what was read ahead is dropped."""
        self.position = self.fetch_offset = offset
        self.slices.clear()
        self.buffered_bytes = 0
        self.version += 1
        self.is_fetching = False
        self.error = None
        self.retry_at = 0.0

    def keep(self, data: memoryview, reply: FetchedPartition) -> None:
        """Keep a fetched slice. Raises CorruptMessage when its end has to be looked for."""
        self.failures = 0
        if not data:
            return
        next_offset = reply.next_offset
        if next_offset < 0:
            *_, (_, last) = iter_batches(data)
            next_offset = last.next_offset
        self.slices.append(Slice(self.at, data, self.fetch_offset, next_offset, reply.aborted))
        self.buffered_bytes += len(data)
        self.fetch_offset = next_offset

    def take(self) -> ConsumedBatch | None:
        """The next batch to hand out, if one is here. Raises CorruptMessage."""
        while self.slices and not self.is_at_end:
            first = self.slices[0]
            try:
                batch = first.take(self.stop_offset)
            finally:  # the bad one is named, not a hidden one before it
                self.position = first.next_offset
            if first.is_empty:
                self.slices.pop(0)
                self.buffered_bytes -= first.size_bytes
            if batch is not None:
                return batch
        if self.is_at_end:
            self.slices.clear()
            self.buffered_bytes = 0
        return None

    def pause_until(self, now: float, backoff: Pauses) -> None:
        """An attempt failed: wait a growing while before the next."""
        self.retry_at = now + backoff.pause_s(self.failures)
        self.failures += 1


class Fetcher:
    """See the module. ``arrived`` is called when a reader has something for the consumer.
    ``made_anew`` hears of one whose topic is another by now, and reads on only when that has reset
    it or has sought. ``repair_s`` is how long readers wait for another replica to take over from a
    damaged one."""

    def __init__(
        self,
        settings: ConsumerSettings,
        pool: ConnectionPool,
        metadata: Metadata,
        finder: OffsetFinder,
        backoff: Pauses,
        *,
        isolation: Isolation,
        out_of_range: OutOfRange,
        repair_s: float,
        arrived: Callable[[], None],
        made_anew: Callable[[PartitionReader], None],
    ) -> None:
        self.readers: dict[TopicPartition, PartitionReader] = {}
        self._settings = settings
        self._pool = pool
        self._metadata = metadata
        self._finder = finder
        self._backoff = backoff
        self._isolation = isolation
        self._out_of_range = out_of_range
        self._repair_s = repair_s
        self._arrived = arrived
        self._made_anew = made_anew
        self._reports = CorruptionReports(pool, metadata)
        self._wake = trio.Event()
        self._fetches: dict[Connection, int] = {}
        self._nursery: trio.Nursery | None = None

    def wake(self) -> None:
        """Have a pass made soon."""
        self._wake.set()

    async def run(self) -> None:
        """Fetch until cancelled."""
        unsubscribe = self._pool.subscribe(self.wake)
        try:
            async with open_scope() as nursery:
                self._nursery = nursery
                while True:
                    self._wake = trio.Event()
                    next_at = self._pass(trio.current_time())
                    with trio.CancelScope(deadline=next_at):
                        await self._wake.wait()
        finally:
            unsubscribe()

    # --- one pass ---------------------------------------------------------------------------------

    def _pass(self, now: float) -> float:
        """Post fetches for all that can be fetched; returns when to look again at the latest."""
        readers = [reader for reader in self.readers.values() if reader.wants_data]
        buffered = sum(reader.buffered_bytes for reader in self.readers.values())
        next_at = min((r.retry_at for r in readers if r.retry_at > now), default=math.inf)
        missing: set[str] = set()
        groups: dict[Connection, list[tuple[PartitionReader, Leader]]] = {}
        budget = self._settings.prefetch_bytes
        for reader in readers:
            if reader.retry_at > now or buffered >= budget:
                continue
            if reader.buffered_bytes >= self._share():
                continue
            leader = self._metadata.view.leader(reader.at)
            if leader is None:
                missing.add(reader.at.topic)
                self._note_missing(reader, now)
                continue
            reader.missing_since = math.inf
            if not self.is_of_its_topic(reader):
                self._made_anew(reader)
                continue
            connection = self._connection(reader, leader, now, missing)
            if connection is not None:
                groups.setdefault(connection, []).append((reader, leader))
        for connection, group in groups.items():
            self._post(connection, group, now)
        if missing:
            self._metadata.request(missing)
        return next_at

    def _note_missing(self, reader: PartitionReader, now: float) -> None:
        """A partition without a leader comes back; one whose topic is gone does not, and none does
        for who is not let in. Some nodes may hear of a topic late, so only a long absence counts.
        """
        if self._metadata.refusal is not None:
            reader.error = self._metadata.refusal
            self._arrived()
            return
        if reader.at.partition < self._metadata.view.partition_count(reader.at.topic):
            reader.missing_since = math.inf
            return
        reader.missing_since = min(reader.missing_since, now)
        if now - reader.missing_since > MISSING_PARTITION_S:
            reader.error = UnknownTopicOrPartition(f"{reader.at}: no longer exists")
            self._arrived()

    def is_of_its_topic(self, reader: PartitionReader) -> bool:
        """Whether the topic that has the name is the one in which the reader has its place."""
        current = self._metadata.view.topic_id(reader.at.topic)
        if reader.topic_id is None:
            reader.topic_id = current
        return current is None or reader.topic_id == current

    def _share(self) -> int:
        """How much one partition may have read ahead before the others' turn."""
        return max(1, self._settings.prefetch_bytes // max(1, len(self.readers)))

    def _connection(
        self, reader: PartitionReader, leader: Leader, now: float, missing: set[str]
    ) -> Connection | None:
        try:
            connection = self._pool.ready(leader.node, Lane.FETCH)
        except PacelineError:
            self._metadata.view.doubt(reader.at, leader.epoch)
            reader.pause_until(now, self._backoff)
            missing.add(reader.at.topic)
            self.wake()
            return None
        if connection is None or not connection.has_room:
            return None
        if self._fetches.get(connection, 0) >= MAX_FETCHES_PER_NODE:
            return None
        return connection

    def _post(
        self, connection: Connection, group: list[tuple[PartitionReader, Leader]], now: float
    ) -> None:
        settings = self._settings
        request = Fetch(
            int(settings.max_wait_s * 1000),
            settings.min_bytes,
            settings.fetch_bytes,
            self._isolation,
            tuple(
                FetchPartition(
                    reader.at.topic,
                    reader.at.partition,
                    reader.fetch_offset,
                    settings.partition_bytes,
                    leader.epoch,
                    reader.topic_id,
                )
                for reader, leader in group
            ),
        )
        asked = [(reader, leader, reader.version) for reader, leader in group]
        try:
            connection.post(
                NativeApi.FETCH,
                request.pack(),
                partial(self._answered, connection, asked),
                wait_s=settings.max_wait_s,
            )
        except PacelineError as error:
            for reader, leader in group:
                self._failed(reader, leader, error, now)
            return
        self._fetches[connection] = self._fetches.get(connection, 0) + 1
        for reader, _ in group:
            reader.is_fetching = True

    # --- answers ----------------------------------------------------------------------------------

    def _answered(
        self,
        connection: Connection,
        asked: list[tuple[PartitionReader, Leader, int]],
        answer: Answer,
    ) -> None:
        now = trio.current_time()
        self._fetches[connection] -= 1
        if not self._fetches[connection]:
            del self._fetches[connection]
        current = [each for each in asked if each[0].version == each[2]]
        for reader, _, _ in current:
            reader.is_fetching = False
        if isinstance(answer, PacelineError):
            self._all_failed(current, answer, now)
        else:
            try:
                results = slices(answer, [reader.at for reader, _, _ in asked])
            except ConnectionLost as misfit:
                self._all_failed(current, misfit, now)
            else:
                for (reader, leader, version), (result, data) in zip(asked, results, strict=True):
                    if reader.version == version:
                        self._take_result(reader, leader, result, data, now)
        self.wake()
        self._arrived()

    def _take_result(
        self,
        reader: PartitionReader,
        leader: Leader,
        result: FetchedPartition,
        data: memoryview,
        now: float,
    ) -> None:
        if result.error == 0:
            try:
                reader.keep(data, result)
            except CorruptMessage as error:
                self.corrupt(reader, error)
            return
        if self._metadata.view.learn(reader.at, result.leader, result.leader_epoch):
            return
        refusal = error_for(result.error, f"{reader.at}: {result.message}")
        self._failed(reader, leader, refusal, now)

    def _all_failed(
        self, asked: list[tuple[PartitionReader, Leader, int]], error: PacelineError, now: float
    ) -> None:
        for reader, leader, _ in asked:
            self._failed(reader, leader, error, now)

    def _failed(
        self, reader: PartitionReader, leader: Leader, error: PacelineError, now: float
    ) -> None:
        if isinstance(error, OffsetOutOfRange) and self._out_of_range is not OutOfRange.FAIL:
            self._metadata.view.doubt(reader.at, leader.epoch)  # the topic may have been made anew
            self.reset(reader, earliest=self._out_of_range is OutOfRange.EARLIEST)
            return
        awaited = isinstance(error, CorruptMessage) and now < reader.repaired_by
        if not (error.retriable or awaited):
            reader.error = error
            return
        reader.pause_until(now, self._backoff)
        if not isinstance(error, OffsetNotAvailable):
            self._metadata.view.doubt(reader.at, leader.epoch)

    def corrupt(self, reader: PartitionReader, error: CorruptMessage) -> None:
        """A batch does not hold: tell the leader, and fetch it once more, in case the way and not
        the log is at fault, or another replica has it whole; the second time at one offset, from a
        leader that finds nothing wrong, it is the consumer's error."""
        offset = reader.position
        again = reader.corrupt_at == offset
        reader.seek(offset)
        reader.corrupt_at = offset
        if again:
            reader.error = error
            self._arrived()
        else:
            judged = partial(self._judged, reader, reader.version)
            if self._reports.post(reader.at, offset, trio.current_time(), judged):
                reader.is_fetching = True
            else:
                self._judged(reader, reader.version, Judgement.NONE)
        self.wake()

    def _judged(self, reader: PartitionReader, version: int, judgement: Judgement) -> None:
        if reader.version != version:
            return
        reader.is_fetching = False
        if judgement is not Judgement.HOLDS:
            now = trio.current_time()
            reader.corrupt_at = -1
            reader.pause_until(now, self._backoff)
            if judgement is Judgement.DAMAGED:
                reader.repaired_by = now + self._repair_s
        self.wake()

    def reset(self, reader: PartitionReader, *, earliest: bool) -> None:
        """Have the reader go on at one end of its log, which the leader tells, in the topic that
        has the name now."""
        reader.topic_id = self._metadata.view.topic_id(reader.at.topic)
        reader.is_fetching = True
        assert self._nursery is not None
        self._nursery.start_soon(self._find_start, reader, reader.version, earliest)

    async def _find_start(self, reader: PartitionReader, version: int, earliest: bool) -> None:
        position = Position.EARLIEST if earliest else Position.LATEST
        try:
            offsets = await self._finder.resolve({reader.at: position}, self._isolation)
        except PacelineError as error:
            if reader.version == version:
                reader.error = error
        else:
            if reader.version == version:
                reader.seek(offsets[reader.at])
        self.wake()
        self._arrived()


def slices(
    frame: Frame, asked: Iterable[TopicPartition]
) -> list[tuple[FetchedPartition, memoryview]]:
    """Each partition's result with its part of the payload. Raises ConnectionLost for an answer
    that does not fit the request."""
    try:
        results = FetchReply.unpack(frame.body).partitions
    except RemoteProtocolError as error:
        raise ConnectionLost(f"answer not understood: {error}") from error
    if [(at.topic, at.partition) for at in asked] != [(r.topic, r.partition) for r in results]:
        raise ConnectionLost("fetch answer names other partitions than the request")
    if sum(result.records_bytes for result in results) != len(frame.payload):
        raise ConnectionLost(f"fetch answer with a payload of {len(frame.payload)} bytes")
    slices = []
    position = 0
    for result in results:
        slices.append((result, frame.payload[position : position + result.records_bytes]))
        position += result.records_bytes
    return slices
