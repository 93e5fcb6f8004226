"""Native transaction requests: ``wire/native/transactions.py`` to the service and back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from paceline.errors import InvalidRequest
from paceline.wire.frame import Frame
from paceline.wire.message import Message, Packed
from paceline.wire.native import transactions as wire
from paceline.wire.native.api import NativeApi
from paceline.wire.native.groups import CoordinatorFound
from paceline_node.loop_turns import Turns
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.admin.node_status import broker_info
from paceline_node.services.transactions.transaction_service import TransactionService
from paceline_node.services.transactions.transaction_values import listing_of
from paceline_node.sliced_work import Work
from paceline_node.transaction_names import Family, ProducerIdentity, TransactionKey

Handler = Callable[[Frame, Principal], Awaitable[Message | Packed]]
_LISTENERS = ("native", "http")
_MAX_WAIT_S = 60.0


class NativeTransactions:
    """Handlers by api number, in :meth:`handlers`."""

    def __init__(self, transactions: TransactionService, turns: Turns) -> None:
        self._transactions = transactions
        self._turns = turns

    def handlers(self) -> dict[int, Handler]:
        """What the native listener serves of transactions, besides INIT_PRODUCER with an id,
        PRODUCE and COMMIT_TRANSACTION_OFFSETS."""
        return {
            NativeApi.FIND_TRANSACTION_COORDINATOR: self._find,
            NativeApi.END_TRANSACTION: self._end,
            NativeApi.LIST_TRANSACTIONS: self._list,
            NativeApi.DESCRIBE_TRANSACTION: self._describe,
            NativeApi.ABORT_TRANSACTION: self._abort,
            NativeApi.BEGIN_ATTEMPT: self._begin_attempt,
            NativeApi.TOUCH_BATCH: self._touch,
            NativeApi.COMMIT_GROUP: self._commit_group,
            NativeApi.ABORT_GROUP: self._abort_group,
            NativeApi.SINK_STATE: self._sink_state,
        }

    async def _find(self, frame: Frame, principal: Principal) -> Message:
        request = wire.FindTransactionCoordinator.unpack(frame.body)
        broker = self._transactions.coordinator(
            principal, Operation.DESCRIBE, request.name, *_LISTENERS
        )
        return CoordinatorFound(broker_info(broker))

    async def _end(self, frame: Frame, principal: Principal) -> Message:
        request = wire.EndTransaction.unpack(frame.body)
        ended = await self._transactions.end(
            principal,
            TransactionKey(Family.KAFKA, request.transactional_id),
            ProducerIdentity(request.producer_id, request.producer_epoch),
            commits=request.commits,
            bumps=True,
            wait_s=_wait_s(request.wait_ms),
        )
        return wire.TransactionEnded(*ended.identity, ended.complete)

    # --- operators --------------------------------------------------------------------------------

    async def _list(self, frame: Frame, principal: Principal) -> Packed:
        request = wire.ListTransactions.unpack(frame.body)
        found = await self._transactions.list(principal, request.states)

        def packed() -> Work[list[list[Any]]]:
            listed = []
            for each in found:
                yield 1
                listed.append(listing_of(each).pack())
            return listed

        return Packed([await self._turns.run(packed())])

    async def _describe(self, frame: Frame, principal: Principal) -> Message:
        request = wire.DescribeTransaction.unpack(frame.body)
        key = _key(request.family, request.transactional_id)
        found = await self._transactions.describe(principal, key)
        return wire.TransactionDescription(
            listing=listing_of(found),
            partitions=tuple(
                wire.TransactionPartition(each.topic, each.partition) for each in found.partitions
            ),
            groups=tuple(found.groups),
            staged=found.staged,
            reason=found.reason,
            sink=found.sink,
            batch=found.batch,
            run=found.run,
        )

    async def _abort(self, frame: Frame, principal: Principal) -> Message:
        request = wire.AbortTransaction.unpack(frame.body)
        key = _key(request.family, request.transactional_id)
        ended = await self._transactions.abort(principal, key, wait_s=_wait_s(request.wait_ms))
        return wire.TransactionEnded(*ended.identity, ended.complete)

    # --- sinks ------------------------------------------------------------------------------------

    async def _begin_attempt(self, frame: Frame, principal: Principal) -> Message:
        request = wire.BeginAttempt.unpack(frame.body)
        if request.batch < 0 or not request.sink or not request.run:
            raise InvalidRequest("a task attempt needs a sink, a run, and a batch from 0 on")
        begun = await self._transactions.begin_attempt(
            principal,
            sink=request.sink,
            query=request.query,
            run=request.run,
            batch=request.batch,
            partition=request.partition,
            number=request.attempt,
            planned_ms=request.planned_ms,
            timeout_ms=request.timeout_ms,
        )
        return wire.AttemptBegun(begun.name, *begun.identity)

    async def _touch(self, frame: Frame, principal: Principal) -> Message:
        request = wire.TouchBatch.unpack(frame.body)
        touched = await self._transactions.touch_batch(
            principal, request.sink, request.run, request.batch
        )
        return wire.BatchTouched(touched)

    async def _commit_group(self, frame: Frame, principal: Principal) -> Message:
        request = wire.CommitGroup.unpack(frame.body)
        complete = await self._transactions.commit_group(
            principal,
            request.sink,
            request.run,
            request.batch,
            request.transactions,
            wait_s=_wait_s(request.wait_ms),
        )
        return wire.GroupCommitted(complete)

    async def _abort_group(self, frame: Frame, principal: Principal) -> Message:
        request = wire.AbortGroup.unpack(frame.body)
        await self._transactions.abort_group(
            principal, request.sink, request.batch, request.transactions, run=request.run
        )
        return wire.GroupAborted()

    async def _sink_state(self, frame: Frame, principal: Principal) -> Message:
        request = wire.SinkState.unpack(frame.body)
        sink = await self._transactions.sink_state(principal, request.sink)
        if sink is None:
            return wire.SinkDescription(False, "", "", -1)
        return wire.SinkDescription(True, sink.query, sink.run, sink.last_batch)


def _key(family: str, name: str) -> TransactionKey:
    try:
        return TransactionKey(Family(family), name)
    except ValueError:
        known = ", ".join(each.value for each in Family)
        raise InvalidRequest(
            f"no transactions of family {family!r}; families are {known}"
        ) from None


def _wait_s(wait_ms: int) -> float:
    return min(max(0.0, wait_ms / 1000), _MAX_WAIT_S)
