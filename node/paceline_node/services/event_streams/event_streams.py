"""Event streams: events of one key in order of version, one writer winning (DESIGN 8).

On partitions of topics of kind ``event-sourcing``, where this node leads. The index that says
where a stream's events lie is made from the log when it is first asked for in a leader epoch. Its
newest version is state of the partition, like a producer's numbers: it outlives the event.
Whether an event fits is decided and the event appended without a turn for others, so of two writers
of one version exactly one wins; events and snapshots are answered once all in-sync replicas have
them.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import trio

from paceline.errors import CorruptMessage, NotLeader, OffsetOutOfRange, PacelineError, Throttled
from paceline.types import Acks, Isolation, OffsetSpec
from paceline.wire.batch import read_header, verify
from paceline.wire.records import Record, decode_records, encode_headers
from paceline_node.env import Env
from paceline_node.replication.offset_lookups import find_offset
from paceline_node.replication.partition import Partition, ProduceResult
from paceline_node.sequence_numbers import Number, SequencedRecords
from paceline_node.services.event_streams.event_stream_index import StreamIndex, snapshot_batch
from paceline_node.services.future import Future
from paceline_node.services.partitions.batch_sizes import check_sizes
from paceline_node.settings.counts import EVENT_STREAMS
from paceline_node.storage.sequenced_batches import build_batches
from paceline_node.storage.sequenced_records import STREAM_EPOCH, stream_key, table_key

KIND = "event-sourcing"
MAX_READ_BYTES = 15 * 1024 * 1024
"""What one read gives at most; more is there from the next version on."""
_SCAN_BYTES = 1024 * 1024


class VersionConflict(PacelineError):
    """The stream is at another version than its writer thought; nothing was appended."""

    def __init__(self, *, current: int, wanted: int) -> None:
        super().__init__(f"the stream is at version {current}, {wanted} does not follow")
        self.current = current
        self.wanted = wanted


class SnapshotAhead(PacelineError):
    """A snapshot of a version that the stream does not have; nothing was stored."""

    def __init__(self, *, current: int, wanted: int) -> None:
        super().__init__(f"the stream is at version {current}, the snapshot shows {wanted}")
        self.current = current
        self.wanted = wanted


class EventStreams:
    """Streams of the partitions that this node leads."""

    def __init__(self, env: Env, streams_max: int = EVENT_STREAMS.bound) -> None:
        self._env = env
        self._streams_max = streams_max
        self._indexes: WeakKeyDictionary[Partition, StreamIndex] = WeakKeyDictionary()
        self._catching_up: WeakKeyDictionary[Partition, trio.Lock] = WeakKeyDictionary()

    # --- writing ----------------------------------------------------------------------------------

    async def append(
        self, partition: Partition, key: bytes, version: int, event: Record, *, timeout_s: float
    ) -> int:
        """Append an event that gives its stream ``version``; returns its offset.

        Raises VersionConflict, Throttled, MessageTooLarge, and as :meth:`Partition.produce`.
        Cancelled, the event may be there.
        """
        index = await self._current(partition)
        current = _version(partition, index, key, index.position)
        if version != current + 1:
            raise VersionConflict(current=current, wanted=version)
        self._check_place(partition, key)
        batch = _event_batch(key, version, event, self._env.stamp_ms())
        check_sizes(partition, [read_header(batch)])
        return await self._write(partition, index, batch, timeout_s)

    async def save_snapshot(
        self, partition: Partition, key: bytes, version: int, payload: bytes, *, timeout_s: float
    ) -> None:
        """Keep a snapshot of a stream as it is at ``version``. Raises SnapshotAhead, and as
        :meth:`append`."""
        index = await self._current(partition)
        current = _version(partition, index, key, index.position)
        if version > current:
            raise SnapshotAhead(current=current, wanted=version)
        batch = snapshot_batch(key, version, payload, timestamp_ms=self._env.stamp_ms())
        await self._write(partition, index, batch, timeout_s)

    def _check_place(self, partition: Partition, key: bytes) -> None:
        """Raise Throttled for one stream more than there may be."""
        producers = partition.log.producers
        if producers.stream_count < self._streams_max:
            return
        if producers.state(table_key(stream_key(key))) is None:
            raise Throttled(
                f"{partition.topic}/{partition.partition}: {producers.stream_count} event streams "
                "already (cursus.event_streams_max)"
            )

    async def _write(
        self, partition: Partition, index: StreamIndex, batch: bytearray, timeout_s: float
    ) -> int:
        answer: Future[ProduceResult] = Future()
        headers = [read_header(batch)]
        partition.produce(batch, headers, acks=Acks.ALL, timeout_s=timeout_s, done=answer.deliver)
        # Stamped by now: the index is behind the log at no moment that anybody else can see.
        index.add(batch, 0, read_header(batch), committed=partition.high_watermark)
        return (await answer.wait()).last_offset

    # --- reading ----------------------------------------------------------------------------------

    async def version(self, partition: Partition, key: bytes) -> int:
        """The newest committed version of a stream, 0 for none.

        Raises NotLeader; OffsetNotAvailable while a new leader may not say yet what is committed:
        the version would fall.
        """
        index = await self._current(partition)
        return _version(partition, index, key, _committed_end(partition))

    async def snapshot(self, partition: Partition, key: bytes) -> tuple[int, bytes] | None:
        """The newest committed snapshot of a stream and its version. Raises as :meth:`version`."""
        index = await self._current(partition)
        start, end = partition.log_start_offset, _committed_end(partition)
        place = index.snapshot(key, start=start, end=end)
        if place is None:
            return None
        record = await self._record(partition, place.offset)
        return place.version, record.value or b""

    async def read(self, partition: Partition, key: bytes, from_version: int) -> list[Record]:
        """Committed events of a stream from a version on, as many as one answer holds. Raises as
        :meth:`version`."""
        index = await self._current(partition)
        start, end = partition.log_start_offset, _committed_end(partition)
        found: list[Record] = []
        size = 0
        for offset in index.events(key, from_version, start=start, end=end):
            record = await self._record(partition, offset)
            size += len(record.value or b"")
            if found and size > MAX_READ_BYTES:
                break
            found.append(record)
        return found

    async def _record(self, partition: Partition, offset: int) -> Record:
        found = partition.read(offset, 1, Isolation.READ_COMMITTED).slice
        if found is None:
            raise OffsetOutOfRange(f"{partition}: offset {offset} is not there to be read")
        data = await found.read_async()
        try:
            for at, _ in found.batches(data):
                verify(data, at)
        except CorruptMessage:
            partition.suspect(offset)
            raise
        for record in decode_records(data):
            if record.offset == offset:
                return record
        raise CorruptMessage(f"{partition}: offset {offset} is not in its batch")

    # --- the index --------------------------------------------------------------------------------

    async def _current(self, partition: Partition) -> StreamIndex:
        """The index as the log stands now; nothing waits between its return and what is decided
        with it. Raises NotLeader."""
        while True:
            if not partition.is_leader:
                raise NotLeader(f"{partition}: the leader is node {partition.leader}")
            index = self._indexes.get(partition)
            if index is None or index.leader_epoch != partition.leader_epoch:
                # Followers cut their logs: what was known of an earlier epoch may be gone.
                index = StreamIndex(partition.leader_epoch, partition.log_start_offset)
                self._indexes[partition] = index
            if index.position >= partition.log_end_offset:
                return index
            lock = self._catching_up.setdefault(partition, trio.Lock())
            async with lock:
                await self._catch_up(partition, index)

    async def _catch_up(self, partition: Partition, index: StreamIndex) -> None:
        """Fold what the log has more, up to its end: a leader's own log is what it builds on,
        committed or not."""
        log = partition.log
        while index.position < log.log_end_offset and index.leader_epoch == partition.leader_epoch:
            position = max(index.position, log.log_start_offset)
            found = log.locate(position, _SCAN_BYTES, log.log_end_offset)
            if found is None:
                return
            data = await found.read_async()
            try:
                for at, header in found.batches(data):
                    verify(data, at)
                    if header.base_offset >= index.position:
                        index.add(data, at, header, committed=partition.high_watermark)
            except CorruptMessage:
                partition.suspect(position)
                raise


def _event_batch(key: bytes, version: int, event: Record, now_ms: int) -> bytearray:
    """An event whose version every replica notes, as it does a producer's numbers."""
    number = Number(stream_key(key), "", STREAM_EPOCH, version)
    columns = SequencedRecords(
        [number], [event.value or b""], [event.key], [encode_headers(event.headers)]
    )
    (built,) = build_batches(columns, timestamp_ms=now_ms)
    return built.data


def _version(partition: Partition, index: StreamIndex, key: bytes, end: int) -> int:
    """The newest version of a stream below ``end``: also of events that are gone."""
    found = index.version(key, end=end)
    state = partition.log.producers.sequenced(table_key(stream_key(key)))
    if state is None or state.last_offset >= end:
        return found  # the newest event is in the log, and in the index
    return max(found, state.runs[-1][1])


def _committed_end(partition: Partition) -> int:
    return find_offset(partition, OffsetSpec.LATEST).offset
