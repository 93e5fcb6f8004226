"""A group of Cursus, of one topic: its commands, where this node coordinates it (groups/DESIGN 4).

Some commands name no topic, or a pattern: they mean the first group of the name that matches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from paceline.errors import GroupNotFound
from paceline.types import NodeId
from paceline.wire.cursus.wildcards import TopicWildcards, is_pattern
from paceline_node.groups.committed_offsets import Commit
from paceline_node.groups.cursus_groups import CursusGroups, CursusMember, CursusMembership
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.store import GroupStore
from paceline_node.services.groups.open_group import OpenGroup

R = TypeVar("R")


class MemberStatus(NamedTuple):
    """``heard_ms``: wall clock of the last word from it."""

    member_id: str
    heard_ms: int
    partitions: tuple[int, ...]


class GroupStatus(NamedTuple):
    """A group as it is; members by id. ``changed_ms``: wall clock of its last change."""

    group: str
    topic: str
    generation: int
    partition_count: int
    changed_ms: int
    members: Sequence[MemberStatus]


class PositionHere(NamedTuple):
    """What this node's replica says of a group's position, without asking the coordinator. Where it
    is not ``known``, the coordinator is to be asked. ``may_move``: a transaction may yet commit
    more."""

    known: bool
    offset: int | None = None
    may_move: bool = False


class OpenCursusGroup(OpenGroup):
    """``commit_s`` is how long what an answer says has until it is committed. All raise as
    :meth:`OpenGroup.perform`; what a member says GroupNotFound, UnknownMember and StaleGeneration,
    too."""

    __slots__ = ()

    # --- members ----------------------------------------------------------------------------------

    async def register(self, partition_count: int, *, commit_s: float) -> None:
        """Let it be."""
        await self._run(lambda engine, key: engine.cursus.register(key, partition_count), commit_s)

    async def join(self, member: str, partition_count: int, *, commit_s: float) -> CursusMembership:
        """Become a member. See :meth:`CursusGroups.join`."""
        return await self._run(
            lambda engine, key: engine.cursus.join(key, member, partition_count), commit_s
        )

    async def sync(self, member: str, generation: int, *, commit_s: float) -> CursusMembership:
        """A member's assignment."""
        return await self._run(
            lambda engine, _: engine.cursus.sync(self._member(self.key, member, generation)),
            commit_s,
        )

    async def heartbeat(self, member: str, generation: int, *, commit_s: float) -> None:
        """Keep a member's session."""
        await self._run(
            lambda engine, _: engine.cursus.heartbeat(self._member(self.key, member, generation)),
            commit_s,
        )

    async def leave(
        self, member: str, *, generation: int | None, by_base: bool, commit_s: float
    ) -> str:
        """Be no member any more; who left. See :meth:`CursusGroups.leave`."""
        return await self._run(
            lambda engine, key: engine.cursus.leave(
                key, member, generation=generation, by_base=by_base
            ),
            commit_s,
        )

    def _member(self, key: GroupKey, member: str, generation: int) -> CursusMember:
        count = self._coordination.partition_count(key.subject)
        return CursusMember(key.group, key.subject, member, generation, count)

    # --- offsets ----------------------------------------------------------------------------------

    async def committed(
        self, partition: int, generation: int | None, *, commit_s: float
    ) -> int | None:
        """The committed offset, 0 where there is none; None while a transaction that is being ended
        may move it. Raises StaleGeneration for a reader of an older generation."""

        def look(engine: GroupEngine, key: GroupKey) -> int | None:
            if not engine.cursus.knows(key):
                raise GroupNotFound(f"group {key.group} does not exist")
            engine.cursus.check_reader(engine.store, key, generation)
            found = engine.offsets.fetch(key, key.subject, partition)
            offset = 0 if found is None else found.offset
            pending = engine.transactional
            is_moving = pending.is_pending(key, key.subject, partition, beyond=offset)
            return None if is_moving else offset

        return await self._run(look, commit_s)

    async def store(
        self,
        offsets: Sequence[tuple[int, int]],
        member: str | None,
        generation: int | None,
        *,
        commit_s: float,
    ) -> None:
        """Store offsets by partition, all or none, for a member or, where none says who it is, for
        nobody. Raises NotOwner, Regression, InvalidGroup, GroupFull."""

        def commit(engine: GroupEngine, key: GroupKey) -> None:
            commits = [Commit(key.subject, number, offset) for number, offset in offsets]
            if member is None or generation is None:
                for each in commits:
                    engine.cursus.commit_unfenced(key, each, self._account)
            else:
                who = self._member(key, member, generation)
                engine.cursus.commit(who, commits, self._account)

        await self._run(commit, commit_s)

    def position_here(
        self, partition: int, generation: int | None, at_least: int, me: NodeId
    ) -> PositionHere:
        """What this node, ``me``, knows of the position. One that lags lets an older reader pass a
        moment longer; it does not know it where it has not heard of the reader's generation yet:
        what members of generations before have pending lies before that in the log. It may move
        when more than it, and than ``at_least``, is pending. Raises StaleGeneration,
        CoordinatorNotAvailable."""
        store, key = self._coordination.replica_store(self.key), self.key
        if store is None or self._lags(store, generation, me):
            return PositionHere(known=False)
        current, topic = self._coordination.is_current, key.subject
        group = store.groups.get(key)
        if group is not None and current(topic, group.topic_id):
            CursusGroups.check_reader(store, key, generation)
        found = store.offsets.get(key, {}).get((topic, partition))
        offset = None if found is None or not current(topic, found.topic_id) else found.offset
        pendings, begins = store.pending.get(key), max(offset or 0, at_least)
        may_move = pendings is not None and any(
            each.offset > begins and current(topic, each.topic_id)
            for each in pendings.at(topic, partition)
        )
        return PositionHere(True, offset, may_move)

    def _lags(self, store: GroupStore, generation: int | None, me: NodeId) -> bool:
        """Whether another node knows of a generation that this one has not heard of."""
        if generation is None:
            return False
        group = store.groups.get(self.key)
        if group is not None and group.generation >= generation:
            return False
        return me != self._coordination.leader(self.key)

    # --- looking ----------------------------------------------------------------------------------

    async def status(self, *, commit_s: float) -> GroupStatus:
        """The group as it is. Raises GroupNotFound."""

        def look(engine: GroupEngine, key: GroupKey) -> GroupStatus:
            if not engine.cursus.knows(key):
                raise GroupNotFound(f"group {key.group} does not exist")
            group = engine.store.groups.get(key)
            if group is None:
                return GroupStatus(key.group, key.subject, 0, 0, 0, ())
            members = [
                MemberStatus(
                    each.member_id,
                    engine.sessions.heard_ms(key, each.member_id) or each.heard_ms,
                    each.partitions,
                )
                for each in sorted(group.members, key=lambda each: each.member_id)
            ]
            return GroupStatus(
                key.group,
                key.subject,
                group.generation,
                group.partition_count,
                group.changed_ms,
                members,
            )

        return await self._run(look, commit_s)

    # --- which ------------------------------------------------------------------------------------

    async def _run(self, command: Callable[[GroupEngine, GroupKey], R], commit_s: float) -> R:
        key = self._exact()
        return await self.exactly(key).perform(
            lambda engine: command(engine, key), commit_s=commit_s
        )

    def _exact(self) -> GroupKey:
        """The group that is meant: where its key names no topic, or a pattern, the first that
        matches, those with members before others."""
        key = self.key
        if key.subject and not is_pattern(key.subject):
            return key
        store = self._coordination.replica_store(key)
        known = [] if store is None else [*store.groups, *store.offsets]
        wildcards = TopicWildcards(key.subject or "*")
        matching = [
            each
            for each in known
            if each.family is Family.CURSUS
            and each.group == key.group
            and wildcards.matches(each.subject)
        ]
        groups = {} if store is None else store.groups
        silent = {each for each in matching if each not in groups or not groups[each].members}
        return min(matching, key=lambda each: (each in silent, each.subject), default=key)
