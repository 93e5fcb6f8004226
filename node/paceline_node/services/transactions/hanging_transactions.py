"""Ending transactions that are open in a log, and of which their coordinator knows nothing.

That takes an unclean election (``transactions/hanging.py``). A leader asks the coordinator about
those that were open at its last look already, and ends those it does not know as aborted: nobody
could commit them any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import structlog

from paceline.errors import PacelineError
from paceline.types import LeaderEpoch
from paceline.wire.peer.names import PartitionName
from paceline_node.replication.hosted_partitions import HostedPartitions
from paceline_node.replication.partition import Partition, ProduceResult
from paceline_node.replication.transaction_gate import MarkerOrder
from paceline_node.services.future import Future
from paceline_node.services.transactions.transaction_rpc import TransactionRpc
from paceline_node.storage.producer_state import ProducerState
from paceline_node.transactions.hanging import OpenHere

_ASKED_AT_ONCE = 1000
_TIMEOUT_S = 30.0


class _Open(NamedTuple):
    """``state`` is the producer's before the coordinator was asked."""

    partition: Partition
    producer_id: int
    state: ProducerState


class HangingTransactions:
    """``ended`` counts those that were aborted here."""

    def __init__(self, table: HostedPartitions, rpc: TransactionRpc) -> None:
        self._table = table
        self._rpc = rpc
        self._seen: dict[tuple[Partition, int], int] = {}
        self._log = structlog.get_logger(component="transactions")
        self.ended = 0

    async def look(self) -> None:
        """Ask about what has been open in the logs that this node leads since the last look."""
        before, self._seen = self._seen, {}
        old: list[_Open] = []
        for partition in self._table.partitions:
            if not partition.is_leader:
                continue
            producers = partition.log.producers
            for producer_id, first in producers.transactions.open.items():
                self._seen[partition, producer_id] = first
                state = producers.producer(producer_id)
                if state is not None and before.get((partition, producer_id)) == first:
                    old.append(_Open(partition, producer_id, state))
        for at in range(0, len(old), _ASKED_AT_ONCE):
            try:
                await self._ask(old[at : at + _ASKED_AT_ONCE])
            except PacelineError as error:
                # Whoever coordinates is asked at the next look.
                self._log.debug("open transactions not looked up", error=str(error))

    async def _ask(self, old: Sequence[_Open]) -> None:
        asked = [
            OpenHere(
                each.producer_id, PartitionName(each.partition.topic, each.partition.partition)
            )
            for each in old
        ]
        found = await self._rpc.find_hanging(asked)
        for each, hangs in zip(old, found.hanging, strict=True):
            if hangs:
                await self._abort(each, found.coordinator_epoch)

    async def _abort(self, found: _Open, coordinator_epoch: LeaderEpoch) -> None:
        partition = found.partition
        order = MarkerOrder(
            found.producer_id,
            found.state.epoch,
            serial=0,
            commits=False,
            coordinator_epoch=coordinator_epoch,
            noted=found.state,
        )
        answer: Future[ProduceResult] = Future()
        try:
            partition.end_transaction(order, timeout_s=_TIMEOUT_S, done=answer.deliver)
            await answer.wait()
        except PacelineError as error:
            self._log.info("not aborted", partition=str(partition), error=str(error))
            return
        self.ended += 1
        self._log.warning(
            "aborted a transaction that its coordinator does not know",
            partition=str(partition),
            producer_id=found.producer_id,
            first_offset=found.state.open_offset,
        )
