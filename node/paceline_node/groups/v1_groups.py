"""Groups of the V1 protocol (spec v1 10): assigned by the broker, at once, without a barrier.

A change of members makes a new generation there and then; the others learn of it when a command of
theirs names the old one. Members are not asked to let go: until then two of them read the same
partition, but only one of them can commit. Silent members are removed together, in one generation,
at the next command or when they are noticed, whichever is first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from paceline.errors import (
    GroupNotFound,
    IllegalGeneration,
    PacelineError,
    PartitionNotOwned,
    UnknownMember,
)
from paceline_node.groups.assignors import ASSIGNORS
from paceline_node.groups.context import GroupContext
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.records import Group, Member, Offset, Phase, offset_entry

DEFAULT_ASSIGNOR = "round_robin"
_MARGIN_S = 0.001
"""A session is over when it was longer than the time-out, not when it was as long."""


@dataclass(frozen=True, slots=True)
class Membership:
    """What a member is told: its generation and its partitions."""

    generation: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemberRef:
    """Whom a command speaks for. ``partition_count`` is the topic's at present, 0 if unknown."""

    group: str
    topic: str
    consumer_id: str
    generation: int
    partition_count: int

    @property
    def key(self) -> GroupKey:
        return v1_key(self.group)


def v1_key(group: str) -> GroupKey:
    """The key of a V1 group."""
    return GroupKey(Family.V1, group)


class V1Groups:
    """The commands JOIN, SYNC, HEARTBEAT, LEAVE and COMMIT."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self.rebalances = 0

    # --- commands ---------------------------------------------------------------------------------

    def join(
        self, group: str, topic: str, consumer_id: str, assignor: str | None, partition_count: int
    ) -> Membership:
        """Become a member, or stay one. Raises GroupFull, InvalidGroup and what writing raises."""
        context = self._context
        key = v1_key(group)
        found = context.group(key)
        if found is None:
            context.check_new_group(key)
            found = _new_group(topic, assignor or DEFAULT_ASSIGNOR)
        draft = found
        if draft.topic != topic:
            draft = replace(draft, topic=topic, members=(), generation=draft.generation + 1)
        if assignor is not None and draft.protocol != assignor:
            draft = replace(draft, protocol=assignor, generation=draft.generation + 1)
        draft = self._without_silent(key, draft)
        draft = _fitted(draft, partition_count)
        if draft.member(consumer_id) is None:
            context.check_member_count(key, len(draft.members) + 1)
            joined = Member(consumer_id, heard_ms=context.wall_ms())
            members = (*draft.members, joined)
            draft = replace(draft, members=members, generation=draft.generation + 1)
        self._store(key, found, draft)
        context.heard(key, consumer_id)
        context.alarms.ask(key, context.now() + context.limits.v1_session_s + _MARGIN_S)
        return self._membership(key, consumer_id)

    def sync(self, member: MemberRef) -> Membership:
        """The member's assignment. Raises GroupNotFound, IllegalGeneration, UnknownMember."""
        self._check(member)
        self._context.heard(member.key, member.consumer_id)
        return self._membership(member.key, member.consumer_id)

    def heartbeat(self, member: MemberRef) -> None:
        """Keep the session. Raises as :meth:`sync`."""
        self._check(member)
        self._context.heard(member.key, member.consumer_id)

    def leave(self, member: MemberRef) -> None:
        """Be no member any more. Raises as :meth:`sync`."""
        group = self._check(member)
        left = tuple(each for each in group.members if each.member_id != member.consumer_id)
        draft = replace(group, members=left, generation=group.generation + 1)
        self._store(member.key, group, draft)

    def commit(self, member: MemberRef, partition: int, offset: int) -> None:
        """Store how far the member has read, forwards or back. Raises as :meth:`sync`, and
        PartitionNotOwned."""
        group = self._check(member)
        owner = group.member(member.consumer_id)
        if owner is None or partition not in owner.partitions:
            raise PartitionNotOwned(f"{member.topic}/{partition} is not {member.consumer_id}'s")
        stored = Offset(offset, commit_ms=self._context.wall_ms())
        entry = offset_entry(member.key, member.topic, partition, stored)
        self._context.write(member.key, entry)

    def _check(self, member: MemberRef) -> Group:
        """The group, current, with ``member`` in it."""
        key = member.key
        group = self._context.group(key)
        if group is None or group.topic != member.topic:
            raise GroupNotFound(f"group {member.group} does not read {member.topic}")
        draft = _fitted(self._without_silent(key, group), member.partition_count)
        self._store(key, group, draft)
        if draft.generation != member.generation:
            raise IllegalGeneration(
                f"group {member.group} is in generation {draft.generation}, not {member.generation}"
            )
        if draft.member(member.consumer_id) is None:
            raise UnknownMember(f"group {member.group} has no member {member.consumer_id}")
        current = self._context.group(key)
        assert current is not None
        return current

    def _membership(self, key: GroupKey, consumer_id: str) -> Membership:
        group = self._context.group(key)
        assert group is not None
        member = group.member(consumer_id)
        assert member is not None
        return Membership(group.generation, member.partitions)

    # --- changes ----------------------------------------------------------------------------------

    def _without_silent(self, key: GroupKey, group: Group) -> Group:
        oldest = self._context.now() - self._context.limits.v1_session_s
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
        assigned = ASSIGNORS[after.protocol](ids, after.partition_count)
        members = tuple(
            [replace(each, partitions=assigned[each.member_id]) for each in after.members]
        )
        phase = Phase.STABLE if members else Phase.EMPTY
        self._context.write_group(key, replace(after, members=members, phase=phase))
        self.rebalances += 1
        for gone in {each.member_id for each in before.members}.difference(ids):
            self._context.sessions.forget(key, gone)

    # --- the engine's side ------------------------------------------------------------------------

    def resume(self, key: GroupKey, group: Group) -> None:
        """Members have fresh sessions."""
        self._context.alarms.ask(key, self._next_expiry(key, group))

    def on_alarm(self, key: GroupKey) -> float:
        """Remove silent members."""
        group = self._context.group(key)
        if group is None:
            return math.inf
        draft = self._without_silent(key, group)
        self._store(key, group, draft)
        return self._next_expiry(key, draft)

    def _next_expiry(self, key: GroupKey, group: Group) -> float:
        heard = [self._context.sessions.heard_at(key, each.member_id) for each in group.members]
        return min(heard, default=math.inf) + self._context.limits.v1_session_s + _MARGIN_S

    def state(self, key: GroupKey) -> str:
        return "Stable" if self.member_count(key) else "Empty"

    def member_count(self, key: GroupKey) -> int:
        group = self._context.group(key)
        return 0 if group is None else len(group.members)

    def reads(self, key: GroupKey, topic: str) -> bool:
        group = self._context.group(key)
        return group is not None and bool(group.members) and group.topic == topic

    def resign(self, error: PacelineError) -> None:
        """Nobody waits in this family."""


def _new_group(topic: str, assignor: str) -> Group:
    return Group(1, Phase.EMPTY, protocol_type="v1", protocol=assignor, topic=topic)


def _fitted(group: Group, partition_count: int) -> Group:
    """The group assigned to the partitions that the topic has now."""
    if partition_count in (0, group.partition_count):
        return group
    generation = group.generation + bool(group.members)
    return replace(group, partition_count=partition_count, generation=generation)
