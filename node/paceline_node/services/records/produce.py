"""Appending batches as clients sent them: one order of checks, whatever the protocol.

1. Who may use the transaction (of the whole request).
2. Who may write to the topic, asked once for parts of one topic in a row; whether the topic is one
   that takes records from clients.
3. Whether this node leads the partition, in the epoch that the client means.
4. The batches: whole, of the form that the protocol allows, of a size and a time that the topic
   allows.
5. The transaction of the partition, and the append (``Partition.produce``, which judges role,
   replicas, sequences and space in the step that appends).

The first that fails is told. Nothing is awaited and no task is made: appends happen in order of
arrival, here and now, and each part's result comes by callback.

Protocols that send single records, and look for the topic or for its leader first, open the topic
(2) and append to it by what they are given (3, 5): the batches are this node's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from paceline.errors import InvalidTimestamp, PacelineError
from paceline.types import NO_EPOCH, Acks, LeaderEpoch
from paceline.wire.batch import CLIENT_ATTRIBUTES
from paceline.wire.batch_header import BatchHeader
from paceline.wire.native.quotas import QuotaLimit
from paceline_node.env import Env
from paceline_node.loop_turns import Turns
from paceline_node.replication.partition import Done, Partition, ProduceResult
from paceline_node.security.principals import Operation, Principal
from paceline_node.security.quotas import ClientQuotas
from paceline_node.services.partitions.batch_sizes import check_sizes
from paceline_node.services.partitions.partition_access import PartitionAccess, Refused
from paceline_node.services.partitions.sequenced_appends import SequencedAppender
from paceline_node.services.partitions.writable_topic import WritableTopic
from paceline_node.services.records.multi_part_answer import MultiPartAnswer
from paceline_node.services.transactions.transaction_service import TransactionService
from paceline_node.services.transactions.transactional_produce import (
    TRANSACTIONAL_ATTRIBUTES,
    TransactionalProduce,
)
from paceline_node.sliced_work import Work
from paceline_node.transaction_names import TransactionKey

BYTES_PER_UNIT = 64 * 1024
"""Checking and writing so much costs as much as anything else that counts for one."""

Validate = Callable[[memoryview, int], Iterable[BatchHeader]]
"""A protocol's form of batches: their headers one after the other, given the attribute bits that
are allowed, or the error that tells what is wrong."""


class Part(NamedTuple):
    """What goes to one partition. ``current_leader_epoch``: as the client thinks, -1 unchecked.
    ``fault``: what is wrong with the batches in the eyes of whoever has read them."""

    topic: str
    partition: int
    batches: memoryview
    current_leader_epoch: LeaderEpoch = NO_EPOCH
    fault: PacelineError | None = None

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class Within(NamedTuple):
    """The transaction of a request. ``adds``: see :meth:`TransactionalProduce.produce`."""

    key: TransactionKey
    adds: bool


class Wish(NamedTuple):
    """How a request wants its batches appended. New producers are counted for ``account``."""

    principal: Principal
    acks: Acks
    timeout_s: float
    validate: Validate
    within: Within | None = None
    account: str = ""


Outcome = ProduceResult | Refused


class ProduceService:
    """Appends to the partitions that this node leads. ``permit_producer`` raises
    AuthorizationFailed for a producer id that is another one's."""

    def __init__(
        self,
        env: Env,
        records: PartitionAccess,
        transactions: TransactionService,
        transactional: TransactionalProduce,
        turns: Turns,
        permit_producer: Callable[[Principal, int], None],
        quotas: ClientQuotas,
    ) -> None:
        self._quotas = quotas
        self._permit_producer = permit_producer
        self._env = env
        self._records = records
        self._transactions = transactions
        self._transactional = transactional
        self._appender = SequencedAppender(env, turns)

    def open(self, principal: Principal, topic: str) -> WritableTopic:
        """A topic, which need not exist yet, to append single records to, or to make part of a
        transaction. Raises AuthorizationFailed, and PolicyViolation as
        :meth:`PartitionAccess.admit_producer`."""
        self._records.admit_producer(principal, topic)
        return WritableTopic(topic, self._records, self._appender)

    def appending(
        self, wish: Wish, parts: Sequence[Part], answer: Callable[[list[Outcome]], None]
    ) -> Work[None]:
        """Append all parts, a stretch at a time; ``answer`` is called once with what became of
        each, in their order, maybe before this ends. Offsets are stamped into the parts' memory,
        which is not to be used again.

        Raises with nothing appended AuthorizationFailed for the transaction, and what ``answer``
        raises.
        """
        if wish.within is not None:
            self._transactions.permit(wish.principal, Operation.TRANSACT, wish.within.key.owner)
        size = sum([len(part.batches) for part in parts])
        self._quotas.spend(wish.principal, QuotaLimit.PRODUCE, size)
        gather: MultiPartAnswer[Outcome] = MultiPartAnswer(len(parts), answer)
        admitted = None
        for index, part in enumerate(parts):
            yield 1
            try:
                if part.topic != admitted:
                    self._records.admit_producer(wish.principal, part.topic)
                    admitted = part.topic
                headers = None
                if len(part.batches) > BYTES_PER_UNIT:
                    headers = yield from self._validating(wish, part)
                self._append(wish, part, headers, partial(_tell, gather, index))
            except PacelineError as error:
                gather.put(index, self._records.refusal(error, part.topic, part.partition))
        gather.all_begun()

    def _validating(self, wish: Wish, part: Part) -> Work[Sequence[BatchHeader]]:
        """The headers of a large part, whose partition is looked up again once others had their
        turn."""
        self._leader_of(part)
        headers = []
        for header in _checked(wish, part):
            headers.append(header)
            yield 1 + header.batch_length // BYTES_PER_UNIT
        return headers

    def _append(
        self, wish: Wish, part: Part, headers: Sequence[BatchHeader] | None, done: Done
    ) -> None:
        partition = self._leader_of(part)
        if headers is None:
            headers = list(_checked(wish, part))
        check_sizes(partition, headers)
        self._check_times(partition, headers)
        if wish.within is None:
            for header in headers:
                self._permit_producer(wish.principal, header.producer_id)
            partition.produce(
                part.batches,
                headers,
                acks=wish.acks,
                timeout_s=wish.timeout_s,
                done=done,
                client=wish.account,
            )
            return
        self._transactional.produce(
            partition,
            wish.within.key,
            part.batches,
            headers,
            adds=wish.within.adds,
            acks=wish.acks,
            timeout_s=wish.timeout_s,
            done=done,
            client=wish.account,
        )

    def _leader_of(self, part: Part) -> Partition:
        return self._records.leader(
            part.topic, part.partition, current_leader_epoch=part.current_leader_epoch
        )

    def _check_times(self, partition: Partition, headers: Sequence[BatchHeader]) -> None:
        """Refuse times further in the future than the topic allows: nothing beside them would
        expire as long as they are young. By this node's clock, or by the cluster's time where that
        clock lies far behind: what all others take for now must not be refused here."""
        limit_ms = partition.config.timestamp_after_max_ms
        latest_ms = self._env.stamp_ms() + limit_ms
        for header in headers:
            newest_ms = max(header.max_timestamp, header.base_timestamp)
            if newest_ms > latest_ms:
                raise InvalidTimestamp(
                    f"{partition}: a record of time {newest_ms}, more than "
                    f"message.timestamp.after.max.ms={limit_ms} in the future"
                )


def _checked(wish: Wish, part: Part) -> Iterable[BatchHeader]:
    if part.fault is not None:
        raise part.fault
    allowed = CLIENT_ATTRIBUTES if wish.within is None else TRANSACTIONAL_ATTRIBUTES
    return wish.validate(part.batches, allowed)


def _tell(
    gather: MultiPartAnswer[Outcome], index: int, result: ProduceResult | PacelineError
) -> None:
    gather.put(index, Refused(result) if isinstance(result, PacelineError) else result)
