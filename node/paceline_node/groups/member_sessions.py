"""When each member was last heard of. Volatile: a new coordinator begins afresh."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from paceline_node.groups.keys import GroupKey

_NOBODY: Mapping[str, tuple[float, int]] = {}


class MemberSessions:
    """Times of members by group; ``beats`` counts calls of :meth:`heard`."""

    def __init__(self) -> None:
        self._heard: dict[GroupKey, dict[str, tuple[float, int]]] = {}
        self.beats = 0

    def heard(self, key: GroupKey, member_ids: Collection[str], now: float, wall_ms: int) -> None:
        """These members showed that they live."""
        if member_ids:
            self._heard.setdefault(key, {}).update(dict.fromkeys(member_ids, (now, wall_ms)))
        self.beats += len(member_ids)

    def resume(self, key: GroupKey, member_id: str, now: float, wall_ms: int) -> None:
        """A new coordinator gives the member a fresh session; ``wall_ms`` is the last real word
        from it, as far as it was written down."""
        self._heard.setdefault(key, {})[member_id] = (now, wall_ms)

    def forget(self, key: GroupKey, member_id: str) -> None:
        """The member is gone; idempotent."""
        members = self._heard.get(key)
        if members is not None:
            members.pop(member_id, None)
            if not members:
                del self._heard[key]

    def heard_at(self, key: GroupKey, member_id: str) -> float:
        """Monotonic seconds; -inf for one never heard of."""
        found = self._heard.get(key, _NOBODY).get(member_id)
        return -math.inf if found is None else found[0]

    def heard_ms(self, key: GroupKey, member_id: str) -> int | None:
        """Wall-clock ms; None for one never heard of by this coordinator."""
        found = self._heard.get(key, _NOBODY).get(member_id)
        return None if found is None else found[1]

    def clear(self) -> None:
        """Forget all members."""
        self._heard.clear()
