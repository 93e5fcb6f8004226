"""The machine of ``__transactions``: state, commands and time-outs together.

Commands are methods of the parts: ``engine.producers.end(...)``, ``engine.sinks.commit(...)``,
``engine.staging.stage(...)``. What a decision leaves to do in other places is told by
:meth:`TransactionEngine.ending`; who does it (``services/transactions/transaction_endings.py``)
reports back with ``engine.producers.complete``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

from paceline.errors import PacelineError
from paceline_node.state_machines.machine import Entry, Journal
from paceline_node.transaction_names import TransactionKey
from paceline_node.transactions.context import TransactionContext
from paceline_node.transactions.endings import Ending, ending_of
from paceline_node.transactions.expiry import Expiry
from paceline_node.transactions.hanging import OpenHere, find_hanging
from paceline_node.transactions.inspection import Inspection
from paceline_node.transactions.limits import TransactionLimits
from paceline_node.transactions.producers import SET_BACK, ProducerTransactions
from paceline_node.transactions.records import State
from paceline_node.transactions.sinks import SinkTransactions
from paceline_node.transactions.staging import StagedTransactions
from paceline_node.transactions.store import TransactionStore


class TransactionEngine:
    """See :class:`~paceline_node.state_machines.machine.Machine`. ``endings_changed`` is called
    whenever :meth:`endings` may have changed."""

    def __init__(self, limits: TransactionLimits, endings_changed: Callable[[], None]) -> None:
        self._context = context = TransactionContext(limits, endings_changed)
        self.producers = ProducerTransactions(context)
        self.staging = StagedTransactions(context, self.producers)
        self.sinks = SinkTransactions(context)
        self.inspection = Inspection(context, self.producers)
        self._expiry = Expiry(context)

    @property
    def store(self) -> TransactionStore:
        return self._context.store

    @property
    def leads(self) -> bool:
        """Whether it decides now."""
        return self._context.leads

    @property
    def limits(self) -> TransactionLimits:
        return self._context.limits

    def oldest_open_s(self) -> float:
        """How long the oldest open transaction has been open, while this leads; 0 for none."""
        began_ms = self.store.oldest_began_ms
        return 0.0 if began_ms is None else max(0, self._context.wall_ms() - began_ms) / 1000

    def endings(self) -> list[TransactionKey]:
        """Transactions that are decided and not complete, while this leads."""
        return list(self.store.prepared) if self.leads else []

    @property
    def ending_count(self) -> int:
        """How many they are."""
        return len(self.store.prepared) if self.leads else 0

    def ending(self, key: TransactionKey) -> Ending | None:
        """What is left to do for one of them; None when it is done."""
        ending = ending_of(self.store, key)
        if ending is None or not self.leads:
            return ending
        found = self.store.transactions[key]
        return ending._replace(set_back=self._context.was_set_back(found))

    def find_hanging(self, asked: Collection[OpenHere]) -> list[bool]:
        """See :func:`find_hanging`."""
        return find_hanging(self._context, asked)

    # --- the machine ------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> None:
        """Fold one record."""
        self.store.apply(entry)

    def reset(self) -> None:
        """Forget everything."""
        self.store.clear()

    def lead(self, journal: Journal, *, log_is_empty: bool) -> None:
        """Decide from now on: watch open transactions, finish what was decided."""
        self._context.begin(journal)
        self.sinks.settle_all()
        self._expiry.begin()

    def resign(self, error: PacelineError) -> None:
        """Decide nothing any more."""
        self._expiry.end()
        self._context.end()

    def next_alarm(self) -> float:
        if self._context.has_unwatched:
            return -math.inf
        return min(self._context.alarms.next(), self._expiry.next_at())

    def on_alarm(self) -> None:
        """Abort what has been open for too long; what cannot be stored now is tried again."""
        if self._context.has_unwatched:
            self._context.watch_some()
            return
        now = self._context.now()
        self._context.alarms.ring(now, self._wake)
        if self._expiry.next_at() <= now:
            try:
                self._expiry.look()
            except PacelineError:
                self._expiry.begin()

    def _wake(self, key: TransactionKey) -> float:
        """Abort the transaction if it has been open for too long."""
        found = self._context.find(key)
        if found is None or found.state is not State.ONGOING:
            self._context.inactive(key)
            return math.inf
        deadline = self._context.deadline(key)
        if deadline <= self._context.now():
            is_lost = self._context.was_set_back(found)
            reason = SET_BACK if is_lost else f"open for longer than {found.timeout_ms} ms"
            self.producers.abort(key, reason)
            return math.inf
        return deadline
