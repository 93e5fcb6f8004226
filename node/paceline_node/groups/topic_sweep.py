"""Forgetting what groups have of topics that were deleted, some groups at a time.

Nothing depends on when this is done, for what is of a deleted topic does not count any more
(``topic_ids.py``). It begins anew when its node begins to lead, so that a deletion is made up for
that came while nobody coordinated, and whenever topics have changed. On its way it gives their
topic's id to offsets of versions that stored none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from paceline.errors import PacelineError
from paceline_node.groups.context import GroupContext
from paceline_node.groups.cursus_groups import CursusGroups
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.records import offset_entry, pending_entry
from paceline_node.state_machines.machine import Entry

_LOOKED_AT_ONCE = 2000
"""Offsets looked at in one step, which takes about a millisecond."""
_WRITTEN_AT_ONCE = 200
_RETRY_S = 1.0


class TopicSweep:
    """Looks through all that a partition's groups have stored."""

    def __init__(self, context: GroupContext, cursus: CursusGroups) -> None:
        self._context = context
        self._cursus = cursus
        self._todo: list[GroupKey] = []
        self._again = False
        self._at = math.inf

    def begin(self) -> None:
        """Look through everything there is, soon."""
        store = self._context.store
        if store.groups or store.offsets or store.pending:
            self._again = True
            self._at = self._context.now()

    def end(self) -> None:
        """This node leads no longer."""
        self._todo.clear()
        self._again = False
        self._at = math.inf

    def next_at(self) -> float:
        """When :meth:`look` wants to be called."""
        return self._at

    def look(self) -> None:
        """Do the next step. What cannot be stored now is tried again in a second."""
        if not self._todo:
            self._again = False
            store = self._context.store
            self._todo = list({**store.groups, **store.offsets, **store.pending})
        looked = 0
        try:
            while self._todo and looked < _LOOKED_AT_ONCE:
                looked += self._visit(self._todo[-1])
                self._todo.pop()
        except PacelineError:
            self._at = self._context.now() + _RETRY_S
            return
        self._at = self._context.now() if self._todo or self._again else math.inf

    def _visit(self, key: GroupKey) -> int:
        """Mend what ``key`` has stored; how much that was. Raises what writing raises."""
        if key.family is Family.CURSUS and self._cursus.is_of_deleted_topic(key):
            self._cursus.forget(key)
        self._bind(key)
        entries = list(self._mended(key))
        for start in range(0, len(entries), _WRITTEN_AT_ONCE):
            self._context.write(key, *entries[start : start + _WRITTEN_AT_ONCE])
        store = self._context.store
        return 1 + len(store.offsets.get(key, ())) + len(store.pending.get(key, ())) + len(entries)

    def _bind(self, key: GroupKey) -> None:
        """Note whose group it is, if that is not known."""
        group = self._context.group(key)
        if group is None or not group.topic or group.topic_id is not None:
            return
        current = self._context.topics.current(group.topic)
        if current is not None and self._context.topics.holds(group.topic, None):
            self._context.put_group(key, replace(group, topic_id=current))

    def _mended(self, key: GroupKey) -> Iterator[Entry]:
        topics, store = self._context.topics, self._context.store
        for (topic, partition), offset in store.offsets.get(key, {}).items():
            current = topics.current(topic)
            if not topics.holds(topic, offset.topic_id):
                yield offset_entry(key, topic, partition, None)
            elif current is not None and offset.topic_id != current:
                yield offset_entry(key, topic, partition, replace(offset, topic_id=current))
        pendings = store.pending.get(key)
        for name, pending in () if pendings is None else pendings.items():
            if not topics.holds(name.topic, pending.topic_id):
                yield pending_entry(name, None)
            elif pending.topic_id is None:
                known = topics.current(name.topic)
                yield pending_entry(name, replace(pending, topic_id=known))
