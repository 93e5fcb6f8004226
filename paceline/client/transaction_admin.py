"""Transactions as operators see them."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.client.coordinator import TransactionCoordinator
from paceline.client.metadata import Metadata
from paceline.client.pool import ConnectionPool
from paceline.client.retry import Backoff
from paceline.client.settings import ClientSettings
from paceline.types import NodeId
from paceline.wire.native.api import NativeApi
from paceline.wire.native.transactions import (
    KAFKA,
    AbortTransaction,
    DescribeTransaction,
    ListTransactions,
    TransactionDescription,
    TransactionEnded,
    TransactionListing,
    TransactionsListed,
)

_WAIT_MS = 5000


class TransactionAdmin:
    """Reached as ``client.admin.transactions``. ``family`` is ``kafka`` (this client's and Kafka's
    producers), ``cursus`` or ``sink``. Calls are retried until the operation timeout."""

    def __init__(
        self, pool: ConnectionPool, metadata: Metadata, settings: ClientSettings, backoff: Backoff
    ) -> None:
        self._settings = settings
        self._coordinator = TransactionCoordinator(pool, metadata, backoff, "")

    async def coordinator(self) -> NodeId:
        """The node that coordinates now. Raises CoordinatorNotAvailable."""
        return await self._coordinator.node(timeout_s=self._settings.operation_timeout_s)

    async def list(self, *, states: Sequence[str] = ()) -> list[TransactionListing]:
        """All transactional ids, or those in some states (``ongoing`` ...), by family and name."""
        reply = await self._coordinator.call(
            NativeApi.LIST_TRANSACTIONS,
            ListTransactions(tuple(states)),
            TransactionsListed,
            timeout_s=self._settings.operation_timeout_s,
        )
        return list(reply.transactions)

    async def describe(
        self, transactional_id: str, *, family: str = KAFKA
    ) -> TransactionDescription:
        """One id. Raises TransactionNotFound."""
        return await self._coordinator.call(
            NativeApi.DESCRIBE_TRANSACTION,
            DescribeTransaction(transactional_id, family),
            TransactionDescription,
            timeout_s=self._settings.operation_timeout_s,
        )

    async def abort(self, transactional_id: str, *, family: str = KAFKA) -> bool:
        """Abort the id's open transaction and fence its producer; whether readers have been told
        everywhere yet. Raises TransactionNotFound, InvalidTransactionState when none is open."""
        reply = await self._coordinator.call(
            NativeApi.ABORT_TRANSACTION,
            AbortTransaction(transactional_id, family, _WAIT_MS),
            TransactionEnded,
            timeout_s=self._settings.operation_timeout_s,
            wait_s=_WAIT_MS / 1000,
        )
        return reply.complete
