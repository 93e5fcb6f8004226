"""Reading records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import trio

from paceline.client.consumed import ConsumedBatch, ConsumedRecord
from paceline.client.fetcher import Fetcher, OutOfRange, PartitionReader
from paceline.client.metadata import Metadata
from paceline.client.offsets import OffsetFinder
from paceline.client.pool import ConnectionPool
from paceline.client.position import Position
from paceline.client.retry import Backoff
from paceline.client.settings import ConsumerSettings
from paceline.client.single_error_nursery import open_scope
from paceline.counted import counted
from paceline.errors import (
    CorruptMessage,
    InvalidRequest,
    UnknownTopicOrPartition,
    UnsupportedCompression,
)
from paceline.types import Isolation, TopicId, TopicPartition
from paceline.wire.native.data import TopicInfo

TOPIC_REFRESH_S = 30.0
"""How often a consumer of whole topics looks for new partitions."""

Subscription = str | TopicPartition | Iterable[str | TopicPartition]
TopicIds = Mapping[str, TopicId | None]


class Consumer:
    """Made by :meth:`Client.consumer`; one task at a time may read from it.

    Iterate it for records, or :meth:`batches` for whole batches at a fraction of the cost. Both end
    when every partition has reached the ``stop`` position; without one they never end. Records of
    one partition come in order; partitions take turns, batch by batch.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        pool: ConnectionPool,
        metadata: Metadata,
        backoff: Backoff,
        *,
        isolation: Isolation,
        out_of_range: OutOfRange,
        operation_s: float,
    ) -> None:
        self.isolation = isolation
        self._out_of_range = out_of_range
        self._operation_s = operation_s
        self._metadata = metadata
        self._finder = OffsetFinder(pool, metadata, backoff)
        self._arrival = trio.Event()
        self._fetcher = Fetcher(
            settings,
            pool,
            metadata,
            self._finder,
            backoff,
            isolation=isolation,
            out_of_range=out_of_range,
            repair_s=operation_s,
            arrived=self._arrived,
            made_anew=self._made_anew,
        )
        self._readers = self._fetcher.readers
        self._whole_topics: set[str] = set()
        self._turns: list[PartitionReader] = []
        self._records: Iterator[ConsumedRecord] = iter(())
        self._reading: PartitionReader | None = None
        self._reading_version = 0
        self._reading_batch: ConsumedBatch | None = None

    # --- assignment -------------------------------------------------------------------------------

    async def assign(
        self,
        subscription: Subscription,
        *,
        start: Position = Position.EARLIEST,
        stop: Position | None = None,
    ) -> None:
        """Read these partitions, or whole topics, as well. Those assigned already stay as they are.

        Waits until every leader has told what ``start`` and ``stop`` mean, however long a
        partition is without one; ``stop`` is then fixed. Raises UnknownTopicOrPartition.
        """
        wanted = await self._partitions(subscription)
        added = [at for at in wanted if at not in self._readers]
        topic_ids = self._topic_ids(added)
        starts = await self._finder.resolve(dict.fromkeys(added, start), self.isolation)
        stops: Mapping[TopicPartition, int] = {}
        if stop is not None:
            stops = await self._finder.resolve(dict.fromkeys(added, stop), self.isolation)
        self._read_from(starts, stops, topic_ids)
        if stop is None:
            self._whole_topics |= {each for each in _each(subscription) if isinstance(each, str)}

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> TopicIds:
        """Which topics these are of. Asked before their places are looked up: a topic that is made
        anew meanwhile is seen to be another one."""
        view = self._metadata.view
        return {at.topic: view.topic_id(at.topic) for at in partitions}

    def _read_from(
        self,
        starts: Mapping[TopicPartition, int],
        stops: Mapping[TopicPartition, int],
        topic_ids: TopicIds,
    ) -> None:
        """Read these partitions, none of which is assigned, from these offsets on."""
        for at, start in starts.items():
            reader = PartitionReader(at, start, stops.get(at))
            reader.topic_id = topic_ids[at.topic]
            self._readers[at] = reader
            self._turns.append(reader)
        self._fetcher.wake()

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions; what was read ahead of them is dropped."""
        for at in partitions:
            reader = self._reader(at)
            reader.seek(reader.position)
            del self._readers[at]
            self._turns.remove(reader)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions, sorted."""
        return sorted(self._readers)

    async def _partitions(self, subscription: Subscription) -> list[TopicPartition]:
        found: dict[TopicPartition, None] = {}
        for each in _each(subscription):
            topic = each if isinstance(each, str) else each.topic
            known = _partitions_of(await self._metadata.topic_soon(topic))
            if isinstance(each, str):
                found.update(dict.fromkeys(known))
            elif each in known:
                found[each] = None
            else:
                raise UnknownTopicOrPartition(
                    f"{each}: the topic has {counted(len(known), 'partition')}"
                )
        return list(found)

    # --- reading ----------------------------------------------------------------------------------

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> ConsumedRecord:
        """The next record. Cancelling loses none. Raises OffsetOutOfRange, CorruptMessage ..."""
        while True:
            reader = self._reading
            if reader is not None and reader.version == self._reading_version:
                record = next(self._records, None)
                if record is not None:
                    reader.position = record.offset + 1
                    return record
                self._end_reading(reader)
            self._reading = None
            batch = await self._next_batch()
            if batch is None:
                raise StopAsyncIteration
            self._begin(batch)

    def _begin(self, batch: ConsumedBatch) -> None:
        reader = self._readers[batch.at]
        self._reading_batch = batch
        reader.position = batch.first_offset
        try:
            self._records = iter(batch.consumed())
        except (CorruptMessage, UnsupportedCompression) as error:
            # Never to be passed over in silence: stays until the consumer seeks elsewhere.
            reader.seek(batch.first_offset)
            reader.error = error
            raise
        self._reading = reader
        self._reading_version = reader.version

    def batches(self) -> Batches:
        """All batches; as the consumer itself, for those who decode records themselves or not at
        all. A batch counts as read when it is handed out."""
        return Batches(self)

    async def next_batch(self) -> ConsumedBatch | None:
        """The next batch of any partition, or what iterating has left of one; None when all have
        reached their stop.

        Waits while there is none. Cancelling loses nothing.
        """
        return await self._rest_or_next()

    async def _rest_or_next(self) -> ConsumedBatch | None:
        await trio.lowlevel.checkpoint_if_cancelled()
        rest = self._rest()
        if rest is None:
            return await self._next_batch()
        await trio.lowlevel.cancel_shielded_checkpoint()
        return rest

    def _rest(self) -> ConsumedBatch | None:
        """What iterating has left of its batch, which is handed out herewith."""
        reader, self._reading = self._reading, None
        if reader is None or reader.version != self._reading_version:
            return None
        record = next(self._records, None)
        batch = self._end_reading(reader)
        return None if record is None else batch.behind(record.offset)

    def _end_reading(self, reader: PartitionReader) -> ConsumedBatch:
        batch, self._reading_batch = self._reading_batch, None
        assert batch is not None, "what is read is of a batch"
        reader.position = batch.header.next_offset
        return batch

    async def _next_batch(self) -> ConsumedBatch | None:
        while True:
            await trio.lowlevel.checkpoint_if_cancelled()
            self._arrival = trio.Event()
            batch = self._take()
            if batch is not None:
                await trio.lowlevel.cancel_shielded_checkpoint()
                return batch
            if self._readers and all(reader.is_at_end for reader in self._readers.values()):
                return None
            await self._arrival.wait()

    def _take(self) -> ConsumedBatch | None:
        for reader in tuple(self._turns):
            if reader.error is not None:
                raise reader.error.with_traceback(None)
            if reader.is_paused or not reader.slices:
                continue
            try:
                batch = reader.take()
            except CorruptMessage as error:
                self._fetcher.corrupt(reader, error)
                continue
            if not reader.slices:
                self._fetcher.wake()
            if batch is not None:
                self._turns.remove(reader)
                self._turns.append(reader)
                return batch
        return None

    def _arrived(self) -> None:
        self._arrival.set()

    def _made_anew(self, reader: PartitionReader) -> None:
        """The topic was deleted, and another one has its name: what was reached is no place in
        that. All of it is new to whoever read to the end of the old one."""
        if self._out_of_range is OutOfRange.FAIL or reader.stop_offset is not None:
            reader.error = UnknownTopicOrPartition(
                f"{reader.at}: the topic was deleted, and another one has its name; offset "
                f"{reader.position} was of the old one. Seek to read the new one"
            )
            self._arrived()
        else:
            self._fetcher.reset(reader, earliest=True)

    # --- positions --------------------------------------------------------------------------------

    def position(self, at: TopicPartition) -> int:
        """The next offset that will be handed out."""
        return self._reader(at).position

    def positions(self) -> dict[TopicPartition, int]:
        """:meth:`position` of every assigned partition."""
        return {at: self._readers[at].position for at in sorted(self._readers)}

    async def seek(self, at: TopicPartition, to: Position) -> None:
        """Go on at ``to``, also after an error of that partition, and also back. Raises as
        :meth:`end_offsets`; nothing has changed then."""
        reader = self._reader(at)
        topic_ids = self._topic_ids([at])
        offsets = await self._look_up({at: to})
        reader.topic_id = topic_ids[at.topic]
        reader.seek(offsets[at])
        self._fetcher.wake()

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out and fetch no more of these until :meth:`resume`."""
        for at in partitions:
            reader = self._reader(at)
            reader.is_paused = True
            if reader is self._reading:
                reader.seek(reader.position)

    def put_back(self, at: TopicPartition, offset: int) -> None:
        """What was handed out of a partition from ``offset`` on was not taken, and is handed out
        again: for whoever passes a batch on, record by record."""
        self._reader(at).seek(offset)
        self._fetcher.wake()

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo :meth:`pause`."""
        for at in partitions:
            self._reader(at).is_paused = False
        self._fetcher.wake()
        self._arrived()

    async def end_offsets(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Where each of these, by default of all assigned partitions, ends now, for this consumer's
        isolation. Raises LeaderNotAvailable and the like when the leader of one of them has said
        nothing within the operation timeout; UnknownTopicOrPartition."""
        wanted = self._readers if partitions is None else partitions
        return await self._look_up(dict.fromkeys(sorted(wanted), Position.LATEST))

    async def _look_up(
        self, wanted: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, int]:
        return await self._finder.resolve(wanted, self.isolation, timeout_s=self._operation_s)

    def _reader(self, at: TopicPartition) -> PartitionReader:
        reader = self._readers.get(at)
        if reader is None:
            raise InvalidRequest(f"{at} is not assigned to this consumer")
        return reader

    # --- tasks ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read ahead until cancelled."""
        async with open_scope() as nursery:
            nursery.start_soon(self._watch_topics)
            await self._fetcher.run()

    async def _watch_topics(self) -> None:
        while True:
            await trio.sleep(TOPIC_REFRESH_S)
            for name in sorted(self._whole_topics):
                self._metadata.request([name])
                info = self._metadata.view.topic(name)
                if info is not None and any(at not in self._readers for at in _partitions_of(info)):
                    await self.assign(name)


class Batches:
    """Iterates a consumer batch by batch; leaving off in the middle loses nothing."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Batches:
        return self

    async def __anext__(self) -> ConsumedBatch:
        batch = await self._consumer.next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch


def _each(subscription: Subscription) -> Iterable[str | TopicPartition]:
    return [subscription] if isinstance(subscription, str | TopicPartition) else list(subscription)


def _partitions_of(info: TopicInfo) -> list[TopicPartition]:
    return [TopicPartition(info.name, each.partition) for each in info.partitions]
