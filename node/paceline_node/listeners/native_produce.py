"""Native PRODUCE: batches of a frame's payload to the partitions this node leads.

No task and no await per request: every partition's append happens here and now, in order of
arrival, and the answer is sent by the callback of the last partition to be decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from paceline.errors import InvalidRequest, MessageTooLarge, PacelineError, PolicyViolation
from paceline.types import NO_EPOCH, NO_NODE, LeaderEpoch, NodeId, is_internal_topic
from paceline.wire.batch import CLIENT_ATTRIBUTES, checked_batches, validate_client_batches
from paceline.wire.batch_header import LENGTH_OVERHEAD, BatchHeader, read_header
from paceline.wire.frame import Frame
from paceline.wire.message import Packed
from paceline.wire.native.data import (
    Produce,
    ProducedPartition,
    ProducePartition,
    pack_produced,
)
from paceline_node.replication.partition import Done, Partition, ProduceResult
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.client_batches import ClientBatches
from paceline_node.services.records import RecordService
from paceline_node.services.transactional_produce import (
    TRANSACTIONAL_ATTRIBUTES,
    TransactionalProduce,
)
from paceline_node.services.transactions import TransactionService
from paceline_node.stretches import Work, at_once
from paceline_node.transactions.keys import Family, TransactionKey

_FAMILIES = {family.value: family for family in (Family.KAFKA, Family.SINK)}
"""Whose transactions native clients write in."""
MAX_PART_BYTES = 8 * 1024 * 1024
"""Of several batches for one partition in one request, which are written at once."""
_SMALL_BYTES = 64 * 1024
_ERROR_AT = 2  # field of ProducedPartition

Answer = Callable[[Packed, int], None]
"""Takes the packed ProduceReply and the first partition's error that is one, 0 when all went well.
"""


class ProduceHandler:
    """Appends for native clients. ``max_timeout_ms`` caps what a client may ask to wait."""

    def __init__(
        self,
        records: RecordService,
        transactional: TransactionalProduce,
        transactions: TransactionService,
        batches: ClientBatches,
        *,
        max_timeout_ms: int = 120_000,
    ) -> None:
        self._records = records
        self._transactional = transactional
        self._transactions = transactions
        self._batches = batches
        self._max_timeout_ms = max_timeout_ms

    def handle(self, frame: Frame, principal: Principal, answer: Answer, account: str = "") -> None:
        """Append what ``frame`` carries; ``answer`` is called once, maybe before this returns.
        New producers are counted for ``account``.

        Offsets are stamped into the frame's own memory. Raises RemoteProtocolError or
        InvalidRequest when the request as a whole is wrong; nothing was appended then.
        """
        at_once(self.handling(frame, principal, answer, account))

    def handling(
        self, frame: Frame, principal: Principal, answer: Answer, account: str = ""
    ) -> Work[None]:
        """As :meth:`handle`, a stretch at a time: nothing is awaited between the check of a
        partition's role and its append."""
        request = Produce.unpack(frame.body)
        parts = request.partitions
        payload = frame.payload
        sizes = [part.records_bytes for part in parts]
        if sum(sizes) != len(payload) or min(sizes, default=0) < 0:
            raise InvalidRequest(f"payload of {len(payload)} bytes, the partitions name {sizes}")
        if payload.readonly:  # of a WebSocket message
            payload = memoryview(bytearray(payload))
        key = _transaction_of(request)
        if key is not None:
            self._transactions.permit(principal, Operation.TRANSACT, key.name)
        pending = _PendingReply(parts, answer)
        timeout_s = max(0, min(request.timeout_ms, self._max_timeout_ms)) / 1000
        position = 0
        permitted = None
        for index, part in enumerate(parts):
            yield 1
            batches = payload[position : position + part.records_bytes]
            position += part.records_bytes
            try:
                if part.topic != permitted:
                    self._records.permit(principal, Operation.PRODUCE, part.topic)
                    permitted = part.topic
                yield from self._append(
                    request, key, part, batches, timeout_s, partial(pending.done, index), account
                )
            except PacelineError as error:
                pending.refuse(
                    index, error, *self._records.leader_to_tell(error, part.topic, part.partition)
                )

    def _append(
        self,
        request: Produce,
        key: TransactionKey | None,
        part: ProducePartition,
        batches: memoryview,
        timeout_s: float,
        done: Done,
        account: str,
    ) -> Work[None]:
        if part.records_bytes > MAX_PART_BYTES and not _is_one_batch(batches):
            raise MessageTooLarge(
                f"{part.topic}/{part.partition}: several batches of {part.records_bytes} bytes in "
                f"one request, limit {MAX_PART_BYTES}: send them in several"
            )
        partition = self._leader_of(part)
        allowed = CLIENT_ATTRIBUTES if key is None else TRANSACTIONAL_ATTRIBUTES
        if len(batches) <= _SMALL_BYTES:
            headers = validate_client_batches(batches, allowed_attributes=allowed)
        else:
            headers = yield from _validating(batches, allowed)
            partition = self._leader_of(part)
        self._batches.check(partition, headers)
        if key is None:
            partition.produce(
                batches,
                headers,
                acks=request.acks,
                timeout_s=timeout_s,
                done=done,
                client=account,
            )
            return
        self._transactional.produce(
            partition,
            key,
            batches,
            headers,
            adds=True,
            acks=request.acks,
            timeout_s=timeout_s,
            done=done,
            client=account,
        )

    def _leader_of(self, part: ProducePartition) -> Partition:
        if is_internal_topic(part.topic):
            raise PolicyViolation(f"{part.topic}: internal topics take no records from clients")
        if part.records_bytes <= 0:
            raise InvalidRequest(f"{part.topic}/{part.partition}: no batch for it in the payload")
        return self._records.leader(
            part.topic, part.partition, current_leader_epoch=part.current_leader_epoch
        )


def _is_one_batch(batches: memoryview) -> bool:
    return read_header(batches).batch_length + LENGTH_OVERHEAD == len(batches)


def _validating(batches: memoryview, allowed: int) -> Work[list[BatchHeader]]:
    """The headers of many batches, as of :func:`validate_client_batches`."""
    headers = []
    for header in checked_batches(batches, allowed_attributes=allowed):
        headers.append(header)
        # Checking 64 KiB costs as much as anything else that counts for one.
        yield 1 + header.batch_length // _SMALL_BYTES
    return headers


def _transaction_of(request: Produce) -> TransactionKey | None:
    if request.transactional_id is None:
        return None
    family = _FAMILIES.get(request.transaction_family)
    if family is None:
        raise InvalidRequest(f"transactions of family {request.transaction_family!r}")
    return TransactionKey(family, request.transactional_id)


class _PendingReply:
    """Collects the results of one request's partitions and answers when the last one is in."""

    __slots__ = ("_answer", "_missing", "_parts", "_results")

    def __init__(self, parts: Sequence[ProducePartition], answer: Answer) -> None:
        self._parts = parts
        self._answer = answer
        self._missing = len(parts)
        self._results: list[list[Any] | None] = [None] * self._missing
        if not self._missing:
            answer(Packed([[]]), 0)

    def done(self, index: int, result: ProduceResult | PacelineError) -> None:
        """A partition has stored its batches, or cannot tell."""
        if isinstance(result, PacelineError):
            self.refuse(index, result, NO_NODE, NO_EPOCH)
        else:
            self._put(index, pack_produced(self._parts[index], *result))

    def refuse(self, index: int, error: PacelineError, leader: int, leader_epoch: int) -> None:
        """A partition has stored nothing, or its outcome is unknown, as ``error`` says."""
        part = self._parts[index]
        refused = ProducedPartition(
            part.topic,
            part.partition,
            int(error.code),
            str(error),
            -1,
            -1,
            LeaderEpoch(leader_epoch),
            -1,
            -1,
            leader=NodeId(leader),
        )
        self._put(index, refused.pack())

    def _put(self, index: int, result: list[Any]) -> None:
        results = self._results
        assert results[index] is None, "a partition answers once"
        results[index] = result
        self._missing -= 1
        if not self._missing:
            errors = (each[_ERROR_AT] for each in results if each is not None)
            self._answer(Packed([results]), next(filter(None, errors), 0))
