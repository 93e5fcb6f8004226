"""The client for programs without an event loop: same names and arguments, calls that block.

Trio runs in a thread of its own and every call enters it; any number of threads may use a client.
A call may be interrupted (Ctrl-C), the client stays usable. Close it, best with ``with``; one that
is forgotten ends when it is collected or the interpreter exits, dropping what was not acknowledged.

    with connect("localhost:7400") as client, client.producer() as producer:
        producer.send("orders", b"value", key=b"key")
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar

import trio

from paceline.client import admin as trio_admin
from paceline.client import client as trio_client
from paceline.client import consumer as trio_consumer
from paceline.client import coordinated_consumer as trio_coordinated
from paceline.client import group_admin as trio_group_admin
from paceline.client import group_consumer as trio_group
from paceline.client import group_settings
from paceline.client import producer as trio_producer
from paceline.client import sequenced as trio_sequenced
from paceline.client import sinks as trio_sinks
from paceline.client import transaction_admin as trio_transaction_admin
from paceline.client.batching import RecordMetadata
from paceline.client.client import Bootstrap
from paceline.client.consumed import ConsumedBatch, ConsumedRecord
from paceline.client.consumer import Subscription
from paceline.client.driven import DrivenSettings
from paceline.client.fetcher import OutOfRange
from paceline.client.loop_thread import Held, LoopThread
from paceline.client.position import Position
from paceline.client.producer import Headers
from paceline.client.settings import ClientSettings, ConsumerSettings, ProducerSettings
from paceline.client.shared_consumer import SharedConsumer
from paceline.client.transport import Dial, dial_tcp
from paceline.errors import CorruptMessage, UnsupportedCompression
from paceline.types import Isolation, TopicPartition
from paceline.wire.native.transactions import KAFKA

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "CoordinatedConsumer",
    "Delivery",
    "GroupAdmin",
    "GroupConsumer",
    "Producer",
    "RebalanceListener",
    "SequencedWriter",
    "connect",
]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class _Facade(Generic[T]):
    """Something of the trio client, reached from other threads."""

    def __init__(self, loop: LoopThread, inner: T) -> None:
        self._loop = loop
        self._inner = inner

    def _call(self, work: Callable[[T], R]) -> R:
        """Run a short synchronous piece of work in the loop's thread."""
        return self._loop.call_sync(functools.partial(work, self._inner))


def _blocking(
    method: Callable[Concatenate[T, P], Awaitable[R]],
) -> Callable[Concatenate[_Facade[T], P], R]:
    """The blocking twin of an async method."""

    @functools.wraps(method)
    def call(self: _Facade[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._loop.call(functools.partial(method, self._inner, *args, **kwargs))

    return call


class _Open(_Facade[T]):
    """A facade of a context manager's value: ``close`` leaves the context manager."""

    def __init__(self, loop: LoopThread, held: Held[T]) -> None:
        super().__init__(loop, held.value)
        self._held = held

    def close(self) -> None:
        """End it properly (a producer flushes first); more than once does no harm."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._held.close(abandon=error is not None)


class Delivery(_Facade[trio_producer.Delivery]):
    """As :class:`paceline.client.Delivery`."""

    wait = _blocking(trio_producer.Delivery.wait)

    @property
    def is_done(self) -> bool:
        return self._inner.is_done

    def result(self) -> RecordMetadata:
        """Where the record was stored. Raises what it failed with, Closed when not done yet."""
        return self._inner.result()


class Producer(_Open[trio_producer.Producer]):
    """As :class:`paceline.client.Producer`. ``send_many`` costs one entry into the loop a call,
    ``send`` and ``submit`` one a record."""

    send = _blocking(trio_producer.Producer.send)
    send_many = _blocking(trio_producer.Producer.send_many)
    send_batch = _blocking(trio_producer.Producer.send_batch)
    flush = _blocking(trio_producer.Producer.flush)
    partition_count = _blocking(trio_producer.Producer.partition_count)

    def submit(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """As :meth:`paceline.client.Producer.submit`."""
        delivery = self._loop.call(
            functools.partial(
                self._inner.submit,
                topic,
                value,
                key=key,
                headers=headers,
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
        )
        return Delivery(self._loop, delivery)

    @property
    def buffered_bytes(self) -> int:
        return self._inner.buffered_bytes


class Consumer(_Open[trio_consumer.Consumer]):
    """As :class:`paceline.client.Consumer`, for one thread at a time. The loop is entered once a
    batch, not once a record."""

    assign = _blocking(trio_consumer.Consumer.assign)
    end_offsets = _blocking(trio_consumer.Consumer.end_offsets)

    def __init__(self, loop: LoopThread, held: Held[trio_consumer.Consumer]) -> None:
        super().__init__(loop, held)
        self._batch: ConsumedBatch | None = None
        self._records: Iterator[ConsumedRecord] = iter(())
        self._next_offset = 0

    def __iter__(self) -> Iterator[ConsumedRecord]:
        return self

    def __next__(self) -> ConsumedRecord:
        """The next record; StopIteration when every partition has reached its stop."""
        while True:
            record = next(self._records, None)
            if record is not None:
                self._next_offset = record.offset + 1
                return record
            self._batch = None
            batch = self.next_batch()
            if batch is None:
                raise StopIteration
            self._begin(batch)

    def _begin(self, batch: ConsumedBatch) -> None:
        try:
            records = batch.consumed()
        except (CorruptMessage, UnsupportedCompression):
            # Stay in front of what cannot be read, so that it is not passed over in silence.
            self.seek(batch.at, Position.at(batch.first_offset))
            raise
        self._records = iter(records)
        self._batch = batch
        self._next_offset = batch.first_offset

    def batches(self) -> Iterator[ConsumedBatch]:
        """As :meth:`paceline.client.Consumer.batches`."""
        while (batch := self.next_batch()) is not None:
            yield batch

    def next_batch(self, timeout_s: float | None = None) -> ConsumedBatch | None:
        """The next batch; None when every partition has reached its stop.

        Raises TimeoutError after ``timeout_s`` without one; nothing is lost by that.
        """

        async def take() -> ConsumedBatch | None:
            if timeout_s is None:
                return await self._take_batch()
            with trio.move_on_after(timeout_s):
                return await self._take_batch()
            raise TimeoutError(f"no batch within {timeout_s} s")

        return self._loop.call(take)

    async def _take_batch(self) -> ConsumedBatch | None:
        return await self._inner.next_batch()

    @property
    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions, sorted."""
        return self._call(lambda inner: inner.assignment)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """As :meth:`paceline.client.Consumer.unassign`."""
        gone = list(partitions)
        self._drop(gone)
        self._call(lambda inner: inner.unassign(gone))

    def position(self, at: TopicPartition) -> int:
        """The next offset that will be handed out."""
        if self._batch is not None and self._batch.at == at:
            return self._next_offset
        return self._call(lambda inner: inner.position(at))

    def positions(self) -> dict[TopicPartition, int]:
        """:meth:`position` of every assigned partition."""
        return {at: self.position(at) for at in self.assignment}

    def seek(self, at: TopicPartition, to: Position) -> None:
        """As :meth:`paceline.client.Consumer.seek`."""
        self._loop.call(functools.partial(self._inner.seek, at, to))
        self._drop([at])

    def pause(self, *partitions: TopicPartition) -> None:
        """As :meth:`paceline.client.Consumer.pause`."""
        batch = self._batch
        self._call(lambda inner: inner.pause(*partitions))
        if batch is not None and batch.at in partitions:
            self.seek(batch.at, Position.at(self._next_offset))

    def resume(self, *partitions: TopicPartition) -> None:
        """As :meth:`paceline.client.Consumer.resume`."""
        self._call(lambda inner: inner.resume(*partitions))

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        if self._batch is not None and self._batch.at in partitions:
            self._batch = None
            self._records = iter(())


class RebalanceListener:
    """As :class:`paceline.client.RebalanceListener`, called in a thread of its own; the consumer
    may be used from there."""

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """These are read from now on."""

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These will be given up; their offsets may still be committed here."""

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These are gone; others may read them already."""


class _Relay(group_settings.RebalanceListener):
    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        await trio.to_thread.run_sync(self._listener.assigned, partitions)

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        await trio.to_thread.run_sync(self._listener.revoked, partitions)

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        await trio.to_thread.run_sync(self._listener.lost, partitions)


class _SharedConsumer(Consumer):
    """A consumer whose partitions a group assigns. What is left of a batch is not handed out any
    more when partitions have moved meanwhile: others may read them already."""

    def __init__(self, loop: LoopThread, held: Held[trio_consumer.Consumer]) -> None:
        super().__init__(loop, held)
        assert isinstance(held.value, SharedConsumer)
        self._shared = held.value
        self._moves = self._shared.moves

    def __next__(self) -> ConsumedRecord:
        self._drop_moved()
        return super().__next__()

    async def _take_batch(self) -> ConsumedBatch | None:
        batch = await super()._take_batch()
        self._moves = self._shared.moves  # nothing can have moved since it was taken
        return batch

    def _drop_moved(self) -> None:
        # A number that only grows: it may be read without entering the loop for every record.
        if self._moves != self._shared.moves:
            self._moves = self._shared.moves
            self._batch = None
            self._records = iter(())

    def position(self, at: TopicPartition) -> int:
        """The next offset that will be handed out."""
        self._drop_moved()
        return super().position(at)

    def committed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, int | None]:
        """What the group has committed of these, or of the assigned partitions; None: nothing."""
        return self._loop.call(functools.partial(self._shared.committed, partitions))


class GroupConsumer(_SharedConsumer):
    """As :class:`paceline.client.GroupConsumer`."""

    def __init__(self, loop: LoopThread, held: Held[trio_consumer.Consumer]) -> None:
        super().__init__(loop, held)
        assert isinstance(held.value, trio_group.GroupConsumer)
        self._member = held.value

    @property
    def member_id(self) -> str:
        return self._member.member_id

    @property
    def generation(self) -> int:
        return self._member.generation

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """As :meth:`paceline.client.GroupConsumer.commit`."""
        offsets = self.positions() if offsets is None else offsets
        self._loop.call(functools.partial(self._member.commit, offsets))


class CoordinatedConsumer(_SharedConsumer):
    """As :class:`paceline.client.CoordinatedConsumer`."""

    def __init__(self, loop: LoopThread, held: Held[trio_consumer.Consumer]) -> None:
        super().__init__(loop, held)
        assert isinstance(held.value, trio_coordinated.CoordinatedConsumer)
        self._driven = held.value

    @property
    def consumer_id(self) -> str:
        return self._driven.consumer_id

    @property
    def generation(self) -> int:
        return self._driven.generation

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """As :meth:`paceline.client.CoordinatedConsumer.commit`."""
        offsets = self.positions() if offsets is None else offsets
        self._loop.call(functools.partial(self._driven.commit, offsets))


class GroupAdmin(_Facade[trio_group_admin.GroupAdmin]):
    """As :class:`paceline.client.group_admin.GroupAdmin`."""

    coordinator = _blocking(trio_group_admin.GroupAdmin.coordinator)
    list = _blocking(trio_group_admin.GroupAdmin.list)
    describe = _blocking(trio_group_admin.GroupAdmin.describe)
    delete = _blocking(trio_group_admin.GroupAdmin.delete)
    offsets = _blocking(trio_group_admin.GroupAdmin.offsets)
    alter_offsets = _blocking(trio_group_admin.GroupAdmin.alter_offsets)
    delete_offsets = _blocking(trio_group_admin.GroupAdmin.delete_offsets)


class TransactionAdmin(_Facade[trio_transaction_admin.TransactionAdmin]):
    """As :class:`paceline.client.transaction_admin.TransactionAdmin`."""

    list = _blocking(trio_transaction_admin.TransactionAdmin.list)
    describe = _blocking(trio_transaction_admin.TransactionAdmin.describe)
    abort = _blocking(trio_transaction_admin.TransactionAdmin.abort)


class Admin(_Facade[trio_admin.Admin]):
    """As :class:`paceline.client.Admin`."""

    def __init__(self, loop: LoopThread, inner: trio_admin.Admin) -> None:
        super().__init__(loop, inner)
        self.groups = GroupAdmin(loop, inner.groups)
        self.transactions = TransactionAdmin(loop, inner.transactions)

    describe_cluster = _blocking(trio_admin.Admin.describe_cluster)
    list_topics = _blocking(trio_admin.Admin.list_topics)
    topic = _blocking(trio_admin.Admin.topic)
    describe_topic = _blocking(trio_admin.Admin.describe_topic)
    list_offsets = _blocking(trio_admin.Admin.list_offsets)
    find_offsets = _blocking(trio_admin.Admin.find_offsets)
    describe_replicas = _blocking(trio_admin.Admin.describe_replicas)
    read_replica = _blocking(trio_admin.Admin.read_replica)
    status = _blocking(trio_admin.Admin.status)
    statuses = _blocking(trio_admin.Admin.statuses)
    create_topic = _blocking(trio_admin.Admin.create_topic)
    delete_topic = _blocking(trio_admin.Admin.delete_topic)
    alter_topic = _blocking(trio_admin.Admin.alter_topic)
    add_partitions = _blocking(trio_admin.Admin.add_partitions)
    elect_leader = _blocking(trio_admin.Admin.elect_leader)
    set_role = _blocking(trio_admin.Admin.set_role)
    fence_broker = _blocking(trio_admin.Admin.fence_broker)
    register_external = _blocking(trio_admin.Admin.register_external)
    unregister_broker = _blocking(trio_admin.Admin.unregister_broker)
    add_voter = _blocking(trio_admin.Admin.add_voter)
    remove_voter = _blocking(trio_admin.Admin.remove_voter)
    stop_cluster = _blocking(trio_admin.Admin.stop_cluster)


class Sinks(_Facade[trio_sinks.Sinks]):
    """As :class:`paceline.client.sinks.Sinks`."""

    begin = _blocking(trio_sinks.Sinks.begin)
    touch = _blocking(trio_sinks.Sinks.touch)
    commit = _blocking(trio_sinks.Sinks.commit)
    abort = _blocking(trio_sinks.Sinks.abort)
    state = _blocking(trio_sinks.Sinks.state)


class SequencedWriter(_Facade[trio_sequenced.SequencedWriter]):
    """As :class:`paceline.client.sequenced.SequencedWriter`."""

    new_identity = _blocking(trio_sequenced.SequencedWriter.new_identity)
    partition_count = _blocking(trio_sequenced.SequencedWriter.partition_count)
    write = _blocking(trio_sequenced.SequencedWriter.write)


class Client(_Open[trio_client.Client]):
    """Made by :func:`connect`. Closing it closes its producers and consumers first."""

    def __init__(self, loop: LoopThread, held: Held[trio_client.Client]) -> None:
        super().__init__(loop, held)
        self.admin = Admin(loop, self._inner.admin)
        self._opened: list[Held[trio_producer.Producer] | Held[trio_consumer.Consumer]] = []

    def producer(self, settings: ProducerSettings | None = None) -> Producer:
        """As :meth:`paceline.client.Client.producer`; ``close`` or ``with`` flushes it."""
        held = self._loop.enter(self._inner.producer(settings))
        self._opened.append(held)
        return Producer(self._loop, held)

    @property
    def sinks(self) -> Sinks:
        """As :attr:`paceline.client.Client.sinks`."""
        return Sinks(self._loop, self._inner.sinks)

    def sequenced_writer(
        self, *, transactional_id: str | None = None, transaction_family: str = KAFKA
    ) -> SequencedWriter:
        """As :meth:`paceline.client.Client.sequenced_writer`."""
        writer = self._inner.sequenced_writer(
            transactional_id=transactional_id, transaction_family=transaction_family
        )
        return SequencedWriter(self._loop, writer)

    def group_consumer(
        self,
        topics: str | Sequence[str],
        group: str,
        *,
        membership: group_settings.GroupSettings | None = None,
        listener: RebalanceListener | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
        out_of_range: OutOfRange = OutOfRange.EARLIEST,
        settings: ConsumerSettings | None = None,
    ) -> GroupConsumer:
        """As :meth:`paceline.client.Client.consumer` with a ``group``. ``with`` or ``close`` leaves
        it."""
        consumer: AbstractAsyncContextManager[trio_consumer.Consumer] = self._inner.consumer(
            topics,
            group=group,
            membership=membership,
            listener=None if listener is None else _Relay(listener),
            isolation=isolation,
            out_of_range=out_of_range,
            settings=settings,
        )
        held = self._loop.enter(consumer)
        self._opened.append(held)
        return GroupConsumer(self._loop, held)

    def coordinated_consumer(
        self,
        topics: str | Sequence[str],
        group: str,
        *,
        driven: DrivenSettings | None = None,
        auto_offset_reset: str = "largest",
        consumer_id: str | None = None,
        listener: RebalanceListener | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
        settings: ConsumerSettings | None = None,
    ) -> CoordinatedConsumer:
        """As :meth:`paceline.client.Client.coordinated_consumer`. ``with`` or ``close`` leaves the
        group."""
        consumer: AbstractAsyncContextManager[trio_consumer.Consumer] = (
            self._inner.coordinated_consumer(
                topics,
                group=group,
                driven=driven,
                auto_offset_reset=auto_offset_reset,
                consumer_id=consumer_id,
                listener=None if listener is None else _Relay(listener),
                isolation=isolation,
                settings=settings,
            )
        )
        held = self._loop.enter(consumer)
        self._opened.append(held)
        return CoordinatedConsumer(self._loop, held)

    def consumer(
        self,
        subscription: Subscription = (),
        *,
        start: Position = Position.EARLIEST,
        stop: Position | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
        out_of_range: OutOfRange = OutOfRange.FAIL,
        settings: ConsumerSettings | None = None,
    ) -> Consumer:
        """As :meth:`paceline.client.Client.consumer`; for a group see :meth:`group_consumer`."""
        held = self._loop.enter(
            self._inner.consumer(
                subscription,
                start=start,
                stop=stop,
                isolation=isolation,
                out_of_range=out_of_range,
                settings=settings,
            )
        )
        self._opened.append(held)
        return Consumer(self._loop, held)

    def close(self) -> None:
        """Close producers (flushing them) and consumers, then the connections and the thread."""
        self._shut(abandon=False)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._shut(abandon=error is not None)

    def _shut(self, *, abandon: bool) -> None:
        try:
            while self._opened:
                self._opened.pop().close(abandon=abandon)
            self._held.close(abandon=abandon)
        finally:
            self._loop.close()


def connect(
    bootstrap: Bootstrap, settings: ClientSettings | None = None, *, dial: Dial = dial_tcp
) -> Client:
    """As :func:`paceline.client.connect`. Raises ConfigurationError, ConnectionLost."""
    loop = LoopThread()
    try:
        held = loop.enter(trio_client.connect(bootstrap, settings, dial=dial))
    except BaseException:
        loop.close()
        raise
    return Client(loop, held)
