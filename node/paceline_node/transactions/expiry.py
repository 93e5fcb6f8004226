"""Forgetting transactional ids and sinks that nobody has used for long, by a log record.

A transactional id goes when it has no open transaction and has not changed for
``transactions.ids_kept_ms``. One of family ``cursus`` stays, for its epoch may not begin anew (spec
cursus 10).
"""

from __future__ import annotations

import math

from paceline_node.coordination.machine import Entry
from paceline_node.transactions.context import TransactionContext
from paceline_node.transactions.endings import dropped_staging
from paceline_node.transactions.keys import Family
from paceline_node.transactions.records import State, sink_entry, transaction_entry

_AT_ONCE = 200


class Expiry:
    """Looks through the ids once in a while."""

    def __init__(self, context: TransactionContext) -> None:
        self._context = context
        self._at = math.inf

    def begin(self) -> None:
        """This node leads now, or has looked."""
        self._at = self._context.now() + self._context.limits.expiry_check_s

    def end(self) -> None:
        """This node leads no longer."""
        self._at = math.inf

    def next_at(self) -> float:
        """When :meth:`look` wants to be called."""
        return self._at

    def look(self) -> None:
        """Forget some of what is due. Raises what writing raises."""
        self.begin()
        limits, store = self._context.limits, self._context.store
        wall_ms = self._context.wall_ms()
        ids_before_ms = wall_ms - int(limits.ids_kept_s * 1000)
        sinks_before_ms = wall_ms - int(limits.sinks_kept_s * 1000)
        entries: list[Entry] = []
        for key, found in store.transactions.items():
            if (
                (found.state is State.EMPTY or found.state.is_complete)
                and found.changed_ms < ids_before_ms
                and key.family is not Family.CURSUS
            ):
                entries.append(transaction_entry(key, None))
                entries += dropped_staging(store, key)
        for name, sink in store.sinks.items():
            if sink.changed_ms < sinks_before_ms and name not in store.of_sink:
                entries.append(sink_entry(name, None))
        if entries:
            self._context.write(*entries[:_AT_ONCE])
        if len(entries) > _AT_ONCE:
            self._at = self._context.now()
