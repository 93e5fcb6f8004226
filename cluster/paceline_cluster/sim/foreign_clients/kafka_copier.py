"""Kafka's consume-transform-produce loop: a member of a group and a transactional producer in one,
as ``sendOffsetsToTransaction`` joins them (KIP-447).

Numbers are taken as Kafka's clients take them. What a coordinator answers that they do not know for
that request, is a finding.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import trio

from paceline.errors import ErrorCode, PacelineError
from paceline.types import Isolation
from paceline.wire.batch import build_batch
from paceline.wire.batch_header import TRANSACTIONAL
from paceline.wire.kafka import offsets as positions
from paceline.wire.kafka import records as wire
from paceline.wire.kafka import transactions
from paceline.wire.records import Record
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.foreign_clients.copier import (
    SESSION_S,
    Anew,
    ForeignCopier,
    MembershipLost,
)
from paceline_cluster.sim.foreign_clients.copy_rule import CopyRule, Read
from paceline_cluster.sim.foreign_clients.kafka import (
    GROUP_KEY,
    TRANSACTION_KEY,
    KafkaCluster,
    KafkaLink,
    fetch_batches,
    kafka_cluster,
    raise_for,
)
from paceline_cluster.sim.foreign_clients.kafka_seat import AGAIN, ANEW, KafkaSeat
from paceline_cluster.sim.foreign_clients.links import AGAIN_S
from paceline_cluster.sim.workload import wall_ms

_TIMEOUT_MS = 10_000
_ACK_MS = 1500
_DELIVERY_S = 8.0
_ALL = -1
_NOBODY = (-1, -1)
_COORDINATOR_AGAIN = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
_LEADER_AGAIN = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.STORAGE_ERROR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
_LOST = frozenset(
    (
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
    )
)
"""What a producer begins anew for."""
Ask = Callable[[KafkaLink], Awaitable[int]]


class _Coordinator:
    """Who coordinates one key, until that turns out to be wrong."""

    def __init__(self, known: KafkaCluster, key: str, kind: int) -> None:
        self._known = known
        self._key = key
        self._kind = kind
        self._link: KafkaLink | None = None

    async def link(self) -> KafkaLink:
        """A connection to it. Raises PacelineError."""
        if self._link is None or not self._link.is_usable:
            self._link = await self._known.coordinator(self._key, kind=self._kind)
        return self._link

    def forget(self) -> None:
        """Ask for it anew."""
        self._link = None


class KafkaCopier(ForeignCopier):
    """``name`` is its transactional id, too."""

    def __init__(self, name: str, rule: CopyRule, rng: random.Random) -> None:
        super().__init__(name, rule, rng)
        self._version = rng.choice((11, 12))
        self._who = _NOBODY
        self._sequence = 0
        self._known: KafkaCluster
        self._group: _Coordinator
        self._transactions: _Coordinator
        self._seat = self._new_seat()

    def _new_seat(self) -> KafkaSeat:
        copying = self.rule.copying
        session_ms = int(SESSION_S * 1000)
        return KafkaSeat(copying.group, copying.topic, copying.partitions, session_ms=session_ms)

    @asynccontextmanager
    async def _connected(self, cluster: SimCluster, host: str) -> AsyncIterator[None]:
        async with kafka_cluster(cluster, host, self._rng) as known:
            self._known = known
            self._group = _Coordinator(known, self.rule.copying.group, GROUP_KEY)
            self._transactions = _Coordinator(known, self.name, TRANSACTION_KEY)
            yield

    async def _open(self) -> None:
        self._seat = self._new_seat()
        request = transactions.InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=_TIMEOUT_MS
        )

        async def ask(link: KafkaLink) -> int:
            told = await link.ask(request, 4, transactions.InitProducerIdResponse)
            self._who = (told.producer_id, told.producer_epoch)
            return told.error_code

        await self._say("INIT_PRODUCER_ID", self._transactions, ask)
        self._sequence = 0

    # --- the member -------------------------------------------------------------------------------

    async def _join(self) -> Sequence[int]:
        while True:
            try:
                link = await self._group.link()
                await self._seat.join(link)
                return await self._seat.sync(link)
            except PacelineError as error:
                if error.code in ANEW:
                    self._seat.id = ""
                if error.code not in AGAIN:
                    self._group.forget()
                    await trio.sleep(AGAIN_S)

    async def _beat(self) -> None:
        try:
            await self._seat.beat(await self._group.link())
        except PacelineError as error:
            if error.code in AGAIN:
                raise MembershipLost from None
            self._group.forget()

    async def _leave(self) -> None:
        with suppress(PacelineError):
            await self._seat.leave(await self._group.link())

    async def _offsets(self, partitions: Sequence[int]) -> Mapping[int, int]:
        while True:
            try:
                copying = self.rule.copying
                link = await self._group.link()
                return await stable_offsets(link, copying.group, copying.topic, partitions)
            except PacelineError as error:
                if error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    self._group.forget()
            if self._seat.id:
                await self._beat()
            await trio.sleep(AGAIN_S)

    async def _fetch(self, partition: int, offset: int) -> Sequence[Read]:
        where = (self.rule.copying.topic, partition)
        try:
            found = await fetch_batches(
                self._known,
                where,
                offset,
                version=self._version,
                wait_ms=0,
                isolation=Isolation.READ_COMMITTED,
            )
        except PacelineError:
            self._known.forget()
            return []
        return [
            Read(partition, each.offset, each.value or b"")
            for _, records in found
            for each in records
        ]

    # --- the transaction --------------------------------------------------------------------------

    async def _write(self, reads: Sequence[Read], offsets: Mapping[int, int]) -> None:
        await self._add_partition()
        with trio.move_on_after(_DELIVERY_S):
            await self._produce(reads)
            await self._add_offsets()
            await self._commit_offsets(offsets)
            return
        raise Anew

    async def _add_partition(self) -> None:
        topic = transactions.AddPartitionsToTxnRequestTopic(
            name=self.rule.copying.copies, partitions=(0,)
        )
        request = transactions.AddPartitionsToTxnRequest(
            transactional_id=self.name,
            producer_id=self._who[0],
            producer_epoch=self._who[1],
            topics=(topic,),
        )

        async def ask(link: KafkaLink) -> int:
            told = await link.ask(request, 3, transactions.AddPartitionsToTxnResponse)
            return told.results_by_topic[0].results_by_partition[0].partition_error_code

        await self._say("ADD_PARTITIONS_TO_TXN", self._transactions, ask)

    async def _produce(self, reads: Sequence[Read]) -> None:
        batch = build_batch(
            [Record(value=read.copy) for read in reads],
            producer_id=self._who[0],
            producer_epoch=self._who[1],
            base_sequence=self._sequence,
            timestamp_ms=wall_ms(),
            flags=TRANSACTIONAL,
        )
        self._sequence += len(reads)
        part = wire.ProduceRequestTopicPartition(index=0, records=bytes(batch))
        copies = self.rule.copying.copies
        request = wire.ProduceRequest(
            transactional_id=self.name,
            acks=_ALL,
            timeout_ms=_ACK_MS,
            topic_data=(wire.ProduceRequestTopic(name=copies, partition_data=(part,)),),
        )
        while True:
            code = ErrorCode.REQUEST_TIMED_OUT
            with suppress(PacelineError):
                link = await self._known.leader((copies, 0))
                told = await link.ask(request, 9, wire.ProduceResponse)
                code = ErrorCode(told.responses[0].partition_responses[0].error_code)
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE):
                return
            _must_be_known("PRODUCE", code, _LEADER_AGAIN)
            self._known.forget()
            await trio.sleep(AGAIN_S)

    async def _add_offsets(self) -> None:
        request = transactions.AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self._who[0],
            producer_epoch=self._who[1],
            group_id=self.rule.copying.group,
        )

        async def ask(link: KafkaLink) -> int:
            return (await link.ask(request, 3, transactions.AddOffsetsToTxnResponse)).error_code

        await self._say("ADD_OFFSETS_TO_TXN", self._transactions, ask)

    async def _commit_offsets(self, offsets: Mapping[int, int]) -> None:
        parts = tuple(
            transactions.TxnOffsetCommitRequestTopicPartition(
                partition_index=partition, committed_offset=offset
            )
            for partition, offset in offsets.items()
        )
        copying = self.rule.copying
        request = transactions.TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=copying.group,
            producer_id=self._who[0],
            producer_epoch=self._who[1],
            generation_id=self._seat.generation,
            member_id=self._seat.id,
            topics=(
                transactions.TxnOffsetCommitRequestTopic(name=copying.topic, partitions=parts),
            ),
        )

        async def ask(link: KafkaLink) -> int:
            told = await link.ask(request, 3, transactions.TxnOffsetCommitResponse)
            return max(part.error_code for part in told.topics[0].partitions)

        await self._say("TXN_OFFSET_COMMIT", self._group, ask)

    async def _end(self, *, commits: bool) -> None:
        request = transactions.EndTxnRequest(
            transactional_id=self.name,
            producer_id=self._who[0],
            producer_epoch=self._who[1],
            committed=commits,
        )

        async def ask(link: KafkaLink) -> int:
            return (await link.ask(request, 3, transactions.EndTxnResponse)).error_code

        await self._say("END_TXN", self._transactions, ask)

    async def _say(self, what: str, to: _Coordinator, ask: Ask) -> None:
        """Ask a coordinator, whoever that is by then, until it is answered for good."""
        while True:
            code = ErrorCode.NOT_COORDINATOR
            with suppress(PacelineError):
                code = ErrorCode(await ask(await to.link()))
            if code is ErrorCode.NONE:
                return
            if code in AGAIN:
                raise MembershipLost
            _must_be_known(what, code, _COORDINATOR_AGAIN)
            if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                to.forget()
            await trio.sleep(AGAIN_S)


def _must_be_known(what: str, code: ErrorCode, again: frozenset[ErrorCode]) -> None:
    """Raise Anew for what ends a producer's life."""
    if code in _LOST:
        raise Anew
    assert code in again, f"{what} was answered {code.name}, which ends Kafka's clients"


async def stable_offsets(
    link: KafkaLink, group: str, topic: str, partitions: Sequence[int]
) -> dict[int, int]:
    """Where a group is, 0 for nowhere. Raises PacelineError, also while a transaction may move
    it."""
    wanted = positions.OffsetFetchRequestTopic(name=topic, partition_indexes=tuple(partitions))
    request = positions.OffsetFetchRequest(group_id=group, topics=(wanted,), require_stable=True)
    told = await link.ask(request, 7, positions.OffsetFetchResponse)
    raise_for(told.error_code, "OFFSET_FETCH")
    found: dict[int, int] = {}
    for part in told.topics[0].partitions if told.topics else ():
        raise_for(part.error_code, f"OFFSET_FETCH {topic}/{part.partition_index}")
        found[part.partition_index] = max(0, part.committed_offset)
    return found
