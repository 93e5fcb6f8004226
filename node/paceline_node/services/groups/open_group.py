"""A group that somebody has been found to be allowed to act on: what alone acts on one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from paceline.types import NodeId
from paceline_node.controller.image import Broker
from paceline_node.groups.committed_offsets import Commit, OffsetRule
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.inspection import Description, Inspection
from paceline_node.groups.keys import GROUPS_TOPIC, Family, GroupKey, TopicAndNumber
from paceline_node.groups.offset_pieces import pieces
from paceline_node.groups.store import GroupStore
from paceline_node.loop_turns import Turns
from paceline_node.sliced_work import Work
from paceline_node.state_machines.machine import Deferred
from paceline_node.state_machines.topic import StateTopic

R = TypeVar("R")
T = TypeVar("T")
_AT_A_TIME = 200
"""Members or offsets in one command."""
_SORTED_PER_UNIT = 8


class GroupMember(NamedTuple):
    """Whom a command speaks for: generation -1 and no id are nobody."""

    generation: int
    member_id: str
    instance_id: str | None = None


class Position(NamedTuple):
    """What a group has stored of a partition; ``offset`` -1: nothing. ``is_pending``: an open
    transaction may move it."""

    offset: int = -1
    leader_epoch: int = -1
    metadata: bytes = b""
    commit_ms: int = -1
    is_pending: bool = False


_NOTHING = Position()
_PENDING = Position(is_pending=True)


class Coordination(Protocol):
    """Where groups are kept."""

    commit_s: float

    def partition(self, key: GroupKey) -> int:
        """The partition of ``__groups`` that holds ``key``."""

    async def wait_partition(self, key: GroupKey, *, timeout_s: float) -> int:
        """As :meth:`partition`, waiting for the topic."""

    def coordinator(self, key: GroupKey, *listeners: str) -> Broker:
        """The node that coordinates."""

    def leader(self, key: GroupKey) -> NodeId:
        """The node that coordinates, -1 where none does."""

    def replica_store(self, key: GroupKey) -> GroupStore | None:
        """What this node's replica of the group's partition holds."""

    def partition_count(self, topic: str) -> int:
        """Partitions of a topic, 0 if this node does not know it."""

    def is_current(self, topic: str, topic_id: UUID | None) -> bool:
        """Whether the topic of that name has this id."""


class OpenGroup:
    """Runs what may be done to a group on its engine, where this node coordinates it; what is
    stored is counted for ``account``."""

    __slots__ = ("_account", "_coordination", "_machines", "_turns", "key")

    def __init__(
        self,
        coordination: Coordination,
        machines: StateTopic[GroupEngine],
        turns: Turns,
        key: GroupKey,
        account: str,
    ) -> None:
        self._coordination = coordination
        self._machines = machines
        self._turns = turns
        self.key = key
        self._account = account

    def exactly(self, key: GroupKey) -> OpenGroup:
        """The same group under another of its keys: its name is what was asked about."""
        assert (key.family, key.group) == (self.key.family, self.key.group), "another group"
        return OpenGroup(self._coordination, self._machines, self._turns, key, self._account)

    def coordinator(self, *listeners: str) -> Broker:
        """The node that coordinates the group. Raises as :meth:`GroupService.coordinator`."""
        return self._coordination.coordinator(self.key, *listeners)

    async def wait_place(self, *, timeout_s: float) -> tuple[str, int]:
        """The topic and the partition that hold the group, waiting for them to be made. Raises
        CoordinatorNotAvailable."""
        number = await self._coordination.wait_partition(self.key, timeout_s=timeout_s)
        return GROUPS_TOPIC, number

    async def perform(
        self,
        operation: Callable[[GroupEngine], R | Deferred[R]],
        *,
        commit_s: float | None = None,
    ) -> R:
        """Run ``operation`` on the group's engine here; its answer once all that it says is
        committed. Raises as :meth:`StateTopic.perform`."""
        coordination = self._coordination
        return await self._machines.perform(
            coordination.partition(self.key),
            self.key,
            operation,
            commit_s=coordination.commit_s if commit_s is None else commit_s,
        )

    async def commit(self, commits: Iterable[Commit], check: Callable[[GroupEngine], None]) -> None:
        """Store offsets, the last of each partition, in pieces that take turns with other work.
        Raises what ``check``, asked before each piece, raises, GroupFull, and as
        :meth:`StateTopic.perform`; earlier pieces are stored then, and may be stored again."""

        def store(piece: list[Commit], engine: GroupEngine) -> None:
            check(engine)
            engine.offsets.commit(self.key, piece, OffsetRule.FREE, self._account)
            if self.key.family is Family.COORDINATOR:
                engine.coordinator.committed(self.key, piece)

        for number, piece in enumerate(pieces(commits)):
            if number:
                await self._turns.next()
            await self.perform(partial(store, piece))

    async def in_slices(
        self,
        items: Sequence[T],
        operation: Callable[[Sequence[T], GroupEngine], Iterable[R]],
    ) -> Sequence[R]:
        """What ``operation`` makes of items, done to some at a time, which take turns with other
        work. Raises as :meth:`perform`: what came before is done then."""
        found: list[R] = []
        for number, some in enumerate(cut(items, _AT_A_TIME) or [items]):
            if number:
                await self._turns.next()
            found += await self.perform(partial(operation, some))
        return found

    async def positions(
        self, partitions: Sequence[TopicAndNumber], *, stable: bool = False
    ) -> Sequence[Position]:
        """What the group has stored of each of these; with ``stable`` one that may move is told as
        pending. Raises as :meth:`perform`."""

        def look_up(some: Sequence[TopicAndNumber], engine: GroupEngine) -> list[Position]:
            return [position(engine, at) for at in some]

        def position(engine: GroupEngine, at: TopicAndNumber) -> Position:
            if stable and engine.transactional.is_pending(self.key, *at):
                return _PENDING
            found = engine.offsets.fetch(self.key, *at)
            if found is None:
                return _NOTHING
            return Position(found.offset, found.leader_epoch, found.metadata, found.commit_ms)

        return await self.in_slices(partitions, look_up)

    async def describe(self) -> Description:
        """Its state and its members. Raises as :meth:`perform`."""
        return await self.perform(lambda engine: Inspection(engine).describe(self.key))

    async def reset(self, commits: Iterable[Commit]) -> None:
        """Store offsets of a group without members. Raises GroupNotFound, NonEmptyGroup, and as
        :meth:`commit`."""
        await self.commit(commits, lambda engine: Inspection(engine).check_empty(self.key))

    async def stored(self) -> Sequence[TopicAndNumber]:
        """The partitions that the group has committed offsets of, by topic and partition."""
        known = await self.perform(lambda engine: list(engine.store.offsets.get(self.key, ())))
        return await self._turns.run(_sorted(known))

    async def delete(self) -> None:
        """Forget a group without members, its offsets in pieces. Raises GroupNotFound,
        NonEmptyGroup, and as :meth:`perform`: earlier pieces are gone then."""
        key = self.key
        while not await self.perform(lambda engine: Inspection(engine).delete_piece(key)):
            await self._turns.next()

    async def delete_offsets(
        self, partitions: Sequence[TopicAndNumber]
    ) -> frozenset[TopicAndNumber]:
        """Forget offsets, but none of topics that members read, which are returned. Raises
        GroupNotFound, and as :meth:`perform`."""

        def delete(
            some: Sequence[TopicAndNumber], engine: GroupEngine
        ) -> tuple[frozenset[TopicAndNumber], bool]:
            return Inspection(engine).delete_piece_of_offsets(self.key, some)

        await self.perform(lambda engine: Inspection(engine).check_known(self.key))
        kept: frozenset[TopicAndNumber] = frozenset()
        for some in cut(partitions, _AT_A_TIME):
            is_last = False
            while not is_last:
                read, is_last = await self.perform(partial(delete, some))
                kept |= read
                await self._turns.next()
        return kept


def cut(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """``items`` in pieces of ``size``."""
    return [items[at : at + size] for at in range(0, len(items), size)]


def _sorted(partitions: Iterable[TopicAndNumber]) -> Work[list[TopicAndNumber]]:
    topics: dict[str, list[int]] = {}
    for number, (topic, partition) in enumerate(partitions):
        if not number % _SORTED_PER_UNIT:
            yield 1
        topics.setdefault(topic, []).append(partition)
    found = []
    for topic in sorted(topics):
        yield 1 + len(topics[topic]) // _SORTED_PER_UNIT
        found += [(topic, partition) for partition in sorted(topics[topic])]
    return found
