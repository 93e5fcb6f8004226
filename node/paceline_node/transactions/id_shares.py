"""Whose transactional ids a leader knows, and whose give way where there are as many as may be.

Pure. No client (the principal, or the address of one without credentials) takes over more than half
of a family's ids: beyond that its own go, those idle for ``transactions.unused_ids_kept_ms``, or
it is refused. In a full family the client that has most gives way to one that has less: its ids
without an open transaction go, those taken over longest ago first. An id is its whose producer took
it over last; whose those are that nobody took over since this node leads is not known, and they go
as ``transactional_id_eviction.py`` says.

What the open transactions of a client's ids name counts for it, too.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from itertools import islice

from paceline_node.transaction_names import Family, TransactionKey
from paceline_node.transactions.store import TransactionStore, named_count

UNKNOWN = ""
_LOOKED_AT = 256


class IdShares:
    """Counts ids by client, for one leadership."""

    def __init__(self, store: TransactionStore) -> None:
        self._owners: dict[TransactionKey, str] = {}
        self._ids: dict[tuple[Family, str], OrderedDict[TransactionKey, None]] = {}
        self._named: Counter[str] = Counter()
        self._store = store
        store.forgotten = self._drop
        store.grew = self._grew

    def clear(self) -> None:
        """The leadership is over."""
        self._owners.clear()
        self._ids.clear()
        self._named.clear()

    def count(self, family: Family, client: str) -> int:
        """How many ids the client has."""
        return len(self._ids.get((family, client), ()))

    def owner(self, key: TransactionKey) -> str:
        """Whose the id is."""
        return self._owners.get(key, UNKNOWN)

    def named(self, client: str) -> int:
        """How many partitions, groups and offsets the client's open transactions name."""
        return self._named[client]

    def _grew(self, key: TransactionKey, delta: int) -> None:
        client = self._owners.get(key)
        if client is not None:
            self._add(client, delta)

    def _add(self, client: str, delta: int) -> None:
        self._named[client] += delta
        if not self._named[client]:
            del self._named[client]

    def use(self, key: TransactionKey, client: str) -> None:
        """The client took the id over."""
        self._drop(key)
        if client != UNKNOWN:
            self._add(client, named_count(self._store.transactions.get(key)))
            self._owners[key] = client
            self._ids.setdefault((key.family, client), OrderedDict())[key] = None

    def _drop(self, key: TransactionKey) -> None:
        client = self._owners.pop(key, None)
        if client is None:
            return
        self._add(client, -named_count(self._store.transactions.get(key)))
        of_client = self._ids[key.family, client]
        del of_client[key]
        if not of_client:
            del self._ids[key.family, client]

    def longest_ago(self, family: Family, client: str) -> list[TransactionKey]:
        """Ids of the client, the longest known first."""
        return list(islice(self._ids.get((family, client), ()), _LOOKED_AT))

    def givers(self, family: Family, own: int) -> list[TransactionKey]:
        """Ids of whoever has most, if that is more than ``own``, the longest known first."""
        sizes = ((len(ids), client) for (of, client), ids in self._ids.items() if of is family)
        size, client = max(sizes, default=(0, UNKNOWN))
        return self.longest_ago(family, client) if size > own else []
