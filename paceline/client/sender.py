"""Carries a producer's batches to the partitions' leaders. One task decides, answers come back as
calls.

A *pass* looks at every queue that holds batches: gives up what is too old, encodes what is due, and
posts it on the leader's connection, batches of many partitions in one request. Passes happen when
somebody wakes the sender: a new batch, an answer, a connection that opened or ended, fresh
metadata, or the time that the last pass asked for.
"""

from __future__ import annotations

import math
import random
from functools import partial

import trio

from paceline.client.accumulator import Accumulator
from paceline.client.batching import Batch, Identity
from paceline.client.connection import Answer, Connection
from paceline.client.metadata import Leader, Metadata
from paceline.client.partition_queue import PartitionQueue
from paceline.client.pool import ConnectionPool, Lane
from paceline.client.retry import Backoff
from paceline.client.settings import ProducerSettings
from paceline.client.single_error_nursery import open_scope
from paceline.client.transport import Bytes
from paceline.errors import (
    ConnectionLost,
    FencedLeaderEpoch,
    LeaderNotAvailable,
    NotLeader,
    PacelineError,
    RemoteProtocolError,
    StorageError,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
    error_for,
)
from paceline.types import Compression
from paceline.wire.batch_header import TRANSACTIONAL
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import (
    InitProducer,
    Produce,
    ProducedPartition,
    ProducePartition,
    ProduceReply,
    ProducerIdentity,
)

THREAD_BYTES = 64 * 1024
"""Compressing more than this is done in a thread."""
_COMPRESSION_THREADS = 2

_WRONG_LEADER = (
    NotLeader,
    LeaderNotAvailable,
    FencedLeaderEpoch,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
    StorageError,
    ConnectionLost,
)


class _Draft:
    """A PRODUCE request in the making."""

    __slots__ = ("queues", "sent", "size_bytes")

    def __init__(self) -> None:
        self.sent: list[tuple[PartitionQueue, Batch, Leader]] = []
        self.queues: set[PartitionQueue] = set()
        self.size_bytes = 0

    def add(self, queue: PartitionQueue, batch: Batch, leader: Leader, size: int) -> None:
        self.sent.append((queue, batch, leader))
        self.queues.add(queue)
        self.size_bytes += size


class Sender:
    """See the module. :meth:`run` is its task."""

    def __init__(
        self,
        settings: ProducerSettings,
        pool: ConnectionPool,
        metadata: Metadata,
        backoff: Backoff,
        rng: random.Random,
        *,
        transactional_id: str | None = None,
    ) -> None:
        """``transactional_id``: everything is written in its transactions, under the identities
        that :meth:`begin` is given."""
        self._transactional_id = transactional_id
        self._flags = 0 if transactional_id is None else TRANSACTIONAL
        self.accumulator = Accumulator(
            settings,
            metadata.view,
            backoff,
            first_partition=rng.randrange,
            wake=self.wake,
            is_transactional=transactional_id is not None,
        )
        self._settings = settings
        self._pool = pool
        self._metadata = metadata
        self._view = metadata.view
        self._backoff = backoff
        self._wake = trio.Event()
        self._encoding: set[Batch] = set()
        self._threads = trio.CapacityLimiter(_COMPRESSION_THREADS)
        self._identity: Identity | None = None
        self._identity_wanted = trio.Event()

    def wake(self) -> None:
        """Have a pass made soon."""
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        unsubscribe = self._pool.subscribe(self.wake)
        try:
            async with open_scope() as nursery:
                if self._settings.is_idempotent and self._transactional_id is None:
                    nursery.start_soon(self._keep_identity)
                while True:
                    self._wake = trio.Event()
                    due_at = self._pass(trio.current_time(), nursery)
                    with trio.CancelScope(deadline=due_at):
                        await self._wake.wait()
        finally:
            unsubscribe()

    def begin(self, identity: Identity) -> None:
        """Write the next transaction under ``identity``. Nothing may be unresolved."""
        self._identity = identity
        self.accumulator.identify_all(identity)

    # --- one pass ---------------------------------------------------------------------------------

    def _pass(self, now: float, nursery: trio.Nursery) -> float:
        """Send all that can be sent; returns when to look again at the latest."""
        drafts: dict[Connection, _Draft] = {}
        missing: set[str] = set()
        next_at = math.inf
        for queue in self.accumulator.active():
            queue.expire(now)
            if queue.needs_identity:
                self._provide_identity(queue)
            while (batch := queue.first_due(now)) is not None:
                if not self._is_encoded(batch, queue, nursery, now):
                    break
                leader = self._view.leader(queue.at)
                if leader is None:
                    missing.add(queue.at.topic)
                    break
                connection = self._connection(queue, leader, now, missing)
                if connection is None:
                    break
                self._draft(drafts, connection, leader, queue, batch)
            next_at = min(next_at, _next_time(queue, now))
        for connection, draft in drafts.items():
            self._post(connection, draft, now)
        if missing:
            self._metadata.request(missing)
        return next_at

    def _is_encoded(
        self, batch: Batch, queue: PartitionQueue, nursery: trio.Nursery, now: float
    ) -> bool:
        if batch.encoded is not None:
            return True
        if batch in self._encoding:
            return False
        compression = self._settings.compression
        if compression is not Compression.NONE and batch.reserved_bytes > THREAD_BYTES:
            self._encoding.add(batch)
            nursery.start_soon(self._encode, batch, queue)
            return False
        try:
            batch.encode(compression)
        except PacelineError as error:
            queue.refuse(batch, error)
            return False
        return True

    async def _encode(self, batch: Batch, queue: PartitionQueue) -> None:
        try:
            await trio.to_thread.run_sync(
                batch.encode, self._settings.compression, limiter=self._threads
            )
        except PacelineError as error:
            queue.refuse(batch, error)
        finally:
            self._encoding.discard(batch)
            self.wake()

    def _connection(
        self, queue: PartitionQueue, leader: Leader, now: float, missing: set[str]
    ) -> Connection | None:
        try:
            connection = self._pool.ready(leader.node, Lane.REQUEST)
        except PacelineError as error:
            self._view.doubt(queue.at, leader.epoch)
            queue.pause(now, error)
            missing.add(queue.at.topic)
            return None
        return connection if connection is not None and connection.has_room else None

    def _draft(
        self,
        drafts: dict[Connection, _Draft],
        connection: Connection,
        leader: Leader,
        queue: PartitionQueue,
        batch: Batch,
    ) -> None:
        assert batch.encoded is not None
        size = batch.encoded.size_bytes
        draft = drafts.get(connection)
        if draft is not None and (
            queue in draft.queues or draft.size_bytes + size > self._settings.max_request_bytes
        ):
            self._post(connection, draft, trio.current_time())
            draft = None
        if draft is None:
            draft = drafts[connection] = _Draft()
        draft.add(queue, queue.take(), leader, size)

    def _post(self, connection: Connection, draft: _Draft, now: float) -> None:
        payload: list[Bytes] = []
        partitions = []
        for queue, batch, leader in draft.sent:
            encoded = batch.encoded
            assert encoded is not None
            head = encoded.head(batch.identity, batch.sequence, self._flags)
            payload += (head, encoded.payload)
            partitions.append(
                ProducePartition(
                    queue.at.topic, queue.at.partition, encoded.size_bytes, leader.epoch
                )
            )
        timeout_s = self._settings.ack_timeout_s
        request = Produce(
            int(timeout_s * 1000), self._settings.acks, tuple(partitions), self._transactional_id
        )
        try:
            connection.post(
                NativeApi.PRODUCE,
                request.pack(),
                partial(self._answered, draft),
                wait_s=timeout_s,
                payload=payload,
            )
        except PacelineError as error:
            self._failed(draft, error, now)

    # --- answers ----------------------------------------------------------------------------------

    def _answered(self, draft: _Draft, answer: Answer) -> None:
        now = trio.current_time()
        self.wake()
        if isinstance(answer, PacelineError):
            self._failed(draft, answer, now)
            return
        try:
            results = ProduceReply.unpack(answer.body).partitions
            _check_same_partitions(draft, results)
        except RemoteProtocolError as error:
            self._failed(draft, ConnectionLost(f"answer not understood: {error}"), now)
            return
        for (queue, batch, leader), result in zip(draft.sent, results, strict=True):
            self._resolve(queue, batch, leader, result, now)

    def _resolve(
        self,
        queue: PartitionQueue,
        batch: Batch,
        leader: Leader,
        result: ProducedPartition,
        now: float,
    ) -> None:
        if result.error == 0:
            queue.succeeded(
                batch, result.base_offset, result.leader_epoch, duplicate=result.duplicate
            )
            return
        error = error_for(result.error, result.message)
        queue.failed(batch, error, now)
        if self._view.learn(queue.at, result.leader, result.leader_epoch):
            queue.resume()
        elif isinstance(error, _WRONG_LEADER):
            self._view.doubt(queue.at, leader.epoch)

    def _failed(self, draft: _Draft, error: PacelineError, now: float) -> None:
        for queue, batch, leader in draft.sent:
            queue.failed(batch, error, now)
            if isinstance(error, _WRONG_LEADER):
                self._view.doubt(queue.at, leader.epoch)

    # --- producer ids -----------------------------------------------------------------------------

    def _provide_identity(self, queue: PartitionQueue) -> None:
        identity = self._identity
        if identity is not None and queue.retired_producer_id != identity.producer_id:
            queue.identify(identity)
            return
        self._identity = None
        self._identity_wanted.set()

    async def _keep_identity(self) -> None:
        failures = 0
        while True:
            await self._identity_wanted.wait()
            try:
                connection = await self._pool.to_any()
                reply = await connection.call(
                    NativeApi.INIT_PRODUCER, InitProducer(), ProducerIdentity
                )
            except PacelineError as error:
                self._note_no_identity(error)
                await trio.sleep(self._backoff.pause_s(failures))
                failures += 1
                continue
            failures = 0
            self._identity = Identity(reply.producer_id, reply.producer_epoch)
            self._identity_wanted = trio.Event()
            self.wake()

    def _note_no_identity(self, error: PacelineError) -> None:
        now = trio.current_time()
        for queue in self.accumulator.active():
            if not queue.needs_identity:
                continue
            if error.retriable:
                queue.pause(now, error)
            else:
                queue.give_up_all(error)
        self.wake()


def _next_time(queue: PartitionQueue, now: float) -> float:
    """When ``queue`` wants a pass although nobody wakes the sender."""
    due_at = queue.due_at()
    deadline = queue.next_deadline()
    # What is due already waits for a connection, metadata or a thread, which wake by themselves.
    next_at = math.inf if due_at is None or due_at <= now else due_at
    return next_at if deadline is None else min(next_at, deadline)


def _check_same_partitions(draft: _Draft, results: tuple[ProducedPartition, ...]) -> None:
    asked = [(queue.at.topic, queue.at.partition) for queue, _, _ in draft.sent]
    if asked != [(result.topic, result.partition) for result in results]:
        raise RemoteProtocolError("produce answer names other partitions than the request")
