"""All of a producer's records that are not acknowledged yet: batches by partition, within a budget.

Pure but for the callbacks given: no I/O, and the time comes as an argument.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from operator import add

from paceline.client.batching import (
    RECORD_OVERHEAD_BYTES,
    Batch,
    EncodedBatch,
    Identity,
    estimated_size,
)
from paceline.client.metadata import ClusterView
from paceline.client.partition_queue import PartitionQueue, Pauses
from paceline.client.partitioner import KeyHashes, StickyChoice
from paceline.client.settings import ProducerSettings
from paceline.counted import counted
from paceline.errors import BufferFull, MessageTooLarge, PacelineError, UnknownTopicOrPartition
from paceline.types import TopicPartition
from paceline.wire.batch_header import HEADER_BYTES
from paceline.wire.native.data import TopicInfo
from paceline.wire.records import Header

MAX_FAILURES = 128
"""Failed batches remembered until somebody asks."""


class Columns:
    """Records given together: values, perhaps keys, and their sizes summed up once."""

    __slots__ = ("_ends", "keys", "largest_bytes", "values")

    def __init__(
        self, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None
    ) -> None:
        self.values = values
        self.keys = keys
        sizes = _lengths(values)
        if keys is not None:
            sizes = list(map(add, sizes, _lengths(keys)))
        self.largest_bytes = max(sizes, default=0) + RECORD_OVERHEAD_BYTES
        self._ends = list(accumulate(sizes, initial=0))

    def __len__(self) -> int:
        return len(self.values)

    def size(self, start: int, stop: int) -> int:
        """Estimated bytes of the records ``start .. stop`` in a batch."""
        return self._ends[stop] - self._ends[start] + (stop - start) * RECORD_OVERHEAD_BYTES

    def fit(self, start: int, room: int) -> int:
        """Where the records from ``start`` on that fit into ``room`` end; at least one fits."""
        stops = range(start + 1, len(self.values) + 1)
        return start + max(1, bisect_right(stops, room, key=lambda stop: self.size(start, stop)))


def _lengths(items: Sequence[bytes | None]) -> list[int]:
    if None in items:
        return [0 if item is None else len(item) for item in items]
    return list(map(len, items))  # type: ignore[arg-type]


class _Topic:
    """A topic's queues and its choice for records without a key."""

    def __init__(self, info: TopicInfo, sticky: StickyChoice) -> None:
        self.info = info
        self.count = len(info.partitions)
        self.sticky = sticky
        self.is_first_choice = True


class Accumulator:
    """``wake`` is called when something may have become ready to send that was not before."""

    def __init__(
        self,
        settings: ProducerSettings,
        view: ClusterView,
        backoff: Pauses,
        *,
        first_partition: Callable[[int], int],
        wake: Callable[[], None],
        is_transactional: bool = False,
    ) -> None:
        self.buffered_bytes = 0
        self._is_transactional = is_transactional
        self._settings = settings
        self._view = view
        self._backoff = backoff
        self._first_partition = first_partition
        self._wake = wake
        self._topics: dict[str, _Topic] = {}
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._active: dict[PartitionQueue, None] = {}
        self._hashes = KeyHashes()
        self._order = 0
        self._space_waiters: deque[tuple[int, Callable[[], None]]] = deque()
        self._failed: list[Batch] = []
        self.first_failure: PacelineError | None = None
        """What failed first since the beginning, or since :meth:`identify_all`."""

    # --- records in -------------------------------------------------------------------------------

    def chooser(self, topic: str) -> Callable[[bytes], int]:
        """The function from key to partition. Raises UnknownTopicOrPartition."""
        count = self._topic(topic).count
        hashes = self._hashes
        return lambda key: hashes[key] % count

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        partition: int | None,
        timestamp_ms: int,
        now: float,
    ) -> tuple[Batch, int]:
        """Take one record; returns its batch and its place in it.

        Raises BufferFull, MessageTooLarge, UnknownTopicOrPartition; nothing is queued then.
        """
        size = estimated_size(key, value, headers)
        self.check_size(topic, size)
        known = self._topic(topic)
        if self.buffered_bytes + size > self._settings.buffer_bytes and self.buffered_bytes:
            raise BufferFull(f"{topic}: {self.buffered_bytes} bytes wait for acknowledgement")
        if partition is None and key is not None:
            partition = self._hashes[key] % known.count
        batch = self._batch_for(known, partition, size, now)
        self.buffered_bytes += size
        return batch, batch.append(key, value, headers, timestamp_ms, size)

    def extend(
        self,
        topic: str,
        columns: Columns,
        start: int,
        partition: int | None,
        timestamp_ms: int,
        now: float,
    ) -> tuple[Batch, int]:
        """Take as many records, from ``start`` on, as fit into one batch of one partition.

        ``partition`` None: the partition for null keys. Returns the batch and the place of the
        first record not taken; at least one is. The caller has checked their sizes. Raises as
        :meth:`append`.
        """
        first = columns.size(start, start + 1)
        known = self._topic(topic)
        space = self._settings.buffer_bytes - self.buffered_bytes
        if first > space and self.buffered_bytes:
            raise BufferFull(f"{topic}: {self.buffered_bytes} bytes wait for acknowledgement")
        batch = self._batch_for(known, partition, first, now)
        room = self._settings.batch_bytes - HEADER_BYTES - batch.reserved_bytes
        stop = columns.fit(start, min(room, space))
        size = columns.size(start, stop)
        self.buffered_bytes += size
        keys = columns.keys
        batch.extend(
            columns.values[start:stop],
            None if keys is None else keys[start:stop],
            timestamp_ms,
            size,
        )
        return batch, stop

    def add_encoded(self, at: TopicPartition, encoded: EncodedBatch, now: float) -> Batch:
        """Take a batch that is already built. Raises BufferFull, UnknownTopicOrPartition."""
        known = self._topic(at.topic)
        size = encoded.size_bytes
        if self.buffered_bytes + size > self._settings.buffer_bytes and self.buffered_bytes:
            raise BufferFull(f"{at}: {self.buffered_bytes} bytes wait for acknowledgement")
        queue = self._queue(known, at.partition)
        batch = self._new_batch(queue, now)
        batch.encoded = encoded
        batch.count = encoded.count
        batch.is_closed = True
        batch.reserved_bytes = size
        self.buffered_bytes += size
        return batch

    def check_size(self, topic: str, size: int) -> None:
        """Raises MessageTooLarge for a record that no broker would take."""
        limit = self._settings.max_record_bytes
        if size - RECORD_OVERHEAD_BYTES > limit:
            raise MessageTooLarge(
                f"{topic}: record of {size - RECORD_OVERHEAD_BYTES} bytes, limit {limit}"
            )

    def _topic(self, name: str) -> _Topic:
        info = self._view.topic(name)
        known = self._topics.get(name)
        if known is not None and known.info is info:
            return known
        if info is None or info.error or not info.partitions:
            raise UnknownTopicOrPartition(f"{name}: no metadata")
        if known is None:
            known = _Topic(info, self._new_sticky(name, len(info.partitions)))
            self._topics[name] = known
        known.info = info
        known.count = len(info.partitions)
        return known

    def _new_sticky(self, name: str, count: int) -> StickyChoice:
        def is_usable(partition: int) -> bool:
            return self._view.leader(TopicPartition(name, partition)) is not None

        return StickyChoice(self._first_partition(count), is_usable)

    def _batch_for(self, known: _Topic, partition: int | None, size: int, now: float) -> Batch:
        """The open batch of the partition if ``size`` more fit into it, else a new one."""
        choose = partition is None
        if partition is None:
            choose_in = known.sticky.first if known.is_first_choice else known.sticky.current
            partition = choose_in(known.count)
        queue = self._queue(known, partition)
        batch = queue.open_batch()
        limit = self._settings.batch_bytes - HEADER_BYTES
        if batch is not None and batch.reserved_bytes + size <= limit:
            return batch
        if choose and not known.is_first_choice:
            queue = self._queue(known, known.sticky.advance(known.count))
            batch = queue.open_batch()
            if batch is not None and batch.reserved_bytes + size <= limit:
                return batch
        known.is_first_choice &= not choose
        return self._new_batch(queue, now)

    def _queue(self, known: _Topic, partition: int) -> PartitionQueue:
        at = TopicPartition(known.info.name, partition)
        queue = self._queues.get(at)
        if queue is None:
            if not 0 <= partition < known.count:
                raise UnknownTopicOrPartition(
                    f"{at}: the topic has {counted(known.count, 'partition')}"
                )
            queue = PartitionQueue(
                at,
                self._settings,
                self._backoff,
                self._batch_left,
                is_transactional=self._is_transactional,
            )
            self._queues[at] = queue
        return queue

    def _new_batch(self, queue: PartitionQueue, now: float) -> Batch:
        self._order += 1
        batch = Batch(
            queue.at,
            self._order,
            due_at=now + self._settings.linger_s,
            deadline=now + self._settings.delivery_timeout_s,
        )
        batch.when_done(partial(self._note_failure, batch))
        queue.add(batch)
        self._active[queue] = None
        self._wake()
        return batch

    # --- the buffer's budget ----------------------------------------------------------------------

    def when_space(self, size: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` once when ``size`` bytes fit, first come first served."""
        self._space_waiters.append((size, callback))
        self._grant_space()

    def forget_space(self, callback: Callable[[], None]) -> None:
        """The caller of :meth:`when_space` has gone."""
        self._space_waiters = deque(
            waiter for waiter in self._space_waiters if waiter[1] != callback
        )
        self._grant_space()

    @property
    def has_space_waiters(self) -> bool:
        return bool(self._space_waiters)

    def _grant_space(self) -> None:
        free = self._settings.buffer_bytes - self.buffered_bytes
        while self._space_waiters:
            size, callback = self._space_waiters[0]
            if size > free and self.buffered_bytes:
                return
            self._space_waiters.popleft()
            free -= size
            callback()

    def _batch_left(self, batch: Batch) -> None:
        self.buffered_bytes -= batch.reserved_bytes
        batch.reserved_bytes = 0
        self._grant_space()

    def _note_failure(self, batch: Batch) -> None:
        """The batch is resolved; it may still be under way, if it ran out of time there."""
        if batch.error is None:
            return
        if self.first_failure is None:
            self.first_failure = batch.error
        if not batch.is_observed and len(self._failed) < MAX_FAILURES:
            self._failed = [each for each in self._failed if not each.is_observed]
            self._failed.append(batch)

    # --- batches out ------------------------------------------------------------------------------

    def active(self) -> list[PartitionQueue]:
        """Queues that hold batches."""
        for queue in [queue for queue in self._active if queue.is_idle]:
            del self._active[queue]
        return list(self._active)

    def unresolved(self) -> Iterator[Batch]:
        """Every batch that is not resolved."""
        for queue in self.active():
            yield from queue.batches()

    def close_batches(self) -> None:
        """Make every open batch ready to send, without waiting for company."""
        for queue in self._active:
            batch = queue.open_batch()
            if batch is not None:
                batch.is_closed = True
        self._wake()

    def identify_all(self, identity: Identity) -> None:
        """Go on under another identity everywhere. Nothing may be unresolved."""
        for queue in self._queues.values():
            assert queue.is_idle, f"{queue.at}: batches of the transaction before are left"
            queue.identify(identity)
        self._failed.clear()
        self.first_failure = None

    def take_unobserved_failure(self) -> PacelineError | None:
        """The first failure since the last call that nobody who waited has seen."""
        failed, self._failed = self._failed, []
        return next((batch.error for batch in failed if not batch.is_observed), None)

    def give_up_all(self, error: PacelineError) -> None:
        """Resolve everything with ``error`` and let everybody who waits for space try."""
        for queue in self.active():
            queue.give_up_all(error)
        waiters, self._space_waiters = self._space_waiters, deque()
        for _, callback in waiters:
            callback()
