"""What operators ask and do: list, describe, abort."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from paceline.errors import InvalidTransactionState, TransactionNotFound
from paceline_node.transaction_names import TransactionKey
from paceline_node.transactions.context import TransactionContext
from paceline_node.transactions.producers import ProducerTransactions
from paceline_node.transactions.records import State, Transaction


class Listed(NamedTuple):
    """One transactional id; ``open_s`` is how long its transaction has been open, -1 without."""

    key: TransactionKey
    transaction: Transaction
    open_s: float


class Inspection:
    """A view of the whole, for people."""

    def __init__(self, context: TransactionContext, producers: ProducerTransactions) -> None:
        self._context = context
        self._producers = producers

    def keys(self) -> Sequence[TransactionKey]:
        """All ids, in no order."""
        return tuple(self._context.store.transactions)

    def listed(self, some: Iterable[TransactionKey], states: frozenset[State]) -> Sequence[Listed]:
        """Those of ``some`` that are (still) there, in one of ``states`` (empty: any)."""
        transactions = self._context.store.transactions
        found = ((key, transactions.get(key)) for key in some)
        return [
            self._listed(key, each)
            for key, each in found
            if each is not None and (not states or each.state in states)
        ]

    def describe(self, key: TransactionKey) -> Listed:
        """One id. Raises TransactionNotFound."""
        found = self._context.find(key)
        if found is None:
            raise TransactionNotFound(f"{key}: no such transactional id")
        return self._listed(key, found)

    def abort(self, key: TransactionKey, reason: str) -> None:
        """Abort an open transaction and fence who writes in it. Raises TransactionNotFound,
        InvalidTransactionState."""
        found = self.describe(key).transaction
        if found.state is not State.ONGOING:
            raise InvalidTransactionState(f"{key}: {found.state.name}, no transaction is open")
        self._producers.abort(key, reason)

    def _listed(self, key: TransactionKey, found: Transaction) -> Listed:
        if found.state is State.ONGOING or found.state.is_prepared:
            return Listed(key, found, max(0, self._context.wall_ms() - found.began_ms) / 1000)
        return Listed(key, found, -1.0)
