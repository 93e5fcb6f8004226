"""Groups of the V1 protocol (DESIGN 3): assigned by the broker, at once, without a barrier.

A change of members makes a new generation there and then; the others learn of it when a command of
theirs names the old one. Members are not asked to let go: until then two of them read the same
partition, but only one of them can commit. Silent members are removed together, in one generation,
at the next command or when they are noticed, whichever is first.
"""

from __future__ import annotations

from dataclasses import replace

from paceline.assignors.registry import BrokerAssignor
from paceline.errors import (
    GroupNotFound,
    IllegalGeneration,
    PacelineError,
    PartitionNotOwned,
    UnknownMember,
    UnknownTopicOrPartition,
)
from paceline.values import dataclass
from paceline_node.groups.broker_assigned import BrokerAssigned
from paceline_node.groups.committed_offsets import Commit, OffsetBook
from paceline_node.groups.context import GroupContext
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.offset_shares import UNKNOWN
from paceline_node.groups.records import Group, Member, Offset, Phase, offset_entry
from paceline_node.groups.topic_ids import UNBOUND

DEFAULT_ASSIGNOR = BrokerAssignor.ROUND_ROBIN.value
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


class V1Groups(BrokerAssigned):
    """The commands JOIN, SYNC, HEARTBEAT, LEAVE and COMMIT."""

    def __init__(self, context: GroupContext, offsets: OffsetBook) -> None:
        self._offsets = offsets
        super().__init__(context, session_s=context.limits.v1_session_s, margin_s=_MARGIN_S)

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
        draft = self._fitted(draft, partition_count)
        if draft.member(consumer_id) is None:
            context.check_member_count(key, len(draft.members) + 1)
            joined = Member(consumer_id, heard_ms=context.wall_ms())
            members = (*draft.members, joined)
            draft = replace(draft, members=members, generation=draft.generation + 1)
        self._store(key, found, draft)
        self._heard(key, consumer_id)
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

    def commit(self, member: MemberRef, partition: int, offset: int, client: str = UNKNOWN) -> None:
        """Store how far the member has read, forwards or back. Raises as :meth:`sync`, and
        PartitionNotOwned, GroupFull, and UnknownTopicOrPartition for a topic that is no more."""
        group = self._check(member)
        owner = group.member(member.consumer_id)
        if owner is None or partition not in owner.partitions:
            raise PartitionNotOwned(f"{member.topic}/{partition} is not {member.consumer_id}'s")
        commit = Commit(member.topic, partition, offset)
        self._offsets.check_commits(member.key, [commit], client)
        entry = self._offsets.entry(member.key, commit, self._offsets.next_order)
        if entry is None and group.topic_id is None:
            # Taken over from files, before its topic is there.
            stored = Offset(offset, commit_ms=self._context.wall_ms(), topic_id=UNBOUND)
            entry = offset_entry(member.key, member.topic, partition, stored)
        elif entry is None:
            raise UnknownTopicOrPartition(f"topic not found: {member.topic}")
        self._context.write(member.key, entry)
        self._offsets.shares.use(member.key, client)

    def _check(self, member: MemberRef) -> Group:
        """The group, current, with ``member`` in it."""
        key = member.key
        group = self._context.group(key)
        if group is None or group.topic != member.topic:
            raise GroupNotFound(f"group {member.group} does not read {member.topic}")
        draft = self._fitted(self._without_silent(key, group), member.partition_count)
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

    # --- the engine's side ------------------------------------------------------------------------

    def reads(self, key: GroupKey, topic: str) -> bool:
        group = self._context.group(key)
        return group is not None and bool(group.members) and group.topic == topic

    def resign(self, error: PacelineError) -> None:
        """Nobody waits in this family."""


def _new_group(topic: str, assignor: str) -> Group:
    return Group(1, Phase.EMPTY, protocol_type="v1", protocol=assignor, topic=topic)
