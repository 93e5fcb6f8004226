"""Forgetting what nobody has used for long (setting ``groups.offsets_retention_ms``).

Only groups without members are touched. An offset goes when neither it nor its group has changed
for the retention time; a group without offsets likewise, except in family ``v1``, whose
generations may never begin anew (DESIGN 3.5). What an open transaction has pending is promised to
it: neither the group nor the offset that it would replace goes before that is settled.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from paceline_node.groups.committed_offsets import OffsetBook
from paceline_node.groups.context import GroupContext
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.pending_offsets import PendingOffsets

_GROUPS_AT_ONCE = 50
_NONE = PendingOffsets()


class Retention:
    """Looks through the groups, some at a time; ``has_members`` as the families know it."""

    def __init__(
        self, context: GroupContext, offsets: OffsetBook, has_members: Callable[[GroupKey], bool]
    ) -> None:
        self._context = context
        self._offsets = offsets
        self._has_members = has_members
        self._todo: list[GroupKey] = []
        self._at = math.inf

    def begin(self) -> None:
        """This node leads now."""
        if self._context.limits.retention_s != math.inf:
            self._at = self._context.now() + self._context.limits.retention_check_s

    def end(self) -> None:
        """This node leads no longer."""
        self._todo.clear()
        self._at = math.inf

    def next_at(self) -> float:
        """When :meth:`look` wants to be called."""
        return self._at

    def look(self) -> None:
        """Forget what is due among the next groups. Raises what writing raises."""
        limits = self._context.limits
        if not self._todo:
            self._todo = list(self._context.store.all_keys())
        oldest_ms = self._context.wall_ms() - int(limits.retention_s * 1000)
        self._at = self._context.now() + limits.retention_check_s
        for _ in range(min(_GROUPS_AT_ONCE, len(self._todo))):
            self._forget(self._todo.pop(), oldest_ms)
        if self._todo:
            self._at = self._context.now()

    def _forget(self, key: GroupKey, oldest_ms: int) -> None:
        group = self._context.group(key)
        if self._has_members(key) or (group is not None and group.changed_ms >= oldest_ms):
            return
        store = self._context.store
        known, pendings = store.offsets.get(key, {}), store.pending.get(key, _NONE)
        old = sorted(
            each
            for each, offset in known.items()
            if offset.commit_ms < oldest_ms and not pendings.at(*each)
        )
        if len(old) == len(known) and not pendings and key.family is not Family.V1:
            self._offsets.forget_group(key)
        else:
            self._offsets.forget(key, old)
