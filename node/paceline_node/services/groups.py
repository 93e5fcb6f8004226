"""Consumer groups: who coordinates one, and its engine where this node does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

import trio

from paceline.errors import CoordinatorNotAvailable, UnknownTopicOrPartition
from paceline.types import NodeId, TopicId
from paceline_node.controller.group_topics import topics_of
from paceline_node.controller.image import Broker
from paceline_node.controller.store import MetadataStore
from paceline_node.coordination.machine import EVERYTHING, Deferred
from paceline_node.coordination.topic import StateTopic
from paceline_node.env import Env
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.inspection import Inspection, Listing
from paceline_node.groups.keys import (
    GROUPS_TOPIC,
    Family,
    GroupKey,
    TopicPartition,
    partition_of,
)
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.offsets import Commit, OffsetRule
from paceline_node.groups.pieces import pieces
from paceline_node.groups.store import GroupStore
from paceline_node.groups.topic_ids import UNBOUND
from paceline_node.security.principals import Operation, Principal, Resource, ResourceKind
from paceline_node.services.access import Access
from paceline_node.stretches import Work
from paceline_node.turns import Turns

R = TypeVar("R")
T = TypeVar("T")
_AT_A_TIME = 200
"""Groups, members or offsets in one command."""
_SORTED_PER_UNIT = 8


class GroupService:
    """Runs requests on the engine of a group, where this node coordinates it."""

    def __init__(
        self,
        env: Env,
        store: MetadataStore,
        machines: StateTopic[GroupEngine],
        access: Access,
        limits: GroupLimits,
        turns: Turns,
        *,
        commit_s: float,
    ) -> None:
        self._env = env
        self._store = store
        self._machines = machines
        self._access = access
        self._limits = limits
        self._turns = turns
        self.commit_s = commit_s
        """How long a command is given, unless it says otherwise, until it is committed."""

    def permit(self, principal: Principal, operation: Operation, group: str) -> None:
        """Raise AuthorizationFailed unless ``principal`` may do this to a group; its name counts,
        whatever the family."""
        resource = Resource(ResourceKind.GROUP, group)
        self._access.resource(principal, operation, resource)

    def may_read(self, principal: Principal, topic: str) -> bool:
        """Whether ``principal`` may read a topic: only then may it say how far it has."""
        resource = Resource(ResourceKind.TOPIC, topic)
        return self._access.allows(principal, Operation.CONSUME, resource)

    def may_see(self, principal: Principal, group: str) -> bool:
        """Whether ``principal`` may know of a group."""
        resource = Resource(ResourceKind.GROUP, group)
        return self._access.allows(principal, Operation.DESCRIBE, resource)

    # --- who --------------------------------------------------------------------------------------

    def partition(self, key: GroupKey) -> int:
        """The partition of ``__groups`` that holds ``key``. Raises CoordinatorNotAvailable while
        the topic is not there yet."""
        topic = self._store.image.find_topic(GROUPS_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable(f"{GROUPS_TOPIC} does not exist yet")
        return partition_of(key, len(topic.partitions))

    async def wait_partition(self, key: GroupKey, *, timeout_s: float) -> int:
        """As :meth:`partition`, waiting for the topic."""
        with trio.move_on_after(timeout_s):
            await self._store.wait_for(lambda image: image.find_topic(GROUPS_TOPIC) is not None)
        return self.partition(key)

    def coordinator(self, key: GroupKey, *listeners: str) -> Broker:
        """The node that coordinates, as the metadata say. Raises CoordinatorNotAvailable where
        nobody does, or it has none of ``listeners`` (SETTLED P8)."""
        image = self._store.image
        number = self.partition(key)
        try:
            leader: NodeId = image.partition(GROUPS_TOPIC, number).leader
        except UnknownTopicOrPartition as error:
            raise CoordinatorNotAvailable(str(error)) from error
        broker = image.brokers.get(leader)
        if broker is None:
            raise CoordinatorNotAvailable(f"{GROUPS_TOPIC}/{number} has no leader")
        if all(broker.endpoint(each) is None for each in listeners):
            raise CoordinatorNotAvailable(f"node {leader} has no {' or '.join(listeners)} listener")
        return broker

    def leader(self, key: GroupKey) -> NodeId:
        """The node that coordinates, as the metadata say, -1 where none does. Raises
        CoordinatorNotAvailable as :meth:`partition`."""
        try:
            found = self._store.image.partition(GROUPS_TOPIC, self.partition(key))
        except UnknownTopicOrPartition as error:
            raise CoordinatorNotAvailable(str(error)) from error
        return found.leader

    def replica_store(self, key: GroupKey) -> GroupStore | None:
        """What this node's replica of the group's partition holds, whether it coordinates or not;
        None where it has none. It may be a moment behind the coordinator."""
        wanted = self.partition(key)
        for number, _, engine in self._machines.machines():
            if number == wanted:
                return engine.store
        return None

    def is_stored(self, key: GroupKey) -> bool:
        """Whether this node's replica of the group's partition knows the group; it may be a moment
        behind the coordinator."""
        store = self.replica_store(key)
        return store is not None and (key in store.groups or key in store.offsets)

    # --- what -------------------------------------------------------------------------------------

    async def perform(
        self,
        key: GroupKey,
        operation: Callable[[GroupEngine], R | Deferred[R]],
        *,
        commit_s: float | None = None,
    ) -> R:
        """Run ``operation`` on the group's engine here; its answer once all that it says is
        committed. Raises as :meth:`StateTopic.perform`."""
        return await self._machines.perform(
            self.partition(key),
            key,
            operation,
            commit_s=self.commit_s if commit_s is None else commit_s,
        )

    async def commit(
        self,
        principal: Principal,
        key: GroupKey,
        commits: Iterable[Commit],
        check: Callable[[GroupEngine], None],
    ) -> None:
        """Store offsets, the last of each partition, in pieces that take turns with other work.
        Raises what ``check``, asked before each piece, raises, GroupFull, and as
        :meth:`StateTopic.perform`; earlier pieces are stored then, and may be stored again."""

        def store(piece: list[Commit], engine: GroupEngine) -> None:
            check(engine)
            engine.offsets.commit(key, piece, OffsetRule.FREE, principal.account)

        for number, piece in enumerate(pieces(commits)):
            if number:
                await self._turns.next()
            await self.perform(key, partial(store, piece))

    def tell(self, number: int, operation: Callable[[GroupEngine], None]) -> bool:
        """Give news to the engine of a partition of ``__groups``, where it leads here. As
        :meth:`StateTopic.tell`."""
        return self._machines.tell(number, operation)

    async def in_slices(
        self,
        key: GroupKey,
        items: Sequence[T],
        operation: Callable[[Sequence[T], GroupEngine], Iterable[R]],
    ) -> Sequence[R]:
        """What ``operation`` makes of items, done to some at a time, which take turns with other
        work. Raises as :meth:`perform`: what came before is done then."""
        found: list[R] = []
        for number, some in enumerate(_cut(items) or [items]):
            if number:
                await self._turns.next()
            found += await self.perform(key, partial(operation, some))
        return found

    async def stored(self, key: GroupKey) -> Sequence[TopicPartition]:
        """The partitions that the group has committed offsets of, by topic and partition."""
        known = await self.perform(key, lambda engine: list(engine.store.offsets.get(key, ())))
        return await self._turns.run(_sorted(known))

    async def delete(self, key: GroupKey) -> None:
        """Forget a group without members, its offsets in pieces. Raises GroupNotFound,
        NonEmptyGroup, and as :meth:`perform`: earlier pieces are gone then."""
        while not await self.perform(key, lambda engine: Inspection(engine).delete_piece(key)):
            await self._turns.next()

    async def delete_offsets(
        self, key: GroupKey, partitions: Sequence[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Forget offsets, but none of topics that members read, which are returned. Raises
        GroupNotFound, and as :meth:`in_slices`."""

        def delete(some: Sequence[TopicPartition], engine: GroupEngine) -> Iterable[TopicPartition]:
            return Inspection(engine).delete_offsets(key, some)

        await self.perform(key, lambda engine: Inspection(engine).check_known(key))
        return frozenset(await self.in_slices(key, partitions, delete))

    async def list(self, families: frozenset[Family], states: frozenset[str]) -> list[Listing]:
        """All groups that this node coordinates; empty filters let everything pass. Raises
        CoordinatorLoadInProgress while it is still loading some."""
        led = [
            (number, replica)
            for number, replica, _ in self._machines.machines()
            if replica.leads_log
        ]
        for _, replica in led:
            replica.check_leading()

        def listed(some: Iterable[GroupKey], engine: GroupEngine) -> list[Listing]:
            return list(Inspection(engine).groups(some, families, states))

        def begun(engine: GroupEngine) -> tuple[list[GroupKey], list[Listing]]:
            keys = list(engine.store.all_keys())
            return keys[_AT_A_TIME:], listed(keys[:_AT_A_TIME], engine)

        found: list[Listing] = []
        for number, _ in led:
            ask = partial(self._machines.perform, number, EVERYTHING, commit_s=self.commit_s)
            await self._turns.next()
            rest, first = await ask(begun)
            found += first
            for some in _cut(rest):
                await self._turns.next()
                found += await ask(partial(listed, some))
        return found

    def listed_topics(self, key: GroupKey) -> tuple[str, ...]:
        """What consumers of the group read that name no topics, where an operator has said so."""
        if key.family is not Family.COORDINATOR:
            return ()
        return topics_of(self._store.image.configs, key.group)

    def leading(self) -> Iterator[GroupEngine]:
        """The engines that decide here now, to be looked at and not asked."""
        return (engine for _, _, engine in self._machines.machines() if engine.leads)

    @property
    def limits(self) -> GroupLimits:
        """What one group may be."""
        return self._limits

    def topic_id(self, topic: str) -> TopicId | None:
        """The topic of that name, as far as this node knows."""
        return self._store.image.topic_ids.get(topic)

    def is_current(self, topic: str, topic_id: UUID | None) -> bool:
        """Whether the topic of that name has this id, as far as this node knows; None is an id that
        was not written down."""
        found = self._store.image.find_topic(topic)
        return found is not None and topic_id in (None, UNBOUND, found.topic_id)

    def partition_count(self, topic: str) -> int:
        """Partitions of a topic, 0 if this node does not know it."""
        found = self._store.image.find_topic(topic)
        return 0 if found is None else len(found.partitions)

    def has_partition(self, topic: str, partition: int) -> bool:
        """Whether the topic has such a partition, as far as this node knows."""
        found = self._store.image.find_topic(topic)
        return found is not None and partition in found.partitions


def _cut(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[at : at + _AT_A_TIME] for at in range(0, len(items), _AT_A_TIME)]


def _sorted(partitions: Iterable[TopicPartition]) -> Work[list[TopicPartition]]:
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
