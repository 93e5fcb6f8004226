"""Which transactional ids make room for new ones where there are as many as there may be.

An id that was given out and has never had a transaction goes after
``transactions.unused_ids_kept_ms``, one that had some after an hour without, whichever changed
longest ago first; open transactions stay. This is safe, as a forgotten id's producer can begin
nothing any more: its identity is nobody's, and it has to ask for another. Without it a client that
asks for ids in a loop would shut out everybody's new ones until the last of them expires.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from paceline_node.state_machines.machine import Entry
from paceline_node.transaction_names import Family, TransactionKey
from paceline_node.transactions.limits import TransactionLimits
from paceline_node.transactions.records import (
    State,
    Transaction,
    floor_entry,
    sink_entry,
    transaction_entry,
)
from paceline_node.transactions.store import TransactionStore

_AT_ONCE = 200
LOOKED_AT = 1000
"""So many of those that changed longest ago are looked at: behind them nothing is older, unless
the clock of a coordinator before this one was ahead."""
_IDLE_KEPT_MS = 3600 * 1000


def evicted(
    store: TransactionStore, family: Family, wall_ms: int, limits: TransactionLimits
) -> list[Entry]:
    """Records that forget some ids of the family; none where all are in use. Task attempts of sinks
    are never forgotten so: they are open or gone."""
    if family is Family.SINK:
        return []
    return _entries(store, family, _unused(store, family, wall_ms, limits))


def given(
    store: TransactionStore,
    family: Family,
    keys: Iterable[TransactionKey],
    most: int,
    before_ms: float,
) -> list[Entry]:
    """Records that forget up to ``most`` of ``keys`` that did not change since ``before_ms``, none
    that has an open transaction."""
    found = ((key, store.transactions.get(key)) for key in keys)
    idle = (
        (key, each)
        for key, each in found
        if each and _is_idle(each) and each.changed_ms <= before_ms
    )
    return _entries(store, family, islice(idle, most))


def _is_idle(found: Transaction) -> bool:
    return found.state is State.EMPTY or found.state.is_complete


def _unused(
    store: TransactionStore, family: Family, wall_ms: int, limits: TransactionLimits
) -> Iterator[tuple[TransactionKey, Transaction]]:
    unused_before_ms = wall_ms - int(limits.unused_ids_kept_s * 1000)
    idle_before_ms = wall_ms - _IDLE_KEPT_MS
    yield from unchanged(store, store.unused[family], unused_before_ms)
    yield from unchanged(store, store.idle[family], idle_before_ms)


def unchanged(
    store: TransactionStore, keys: Iterable[TransactionKey], before_ms: int
) -> Iterator[tuple[TransactionKey, Transaction]]:
    """Those of the first of ``keys`` that did not change after ``before_ms``."""
    for key in islice(keys, LOOKED_AT):
        found = store.transactions[key]
        if found.changed_ms <= before_ms:
            yield key, found


def _entries(
    store: TransactionStore,
    family: Family,
    gone: Iterable[tuple[TransactionKey, Transaction]],
) -> list[Entry]:
    known = floor = store.floors.get(family, 0)
    entries: list[Entry] = []
    for key, found in islice(gone, _AT_ONCE):
        entries.append(transaction_entry(key, None))
        floor = max(floor, found.wire_epoch + 1)
    if family is Family.CURSUS and floor > known:
        entries.append(floor_entry(family, floor))
    return entries


def evicted_sinks(store: TransactionStore, wall_ms: int, limits: TransactionLimits) -> list[Entry]:
    """Records that forget sinks that have never committed anything and have nothing open: there is
    nothing that a run which comes back could commit again."""
    before_ms = wall_ms - int(limits.unused_ids_kept_s * 1000)
    unused = (
        sink_entry(name, None)
        for name in islice(store.unused_sinks, LOOKED_AT)
        if store.sinks[name].changed_ms <= before_ms and name not in store.of_sink
    )
    return list(islice(unused, _AT_ONCE))
