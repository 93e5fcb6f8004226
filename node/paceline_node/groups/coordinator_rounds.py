"""The rounds of family ``coordinator``: stop everybody, assign, start everybody.

::

    PENDING --debounce--> STOPPING --all answered or failed--> ASSIGNING --stored--> STARTING
       ^                                                           ^                     |
       |                             RECOVERING --all back, or ----+                     |
       +------- something changed ------- STABLE <------ all answered -------------------+

A generation is stored, and committed, before anyone is told of it; so are offsets from which
somebody begins at the end of a partition. Both need waiting, which this machine cannot: a worker
(``services/rebalancing.py``) carries a :class:`Reading`, and the :class:`Plan` that comes of it,
through ``look``, ``assign``, ``settle`` and ``start``. One that is no longer the room's is void.
Rules: DESIGN 6.1, 6.4 to 6.7.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from paceline.types import TopicId
from paceline.wire.coordinator.messages import Assigned, StartRequest
from paceline_node.groups.context import GroupContext
from paceline_node.groups.coordinator_dialogue import Dialogue
from paceline_node.groups.coordinator_reading import Reading
from paceline_node.groups.coordinator_room import (
    PROTOCOL,
    PROTOCOL_TYPE,
    Consumer,
    Numbers,
    Plan,
    Room,
    RoundsDue,
    Share,
    State,
)
from paceline_node.groups.keys import GroupKey, TopicPartition
from paceline_node.groups.offsets import Commit, OffsetBook, OffsetRule
from paceline_node.groups.records import Group, Phase

DELAY_S = 0.3
DELAY_MAX_S = 3.0
COMMIT_S = 5.0
BACKOFF_S = 2.0
FAILURES_MAX = 4
_OFFSETS_AT_ONCE = 100
"""Some groups have their turn in one step."""


class Beginning:
    """Where a partition is read from, and who leads it (-1, -1: unknown). ``is_new``: a place at
    the end that must be committed, so that a later owner does not skip what this one has not
    read."""

    __slots__ = ("is_new", "leader_epoch", "leader_id", "offset")

    def __init__(
        self, offset: int, leader_id: int = -1, leader_epoch: int = -1, *, is_new: bool = False
    ) -> None:
        self.offset = offset
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.is_new = is_new


Beginnings = Mapping[TopicPartition, Beginning]


class Rounds:
    """Moves rooms from state to state. ``rebalances`` counts the generations made."""

    def __init__(
        self, context: GroupContext, offsets: OffsetBook, dialogue: Dialogue, due: RoundsDue
    ) -> None:
        self._context = context
        self._offsets = offsets
        self._dialogue = dialogue
        self._due = due
        self.rebalances = 0

    # --- beginning --------------------------------------------------------------------------------

    def open(self, room: Room) -> None:
        """A group without consumers has its first one."""
        room.was_empty, room.since = True, self._context.now()

    def trigger(self, room: Room) -> None:
        """Something changed: begin a round soon, or another one after this."""
        now = self._context.now()
        match room.state:
            case State.STABLE:
                room.state = State.PENDING
                room.since = now
                room.plan = room.reading = None
                room.returned.clear()
                is_tired = room.failed_rounds >= FAILURES_MAX
                room.timer = now + (BACKOFF_S if is_tired else DELAY_S)
            case State.PENDING:
                if room.was_empty:
                    room.timer = min(now + DELAY_S, room.since + DELAY_MAX_S)
            case State.RECOVERING:
                if not room.awaited:
                    self.begin(room)
            case _:
                room.is_dirty = True

    def begin(self, room: Room) -> None:
        """Stop those who read."""
        room.state = State.STOPPING
        room.is_dirty = room.was_empty = room.round_failed = False
        room.awaited.clear()
        room.timer = math.inf
        for _, consumer in sorted(room.consumers.items()):
            if consumer.owned:
                self._dialogue.stop(room, consumer)
        self.go_on(room)

    def go_on(self, room: Room) -> None:
        """Go to the next state if nobody is missing for it."""
        if room.state is State.STOPPING and not any(each.owned for each in room.consumers.values()):
            self._await_worker(room)
        elif room.state is State.ASSIGNING and not room.consumers:
            room.timer = self._context.now()  # nothing to wait for: the alarm stores that
        elif room.state is State.STARTING and not self._is_starting_any(room):
            self._finish(room)

    def _is_starting_any(self, room: Room) -> bool:
        plan = room.plan
        assert plan is not None, f"{room.key} starts by a plan"
        return any(self._is_starting(room, plan, name) for name in plan.consumers)

    @staticmethod
    def _is_starting(room: Room, plan: Plan, name: str) -> bool:
        consumer = room.consumers.get(name)
        return consumer is plan.consumers[name] and consumer.generation < plan.generation

    def _await_worker(self, room: Room) -> None:
        room.state = State.ASSIGNING
        room.plan = room.reading = None
        if room.consumers:
            self._ask_worker(room)
        else:
            self.go_on(room)

    def bring_back(self, room: Room, consumer: Consumer) -> None:
        """A member is here again, as it was: have it told again what it reads."""
        room.returned[consumer.id] = None
        self._ask_worker(room)

    def _ask_worker(self, room: Room) -> None:
        """Have a worker come, and another one when that has not helped in time."""
        room.timer = self._context.now() + COMMIT_S
        self._due.add(room.key)

    def on_timer(self, room: Room) -> None:
        """The state has lasted long enough. Raises what writing raises."""
        match room.state:
            case State.PENDING | State.RECOVERING:
                self.begin(room)
            case State.ASSIGNING if room.reading is not None and room.consumers:
                self._ask_worker(room)  # it is still being found out
            case State.ASSIGNING if room.consumers:
                self._await_worker(room)
            case State.ASSIGNING:
                self._store_nobody(room)
            case State.STABLE if _is_looked_at(room):
                self._ask_worker(room)
            case _:
                room.timer = math.inf

    # --- assigning --------------------------------------------------------------------------------

    def topics_changed(self, room: Room) -> None:
        """What there is to read is something else now: have that looked at, once the group is
        stable."""
        room.looks_again = True
        if room.state is State.STABLE:
            self._ask_worker(room)

    def look(self, room: Room, topics: Numbers) -> Reading | None:
        """Begin to find out who reads what of ``topics``; None when nothing is to be done."""
        is_assigning = room.state is State.ASSIGNING and room.consumers
        if is_assigning:
            room.is_dirty = False
        elif room.state is not State.STABLE or not _is_looked_at(room):
            return None
        room.looks_again = False
        room.timer = self._context.now() + COMMIT_S
        reading = room.reading = Reading(room, topics)
        return reading

    def assign(self, room: Room, reading: Reading) -> Plan | None:
        """Store who reads what from now on, as has been found out; None when nothing is to be done.
        Raises what writing raises."""
        if room.reading is not reading:
            return None  # another room, perhaps, of the same group
        room.reading = None
        if room.state is State.STABLE:
            if reading.seen != room.seen or self.ids_of(reading.seen) != room.seen_ids:
                self.trigger(room)
                return None
            if room.returned:
                return self._plan_returned(room, reading)
            room.timer = math.inf
            return None
        consumers = {
            name: each
            for name, each in reading.consumers.items()
            if room.consumers.get(name) is each
        }
        if not consumers:
            self._await_worker(room)
            return None
        self.store_positions(room)
        room.timer = self._context.now() + COMMIT_S
        room.seen = reading.seen
        room.seen_ids = self.ids_of(room.seen)
        shares = {name: reading.shares[name] for name in consumers}
        generation = self._generation(room.key) + 1
        members = tuple(
            [
                replace(each.member, assignment=reading.assignments[name])
                for name, each in sorted(consumers.items())
            ]
        )
        self._context.write_group(
            room.key, Group(generation, Phase.STABLE, PROTOCOL_TYPE, PROTOCOL, members=members)
        )
        self.rebalances += 1
        room.plan = self._plan(room, generation, shares, consumers)
        return room.plan

    def ids_of(self, topics: Iterable[str]) -> dict[str, TopicId | None]:
        """Which topics these are now."""
        return {topic: self._context.topics.current(topic) for topic in topics}

    def _generation(self, key: GroupKey) -> int:
        group = self._context.group(key)
        return 0 if group is None else group.generation

    def _plan(
        self,
        room: Room,
        generation: int,
        shares: dict[str, list[Share]],
        consumers: dict[str, Consumer],
    ) -> Plan:
        committed = {}
        for mine in shares.values():
            for share in mine:
                found = self._offsets.fetch(room.key, *share.at)
                if found is not None:
                    committed[share.at] = found.offset
        topics = sorted({share.at[0] for mine in shares.values() for share in mine})
        return Plan(generation, shares, consumers, committed, self.ids_of(topics))

    def _plan_returned(self, room: Room, reading: Reading) -> Plan | None:
        """As they were, if the topics are the same."""
        names = [name for name in room.returned if name in reading.consumers]
        if not names:
            return None
        group = self._context.group(room.key)
        assert group is not None, f"{room.key} has members"
        before = {each.member_id: each.assignment for each in group.members}
        ids = room.seen_ids
        is_other = any(room.topic_ids.get(topic, ids[topic]) != ids[topic] for topic in ids)
        if is_other or any(before.get(name) != reading.assignments[name] for name in names):
            self.trigger(room)
            return None
        self.store_positions(room)
        room.plan = self._plan(
            room,
            group.generation,
            {name: reading.shares[name] for name in names},
            {name: room.consumers[name] for name in names},
        )
        return room.plan

    # --- starting ---------------------------------------------------------------------------------

    def settle(self, room: Room, plan: Plan, beginnings: Beginnings) -> None:
        """Store the new beginnings among ``beginnings``. Raises what writing raises."""
        if room.plan is not plan:
            return
        new = {at: each.offset for at, each in beginnings.items() if each.is_new}
        self._commit(room, new, plan.topic_ids)

    def start(self, room: Room, plan: Plan, beginnings: Beginnings) -> None:
        """Tell the consumers of ``plan`` who are still here what they read, and from where."""
        if room.plan is not plan:
            return
        if room.state is State.ASSIGNING:
            room.state = State.STARTING
            room.positions.clear()
            room.unstored.clear()
            room.topic_ids.clear()
        room.topic_ids.update(plan.topic_ids)
        room.timer = math.inf
        for name, shares in sorted(plan.shares.items()):
            consumer = room.consumers.get(name)
            room.returned.pop(name, None)
            if consumer is not plan.consumers[name]:
                continue
            consumer.own({share.at for share in shares})
            for at in consumer.owned:
                if beginnings[at].offset >= 0:
                    room.positions[at] = beginnings[at].offset
                else:
                    room.positions.pop(at, None)
            request = self._start_request(plan, shares, beginnings)
            self._dialogue.start(room, consumer, request)
        self.go_on(room)

    def _start_request(
        self, plan: Plan, shares: Sequence[Share], beginnings: Beginnings
    ) -> StartRequest:
        return StartRequest(
            coordinator_epoch=self._context.epoch,
            generation=plan.generation,
            partitions=tuple(
                [
                    Assigned(
                        topic=topic,
                        partition=number,
                        leader_id=beginnings[topic, number].leader_id,
                        leader_epoch=beginnings[topic, number].leader_epoch,
                        offset=beginnings[topic, number].offset,
                        stream=stream,
                    )
                    for (topic, number), stream in shares
                ]
            ),
        )

    def _finish(self, room: Room) -> None:
        room.failed_rounds = room.failed_rounds + 1 if room.round_failed else 0
        room.state = State.STABLE
        room.plan = None
        if room.is_dirty or not room.consumers:
            room.is_dirty = False
            self.trigger(room)
        elif room.looks_again:
            self._ask_worker(room)

    # --- storing ----------------------------------------------------------------------------------

    def store_positions(self, room: Room) -> None:
        """Commit how far consumers have read. Raises what writing raises."""
        while room.unstored:
            self.store_some(room)
        room.store_at = math.inf

    def store_some(self, room: Room) -> bool:
        """Commit some of that, and the rest when others have had their turn; whether there is one.
        Raises what writing raises."""
        some = list(islice(room.unstored, _OFFSETS_AT_ONCE))
        offsets = {at: room.positions[at] for at in some if at in room.positions}
        self._commit(room, offsets, room.topic_ids)
        for at in some:
            del room.unstored[at]
        room.store_at = self._context.now() if room.unstored else math.inf
        return bool(room.unstored)

    def _commit(
        self,
        room: Room,
        offsets: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, TopicId | None],
    ) -> None:
        """Store offsets of the topics of ``topic_ids``, of which some may be no more."""
        commits = [
            Commit(topic, number, offset, topic_id=topic_ids[topic])
            for (topic, number), offset in offsets.items()
            if topic_ids.get(topic) is not None
        ]
        for start in range(0, len(commits), _OFFSETS_AT_ONCE):
            some = commits[start : start + _OFFSETS_AT_ONCE]
            self._offsets.store(room.key, some, OffsetRule.FREE)

    def _store_nobody(self, room: Room) -> None:
        """The last consumer is gone; its room with it."""
        self.store_positions(room)
        group = self._context.group(room.key)
        if group is not None and group.members:
            emptied = Group(group.generation + 1, Phase.EMPTY, PROTOCOL_TYPE, PROTOCOL)
            self._context.write_group(room.key, emptied)
        room.timer = math.inf


def _is_looked_at(room: Room) -> bool:
    """Whether a stable group wants a worker, or has one, unless that was lost."""
    return room.looks_again or bool(room.returned) or room.reading is not None
