"""Groups of all families as operators see them: list, describe, delete, reset."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence

from paceline.errors import GroupNotFound, NonEmptyGroup, PacelineError
from paceline.values import dataclass
from paceline.wire.consumer_protocol import PROTOCOL_TYPE, Assignment
from paceline_node.groups.driven_state import PROTOCOL_TYPE as COORDINATOR_TYPE
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.keys import Family, GroupKey, TopicAndNumber
from paceline_node.groups.records import Group, Member, Phase

DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class Listing:
    key: GroupKey
    state: str
    protocol_type: str
    member_count: int
    generation: int


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """``silent_s`` since the last word."""

    group: Group
    member: Member
    metadata: bytes
    silent_s: float

    @property
    def assigned(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Partitions by topic, as far as the broker knows. Read anew each time, for a millisecond
        where they are thousands: not all who describe a group want to know."""
        return _assigned(self.group, self.member)


@dataclass(frozen=True, slots=True)
class Description:
    key: GroupKey
    state: str
    group: Group
    members: tuple[DescribedMember, ...]


class Inspection:
    """Works on one leading engine."""

    def __init__(self, engine: GroupEngine) -> None:
        self._engine = engine

    def groups(
        self, keys: Iterable[GroupKey], families: Collection[Family], states: Collection[str]
    ) -> Iterator[Listing]:
        """These groups as far as they are there; empty filters let everything pass."""
        for key in keys:
            if (families and key.family not in families) or not self._is_known(key):
                continue
            listing = self._listing(key)
            if not states or listing.state in states:
                yield listing

    def _listing(self, key: GroupKey) -> Listing:
        policy = self._engine.policies[key.family]
        group = self._engine.store.groups.get(key)
        return Listing(
            key,
            policy.state(key),
            "" if group is None else group.protocol_type,
            policy.member_count(key),
            0 if group is None else group.generation,
        )

    def describe(self, key: GroupKey) -> Description:
        """State ``Dead`` for a group that does not exist."""
        store = self._engine.store
        group = store.groups.get(key)
        if group is None:
            state = self._listing(key).state if self._is_known(key) else DEAD
            return Description(key, state, Group(0, Phase.EMPTY), ())
        members = tuple([self._described(key, group, each) for each in group.members])
        return Description(key, self._listing(key).state, group, members)

    def _described(self, key: GroupKey, group: Group, member: Member) -> DescribedMember:
        silent_s = self._engine.now() - self._engine.sessions.heard_at(key, member.member_id)
        if math.isinf(silent_s):  # its session is over, and its leaving not written yet
            silent_s = member.session_timeout_ms / 1000
        return DescribedMember(
            group,
            member,
            member.metadata(group.protocol),
            max(0.0, silent_s),
        )

    def _is_known(self, key: GroupKey) -> bool:
        store = self._engine.store
        return key in store.groups or key in store.offsets or self._engine.has_members(key)

    # --- changes ----------------------------------------------------------------------------------

    def delete_piece(self, key: GroupKey) -> bool:
        """Forget a batch of what there is of a group; whether that was the last. Raises
        GroupNotFound, NonEmptyGroup, and what writing raises."""
        self.check_known(key)
        self.check_empty(key)
        return self._engine.offsets.forget_piece(key)

    def delete_piece_of_offsets(
        self, key: GroupKey, partitions: Sequence[TopicAndNumber]
    ) -> tuple[frozenset[TopicAndNumber], bool]:
        """Forget a batch of the offsets of ``partitions``, and what open transactions have pending
        there; but none of topics that members read, which are returned, and whether that was the
        last batch. Raises what writing raises."""
        policy = self._engine.policies[key.family]
        named = {topic for topic, _ in partitions}
        topics = {topic for topic in named if policy.reads(key, topic)}
        read = frozenset(each for each in partitions if each[0] in topics)
        unread = [each for each in partitions if each not in read]
        return read, self._engine.offsets.delete_piece(key, unread)

    def check_known(self, key: GroupKey) -> None:
        """Raise GroupNotFound where there is nothing of the group."""
        if not self._is_known(key):
            raise GroupNotFound(f"group {key} does not exist")

    def check_empty(self, key: GroupKey) -> None:
        """Raise NonEmptyGroup where the group has members."""
        if self._engine.has_members(key):
            raise NonEmptyGroup(f"group {key} has members")


def _assigned(group: Group, member: Member) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if group.topic:
        return ((group.topic, member.partitions),)
    if group.protocol_type not in (PROTOCOL_TYPE, COORDINATOR_TYPE):
        return ()
    try:
        found = Assignment.from_bytes(member.assignment).partitions
    except PacelineError:
        return ()
    return tuple((topic, tuple(numbers)) for topic, numbers in sorted(found.items()))
