"""What families share whose broker assigns the partitions, at once and without a barrier.

A change of members, or of the topic's partitions, makes a new generation there and then, with
everything assigned anew. Silent members go together, in one generation, at the next command or when
they are noticed, whichever is first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from paceline.assignors.registry import BrokerAssignor
from paceline_node.groups.context import GroupContext
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.records import Group, Member, Phase


class BrokerAssigned:
    """Base of such a family's policy. A member is silent after ``session_s``, and looked for
    ``margin_s`` later. ``rebalances`` counts assignments."""

    def __init__(self, context: GroupContext, *, session_s: float, margin_s: float) -> None:
        self._context = context
        self._session_s = session_s
        self._margin_s = margin_s
        self.rebalances = 0

    # --- for the family ---------------------------------------------------------------------------

    def _heard(self, key: GroupKey, member_id: str) -> None:
        """The member lives."""
        self._context.heard(key, member_id)
        self._context.alarms.ask(key, self._context.now() + self._session_s + self._margin_s)

    def _fitted(self, group: Group, partition_count: int) -> Group:
        """The group assigned to the partitions that the topic has now (0: that is not known), in
        one more generation if it is another topic of that name: whoever read the old one is told
        so, and cannot commit."""
        topics = self._context.topics
        topic_id = topics.current(group.topic)
        if topic_id is not None and topic_id != group.topic_id:
            is_other = bool(group.members) and not topics.holds(group.topic, group.topic_id)
            generation = group.generation + is_other
            group = replace(group, topic_id=topic_id, generation=generation)
        if partition_count in (0, group.partition_count):
            return group
        generation = group.generation + bool(group.members)
        return replace(group, partition_count=partition_count, generation=generation)

    def _without_silent(self, key: GroupKey, group: Group) -> Group:
        """The group without its silent members, in one more generation if there are any."""
        oldest = self._context.now() - self._session_s
        heard_at = self._context.sessions.heard_at
        alive = tuple(each for each in group.members if heard_at(key, each.member_id) >= oldest)
        if len(alive) == len(group.members):
            return group
        return replace(group, members=alive, generation=group.generation + 1)

    def _store(self, key: GroupKey, before: Group, after: Group) -> None:
        """Write ``after``, everything assigned anew, if it is another generation."""
        if after.generation == before.generation and self._context.group(key) is not None:
            return
        ids = [each.member_id for each in after.members]
        assigned = BrokerAssignor(after.protocol).assign(ids, after.partition_count)
        members = tuple(
            [replace(each, partitions=assigned[each.member_id]) for each in after.members]
        )
        phase = Phase.STABLE if members else Phase.EMPTY
        self._context.write_group(key, replace(after, members=members, phase=phase))
        self.rebalances += 1
        for each in before.members:
            if each.member_id not in assigned:
                self._left(key, each.member_id)
        self._assigned(key, members)

    def _left(self, key: GroupKey, member_id: str) -> None:
        """A member is no more."""
        self._context.sessions.forget(key, member_id)

    def _assigned(self, key: GroupKey, members: Sequence[Member]) -> None:
        """The members have new partitions."""

    # --- the engine's side ------------------------------------------------------------------------

    def resume(self, key: GroupKey, group: Group) -> None:
        """Members have fresh sessions."""
        self._assigned(key, group.members)
        self._context.alarms.ask(key, self._next_expiry(key, group))

    def on_alarm(self, key: GroupKey) -> float:
        """Remove silent members, all in one generation."""
        group = self._context.group(key)
        if group is None:
            return math.inf
        draft = self._without_silent(key, group)
        self._store(key, group, draft)
        return self._next_expiry(key, draft)

    def _next_expiry(self, key: GroupKey, group: Group) -> float:
        heard = [self._context.sessions.heard_at(key, each.member_id) for each in group.members]
        return min(heard, default=math.inf) + self._session_s + self._margin_s

    def state(self, key: GroupKey) -> str:
        return "Stable" if self.member_count(key) else "Empty"

    def member_count(self, key: GroupKey) -> int:
        group = self._context.group(key)
        return 0 if group is None else len(group.members)
