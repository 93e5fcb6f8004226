"""Consumer groups: who coordinates one, and the way to it where this node does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TypeVar
from uuid import UUID

import trio

from paceline.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidRequest,
    UnknownTopicOrPartition,
)
from paceline.types import LeaderEpoch, NodeId, is_internal_topic
from paceline.wire.cursus.wildcards import TopicWildcards, is_pattern
from paceline_node.controller.group_topics import topics_of
from paceline_node.controller.image import Broker
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import Env
from paceline_node.groups.cursus_groups import cursus_key
from paceline_node.groups.driven_groups import coordinator_key
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.inspection import Inspection, Listing
from paceline_node.groups.keys import (
    GROUPS_TOPIC,
    Family,
    GroupKey,
    TopicAndNumber,
    partition_of,
)
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.store import GroupStore
from paceline_node.groups.topic_ids import UNBOUND
from paceline_node.groups.v1_groups import v1_key
from paceline_node.loop_turns import Turns
from paceline_node.security.principals import Operation, Principal, Resource, ResourceKind
from paceline_node.services.authorization.authorizer import Authorizer
from paceline_node.services.groups.offsets_to_commit import OffsetsToCommit
from paceline_node.services.groups.open_cursus_group import OpenCursusGroup
from paceline_node.services.groups.open_driven_group import OpenDrivenGroup
from paceline_node.services.groups.open_group import OpenGroup, cut
from paceline_node.services.groups.open_kafka_group import OpenKafkaGroup
from paceline_node.services.groups.open_v1_group import OpenV1Group
from paceline_node.settings.addresses import kind_of_endpoint
from paceline_node.state_machines.machine import EVERYTHING
from paceline_node.state_machines.topic import StateTopic

KAFKA = Family.KAFKA.value
CURSUS = Family.CURSUS.value
"""Families by name, for those that list the groups of one."""
G = TypeVar("G", bound=OpenGroup)
_AT_A_TIME = 200
"""Groups in one command."""
_OF_TOPIC = {
    Operation.JOIN_GROUP: Operation.CONSUME,
    Operation.COMMIT_OFFSETS: Operation.CONSUME,
    Operation.DESCRIBE: Operation.DESCRIBE,
}
"""What doing something to a group that reads a topic takes of the topic."""


class GroupService:
    """Tells who coordinates groups, and opens them where this node does."""

    def __init__(
        self,
        env: Env,
        store: MetadataStore,
        machines: StateTopic[GroupEngine],
        access: Authorizer,
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

    # --- opening: the only way to do anything to a group. All raise AuthorizationFailed, and a
    # group's name counts, whatever its family.

    def open(
        self, principal: Principal, operation: Operation, family: str, group: str, subject: str
    ) -> OpenGroup:
        """A group of any family, for ``principal`` to do this to it. Raises InvalidRequest where
        there is no such family."""
        key = GroupKey(family_named(family), group, subject)
        return self._open(OpenGroup, principal, operation, key)

    def open_kafka(self, principal: Principal, operation: Operation, group: str) -> OpenKafkaGroup:
        """A group of Kafka's and the native clients."""
        return self._open(OpenKafkaGroup, principal, operation, GroupKey(Family.KAFKA, group))

    def open_cursus(
        self, principal: Principal, operation: Operation, group: str, topic: str
    ) -> OpenCursusGroup:
        """A group of Cursus; where ``topic`` is empty, or a pattern, the first that matches. A
        topic is asked for, too, and where offsets are meant all that match a pattern: which of them
        is the group's is not known yet. Members that read by one are asked for each topic."""
        opened = self._open(OpenCursusGroup, principal, operation, cursus_key(group, topic))
        for name in self._meant(topic, operation):
            self._access.topic(principal, _OF_TOPIC[operation], name)
        return opened

    def _meant(self, topic: str, operation: Operation) -> Iterator[str]:
        if is_pattern(topic):
            if operation is not Operation.JOIN_GROUP:
                named = filter(TopicWildcards(topic).matches, self._store.image.topic_ids)
                yield from (each for each in named if not is_internal_topic(each))
        elif topic:
            yield topic

    def open_driven(
        self, principal: Principal, operation: Operation, group: str
    ) -> OpenDrivenGroup:
        """A group whose coordinator drives the consumers."""
        return self._open(OpenDrivenGroup, principal, operation, coordinator_key(group))

    def open_v1(
        self, principal: Principal, operation: Operation, group: str, topic: str
    ) -> OpenV1Group:
        """A group of V1, for somebody who reads ``topic``, which need not exist, or asks how far
        the group has; empty for who only leaves. Raises AuthorizationFailed for those who may not
        read, or see, it, too."""
        opened = self._open(OpenV1Group, principal, operation, v1_key(group))
        if topic:
            self._access.topic(principal, _OF_TOPIC[operation], topic)
        return opened

    def _open(self, kind: type[G], principal: Principal, operation: Operation, key: GroupKey) -> G:
        self._access.resource(principal, operation, Resource(ResourceKind.GROUP, key.group))
        return kind(self, self._machines, self._turns, key, principal.account)

    def inside(self, key: GroupKey) -> OpenGroup:
        """The group, for what this node does by itself."""
        return OpenGroup(self, self._machines, self._turns, key, "")

    async def delete_offsets(
        self,
        principal: Principal,
        family: str,
        group: str,
        subject: str,
        partitions: Sequence[TopicAndNumber],
    ) -> Mapping[TopicAndNumber, ErrorCode]:
        """Forget how far a group has read topics, for who may read them; why others stay. Raises
        as :meth:`open`, and GroupNotFound."""
        opened = self.open(principal, Operation.ALTER, family, group, subject)
        may_read = cache(partial(self.may_read, principal))
        refused: dict[TopicAndNumber, ErrorCode] = {}
        for some in cut(partitions, _AT_A_TIME):
            await self._turns.next()
            denied = [each for each in some if not may_read(each[0])]
            refused.update(dict.fromkeys(denied, ErrorCode.AUTHORIZATION_FAILED))
        kept = await opened.delete_offsets([each for each in partitions if each not in refused])
        return refused | dict.fromkeys(kept, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)

    def may_read(self, principal: Principal, topic: str) -> bool:
        """Whether ``principal`` may read a topic: only then may it say how far it has."""
        resource = Resource(ResourceKind.TOPIC, topic)
        return self._access.allows(principal, Operation.CONSUME, resource)

    def asked_offsets(self, principal: Principal) -> OffsetsToCommit:
        """Collects offsets that ``principal`` wants stored."""
        return OffsetsToCommit(
            lambda topic: self.may_read(principal, topic),
            self.has_partition,
            self._limits.offset_metadata_bytes_max,
        )

    def may_see_offsets(self, principal: Principal) -> Callable[[str], bool]:
        """Whether ``principal`` may know of a topic, and so how far a group has read it: asked once
        for each topic."""

        def may_see(topic: str) -> bool:
            resource = Resource(ResourceKind.TOPIC, topic)
            return self._access.allows(principal, Operation.DESCRIBE, resource)

        return cache(may_see)

    def may_see(self, principal: Principal, group: str) -> bool:
        """Whether ``principal`` may know of a group."""
        resource = Resource(ResourceKind.GROUP, group)
        return self._access.allows(principal, Operation.DESCRIBE, resource)

    def sees_all(self, principal: Principal) -> bool:
        """Whether lists of groups leave nothing out for ``principal``."""
        return self._access.sees_all(principal, ResourceKind.GROUP)

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
        nobody does, or it has none of ``listeners`` (DESIGN 3.3)."""
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
            kinds = " or ".join(map(kind_of_endpoint, listeners))
            raise CoordinatorNotAvailable(f"node {leader} has no {kinds} listener")
        return broker

    def coordinators(self) -> list[NodeId]:
        """The nodes that coordinate any groups, as the metadata say."""
        topic = self._store.image.find_topic(GROUPS_TOPIC)
        partitions = () if topic is None else topic.partitions.values()
        return sorted({each.leader for each in partitions if each.leader >= 0})

    def driving(self, *listeners: str) -> tuple[Broker, LeaderEpoch]:
        """The node that coordinates all groups whose consumers are driven, and its epoch. Raises
        as :meth:`coordinator`."""
        key = coordinator_key("")
        broker = self.coordinator(key, *listeners)
        number = self.partition(key)
        return broker, self._store.image.partition(GROUPS_TOPIC, number).leader_epoch

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

    def is_driven(self, group: str) -> bool:
        """Whether this node's replica knows a group of that name whose coordinator drives the
        consumers; it may be a moment behind the coordinator."""
        key = coordinator_key(group)
        store = self.replica_store(key)
        return store is not None and (key in store.groups or key in store.offsets)

    # --- all of them ------------------------------------------------------------------------------

    def tell(self, number: int, operation: Callable[[GroupEngine], None]) -> bool:
        """Give news to the engine of a partition of ``__groups``, where it leads here. As
        :meth:`StateTopic.tell`."""
        return self._machines.tell(number, operation)

    async def list(self, families: Iterable[str], states: Iterable[str]) -> list[Listing]:
        """All groups that this node coordinates, of these families and in these states; empty
        filters let everything pass. Raises InvalidRequest where there is no such family,
        CoordinatorLoadInProgress while it is still loading some."""
        wanted, wanted_states = frozenset(map(family_named, families)), frozenset(states)
        led = [
            (number, replica)
            for number, replica, _ in self._machines.machines()
            if replica.leads_log
        ]
        for _, replica in led:
            replica.check_leading()

        def listed(some: Iterable[GroupKey], engine: GroupEngine) -> list[Listing]:
            return list(Inspection(engine).groups(some, wanted, wanted_states))

        def begun(engine: GroupEngine) -> tuple[list[GroupKey], list[Listing]]:
            keys = list(engine.store.all_keys())
            return keys[_AT_A_TIME:], listed(keys[:_AT_A_TIME], engine)

        found: list[Listing] = []
        for number, _ in led:
            ask = partial(self._machines.perform, number, EVERYTHING, commit_s=self.commit_s)
            await self._turns.next()
            rest, first = await ask(begun)
            found += first
            for some in cut(rest, _AT_A_TIME):
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


def family_named(name: str) -> Family:
    """The family that people call so. Raises InvalidRequest."""
    try:
        return Family(name)
    except ValueError:
        known = ", ".join(family.value for family in Family)
        raise InvalidRequest(f"family {name!r}: expected one of {known}") from None
