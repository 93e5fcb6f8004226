"""Groups of the Cursus protocol (DESIGN 4): one a topic, assigned by the broker, at once.

A member's id is what it calls itself and four digits. Its clients join again whenever a request is
refused, and every join would make a new generation that refuses the others: so a member that was
refused for its generation is *fenced*, and a join that may be its is its, without a new generation.

An id belongs to one process for good. Who joins under it is who was told it. Who joins under a name
may be another process of that name: it gets the fenced place, but under an id of its own, so the
one before it is no member any more, should it still live.

Commits never go back. A member may still commit for partitions that it had in an earlier
generation, as far as that moves an offset forwards: clients keep positions of partitions that they
lost, and end when one is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from paceline.assignors.registry import BrokerAssignor
from paceline.errors import (
    GroupFull,
    GroupNotFound,
    PacelineError,
    UnknownMember,
)
from paceline.values import dataclass
from paceline_node.detailed_errors import NotOwner, Regression, StaleGeneration
from paceline_node.groups.broker_assigned import BrokerAssigned
from paceline_node.groups.committed_offsets import Commit, OffsetBook, OffsetRule
from paceline_node.groups.context import GroupContext
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.offset_pieces import latest
from paceline_node.groups.offset_shares import UNKNOWN
from paceline_node.groups.records import Group, Member, Phase
from paceline_node.groups.store import GroupStore

_SWEEP = 0.1
"""Part of a session's time-out by which a look for silent members comes late, so that those who
fell silent together go in one generation."""
_SUFFIXES = 10_000
_TRIES = 64


@dataclass(frozen=True, slots=True)
class CursusMembership:
    """What a member is told."""

    member: str
    generation: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CursusMember:
    """Whom a command speaks for. ``partition_count`` is the topic's at present, 0 if unknown."""

    group: str
    topic: str
    member: str
    generation: int
    partition_count: int

    @property
    def key(self) -> GroupKey:
        return cursus_key(self.group, self.topic)


def cursus_key(group: str, topic: str) -> GroupKey:
    """The key of a group of a topic."""
    return GroupKey(Family.CURSUS, group, topic)


class CursusGroups(BrokerAssigned):
    """The group commands of Cursus."""

    def __init__(self, context: GroupContext, offsets: OffsetBook) -> None:
        session_s = context.limits.cursus_session_s
        super().__init__(context, session_s=session_s, margin_s=session_s * _SWEEP)
        self._offsets = offsets
        self._fenced: dict[GroupKey, set[str]] = {}
        self._told: dict[GroupKey, dict[str, int]] = {}
        self._owned: dict[GroupKey, dict[str, set[int]]] = {}

    # --- membership -------------------------------------------------------------------------------

    def register(self, key: GroupKey, partition_count: int) -> None:
        """Let the group be, without a member. Raises InvalidGroup, GroupFull, what writing does."""
        if self._group(key) is None:
            self._context.check_new_group(key)
            self._context.write_group(key, self._new_group(key, partition_count))

    def join(self, key: GroupKey, name: str, partition_count: int) -> CursusMembership:
        """Become a member called ``name`` and four digits, or be again the member that ``name`` is,
        or have the place of a fenced one that is called so. Raises as :meth:`register`."""
        context = self._context
        found = self._group(key)
        if found is None:
            context.check_new_group(key)
            found = self._new_group(key, partition_count)
        draft = self._fitted(self._without_silent(key, found), partition_count)
        member = name if draft.member(name) is not None else None
        place = None if member is not None else self._fenced_as(key, draft, name)
        if place is not None and place not in self._told.get(key, {}):
            # Fenced here, but an earlier coordinator may have told it of this generation since.
            draft = replace(draft, generation=draft.generation + 1)
        elif member is None and place is None:
            context.check_member_count(key, len(draft.members) + 1)
            member = self._new_id(draft, name)
            joined = Member(member, heard_ms=context.wall_ms())
            members = (*draft.members, joined)
            draft = replace(draft, members=members, generation=draft.generation + 1)
        self._store(key, found, draft)
        if place is not None:
            member = self._hand_over(key, place, name)
        assert member is not None
        self._holds(key, member, draft.generation)
        self._heard(key, member)
        return self._membership(key, member)

    def sync(self, member: CursusMember) -> CursusMembership:
        """The member's assignment. Raises GroupNotFound, UnknownMember, StaleGeneration."""
        self._check(member)
        self._heard(member.key, member.member)
        return self._membership(member.key, member.member)

    def heartbeat(self, member: CursusMember) -> None:
        """Keep the session. Raises as :meth:`sync`."""
        self._check(member)
        self._heard(member.key, member.member)

    def leave(self, key: GroupKey, name: str, *, generation: int | None, by_base: bool) -> str:
        """Be no member any more; returns whose place was given up. With ``by_base`` the one that
        was silent longest of those called ``name`` and four digits. Raises as :meth:`sync`."""
        group = self._group(key)
        if group is None:
            raise GroupNotFound(f"group {key} does not exist")
        member = name if group.member(name) is not None else None
        if member is None and by_base:
            heard_at = self._context.sessions.heard_at
            called = [each.member_id for each in group.members if _is_called(each.member_id, name)]
            member = min(called, key=lambda each: (heard_at(key, each), each), default=None)
        if member is None:
            raise UnknownMember(f"group {key} has no member {name}")
        self._require_generation(key, group, member, generation)
        left = tuple(each for each in group.members if each.member_id != member)
        self._store(key, group, replace(group, members=left, generation=group.generation + 1))
        return member

    # --- offsets ----------------------------------------------------------------------------------

    def commit(
        self, member: CursusMember, commits: Sequence[Commit], client: str = UNKNOWN
    ) -> None:
        """Store all, or nothing. Raises as :meth:`sync`, NotOwner, Regression, what writing
        does."""
        group = self._check(member)
        key = member.key
        assigned = group.member(member.member)
        assert assigned is not None
        had = self._owned.get(key, {}).get(member.member, set())
        forwards = []
        for each in latest(commits):
            known = self._offsets.fetch(key, each.topic, each.partition)
            goes_back = known is not None and each.offset < known.offset
            if each.partition in assigned.partitions:
                if known is not None and goes_back:
                    raise Regression(
                        str(key), each.partition, current=known.offset, got=each.offset
                    )
                forwards.append(each)
            elif each.partition not in had:
                raise NotOwner(str(key), member.member, each.partition, group.generation)
            elif not goes_back:
                forwards.append(each)
        self._offsets.commit(key, forwards, OffsetRule.FORWARD, client)
        self._heard(key, member.member)

    def check_owner(self, member: CursusMember, partitions: Iterable[int]) -> None:
        """Keep the session of a member that reads all of ``partitions`` now; those it had before do
        not count. Raises as :meth:`sync`, NotOwner."""
        key = member.key
        group = self._check(member)
        assigned = group.member(member.member)
        assert assigned is not None
        for partition in partitions:
            if partition not in assigned.partitions:
                raise NotOwner(str(key), member.member, partition, group.generation)
        self._heard(key, member.member)

    def commit_unfenced(self, key: GroupKey, commit: Commit, client: str = UNKNOWN) -> None:
        """Store an offset for nobody in particular (the page's COMMIT), but never one that goes
        back. Raises Regression, InvalidGroup, GroupFull, what writing does."""
        self._context.check_new_group(key)
        known = self._offsets.fetch(key, commit.topic, commit.partition)
        if known is not None and commit.offset < known.offset:
            raise Regression(str(key), commit.partition, current=known.offset, got=commit.offset)
        self._offsets.commit(key, [commit], OffsetRule.FORWARD, client)

    def knows(self, key: GroupKey) -> bool:
        """Whether there is such a group, or an offset of it. Raises what writing raises."""
        return self._group(key) is not None or bool(self._offsets.fetch_all(key))

    def is_of_deleted_topic(self, key: GroupKey) -> bool:
        """Whether the group was one of another topic of that name: the topic's new one has none."""
        group = self._context.group(key)
        return group is not None and not self._context.topics.holds(key.subject, group.topic_id)

    def forget(self, key: GroupKey) -> None:
        """Forget a group. Raises what writing raises, perhaps half-way."""
        group = self._context.group(key)
        self._offsets.forget_group(key)
        for each in () if group is None else group.members:
            self._context.sessions.forget(key, each.member_id)
        for volatile in (self._fenced, self._told, self._owned):
            volatile.pop(key, None)

    def _group(self, key: GroupKey) -> Group | None:
        """The group of the topic that there is now."""
        if self.is_of_deleted_topic(key):
            self.forget(key)
        return self._context.group(key)

    def _new_group(self, key: GroupKey, partition_count: int) -> Group:
        return Group(
            0,
            Phase.EMPTY,
            protocol_type="cursus",
            protocol=BrokerAssignor.RANGE.value,
            topic=key.subject,
            partition_count=partition_count,
            topic_id=self._context.topics.current(key.subject),
        )

    # --- checks -----------------------------------------------------------------------------------

    @staticmethod
    def check_reader(store: GroupStore, key: GroupKey, generation: int | None) -> None:
        """Raise StaleGeneration for a reader of an older generation than ``store`` knows: what is
        left of it when its consumer was given other partitions."""
        group = store.groups.get(key)
        if group is not None and generation is not None and generation < group.generation:
            raise StaleGeneration(str(key), current=group.generation, requested=generation)

    def _check(self, member: CursusMember) -> Group:
        """The group, current, with ``member`` in it. In the order of DESIGN 4.3: the group is
        there, the member is, the generation is the same."""
        key = member.key
        group = self._group(key)
        if group is None:
            raise GroupNotFound(f"group {key} does not exist")
        draft = self._fitted(self._without_silent(key, group), member.partition_count)
        self._store(key, group, draft)
        current = self._context.group(key)
        assert current is not None
        if current.member(member.member) is None:
            raise UnknownMember(f"group {key} has no member {member.member}")
        self._require_generation(key, current, member.member, member.generation)
        self._holds(key, member.member, current.generation)
        return current

    def _require_generation(
        self, key: GroupKey, group: Group, member: str, generation: int | None
    ) -> None:
        if generation is None or generation == group.generation:
            return
        if generation >= self._told.get(key, {}).get(member, generation):
            # Else it was said before the member joined again, and came late.
            self._fenced.setdefault(key, set()).add(member)
        raise StaleGeneration(str(key), current=group.generation, requested=generation)

    def _holds(self, key: GroupKey, member: str, generation: int) -> None:
        """The member knows the generation."""
        self._fenced.get(key, set()).discard(member)
        self._told.setdefault(key, {})[member] = generation

    def _fenced_as(self, key: GroupKey, group: Group, name: str) -> str | None:
        """The lowest fenced member that is called ``name``."""
        fenced = self._fenced.get(key, set())
        called = [each.member_id for each in group.members if _is_called(each.member_id, name)]
        return min((each for each in called if each in fenced), default=None)

    def _hand_over(self, key: GroupKey, place: str, name: str) -> str:
        """Give a fenced member's place to who may be another process: it is the member's no more.
        Returns its new id. Raises as :meth:`register`."""
        group = self._context.group(key)
        assert group is not None
        member, heard_ms = self._new_id(group, name), self._context.wall_ms()
        members = [
            replace(each, member_id=member, heard_ms=heard_ms) if each.member_id == place else each
            for each in group.members
        ]
        self._context.write_group(key, replace(group, members=tuple(members)))
        owned = self._owned.setdefault(key, {})
        owned[member] = owned.get(place, set())
        self._left(key, place)
        return member

    def _new_id(self, group: Group, name: str) -> str:
        for _ in range(_TRIES):
            member = f"{name}-{self._context.number_below(_SUFFIXES):04d}"
            if group.member(member) is None:
                return member
        raise GroupFull(f"{name}: no free member id was found")

    def _membership(self, key: GroupKey, member_id: str) -> CursusMembership:
        group = self._context.group(key)
        assert group is not None
        member = group.member(member_id)
        assert member is not None
        return CursusMembership(member_id, group.generation, member.partitions)

    # --- changes ----------------------------------------------------------------------------------

    def _assigned(self, key: GroupKey, members: Sequence[Member]) -> None:
        owned = self._owned.setdefault(key, {})
        for each in members:
            owned.setdefault(each.member_id, set()).update(each.partitions)

    def _left(self, key: GroupKey, member_id: str) -> None:
        super()._left(key, member_id)
        self._fenced.get(key, set()).discard(member_id)
        self._told.get(key, {}).pop(member_id, None)
        self._owned.get(key, {}).pop(member_id, None)

    # --- the engine's side ------------------------------------------------------------------------

    def reads(self, key: GroupKey, topic: str) -> bool:
        return key.subject == topic and self.member_count(key) > 0

    def resign(self, error: PacelineError) -> None:
        """Nobody waits in this family; who was fenced, told, and had what is volatile."""
        for volatile in (self._fenced, self._told, self._owned):
            volatile.clear()


def _is_called(member: str, name: str) -> bool:
    return re.fullmatch(re.escape(name) + r"-[0-9]{4}", member) is not None
