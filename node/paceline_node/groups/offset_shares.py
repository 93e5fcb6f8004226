"""Whose committed offsets those of a partition of ``__groups`` are, and who gives way.

Pure. Offsets lie in memory on every replica, and anybody may commit some for any group. So a leader
counts them by client (the principal, or the address of one without credentials); a group is its
whose client committed last. No client has more than half of what a family may have, and where a
family has as many as it may, the client that has most gives way to one that has less:

* Groups without members go first, those least recently committed first.
* Groups with members only where their client has more than a quarter of all.
* A new leader does not know whose the groups are, but for those that commit again. The others count
  as one client's; of them only groups without members go, the largest ones first.

Whatever was committed before may always be committed again: it takes no room.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from heapq import nlargest
from itertools import islice

from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.store import GroupStore

_CLIENTS_LOOKED_AT = 8
_GROUPS_LOOKED_AT = 256
UNKNOWN = ""
"""Whose groups are that nobody has committed for since this node leads, and internal work."""


class OffsetShares:
    """Counts in places (``store.py``). ``evicted_count`` of them were made free,
    ``refused_count`` commits were refused."""

    def __init__(self, store: GroupStore) -> None:
        self.evicted_count = 0
        self.refused_count = 0
        self._store = store
        self._owners: dict[GroupKey, str] = {}
        self._groups: dict[tuple[Family, str], OrderedDict[GroupKey, None]] = {}
        self._counts: Counter[tuple[Family, str]] = Counter()
        store.offsets_changed = self._changed

    def clear(self) -> None:
        """The leadership is over, or another one begins."""
        self._owners.clear()
        self._groups.clear()
        self._counts.clear()

    def count(self, family: Family, client: str) -> int:
        """How many places the client's groups take."""
        return self._counts[family, client]

    def use(self, key: GroupKey, client: str) -> None:
        """The client committed offsets of the group, which is its from now on."""
        if client == UNKNOWN:
            return
        owner = self._owners.get(key)
        if owner == client:
            self._groups[key.family, client].move_to_end(key)
            return
        if owner is not None:
            self._drop(key, owner)
        taken = self._store.places.get(key)
        if taken:
            self._owners[key] = client
            self._groups.setdefault((key.family, client), OrderedDict())[key] = None
            self._counts[key.family, client] += taken

    def _changed(self, key: GroupKey, delta: int) -> None:
        """The group takes ``delta`` more places."""
        owner = self._owners.get(key)
        if owner is None:
            return
        if key in self._store.places:
            self._counts[key.family, owner] += delta
        else:
            self._drop(key, owner, -delta)

    def _drop(self, key: GroupKey, owner: str, count: int | None = None) -> None:
        at = key.family, owner
        del self._owners[key]
        groups = self._groups[at]
        del groups[key]
        self._counts[at] -= self._store.places.get(key, 0) if count is None else count
        if not groups:
            del self._groups[at]
            del self._counts[at]

    # --- who gives way ----------------------------------------------------------------------------

    def givers(
        self, key: GroupKey, own: int, most: int, has_members: Callable[[GroupKey], bool]
    ) -> Iterator[GroupKey]:
        """Groups whose offsets make room for those of ``key``, whose client will have ``own`` of
        the ``most`` that its family may have."""
        family = key.family
        for count, client in self._greediest(family):
            if count <= own:
                return
            for group in self._of(family, client, has_members):
                if group != key:
                    yield group
            if client != UNKNOWN and count > most // 4:
                yield from (
                    group
                    for group in list(islice(self._groups[family, client], _GROUPS_LOOKED_AT))
                    if group != key
                )

    def _greediest(self, family: Family) -> list[tuple[int, str]]:
        known = [(count, client) for (of, client), count in self._counts.items() if of is family]
        unknown = self._store.offset_counts[family] - sum(count for count, _ in known)
        return nlargest(_CLIENTS_LOOKED_AT, [*known, (unknown, UNKNOWN)])

    def _of(
        self, family: Family, client: str, has_members: Callable[[GroupKey], bool]
    ) -> list[GroupKey]:
        """Groups of the client that have no members."""
        if client != UNKNOWN:
            groups = self._groups[family, client]
            return [each for each in islice(groups, _GROUPS_LOOKED_AT) if not has_members(each)]
        sizes = (
            (taken, number, group)
            for number, (group, taken) in enumerate(self._store.places.items())
            if group.family is family and group not in self._owners and not has_members(group)
        )
        return [group for _, _, group in nlargest(_CLIENTS_LOOKED_AT, sizes)]
