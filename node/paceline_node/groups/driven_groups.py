"""Groups whose coordinator drives the consumers: Kafka's design of 2012 (DESIGN 6).

A consumer registers over a connection and from then on only answers: pings, stops and starts. This
is the family's policy; rounds are in ``driven_rounds.py``, questions and their times in
``driven_dialogue.py``. Commands:

* ``register``, ``answered``, ``closed``: what happens on a consumer's connection;
* ``topics_changed``: what there is to read is something else now;
* ``look``, ``store``, ``assign``, ``settle``, ``start``: steps of a worker
  (``services/groups/driven_rebalancing.py``);
* ``check_commit``: for consumers that commit by themselves.

Nothing but the worker's steps and alarms write, so a connection's news cannot fail.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Set
from types import MappingProxyType
from typing import NamedTuple

from paceline.errors import (
    CoordinatorNotAvailable,
    FencedInstance,
    IllegalGeneration,
    InvalidRequest,
    InvalidSessionTimeout,
    MessageTooLarge,
    PacelineError,
    UnknownMember,
)
from paceline.wire.coordinator.codec import Ask
from paceline.wire.coordinator.messages import (
    MOVING,
    REPLACED,
    SHUTDOWN,
    PositionsResponse,
    RegisterRequest,
)
from paceline_node.groups.committed_offsets import Commit, OffsetBook
from paceline_node.groups.context import GroupContext
from paceline_node.groups.driven_dialogue import Dialogue
from paceline_node.groups.driven_reading import Reading
from paceline_node.groups.driven_rounds import Beginnings, Rounds
from paceline_node.groups.driven_state import (
    LIST,
    PROTOCOL,
    Channel,
    Consumer,
    DrivenGroup,
    Numbers,
    Plan,
    RoundsDue,
    State,
    Wants,
)
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.records import Group, Member, Protocol
from paceline_node.groups.topic_pattern import TopicPattern
from paceline_node.settings.counts import PATTERN_STREAMS

INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 300_000
RETRIES_MAX = 100
FENCE_MS_MAX = 300_000
_ID_BYTES_MAX = 255
_FLAPS, _FLAP_S = 3, 10.0
_MARGIN_S = 1.0
_NO_LISTS: Mapping[str, Set[str]] = MappingProxyType({})
_STATES = {
    State.PENDING: "PreparingRebalance",
    State.STOPPING: "PreparingRebalance",
    State.RECOVERING: "PreparingRebalance",
    State.ASSIGNING: "CompletingRebalance",
    State.STARTING: "CompletingRebalance",
    State.STABLE: "Stable",
}


def coordinator_key(group: str) -> GroupKey:
    """The key of a group of this family."""
    return GroupKey(Family.COORDINATOR, group)


class Registered(NamedTuple):
    """What a consumer is told of protocol version 1."""

    coordinator_epoch: int
    generation: int


class DrivenGroups:
    """See the module's docstring. ``due`` is where workers find what they shall do."""

    def __init__(self, context: GroupContext, offsets: OffsetBook, due: RoundsDue) -> None:
        self._context = context
        self._dialogue = Dialogue(context, self._fail)
        self._rounds = Rounds(context, offsets, self._dialogue, due)
        self._driven: dict[GroupKey, DrivenGroup] = {}
        self._is_closing = False

    @property
    def rebalances(self) -> int:
        return self._rounds.rebalances

    # --- a consumer's connection ------------------------------------------------------------------

    def register(
        self,
        request: RegisterRequest,
        version: int,
        client_id: str,
        channel: Channel,
        *,
        client_host: str = "",
    ) -> Registered:
        """Take a consumer in; ``channel`` is asked from now on.

        Raises InvalidGroup, UnknownMember (an impossible id), InvalidSessionTimeout, InvalidRequest
        (topics), FencedInstance (two fight over the id), GroupFull, MessageTooLarge, and
        CoordinatorNotAvailable while the node stops.
        """
        key = coordinator_key(request.group_id)
        consumer = self._made(request, version, client_id, client_host, channel)
        if self._is_closing:
            raise CoordinatorNotAvailable("this node stops; another one will coordinate")
        driven = self._driven.get(key)
        if driven is None:
            self._context.check_new_group(key, _unrecorded(self._driven, self._context))
        else:
            self._check_room_for(driven, consumer)
        group = self._context.group(key)
        if driven is None:
            driven = self._driven[key] = DrivenGroup(key, State.PENDING)
            self._rounds.open(driven)
        else:
            self._replace(driven, consumer)
        driven.consumers[consumer.id] = consumer
        driven.awaited.discard(consumer.id)
        self._context.heard(key, consumer.id)
        if _is_back(driven, group, consumer, request.generation):
            consumer.generation = request.generation
            self._rounds.bring_back(driven, consumer)
        else:
            self._rounds.trigger(driven)
            self._rounds.go_on(driven)  # the one it replaced may be all that was waited for
        if consumer.is_versioned:
            self._dialogue.rest(driven, consumer)
        else:
            self._dialogue.ping(driven, consumer)  # the answer that there is no other one for
        self._look_at(driven)
        return Registered(self._context.epoch, 0 if group is None else group.generation)

    def _made(
        self,
        request: RegisterRequest,
        version: int,
        client_id: str,
        client_host: str,
        channel: Channel,
    ) -> Consumer:
        if not 1 <= len(request.consumer_id.encode()) <= _ID_BYTES_MAX:
            raise UnknownMember(f"consumer id: expected 1 to {_ID_BYTES_MAX} bytes")
        interval_ms, retries = request.heartbeat_interval_ms, request.max_heartbeat_retries
        fence_ms = interval_ms * (retries + 1)
        if not (
            INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX
            and 0 <= retries <= RETRIES_MAX
            and fence_ms <= FENCE_MS_MAX
        ):
            raise InvalidSessionTimeout(
                f"heartbeats every {interval_ms} ms, {retries} retries: expected "
                f"{INTERVAL_MS_MIN} to {INTERVAL_MS_MAX} ms, 0 to {RETRIES_MAX} retries, and in "
                f"all not more than {FENCE_MS_MAX} ms"
            )
        wants = Wants.of(request, version)
        if not all(1 <= each.count <= PATTERN_STREAMS.bound for each in wants.topics):
            raise InvalidRequest(f"streams of a topic: expected 1 to {PATTERN_STREAMS.bound}")
        if len({each.topic for each in wants.topics}) < len(wants.topics):
            raise InvalidRequest("a topic is named twice")
        pattern = None
        if wants.pattern_kind != LIST:
            pattern = TopicPattern(wants.topics[0].topic)
        said = wants.to_bytes()
        if len(said) > self._context.limits.member_bytes_max:
            raise MessageTooLarge(
                f"{len(said)} bytes of topics: at most {self._context.limits.member_bytes_max} "
                "(groups.member_bytes_max)"
            )
        member = Member(
            request.consumer_id,
            client_id=client_id,
            session_timeout_ms=interval_ms,
            rebalance_timeout_ms=fence_ms,
            protocols=(Protocol(PROTOCOL, said),),
            heard_ms=self._context.wall_ms(),
            client_host=client_host,
        )
        counts = {} if pattern is not None else {each.topic: each.count for each in wants.topics}
        return Consumer(member, wants, channel, generation=-1, pattern=pattern, counts=counts)

    def _check_room_for(self, driven: DrivenGroup, consumer: Consumer) -> None:
        others = [each for name, each in driven.consumers.items() if name != consumer.id]
        self._context.check_member_count(driven.key, len(others) + 1)
        said = sum(len(each.member.metadata(PROTOCOL)) for each in (*others, consumer))
        if said > self._context.limits.group_bytes_max:
            raise MessageTooLarge(
                f"group {driven.key}: its consumers' topics are {said} bytes, at most "
                f"{self._context.limits.group_bytes_max} (groups.group_bytes_max)"
            )
        before = driven.consumers.get(consumer.id)
        if before is None:
            return
        now = self._context.now()
        recent = tuple(at for at in before.replaced_at if now - at < _FLAP_S)
        if len(recent) + 1 >= _FLAPS:
            before.refused_until = max(before.refused_until, now + _FLAP_S)
        if now < before.refused_until:
            raise FencedInstance(
                f"group {driven.key}: {consumer.id} was replaced {len(recent)} times within "
                f"{_FLAP_S:.0f} s; two consumers seem to have one id"
            )
        consumer.replaced_at = (*recent, now)

    def _replace(self, driven: DrivenGroup, consumer: Consumer) -> None:
        """The newcomer wins; what the old one was about to answer is not waited for."""
        before = driven.consumers.pop(consumer.id, None)
        if before is not None:
            self._dialogue.dismiss(driven, before, REPLACED)

    def answered(
        self,
        key: GroupKey,
        consumer_id: str,
        channel: Channel,
        error: int,
        body: PositionsResponse | None,
    ) -> None:
        """A consumer answered what it was asked; an ``error`` fails it."""
        driven, consumer = self._find(key, consumer_id, channel)
        if driven is None or consumer is None or consumer.asked is None:
            return
        if error:
            self._fail(driven, consumer)
            return
        asked = consumer.asked
        if asked is Ask.START and driven.plan is not None:
            consumer.generation = driven.plan.generation
        self._dialogue.answered(driven, consumer, body)
        if asked is Ask.STOP:
            consumer.own(set())
        if asked is not Ask.PING:
            self._rounds.go_on(driven)
        self._look_at(driven)

    def closed(self, key: GroupKey, consumer_id: str, channel: Channel) -> None:
        """A connection is gone, and its consumer with it; idempotent."""
        driven, consumer = self._find(key, consumer_id, channel)
        if driven is not None and consumer is not None:
            self._fail(driven, consumer)

    def _find(
        self, key: GroupKey, consumer_id: str, channel: Channel
    ) -> tuple[DrivenGroup | None, Consumer | None]:
        driven = self._driven.get(key)
        consumer = None if driven is None else driven.consumers.get(consumer_id)
        if consumer is not None and consumer.channel is not channel:
            consumer = None
        return driven, consumer

    def _fail(self, driven: DrivenGroup, consumer: Consumer) -> None:
        """A consumer is no member any more."""
        del driven.consumers[consumer.id]
        driven.returned.pop(consumer.id, None)
        self._context.sessions.forget(driven.key, consumer.id)
        consumer.channel.end()
        if self._is_closing:
            return  # they are members, whom the next coordinator waits for
        if driven.state in (State.STOPPING, State.STARTING):
            driven.round_failed = True
        self._rounds.trigger(driven)
        self._rounds.go_on(driven)
        self._look_at(driven)

    # --- what there is to read --------------------------------------------------------------------

    def topics_changed(self) -> None:
        """Topics, or the lists of what consumers read that name none, have changed. Groups that
        read others than before are assigned anew; workers look."""
        for driven in self._driven.values():
            self._rounds.topics_changed(driven)
            self._look_at(driven)

    # --- a worker's steps -------------------------------------------------------------------------

    def look(
        self, key: GroupKey, topics: Numbers, lists: Mapping[str, Set[str]] = _NO_LISTS
    ) -> Reading | None:
        """See :meth:`Rounds.look`. ``topics`` are all that can be read, with their partitions;
        ``lists`` are, by group, what consumers read that name none."""
        driven = self._driven.get(key)
        if driven is None:
            return None
        driven.listed = lists.get(key.group)
        reading = self._rounds.look(driven, topics)
        self._look_at(driven)
        return reading

    def store(self, key: GroupKey) -> bool:
        """See :meth:`Rounds.store_some`."""
        driven = self._driven.get(key)
        return driven is not None and self._rounds.store_some(driven)

    def assign(self, key: GroupKey, reading: Reading) -> Plan | None:
        """See :meth:`Rounds.assign`."""
        driven = self._driven.get(key)
        if driven is None:
            return None
        plan = self._rounds.assign(driven, reading)
        self._look_at(driven)
        return plan

    def settle(self, key: GroupKey, plan: Plan, beginnings: Beginnings) -> None:
        """See :meth:`Rounds.settle`."""
        driven = self._driven.get(key)
        if driven is not None:
            self._rounds.settle(driven, plan, beginnings)

    def start(self, key: GroupKey, plan: Plan, beginnings: Beginnings) -> None:
        """See :meth:`Rounds.start`."""
        driven = self._driven.get(key)
        if driven is not None:
            self._rounds.start(driven, plan, beginnings)
            self._look_at(driven)

    # --- offsets ----------------------------------------------------------------------------------

    def check_commit(self, key: GroupKey, generation: int, consumer_id: str) -> None:
        """Raise IllegalGeneration or UnknownMember unless that consumer may commit. Generation -1
        and no id: somebody of a time before generations, who may."""
        if generation < 0 and not consumer_id:
            self._context.check_new_group(key)
            return
        driven = self._driven.get(key)
        if driven is None or consumer_id not in driven.consumers:
            raise UnknownMember(f"group {key} has no consumer {consumer_id}")
        group = self._context.group(key)
        current = 0 if group is None else group.generation
        if generation != current:
            raise IllegalGeneration(f"group {key} is in generation {current}, not {generation}")

    def committed(self, key: GroupKey, commits: Iterable[Commit]) -> None:
        """Somebody has committed these: positions that pings told before come behind them."""
        driven = self._driven.get(key)
        if driven is None:
            return
        for each in commits:
            at = (each.topic, each.partition)
            driven.unstored.pop(at, None)
            if at in driven.positions:
                driven.positions[at] = max(each.offset, driven.positions[at])

    def knows(self, key: GroupKey) -> bool:
        """Whether there is such a group."""
        return key in self._driven or key in self._context.store.groups

    # --- the engine's side ------------------------------------------------------------------------

    def resume(self, key: GroupKey, group: Group) -> None:
        """Its consumers may still be reading, until they come back or have fenced themselves."""
        driven = self._driven[key] = DrivenGroup(key, State.RECOVERING)
        self._await_members(driven, group)
        self._look_at(driven)

    def _await_members(self, driven: DrivenGroup, group: Group) -> None:
        driven.awaited = {each.member_id for each in group.members}
        fence_s = max((each.rebalance_timeout_ms / 1000 for each in group.members), default=0.0)
        lease_s = self._context.limits.leader_lease_s
        driven.timer = self._context.now() + lease_s + fence_s + _MARGIN_S

    def on_alarm(self, key: GroupKey) -> float:
        """Pings, failures, time-outs of states, positions to store."""
        driven = self._driven.get(key)
        if driven is None or self._is_closing:
            return math.inf
        now = self._context.now()
        self._dialogue.on_alarm(driven)
        if driven.timer <= now:
            self._rounds.on_timer(driven)
        if driven.store_at <= now:
            self._rounds.store_some(driven)
        if not driven.consumers and driven.state is State.ASSIGNING and driven.timer == math.inf:
            del self._driven[key]
            return math.inf
        return driven.next_alarm()

    def _suspend(self, driven: DrivenGroup) -> None:
        """Another node may coordinate by now: ping nobody any more. Should it still be this one,
        its consumers are waited for as after a failover."""
        for consumer in list(driven.consumers.values()):
            self._context.sessions.forget(driven.key, consumer.id)
            consumer.channel.end()
        group = self._context.group(driven.key)
        lost = DrivenGroup(driven.key, State.RECOVERING)
        lost.positions, lost.unstored = driven.positions, driven.unstored
        if group is not None and group.members:
            self._await_members(lost, group)
        else:
            lost.timer = self._context.now()
        self._driven[driven.key] = lost

    def _look_at(self, driven: DrivenGroup) -> None:
        self._context.alarms.ask(driven.key, driven.next_alarm())

    def leaderless(self) -> None:
        """Nothing proves any more that this node leads: close all channels (DESIGN 6.5)."""
        for driven in list(self._driven.values()):
            if driven.consumers:
                self._suspend(driven)
                self._look_at(self._driven[driven.key])

    def shut(self) -> None:
        """The node is about to stop: store positions, send all consumers away, take no more."""
        self._is_closing = True
        for driven in self._driven.values():
            try:
                self._rounds.store_positions(driven)
            except PacelineError:
                continue  # they will be read again
            finally:
                self._dismiss_all(driven, SHUTDOWN)

    def _dismiss_all(self, driven: DrivenGroup, reason: int) -> None:
        for consumer in driven.consumers.values():
            self._dialogue.dismiss(driven, consumer, reason)

    def resign(self, error: PacelineError) -> None:
        """Another node coordinates: send all consumers away."""
        for driven in self._driven.values():
            self._dismiss_all(driven, MOVING)
        self._driven.clear()

    def state(self, key: GroupKey) -> str:
        driven = self._driven.get(key)
        return "Empty" if driven is None else _STATES[driven.state]

    def member_count(self, key: GroupKey) -> int:
        driven = self._driven.get(key)
        return 0 if driven is None else len(driven.consumers) + len(driven.awaited)

    def reads(self, key: GroupKey, topic: str) -> bool:
        driven = self._driven.get(key)
        return driven is not None and driven.is_read(topic)

    def consumers(self) -> Iterator[Consumer]:
        """All that are connected."""
        for driven in self._driven.values():
            yield from driven.consumers.values()


def _unrecorded(driven: dict[GroupKey, DrivenGroup], context: GroupContext) -> frozenset[GroupKey]:
    """Groups that are not stored yet."""
    store = context.store
    return frozenset(key for key in driven if key not in store.groups and key not in store.offsets)


def _is_back(driven: DrivenGroup, group: Group | None, consumer: Consumer, generation: int) -> bool:
    """Whether a member registers again as it was, while nothing else changes."""
    if driven.state is not State.STABLE or group is None or generation != group.generation:
        return False
    before = group.member(consumer.id)
    return before is not None and before.protocols == consumer.member.protocols
