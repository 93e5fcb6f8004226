"""Writing records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import NoneType

import trio

from paceline.client.accumulator import Accumulator, Columns
from paceline.client.batch_portion import Portion
from paceline.client.batching import (
    Batch,
    BatchMetadata,
    EncodedBatch,
    RecordMetadata,
    estimated_size,
)
from paceline.client.metadata import Metadata
from paceline.client.retry import nothing_sent
from paceline.client.sender import Sender
from paceline.client.settings import ProducerSettings
from paceline.errors import BufferFull, Closed, InvalidRecord, Outcome, PacelineError
from paceline.types import TopicPartition
from paceline.wire.batch import HEADER_BYTES, read_header, validate_client_batches
from paceline.wire.batch_header import Buffer
from paceline.wire.records import Header

Headers = Sequence[Header]


class Delivery:
    """A record that was accepted and is on its way."""

    __slots__ = ("_batch", "_place", "_timestamp_ms")

    def __init__(self, batch: Batch, place: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._place = place
        self._timestamp_ms = timestamp_ms

    @property
    def is_done(self) -> bool:
        return self._batch.is_done

    def result(self) -> RecordMetadata:
        """Where the record was stored. Raises what it failed with, Closed when not done yet."""
        batch = self._batch.metadata()
        offset = batch.base_offset
        return RecordMetadata(
            batch.topic,
            batch.partition,
            offset + self._place if offset >= 0 else -1,
            self._timestamp_ms,
            batch.leader_epoch,
        )

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call ``callback``, synchronously, once the record is stored or has failed; at once if it
        has already. It counts as looked at: :meth:`Producer.flush` will not raise its failure."""
        self._batch.is_observed = True
        self._batch.when_done(callback)

    async def wait(self) -> RecordMetadata:
        """Wait for the acknowledgement. Raises what the delivery failed with (its ``outcome`` says
        whether the record may be stored all the same). Cancelling does not take the record back."""
        await _done(self._batch)
        return self.result()


class Producer:
    """Made by :meth:`Client.producer`; several tasks may use it.

    Records go out in batches, are retried until ``delivery_timeout_s``, and with idempotence (the
    default for acks ALL) are stored once and in order per partition, whatever fails in between.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        sender: Sender,
        metadata: Metadata,
        wall_ms: Callable[[], int],
    ) -> None:
        self.settings = settings
        self._sender = sender
        self._accumulator: Accumulator = sender.accumulator
        self._metadata = metadata
        self._wall_ms = wall_ms
        self._closed = False

    # --- one record -------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Write one record and wait until it is acknowledged.

        Raises MessageTooLarge, UnknownTopicOrPartition, InvalidTopic at once, anything else when
        the delivery has failed. Cancelled while waiting for buffer space: nothing was queued;
        later: the record may be stored.
        """
        delivery = await self.submit(
            topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )
        return await delivery.wait()

    async def submit(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Queue one record, waiting for buffer space, and return without its acknowledgement.

        Await the Delivery later; a failure that nobody awaits is raised by :meth:`flush`.
        """
        await self._prepare(topic)
        size = estimated_size(key, value, headers)
        self._accumulator.check_size(topic, size)
        if self._accumulator.has_space_waiters:
            await self._space(size)
        while True:
            try:
                return self.send_nowait(
                    topic,
                    value,
                    key=key,
                    headers=headers,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                )
            except BufferFull:
                await self._space(size)

    def send_nowait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Queue one record at once. Raises BufferFull, and UnknownTopicOrPartition when the topic
        has not been looked up yet (:meth:`partition_count` does)."""
        self._check_open()
        _check_record(key, value, headers)
        stamp = self._wall_ms() if timestamp_ms is None else timestamp_ms
        batch, place = self._accumulator.append(
            topic, key, value, headers, partition, stamp, trio.current_time()
        )
        return Delivery(batch, place, stamp)

    # --- many records -----------------------------------------------------------------------------

    async def send_many(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        keys: Iterable[bytes | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> list[BatchMetadata]:
        """Write records together and wait for all; the cheapest way for many small ones.

        ``keys`` is as long as ``values``; records of one key keep their order. Returns the batches
        they were stored in, which may hold other callers' records too. The first failed batch's
        error is raised, after all are resolved.
        """
        portions = await self.submit_many(
            topic, values, keys=keys, partition=partition, timestamp_ms=timestamp_ms
        )
        batches = dict.fromkeys(portion.batch for portion in portions)
        for batch in batches:
            await _done(batch)
            batch.is_observed = True
        return [batch.metadata() for batch in batches]

    async def submit_many(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        keys: Iterable[bytes | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> list[Portion]:
        """Queue records together, waiting for buffer space, and return without their
        acknowledgement: one :class:`Portion` for each batch that took some of them.

        Failures of portions that nobody looks at are raised by :meth:`flush`. Cancelled while
        waiting for space: some of the records are queued.
        """
        await self._prepare(topic)
        items = list(values)
        names = None if keys is None else list(keys)
        _check_columns(items, names)
        stamp = self._wall_ms() if timestamp_ms is None else timestamp_ms
        groups = self._by_partition(topic, items, names, partition)
        for _, _, columns in groups:
            self._accumulator.check_size(topic, columns.largest_bytes)
        portions: list[Portion] = []
        for target, positions, columns in groups:
            start = 0
            while start < len(columns):
                try:
                    self._check_open()
                    batch, end = self._accumulator.extend(
                        topic, columns, start, target, stamp, trio.current_time()
                    )
                    place = batch.count - (end - start)
                    portions.append(Portion(batch, place, positions[start:end]))
                    start = end
                except BufferFull:
                    await self._space(columns.size(start, start + 1))
        return portions

    def _by_partition(
        self,
        topic: str,
        values: list[bytes | None],
        keys: list[bytes | None] | None,
        partition: int | None,
    ) -> list[tuple[int | None, Sequence[int], Columns]]:
        if keys is None or partition is not None:
            return [(partition, range(len(values)), Columns(values, keys))]
        groups: dict[int | None, list[int]] = {}
        choose = self._accumulator.chooser(topic)
        for position, key in enumerate(keys):
            target = None if key is None else choose(key)
            group = groups.get(target)
            if group is None:
                groups[target] = [position]
            else:
                group.append(position)
        return [
            (
                target,
                group,
                Columns(
                    [values[position] for position in group],
                    None if target is None else [keys[position] for position in group],
                ),
            )
            for target, group in groups.items()
        ]

    async def send_batch(self, topic: str, partition: int, batch: Buffer) -> BatchMetadata:
        """Write one batch that is already built (``paceline.wire.batch.build_batch``), as it is.

        Only the header's producer fields and checksum are replaced; the payload is not copied and
        must not change before the call returns. Raises InvalidRecord for what a client may not
        send, MessageTooLarge.
        """
        await self._prepare(topic)
        self._check_open()
        encoded = _take_apart(batch)
        at = TopicPartition(topic, partition)
        while True:
            self._check_open()
            try:
                queued = self._accumulator.add_encoded(at, encoded, trio.current_time())
                break
            except BufferFull:
                await self._space(encoded.size_bytes)
        await _done(queued)
        return queued.metadata()

    # --- all --------------------------------------------------------------------------------------

    @property
    def buffered_bytes(self) -> int:
        """Estimated size of all records not yet acknowledged."""
        return self._accumulator.buffered_bytes

    async def partition_count(self, topic: str) -> int:
        """Partitions of ``topic``, looked up (and the topic created, where that is allowed)."""
        await self._prepare(topic)
        return self._metadata.view.partition_count(topic)

    async def flush(self) -> None:
        """Send all that waits, without linger, and wait until every record accepted so far is
        resolved. Raises the first failure since the last flush that nobody has awaited."""
        self._accumulator.close_batches()
        for batch in list(self._accumulator.unresolved()):
            await _done(batch)
        await trio.lowlevel.checkpoint()
        error = self._accumulator.take_unobserved_failure()
        if error is not None:
            raise error.with_traceback(None)

    def close(self) -> None:
        """Stop at once: records never sent fail with Closed, others with their outcome unknown."""
        self._closed = True
        self._accumulator.give_up_all(Closed("the producer was closed"))

    # --- inside -----------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the producer is closed")

    async def _prepare(self, topic: str) -> None:
        known = self._metadata.view.topic(topic)
        if known is not None and not known.error:
            return
        try:
            await self._metadata.topic_soon(topic, auto_create=self.settings.auto_create)
        except PacelineError as error:
            # The question may have been carried out, and have made the topic; the records wait.
            if error.outcome is Outcome.DEFINITE:
                raise
            raise nothing_sent(error, topic) from error.__cause__

    async def _space(self, size: int) -> None:
        event = trio.Event()
        self._accumulator.when_space(size, event.set)
        try:
            await event.wait()
        except trio.Cancelled:
            self._accumulator.forget_space(event.set)
            raise


async def _done(batch: Batch) -> None:
    if batch.is_done:
        return
    event = trio.Event()
    batch.when_done(event.set)
    await event.wait()


def _check_record(key: object, value: object, headers: Headers) -> None:
    if value is not None and type(value) is not bytes:
        raise InvalidRecord(f"value must be bytes or None, got {type(value).__name__}")
    if key is not None and type(key) is not bytes:
        raise InvalidRecord(f"key must be bytes or None, got {type(key).__name__}")
    for header in headers:
        name, content = header
        if type(name) is not str or not (content is None or type(content) is bytes):
            raise InvalidRecord(f"header must be (str, bytes or None), got {header!r}")


def _check_columns(values: list[bytes | None], keys: list[bytes | None] | None) -> None:
    if keys is not None and len(keys) != len(values):
        raise InvalidRecord(f"{len(values)} values with {len(keys)} keys")
    for items in (values, keys or []):
        for kind in set(map(type, items)) - {bytes, NoneType}:
            raise InvalidRecord(f"values and keys must be bytes or None, got {kind.__name__}")


def _take_apart(batch: Buffer) -> EncodedBatch:
    try:
        headers = validate_client_batches(batch)
    except PacelineError as error:
        raise InvalidRecord(f"not a batch that a client may send: {error}") from error
    if len(headers) != 1:
        raise InvalidRecord(f"expected one batch, got {len(headers)}")
    header = read_header(batch)
    return EncodedBatch(
        memoryview(batch)[HEADER_BYTES:],
        header.record_count,
        header.attributes,
        header.base_timestamp,
        header.max_timestamp,
    )
