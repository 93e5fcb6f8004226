"""The groups of the Kafka protocol and of the native client (DESIGN 5): finds the group that a
command is for, which does the rest (``kafka_group.py``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import TypeVar

from paceline.errors import ErrorCode, PacelineError
from paceline.wire.consumer_protocol import PROTOCOL_TYPE, Subscription
from paceline_node.groups.context import GroupContext
from paceline_node.groups.kafka_group import KafkaGroup
from paceline_node.groups.kafka_rounds import Joined, JoinRequest, Synced, SyncRequest
from paceline_node.groups.kafka_state import Coordinated
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.records import Group, Member, Phase
from paceline_node.state_machines.machine import Deferred

T = TypeVar("T")
_STATES = {
    Phase.EMPTY: "Empty",
    Phase.PREPARING: "PreparingRebalance",
    Phase.COMPLETING: "CompletingRebalance",
    Phase.STABLE: "Stable",
}


class KafkaGroups:
    """The family's policy. An object is kept for each group that has members, or of which more is
    known than what is stored; any other group is one that nobody has spoken to yet."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._coordinated = Coordinated(context)
        self._groups: dict[GroupKey, KafkaGroup] = {}
        self._subscribed: tuple[Group | None, frozenset[str]] = (None, frozenset())
        """What the members of the group that was asked for last read."""

    @property
    def rebalances(self) -> int:
        """Rounds begun."""
        return self._coordinated.rebalances

    def _at(self, key: GroupKey) -> KafkaGroup:
        return self._groups.get(key) or KafkaGroup(key, self._coordinated)

    def _hand_on(self, key: GroupKey, command: Callable[[KafkaGroup], T]) -> T:
        group = self._at(key)
        try:
            return command(group)
        finally:
            if not group.is_idle:
                self._groups[key] = group
            else:
                self._groups.pop(key, None)

    # --- commands ---------------------------------------------------------------------------------

    def join(self, request: JoinRequest) -> Joined | Deferred[Joined]:
        """See :meth:`KafkaGroup.join`; raises also InvalidGroup."""
        self._context.check_new_group(request.key, self._coordinated.in_rounds)
        return self._hand_on(request.key, lambda group: group.join(request))

    def sync(self, request: SyncRequest) -> Synced | Deferred[Synced]:
        """See :meth:`KafkaGroup.sync`."""
        return self._hand_on(request.key, lambda group: group.sync(request))

    def heartbeat(
        self, key: GroupKey, generation: int, member_id: str, instance_id: str | None
    ) -> None:
        """See :meth:`KafkaGroup.heartbeat`."""
        self._hand_on(key, lambda group: group.heartbeat(generation, member_id, instance_id))

    def check_commit(
        self,
        key: GroupKey,
        generation: int,
        member_id: str,
        instance_id: str | None,
        topics: Iterable[str] = (),
    ) -> None:
        """See :meth:`KafkaGroup.check_commit`; raises also InvalidGroup."""
        self._hand_on(
            key, lambda group: group.check_commit(generation, member_id, instance_id, topics)
        )

    def check_new(self, key: GroupKey) -> None:
        """Raise InvalidGroup or GroupFull unless there is, or may be, such a group."""
        self._context.check_new_group(key)

    def leave(
        self, key: GroupKey, members: Iterable[tuple[str, str | None]]
    ) -> tuple[ErrorCode, ...]:
        """See :meth:`KafkaGroup.leave`."""
        return self._hand_on(key, lambda group: group.leave(members))

    # --- the engine's side ------------------------------------------------------------------------

    def resume(self, key: GroupKey, group: Group) -> None:
        """Members have fresh sessions; what was not settled begins again."""
        self._hand_on(key, KafkaGroup.resume)

    def topics_grew(self) -> None:
        """Topics got more partitions."""
        if self._context.leads:
            for key in self._context.store.groups:
                if key.family is Family.KAFKA:
                    self._hand_on(key, KafkaGroup.topics_grew)

    def on_alarm(self, key: GroupKey) -> float:
        """Expire ids and sessions, end what has waited long enough."""
        return self._hand_on(key, KafkaGroup.on_alarm)

    def state(self, key: GroupKey) -> str:
        return _STATES[self._at(key).phase]

    def member_count(self, key: GroupKey) -> int:
        return self._at(key).member_count

    def reads(self, key: GroupKey, topic: str) -> bool:
        """By the subscriptions of protocol type ``consumer``; any topic of other types."""
        group = self._context.group(key)
        if group is None or group.protocol_type != PROTOCOL_TYPE:
            return group is not None and bool(group.members)
        if self._subscribed[0] is not group:
            topics = (_subscribed(group, each) for each in group.members)
            self._subscribed = (group, frozenset(chain.from_iterable(topics)))
        return topic in self._subscribed[1]

    def resign(self, error: PacelineError) -> None:
        """Tell everyone who waits, and forget what is volatile."""
        groups, self._groups = self._groups, {}
        self._coordinated.handed_out.clear()
        for group in groups.values():
            group.resign(error)


def _subscribed(group: Group, member: Member) -> tuple[str, ...]:
    try:
        return Subscription.from_bytes(member.metadata(group.protocol)).topics
    except PacelineError:
        return ()
