"""Transactions of many task attempts, committed together (DESIGN 5).

Each attempt writes in a transaction of its own (:meth:`Sinks.begin`, then
``client.sequenced_writer(transactional_id=..., transaction_family="sink")``); its driver commits
those it wants at once, and what else the sink has open for that batch is aborted with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from paceline.client.coordinator import TransactionCoordinator
from paceline.client.metadata import Metadata
from paceline.client.pool import ConnectionPool
from paceline.client.retry import Backoff
from paceline.client.settings import ClientSettings
from paceline.wire.message import Message
from paceline.wire.native.api import NativeApi
from paceline.wire.native.transactions import (
    AbortGroup,
    AttemptBegun,
    BatchTouched,
    BeginAttempt,
    CommitGroup,
    GroupAborted,
    GroupCommitted,
    SinkDescription,
    SinkState,
    TouchBatch,
)

_VISIBLE_MS = 5000
M = TypeVar("M", bound=Message)


class Sinks:
    """Reached as ``client.sinks``. Calls are repeated, at whoever coordinates, until the operation
    timeout; then the last error is raised."""

    def __init__(
        self, pool: ConnectionPool, metadata: Metadata, settings: ClientSettings, backoff: Backoff
    ) -> None:
        self._pool = pool
        self._metadata = metadata
        self._settings = settings
        self._backoff = backoff

    async def begin(
        self,
        sink: str,
        *,
        run: str,
        batch: int,
        query: str = "",
        partition: int = 0,
        attempt: int = 0,
        timeout_s: float = 900.0,
        planned_ms: int = -1,
    ) -> AttemptBegun:
        """Open a transaction, aborted unless committed or touched within ``timeout_s``. A ``run``
        not seen before takes the sink over from the former one. ``planned_ms``: when the batch was
        planned first, which may be in an earlier run.

        Raises AlreadyCommitted (write nothing), SinkFenced, SinkConflict (another query's sink, or
        what is committed under this number was planned at another time), SinkForgotten (planned
        longer ago than sinks are remembered, and this one is not), InvalidTransactionTimeout.
        """
        timeout_ms = int(timeout_s * 1000)
        request = BeginAttempt(
            sink=sink,
            query=query,
            run=run,
            batch=batch,
            partition=partition,
            attempt=attempt,
            timeout_ms=timeout_ms,
            planned_ms=planned_ms,
        )
        return await self._call(sink, NativeApi.BEGIN_ATTEMPT, request, AttemptBegun)

    async def touch(self, sink: str, *, run: str, batch: int) -> int:
        """Renew the time-out of all that the batch has open; how many that are. Raises
        SinkFenced."""
        request = TouchBatch(sink, run, batch)
        return (await self._call(sink, NativeApi.TOUCH_BATCH, request, BatchTouched)).open_count

    async def commit(self, sink: str, *, run: str, batch: int, transactions: Sequence[str]) -> bool:
        """Commit all of ``transactions`` or none, durably; whether readers everywhere can see them
        yet. Raises AlreadyCommitted (by this call too, when an answer was lost), SinkFenced,
        InvalidTransactionState (one of them is not open; nothing has changed)."""
        request = CommitGroup(sink, run, batch, tuple(transactions), _VISIBLE_MS)
        wait_s = _VISIBLE_MS / 1000
        reply = await self._call(
            sink, NativeApi.COMMIT_GROUP, request, GroupCommitted, wait_s=wait_s
        )
        return reply.complete

    async def abort(
        self, sink: str, *, batch: int, transactions: Sequence[str] = (), run: str = ""
    ) -> None:
        """Abort those of ``transactions`` that are open, and with a ``run`` all that it has open in
        the batch."""
        request = AbortGroup(sink, batch, tuple(transactions), run)
        await self._call(sink, NativeApi.ABORT_GROUP, request, GroupAborted)

    async def state(self, sink: str) -> SinkDescription:
        """What the sink has committed last, and who may write."""
        return await self._call(sink, NativeApi.SINK_STATE, SinkState(sink), SinkDescription)

    async def _call(
        self, sink: str, api: NativeApi, body: Message, reply: type[M], *, wait_s: float = 0.0
    ) -> M:
        coordinator = TransactionCoordinator(self._pool, self._metadata, self._backoff, sink)
        timeout_s = self._settings.operation_timeout_s
        return await coordinator.call(api, body, reply, timeout_s=timeout_s, wait_s=wait_s)
