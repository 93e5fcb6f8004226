"""Writing batches whose producer identity and sequences the caller chose.

For writers that must send the same batches under the same numbers after they died and began anew
(Spark's tasks): the producer makes up identities and renews them, this never does. What belongs
here is carrying a batch to its partition's leader until it is stored, or surely is not.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

from paceline.client.metadata import Metadata
from paceline.client.pool import ConnectionPool
from paceline.client.retry import Backoff, retrying
from paceline.errors import (
    DuplicateSequence,
    FencedLeaderEpoch,
    NotLeader,
    PacelineError,
    RemoteProtocolError,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
    error_for,
)
from paceline.types import Acks, TopicPartition
from paceline.values import dataclass
from paceline.wire.batch_header import Buffer
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import (
    InitProducer,
    Produce,
    ProducedPartition,
    ProducePartition,
    ProduceReply,
    ProducerIdentity,
)
from paceline.wire.native.transactions import KAFKA

ACK_TIMEOUT_S = 10.0
_WRONG_LEADER = (NotLeader, FencedLeaderEpoch, UnknownLeaderEpoch, UnknownTopicOrPartition)


@dataclass(frozen=True, slots=True)
class SequencedBatch:
    """One built batch (``paceline.wire.batch.build_batch``) with producer id, epoch and sequence.

    Batches of one partition are sent in the order given, one at a time.
    """

    at: TopicPartition
    data: Buffer


class SequencedWriter:
    """Reached as ``client.sequenced_writer()``.

    ``transactional_id``: the batches are of that open transaction, ``transaction_family`` "sink"
    where it is one of ``client.sinks``. ``delivery_timeout_s`` bounds
    each batch, with all its repetitions.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        metadata: Metadata,
        backoff: Backoff,
        *,
        transactional_id: str | None = None,
        transaction_family: str = KAFKA,
        delivery_timeout_s: float = 120.0,
    ) -> None:
        self._pool = pool
        self._metadata = metadata
        self._backoff = backoff
        self._transactional_id = transactional_id
        self._transaction_family = transaction_family
        self._delivery_timeout_s = delivery_timeout_s

    async def new_identity(self) -> ProducerIdentity:
        """A producer id that nobody else has, with epoch 0."""

        async def ask() -> ProducerIdentity:
            connection = await self._pool.to_any()
            return await connection.call(NativeApi.INIT_PRODUCER, InitProducer(), ProducerIdentity)

        return await retrying(ask, timeout_s=self._delivery_timeout_s, backoff=self._backoff)

    async def partition_count(self, topic: str) -> int:
        """Partitions of an existing topic. Raises UnknownTopicOrPartition."""
        await self._metadata.topic_soon(topic)
        return self._metadata.view.partition_count(topic)

    async def write(self, batches: Iterable[SequencedBatch]) -> dict[TopicPartition, int]:
        """Store all, acknowledged by all in-sync replicas; the last offset of each partition, -1
        where every batch of it had been stored before and its offset is remembered no more.

        Partitions are written side by side. Raises the first failure; other partitions' batches
        may be stored then. Cancelled, the same holds.
        """
        queues: dict[TopicPartition, list[SequencedBatch]] = {}
        for batch in batches:
            queues.setdefault(batch.at, []).append(batch)
        last: dict[TopicPartition, int] = dict.fromkeys(queues, -1)
        errors: list[PacelineError] = []

        async def carry(queue: list[SequencedBatch]) -> None:
            try:
                for batch in queue:
                    last[batch.at] = max(last[batch.at], await self._store(batch))
            except PacelineError as error:
                errors.append(error)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for queue in queues.values():
                nursery.start_soon(carry, queue)
        if errors:
            raise errors[0].with_traceback(None)
        return last

    async def _store(self, batch: SequencedBatch) -> int:
        """Send it until it is stored: its sequence makes repeating safe. Its last offset."""
        try:
            stored = await retrying(
                lambda: self._send(batch),
                timeout_s=self._delivery_timeout_s,
                backoff=self._backoff,
            )
        except DuplicateSequence:
            return -1  # stored so long ago that the leader no longer remembers where
        return stored.last_offset

    async def _send(self, batch: SequencedBatch) -> ProducedPartition:
        at = batch.at
        leader = await self._metadata.leader(at)
        request = Produce(
            int(ACK_TIMEOUT_S * 1000),
            Acks.ALL,
            (ProducePartition(at.topic, at.partition, len(batch.data), leader.epoch),),
            self._transactional_id,
            self._transaction_family,
        )
        try:
            connection = await self._pool.to_node(leader.node)
            frame = await connection.call_frame(
                NativeApi.PRODUCE, request, wait_s=ACK_TIMEOUT_S, payload=(batch.data,)
            )
            [result] = ProduceReply.unpack(frame.body).partitions
        except ValueError:
            raise RemoteProtocolError(f"{at}: an answer about other partitions") from None
        except PacelineError:
            self._metadata.view.doubt(at, leader.epoch)
            raise
        if result.error == 0:
            return result
        error = error_for(result.error, f"{at}: {result.message}")
        learned = self._metadata.view.learn(at, result.leader, result.leader_epoch)
        if not learned and isinstance(error, _WRONG_LEADER):
            self._metadata.view.doubt(at, leader.epoch)
        raise error
