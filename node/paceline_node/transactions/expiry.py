"""Forgetting transactional ids and sinks that nobody has used for long, by a log record.

A transactional id goes when it has no open transaction and has not changed for
``transactions.ids_kept_ms``. Those of family ``cursus`` show their clients an epoch of their own,
which may not begin anew: with them a record is written that says where the epochs
of new ids begin, above all that were forgotten.
"""

from __future__ import annotations

import math
from itertools import islice

from paceline_node.state_machines.machine import Entry
from paceline_node.transaction_names import Family
from paceline_node.transactions.context import TransactionContext
from paceline_node.transactions.endings import dropped_staging, left_staging
from paceline_node.transactions.records import floor_entry, sink_entry, transaction_entry
from paceline_node.transactions.transactional_id_eviction import LOOKED_AT, unchanged

_AT_ONCE = 200
_SOON_S = 1.0


class Expiry:
    """Looks through the ids once in a while."""

    def __init__(self, context: TransactionContext) -> None:
        self._context = context
        self._at = math.inf

    def begin(self) -> None:
        """This node leads now, or has looked."""
        self._at = self._context.now() + self._context.limits.expiry_check_s
        if any(True for _ in left_staging(self._context.store)):
            self._at = self._context.now() + _SOON_S

    def end(self) -> None:
        """This node leads no longer."""
        self._at = math.inf

    def next_at(self) -> float:
        """When :meth:`look` wants to be called."""
        return self._at

    def look(self) -> None:
        """Forget some of what is due. Raises what writing raises."""
        limits, store = self._context.limits, self._context.store
        for key in left_staging(store):
            self._context.write_pieces(dropped_staging(store, key))
        self.begin()
        wall_ms = self._context.wall_ms()
        ids_before_ms = wall_ms - int(limits.ids_kept_s * 1000)
        sinks_before_ms = wall_ms - int(limits.sinks_kept_s * 1000)
        entries: list[Entry] = []
        known = store.floors.get(Family.CURSUS, 0)
        floor = known
        for family in Family:
            for keys in (store.unused[family], store.idle[family]):
                due = unchanged(store, keys, ids_before_ms - 1)
                for key, found in islice(due, _AT_ONCE - len(entries)):
                    entries.append(transaction_entry(key, None))
                    if key.family is Family.CURSUS:
                        floor = max(floor, found.wire_epoch + 1)
        for name, sink in islice(store.sinks.items(), LOOKED_AT):
            if len(entries) >= _AT_ONCE:
                break
            if sink.changed_ms < sinks_before_ms and name not in store.of_sink:
                entries.append(sink_entry(name, None))
        is_full = len(entries) >= _AT_ONCE
        if floor > known:
            entries.append(floor_entry(Family.CURSUS, floor))
        if entries:
            self._context.write(*entries)
        if is_full:
            self._at = self._context.now()
