"""Kafka requests of idempotent and transactional producers, over the transaction service.

Producers of these versions keep their epoch from one transaction to the next, and name partitions
and groups to the coordinator before they write to them.
"""

from __future__ import annotations

from paceline.errors import ErrorCode, InvalidRequest, PacelineError
from paceline.wire.kafka import transactions as wire
from paceline_node.listeners.kafka.call import Call
from paceline_node.listeners.kafka.coordinator_errors import CoordinatorApi, coordinator_code
from paceline_node.listeners.kafka.errors import code_of
from paceline_node.listeners.kafka.offsets import judged, stored
from paceline_node.security.principals import Operation
from paceline_node.services.groups.group_service import GroupService
from paceline_node.services.groups.open_group import GroupMember
from paceline_node.services.partitions.writable_topic import WritableTopic
from paceline_node.services.records.produce import ProduceService
from paceline_node.services.transactions.producer_ids import ProducerIdService
from paceline_node.services.transactions.transaction_offsets import TransactionOffsets
from paceline_node.services.transactions.transaction_service import TransactionService
from paceline_node.transaction_names import Family, ProducerIdentity, TransactionKey

_NO_PRODUCER = -1
_INIT_WITH_FENCED = 4
_WITH_FENCED = 2
_COMPLETE_S = 2.0
"""How long an answer to END_TXN waits for readers to see the outcome, which is decided before: the
client's next transaction, refused until then, mostly need not be asked for twice."""


def _code(error: PacelineError, api: CoordinatorApi, version: int, since: int) -> int:
    """A fenced producer has a number of its own from version ``since`` on."""
    if error.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
        fenced = version >= since
        return ErrorCode.PRODUCER_FENCED if fenced else ErrorCode.INVALID_PRODUCER_EPOCH
    return coordinator_code(error, api)


def _key(transactional_id: str) -> TransactionKey:
    if not transactional_id:
        raise InvalidRequest("a transactional id is not empty")
    return TransactionKey(Family.KAFKA, transactional_id)


class KafkaTransactions:
    """Producer ids and transactions."""

    def __init__(
        self,
        producer_ids: ProducerIdService,
        transactions: TransactionService,
        offsets: TransactionOffsets,
        groups: GroupService,
        produce: ProduceService,
    ) -> None:
        self._producer_ids = producer_ids
        self._transactions = transactions
        self._offsets = offsets
        self._groups = groups
        self._produce = produce

    async def init_producer(
        self, request: wire.InitProducerIdRequest, call: Call
    ) -> wire.InitProducerIdResponse:
        """An id for an idempotent producer, a new one for whoever comes back for more; for a
        transactional id its own, with an epoch that fences who had it before."""
        try:
            identity = await self._identity(request, call)
        except PacelineError as error:
            api = CoordinatorApi.INIT_PRODUCER_ID
            if request.transactional_id is None:
                api = CoordinatorApi.PRODUCER_ID_ALONE
            code = _code(error, api, call.version, _INIT_WITH_FENCED)
            return wire.InitProducerIdResponse(error_code=code, producer_epoch=-1)
        return wire.InitProducerIdResponse(
            error_code=0, producer_id=identity.producer_id, producer_epoch=identity.epoch
        )

    async def _identity(self, request: wire.InitProducerIdRequest, call: Call) -> ProducerIdentity:
        if request.transactional_id is None:
            return ProducerIdentity(await self._producer_ids.next_id(call.principal), 0)
        expected = None
        if request.producer_id != _NO_PRODUCER:
            expected = ProducerIdentity(request.producer_id, request.producer_epoch)
        made = await self._transactions.init(
            call.principal,
            _key(request.transactional_id),
            request.transaction_timeout_ms,
            expected=expected,
        )
        return made.identity

    # --- what belongs to a transaction ------------------------------------------------------------

    async def add_partitions(
        self, request: wire.AddPartitionsToTxnRequest, call: Call
    ) -> wire.AddPartitionsToTxnResponse:
        """All of the partitions, or none."""
        named = [(topic.name, number) for topic in request.topics for number in topic.partitions]
        named = list(dict.fromkeys(named))
        opened, refused = await self._opened(named, call)
        code = int(ErrorCode.OPERATION_NOT_ATTEMPTED) if refused else 0
        if not refused:
            try:
                await self._transactions.add_partitions(
                    call.principal,
                    _key(request.transactional_id),
                    ProducerIdentity(request.producer_id, request.producer_epoch),
                    opened,
                )
            except PacelineError as error:
                api = CoordinatorApi.ADD_PARTITIONS_TO_TXN
                code = _code(error, api, call.version, _WITH_FENCED)
        return wire.AddPartitionsToTxnResponse(
            results_by_topic=tuple(
                [
                    wire.AddPartitionsToTxnResponseTopic(
                        name=topic.name,
                        results_by_partition=tuple(
                            [
                                wire.AddPartitionsToTxnResponseTopicPartition(
                                    partition_index=number,
                                    partition_error_code=refused.get((topic.name, number), code),
                                )
                                async for number in call.pace.each(topic.partitions)
                            ]
                        ),
                    )
                    async for topic in call.pace.each(request.topics)
                ]
            )
        )

    async def _opened(
        self, named: list[tuple[str, int]], call: Call
    ) -> tuple[list[tuple[WritableTopic, int]], dict[tuple[str, int], int]]:
        """The partitions that the client can write to, and the errors of the others."""
        opened, refused = [], {}
        async for topic, number in call.pace.each(named):
            try:
                opened.append((self._produce.open(call.principal, topic), number))
            except PacelineError as error:
                refused[topic, number] = code_of(error)
            else:
                if not self._groups.has_partition(topic, number):
                    refused[topic, number] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return opened, refused

    async def add_offsets(
        self, request: wire.AddOffsetsToTxnRequest, call: Call
    ) -> wire.AddOffsetsToTxnResponse:
        """A group whose offsets are to be committed."""
        try:
            group = self._groups.open_kafka(
                call.principal, Operation.COMMIT_OFFSETS, request.group_id
            )
            await self._transactions.add_group(
                call.principal,
                _key(request.transactional_id),
                ProducerIdentity(request.producer_id, request.producer_epoch),
                group,
            )
        except PacelineError as error:
            code = _code(error, CoordinatorApi.ADD_OFFSETS_TO_TXN, call.version, _WITH_FENCED)
            return wire.AddOffsetsToTxnResponse(error_code=code)
        return wire.AddOffsetsToTxnResponse(error_code=0)

    async def commit_offsets(
        self, request: wire.TxnOffsetCommitRequest, call: Call
    ) -> wire.TxnOffsetCommitResponse:
        """Offsets that become the group's when the transaction commits."""
        asked = await judged(self._groups, request.topics, call)
        code, member = 0, None
        # Below version 3 the producer does not say for which member it speaks.
        if request.generation_id >= 0 or request.member_id or request.group_instance_id:
            member = GroupMember(
                request.generation_id, request.member_id, request.group_instance_id
            )
        try:
            await self._offsets.commit(
                call.principal,
                _key(request.transactional_id),
                ProducerIdentity(request.producer_id, request.producer_epoch),
                self._groups.open_kafka(call.principal, Operation.COMMIT_OFFSETS, request.group_id),
                member,
                asked.good,
                adds=False,
            )
        except PacelineError as error:
            api = CoordinatorApi.TXN_OFFSET_COMMIT
            code = _code(error, api, call.version, call.version + 1)
        return wire.TxnOffsetCommitResponse(
            topics=await stored(request.topics, code, asked.refused, call)
        )

    # --- the end ----------------------------------------------------------------------------------

    async def end(self, request: wire.EndTxnRequest, call: Call) -> wire.EndTxnResponse:
        """Answered once it is decided for good."""
        try:
            await self._transactions.end(
                call.principal,
                _key(request.transactional_id),
                ProducerIdentity(request.producer_id, request.producer_epoch),
                commits=request.committed,
                bumps=False,
                wait_s=_COMPLETE_S,
            )
        except PacelineError as error:
            code = _code(error, CoordinatorApi.END_TXN, call.version, _WITH_FENCED)
            return wire.EndTxnResponse(error_code=code)
        return wire.EndTxnResponse(error_code=0)
