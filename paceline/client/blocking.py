"""The client for programs without an event loop: same names and arguments, calls that block; but
groups are read by ``group_consumer``, to which ``Client.consumer`` leaves them.

Trio runs in a thread of its own and every call enters it; any number of threads may use a client.
A call may be interrupted (Ctrl-C), the client stays usable. Close it, best with ``with``; one that
is forgotten ends when it is collected or the interpreter exits, dropping what was not acknowledged.

    with connect("localhost:7400") as client, client.producer() as producer:
        producer.send("orders", b"value", key=b"key")
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from types import TracebackType
from typing import Any, TypeVar

from paceline.client import acl_admin as trio_acl_admin
from paceline.client import admin as trio_admin
from paceline.client import batch_portion as trio_portion
from paceline.client import client as trio_client
from paceline.client import consumer as trio_consumer
from paceline.client import group_admin as trio_group_admin
from paceline.client import group_settings
from paceline.client import producer as trio_producer
from paceline.client import quota_admin as trio_quota_admin
from paceline.client import sequenced as trio_sequenced
from paceline.client import sinks as trio_sinks
from paceline.client import transaction_admin as trio_transaction_admin
from paceline.client import transactional as trio_transactional
from paceline.client import user_admin as trio_user_admin
from paceline.client.batching import BatchMetadata, RecordMetadata
from paceline.client.blocking_consumers import (
    Consumer,
    CoordinatedConsumer,
    GroupConsumer,
    RebalanceListener,
    Relay,
)
from paceline.client.blocking_facade import Facade, Open, blocking_twin
from paceline.client.blocking_segments import SegmentReader, Segments, SegmentWriter
from paceline.client.client import Bootstrap
from paceline.client.consumer import Subscription
from paceline.client.driven_membership import DrivenSettings
from paceline.client.fetcher import OutOfRange
from paceline.client.loop_thread import Held, LoopThread
from paceline.client.position import Position
from paceline.client.producer import Headers
from paceline.client.settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    TransactionalSettings,
)
from paceline.client.transport import Dial, dial_tcp
from paceline.types import Isolation
from paceline.wire.native.transactions import KAFKA

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "CoordinatedConsumer",
    "Delivery",
    "GroupAdmin",
    "GroupConsumer",
    "Portion",
    "Producer",
    "RebalanceListener",
    "SegmentReader",
    "SegmentWriter",
    "Segments",
    "SequencedWriter",
    "TransactionalProducer",
    "connect",
]


P_co = TypeVar("P_co", bound=trio_producer.Producer, covariant=True)


class Delivery(Facade[trio_producer.Delivery]):
    """As :class:`paceline.client.Delivery`."""

    wait = blocking_twin(trio_producer.Delivery.wait)

    @property
    def is_done(self) -> bool:
        return self._inner.is_done

    def result(self) -> RecordMetadata:
        """Where the record was stored. Raises what it failed with, Closed when not done yet."""
        return self._inner.result()


class Portion(Facade[trio_portion.Portion]):
    """As :class:`paceline.client.Portion`; :meth:`Producer.flush` waits for it."""

    @property
    def positions(self) -> Sequence[int]:
        return self._inner.positions

    @property
    def is_done(self) -> bool:
        return self._inner.is_done

    def result(self) -> BatchMetadata:
        """As :meth:`paceline.client.Portion.result`."""
        return self._inner.result()


class _Producing(Open[P_co]):
    """What producers of both kinds do."""

    send = blocking_twin(trio_producer.Producer.send)
    send_many = blocking_twin(trio_producer.Producer.send_many)
    send_batch = blocking_twin(trio_producer.Producer.send_batch)
    flush = blocking_twin(trio_producer.Producer.flush)
    partition_count = blocking_twin(trio_producer.Producer.partition_count)

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

    def submit_many(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        keys: Iterable[bytes | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> list[Portion]:
        """As :meth:`paceline.client.Producer.submit_many`."""
        portions = self._loop.call(
            functools.partial(
                self._inner.submit_many,
                topic,
                values,
                keys=keys,
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
        )
        return [Portion(self._loop, portion) for portion in portions]

    @property
    def buffered_bytes(self) -> int:
        return self._inner.buffered_bytes


class Producer(_Producing[trio_producer.Producer]):
    """As :class:`paceline.client.Producer`. ``send_many`` costs one entry into the loop a call,
    ``send`` and ``submit`` one a record."""


class TransactionalProducer(_Producing[trio_transactional.TransactionalProducer]):
    """As :class:`paceline.client.TransactionalProducer`."""

    begin = blocking_twin(trio_transactional.TransactionalProducer.begin)
    commit = blocking_twin(trio_transactional.TransactionalProducer.commit)
    abort = blocking_twin(trio_transactional.TransactionalProducer.abort)
    send_offsets = blocking_twin(trio_transactional.TransactionalProducer.send_offsets)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """As :meth:`paceline.client.TransactionalProducer.transaction`: committed at the block's
        end, aborted when it is left by an error, Ctrl-C included."""
        held = self._loop.enter(self._inner.transaction())
        try:
            yield
        except BaseException:
            held.close(abandon=True)
            raise
        held.close()

    @property
    def in_transaction(self) -> bool:
        return self._inner.in_transaction


class GroupAdmin(Facade[trio_group_admin.GroupAdmin]):
    """As :class:`paceline.client.group_admin.GroupAdmin`."""

    coordinator = blocking_twin(trio_group_admin.GroupAdmin.coordinator)
    list = blocking_twin(trio_group_admin.GroupAdmin.list)
    describe = blocking_twin(trio_group_admin.GroupAdmin.describe)
    delete = blocking_twin(trio_group_admin.GroupAdmin.delete)
    offsets = blocking_twin(trio_group_admin.GroupAdmin.offsets)
    alter_offsets = blocking_twin(trio_group_admin.GroupAdmin.alter_offsets)
    delete_offsets = blocking_twin(trio_group_admin.GroupAdmin.delete_offsets)
    evict = blocking_twin(trio_group_admin.GroupAdmin.evict)
    topics = blocking_twin(trio_group_admin.GroupAdmin.topics)
    set_topics = blocking_twin(trio_group_admin.GroupAdmin.set_topics)


class TransactionAdmin(Facade[trio_transaction_admin.TransactionAdmin]):
    """As :class:`paceline.client.transaction_admin.TransactionAdmin`."""

    coordinator = blocking_twin(trio_transaction_admin.TransactionAdmin.coordinator)
    list = blocking_twin(trio_transaction_admin.TransactionAdmin.list)
    describe = blocking_twin(trio_transaction_admin.TransactionAdmin.describe)
    abort = blocking_twin(trio_transaction_admin.TransactionAdmin.abort)


class AclAdmin(Facade[trio_acl_admin.AclAdmin]):
    """As :class:`paceline.client.acl_admin.AclAdmin`."""

    create = blocking_twin(trio_acl_admin.AclAdmin.create)
    delete = blocking_twin(trio_acl_admin.AclAdmin.delete)
    list = blocking_twin(trio_acl_admin.AclAdmin.list)


class UserAdmin(Facade[trio_user_admin.UserAdmin]):
    """As :class:`paceline.client.user_admin.UserAdmin`."""

    list = blocking_twin(trio_user_admin.UserAdmin.list)
    create = blocking_twin(trio_user_admin.UserAdmin.create)
    set_password = blocking_twin(trio_user_admin.UserAdmin.set_password)
    make_token = blocking_twin(trio_user_admin.UserAdmin.make_token)
    revoke = blocking_twin(trio_user_admin.UserAdmin.revoke)
    delete = blocking_twin(trio_user_admin.UserAdmin.delete)


class QuotaAdmin(Facade[trio_quota_admin.QuotaAdmin]):
    """As :class:`paceline.client.quota_admin.QuotaAdmin`."""

    alter = blocking_twin(trio_quota_admin.QuotaAdmin.alter)
    list = blocking_twin(trio_quota_admin.QuotaAdmin.list)


class Admin(Facade[trio_admin.Admin]):
    """As :class:`paceline.client.Admin`."""

    def __init__(self, loop: LoopThread, inner: trio_admin.Admin) -> None:
        super().__init__(loop, inner)
        self.groups = GroupAdmin(loop, inner.groups)
        self.transactions = TransactionAdmin(loop, inner.transactions)
        self.acls = AclAdmin(loop, inner.acls)
        self.users = UserAdmin(loop, inner.users)
        self.quotas = QuotaAdmin(loop, inner.quotas)

    describe_cluster = blocking_twin(trio_admin.Admin.describe_cluster)
    list_topics = blocking_twin(trio_admin.Admin.list_topics)
    topic = blocking_twin(trio_admin.Admin.topic)
    describe_topic = blocking_twin(trio_admin.Admin.describe_topic)
    list_offsets = blocking_twin(trio_admin.Admin.list_offsets)
    find_offsets = blocking_twin(trio_admin.Admin.find_offsets)
    describe_replicas = blocking_twin(trio_admin.Admin.describe_replicas)
    read_replica = blocking_twin(trio_admin.Admin.read_replica)
    status = blocking_twin(trio_admin.Admin.status)
    statuses = blocking_twin(trio_admin.Admin.statuses)
    loads = blocking_twin(trio_admin.Admin.loads)
    create_topic = blocking_twin(trio_admin.Admin.create_topic)
    delete_topic = blocking_twin(trio_admin.Admin.delete_topic)
    alter_topic = blocking_twin(trio_admin.Admin.alter_topic)
    add_partitions = blocking_twin(trio_admin.Admin.add_partitions)
    trim = blocking_twin(trio_admin.Admin.trim)
    elect_leader = blocking_twin(trio_admin.Admin.elect_leader)
    set_role = blocking_twin(trio_admin.Admin.set_role)
    reassign_partition = blocking_twin(trio_admin.Admin.reassign_partition)
    cancel_reassignment = blocking_twin(trio_admin.Admin.cancel_reassignment)
    list_reassignments = blocking_twin(trio_admin.Admin.list_reassignments)
    fence_broker = blocking_twin(trio_admin.Admin.fence_broker)
    register_external = blocking_twin(trio_admin.Admin.register_external)
    unregister_broker = blocking_twin(trio_admin.Admin.unregister_broker)
    add_voter = blocking_twin(trio_admin.Admin.add_voter)
    remove_voter = blocking_twin(trio_admin.Admin.remove_voter)
    stop_cluster = blocking_twin(trio_admin.Admin.stop_cluster)


class Sinks(Facade[trio_sinks.Sinks]):
    """As :class:`paceline.client.sinks.Sinks`."""

    begin = blocking_twin(trio_sinks.Sinks.begin)
    touch = blocking_twin(trio_sinks.Sinks.touch)
    commit = blocking_twin(trio_sinks.Sinks.commit)
    abort = blocking_twin(trio_sinks.Sinks.abort)
    state = blocking_twin(trio_sinks.Sinks.state)


class SequencedWriter(Facade[trio_sequenced.SequencedWriter]):
    """As :class:`paceline.client.sequenced.SequencedWriter`."""

    new_identity = blocking_twin(trio_sequenced.SequencedWriter.new_identity)
    partition_count = blocking_twin(trio_sequenced.SequencedWriter.partition_count)
    write = blocking_twin(trio_sequenced.SequencedWriter.write)


class Client(Open[trio_client.Client]):
    """Made by :func:`connect`. Closing it closes its producers and consumers first."""

    def __init__(self, loop: LoopThread, held: Held[trio_client.Client]) -> None:
        super().__init__(loop, held)
        self.admin = Admin(loop, self._inner.admin)
        self._opened: list[Held[Any]] = []

    def producer(self, settings: ProducerSettings | None = None) -> Producer:
        """As :meth:`paceline.client.Client.producer`; ``close`` or ``with`` flushes it."""
        held = self._loop.enter(self._inner.producer(settings))
        self._opened.append(held)
        return Producer(self._loop, held)

    def transactional_producer(
        self, transactional_id: str, settings: TransactionalSettings | None = None
    ) -> TransactionalProducer:
        """As :meth:`paceline.client.Client.transactional_producer`; ``close`` or ``with`` aborts
        what is open."""
        held = self._loop.enter(self._inner.transactional_producer(transactional_id, settings))
        self._opened.append(held)
        return TransactionalProducer(self._loop, held)

    @property
    def sinks(self) -> Sinks:
        """As :attr:`paceline.client.Client.sinks`."""
        return Sinks(self._loop, self._inner.sinks)

    def segments(self) -> Segments:
        """As :meth:`paceline.client.Client.segments`."""
        held = self._loop.enter(self._inner.segments())
        self._opened.append(held)
        return Segments(self._loop, held, self._opened.append)

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
            listener=None if listener is None else Relay(listener),
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
                listener=None if listener is None else Relay(listener),
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
