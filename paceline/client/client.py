"""The client of one cluster: connections and metadata shared by its producers and consumers."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, overload

import trio

from paceline.client.admin import Admin
from paceline.client.consumer import Consumer, Subscription
from paceline.client.coordinated_consumer import CoordinatedConsumer
from paceline.client.driven_membership import DrivenSettings
from paceline.client.endpoint import Endpoint, parse_bootstrap
from paceline.client.fetcher import OutOfRange
from paceline.client.group_consumer import CLOSE_S, GroupConsumer
from paceline.client.group_settings import GroupSettings, RebalanceListener
from paceline.client.metadata import Metadata
from paceline.client.pool import ConnectionPool
from paceline.client.position import Position
from paceline.client.producer import Producer
from paceline.client.retry import Backoff, nothing_sent
from paceline.client.segments import Segments
from paceline.client.sender import Sender
from paceline.client.sequenced import SequencedWriter
from paceline.client.settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    TransactionalSettings,
)
from paceline.client.single_error_nursery import open_scope
from paceline.client.sinks import Sinks
from paceline.client.tls_connection import dial_for
from paceline.client.transactional import TransactionalProducer
from paceline.client.transport import Dial, dial_tcp
from paceline.errors import ConfigurationError, UnknownOutcome
from paceline.types import KAFKA_ENDPOINT, Isolation
from paceline.wire.native.transactions import KAFKA

Bootstrap = str | Endpoint | Iterable[str | Endpoint]


def wall_clock_ms() -> int:
    """Milliseconds since the epoch, for records' timestamps."""
    return time.time_ns() // 1_000_000


class Client:
    """Made by :func:`connect`. One cluster, any number of tasks."""

    def __init__(
        self,
        nursery: trio.Nursery,
        bootstrap: tuple[Endpoint, ...],
        settings: ClientSettings,
        dial: Dial,
        rng: random.Random,
        wall_ms: Callable[[], int],
    ) -> None:
        self.settings = settings
        self._rng = rng
        self._dial = dial
        self._wall_ms = wall_ms
        self._backoff = Backoff(settings.backoff_s, settings.max_backoff_s, rng)
        self._pool = ConnectionPool(nursery, bootstrap, settings, dial, rng)
        self._metadata = Metadata(self._pool, settings, self._backoff, pattern=bootstrap[0])
        self.admin = Admin(self._pool, self._metadata, settings, self._backoff, rng)
        nursery.start_soon(self._metadata.run)

    @asynccontextmanager
    async def producer(self, settings: ProducerSettings | None = None) -> AsyncIterator[Producer]:
        """A producer. Leaving the block normally flushes it (and raises a failure that nobody
        awaited); leaving it by an error or cancellation drops what is not acknowledged."""
        settings = settings or ProducerSettings()
        sender = Sender(settings, self._pool, self._metadata, self._backoff, self._rng)
        producer = Producer(settings, sender, self._metadata, self._wall_ms)
        async with open_scope() as nursery:
            nursery.start_soon(sender.run)
            try:
                yield producer
                await producer.flush()
            finally:
                producer.close()

    @asynccontextmanager
    async def transactional_producer(
        self,
        transactional_id: str,
        settings: TransactionalSettings | None = None,
    ) -> AsyncIterator[TransactionalProducer]:
        """The one producer of ``transactional_id``: whoever had the id before is fenced, and a
        transaction it left open is aborted. Leaving the block aborts a transaction that is open.
        """
        producer = TransactionalProducer(
            transactional_id=transactional_id,
            transactional=settings or TransactionalSettings(),
            client=self.settings,
            pool=self._pool,
            metadata=self._metadata,
            backoff=self._backoff,
            rng=self._rng,
            wall_ms=self._wall_ms,
        )
        async with open_scope() as nursery:
            nursery.start_soon(producer.run)
            await producer.init()
            try:
                yield producer
            finally:
                with trio.move_on_after(CLOSE_S, shield=True):
                    await producer.leave()

    @property
    def sinks(self) -> Sinks:
        """Transactions of task attempts, committed together."""
        return Sinks(self._pool, self._metadata, self.settings, self._backoff)

    def sequenced_writer(
        self, *, transactional_id: str | None = None, transaction_family: str = KAFKA
    ) -> SequencedWriter:
        """A writer of batches that carry the caller's own producer identity and sequences."""
        return SequencedWriter(
            self._pool,
            self._metadata,
            self._backoff,
            transactional_id=transactional_id,
            transaction_family=transaction_family,
        )

    @overload
    def consumer(
        self,
        subscription: Subscription = (),
        *,
        start: Position = Position.EARLIEST,
        stop: Position | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
        out_of_range: OutOfRange = OutOfRange.FAIL,
        settings: ConsumerSettings | None = None,
    ) -> AbstractAsyncContextManager[Consumer]: ...

    @overload
    def consumer(
        self,
        subscription: str | Sequence[str],
        *,
        group: str,
        membership: GroupSettings | None = None,
        listener: RebalanceListener | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
        out_of_range: OutOfRange = OutOfRange.EARLIEST,
        settings: ConsumerSettings | None = None,
    ) -> AbstractAsyncContextManager[GroupConsumer]: ...

    def consumer(
        self,
        subscription: Any = (),
        *,
        group: str | None = None,
        membership: GroupSettings | None = None,
        listener: RebalanceListener | None = None,
        start: Position = Position.EARLIEST,
        stop: Position | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
        out_of_range: OutOfRange | None = None,
        settings: ConsumerSettings | None = None,
    ) -> AbstractAsyncContextManager[Consumer]:
        """A consumer of topics (``"orders"``), partitions (``TopicPartition("orders", 0)``) or
        several of both; :meth:`Consumer.assign` adds more.

        ``stop=Position.LATEST`` makes it end at the high watermark of the moment it starts.
        Entering waits until ``start`` and ``stop`` are known from every partition's leader.

        With ``group`` the partitions of the topics are shared with all other members of that group;
        ``listener`` hears when they come and go. Reading goes on at the group's committed offsets;
        ``out_of_range`` says where to begin without one (:class:`OutOfRange`). Leaving the block
        normally commits all that was handed out, and leaves the group; by an error, by
        cancellation, or behind the end of a time-out inside the block in which the last record was
        taken, all but the record in hand.
        """
        if group is None:
            policy = out_of_range or OutOfRange.FAIL
            return self._plain_consumer(subscription, start, stop, isolation, policy, settings)
        consumer = GroupConsumer(
            settings or ConsumerSettings(),
            self.settings,
            self._pool,
            self._metadata,
            self._backoff,
            group=group,
            topics=[subscription] if isinstance(subscription, str) else list(subscription),
            membership=membership or GroupSettings(),
            listener=listener or RebalanceListener(),
            isolation=isolation,
            out_of_range=out_of_range or OutOfRange.EARLIEST,
        )
        return self._group_consumer(consumer)

    @asynccontextmanager
    async def _group_consumer(self, consumer: GroupConsumer) -> AsyncIterator[GroupConsumer]:
        finished = False
        try:
            async with open_scope() as nursery:
                nursery.start_soon(consumer.run)
                yield consumer
                finished = consumer.may_be_through()
        finally:
            with trio.move_on_after(CLOSE_S, shield=True):
                await consumer.close(finished=finished)

    @asynccontextmanager
    async def coordinated_consumer(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        driven: DrivenSettings | None = None,
        auto_offset_reset: str = "largest",
        consumer_id: str | None = None,
        listener: RebalanceListener | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
        settings: ConsumerSettings | None = None,
    ) -> AsyncIterator[CoordinatedConsumer]:
        """A member of a group of the coordinator protocol, whose coordinator tells it what to read.

        ``auto_offset_reset`` is ``smallest`` or ``largest``: where the group begins a partition of
        which it has committed nothing, or what is no longer there. ``consumer_id`` must be nobody
        else's in the group; one is made where it is None. ``listener`` hears when partitions come
        and go. Leaving the block commits what was handed out, as :meth:`consumer` says, if
        ``driven.auto_commit``.
        Raises ConfigurationError, and what the coordinator refuses for good.
        """
        driven = driven or DrivenSettings()
        if auto_offset_reset not in ("smallest", "largest"):
            raise ConfigurationError(
                f"auto_offset_reset {auto_offset_reset!r}: expected smallest or largest"
            )
        if consumer_id is None:
            number = self._rng.getrandbits(32)
            consumer_id = f"{group}_{self.settings.client_id}-{self._wall_ms()}-{number:08x}"
        consumer = CoordinatedConsumer(
            settings or ConsumerSettings(),
            self.settings,
            self._pool,
            self._metadata,
            self._backoff,
            self._dial,
            self._coordinator_listeners,
            group=group,
            topics=[topics] if isinstance(topics, str) else list(topics),
            driven=driven,
            consumer_id=consumer_id,
            listener=listener or RebalanceListener(),
            isolation=isolation,
            out_of_range=OutOfRange.EARLIEST
            if auto_offset_reset == "smallest"
            else OutOfRange.LATEST,
        )
        async with open_scope() as nursery:
            nursery.start_soon(consumer.run)
            try:
                yield consumer
                with trio.move_on_after(CLOSE_S):
                    await consumer.finish()
            finally:
                consumer.close()

    def _coordinator_listeners(self) -> list[Endpoint]:
        return self._listeners(KAFKA_ENDPOINT)

    @asynccontextmanager
    async def _plain_consumer(
        self,
        subscription: Subscription,
        start: Position,
        stop: Position | None,
        isolation: Isolation,
        out_of_range: OutOfRange,
        settings: ConsumerSettings | None,
    ) -> AsyncIterator[Consumer]:
        consumer = Consumer(
            settings or ConsumerSettings(),
            self._pool,
            self._metadata,
            self._backoff,
            isolation=isolation,
            out_of_range=out_of_range,
            operation_s=self.settings.operation_timeout_s,
        )
        async with open_scope() as nursery:
            nursery.start_soon(consumer.run)
            await consumer.assign(subscription, start=start, stop=stop)
            yield consumer

    @asynccontextmanager
    async def segments(self) -> AsyncIterator[Segments]:
        """The cluster's segments: byte sequences with exactly-once writers (segment protocol)."""
        segments = Segments(self._segment_listeners, self._dial, self.settings, self._backoff)
        try:
            yield segments
        finally:
            with trio.move_on_after(CLOSE_S, shield=True):
                await segments.close()

    async def _segment_listeners(self) -> list[Endpoint]:
        await self.admin.refresh_brokers()
        return self._listeners("segment")

    def _listeners(self, name: str) -> list[Endpoint]:
        """The listeners of that kind that nodes advertise, as far as this client knows."""
        return [
            Endpoint(address.host, address.port)
            for _, broker in sorted(self._metadata.view.brokers.items())
            for address in broker.addresses
            if address.name == name and not broker.fenced
        ]

    async def reach(self) -> None:
        """The first contact, made by :func:`connect`. Raises as that does."""
        try:
            await self._metadata.refresh([], unreachable_s=self.settings.first_contact_timeout_s)
        except UnknownOutcome as error:
            raise nothing_sent(error) from error.__cause__

    def close(self) -> None:
        """End all connections."""
        self._pool.close()


@asynccontextmanager
async def connect(
    bootstrap: Bootstrap,
    settings: ClientSettings | None = None,
    *,
    dial: Dial = dial_tcp,
    rng: random.Random | None = None,
    wall_ms: Callable[[], int] = wall_clock_ms,
) -> AsyncIterator[Client]:
    """A client of the cluster behind ``bootstrap``: ``host:port``, several of them, or
    ``ws://host:port/native``; ``tls://`` and ``wss://`` as ``settings.tls``.

    Raises ConfigurationError for a bad address or an unusable file of ``settings.tls``,
    AuthenticationFailed where a node is not trusted or does not trust this client, ConnectionLost,
    within the operation timeout, when no address answers, and Unreachable, after
    ``first_contact_timeout_s``, when all refuse.
    ``dial``, ``rng`` and ``wall_ms`` stand for network, randomness and clock, so that a whole
    cluster can run in one process under virtual time.
    """
    endpoints = parse_bootstrap(bootstrap)
    settings = settings or ClientSettings()
    async with open_scope() as nursery:
        client = Client(
            nursery,
            endpoints,
            settings,
            dial_for(endpoints[0], settings.tls, dial),
            rng or random.SystemRandom(),
            wall_ms,
        )
        try:
            await client.reach()
            yield client
        finally:
            client.close()
