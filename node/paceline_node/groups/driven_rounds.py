"""The rounds of family ``coordinator``: stop everybody, assign, start everybody.

::

    PENDING --debounce--> STOPPING --all answered or failed--> ASSIGNING --stored--> STARTING
       ^                                                           ^                     |
       |                             RECOVERING --all back, or ----+                     |
       +------- something changed ------- STABLE <------ all answered -------------------+

A generation is stored, and committed, before anyone is told of it; so are offsets from which
somebody begins at the end of a partition. Both need waiting, which this machine cannot: a worker
(``services/groups/driven_rebalancing.py``) carries a :class:`Reading`, and the :class:`Plan` that
comes of it, through ``look``, ``assign``, ``settle`` and ``start``. One that is no longer the
group's is void. Rules: DESIGN 6.1, 6.4 to 6.7.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from paceline.types import TopicId
from paceline.wire.coordinator.messages import Assigned, StartRequest
from paceline_node.groups.committed_offsets import Commit, OffsetBook, OffsetRule
from paceline_node.groups.context import GroupContext
from paceline_node.groups.driven_dialogue import Dialogue
from paceline_node.groups.driven_reading import Reading
from paceline_node.groups.driven_state import (
    PROTOCOL,
    PROTOCOL_TYPE,
    Consumer,
    DrivenGroup,
    Numbers,
    Plan,
    RoundsDue,
    Share,
    State,
)
from paceline_node.groups.keys import GroupKey, TopicAndNumber
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


Beginnings = Mapping[TopicAndNumber, Beginning]


class Rounds:
    """Moves groups from state to state. ``rebalances`` counts the generations made."""

    def __init__(
        self, context: GroupContext, offsets: OffsetBook, dialogue: Dialogue, due: RoundsDue
    ) -> None:
        self._context = context
        self._offsets = offsets
        self._dialogue = dialogue
        self._due = due
        self.rebalances = 0

    # --- beginning --------------------------------------------------------------------------------

    def open(self, driven: DrivenGroup) -> None:
        """A group without consumers has its first one."""
        driven.was_empty, driven.since = True, self._context.now()

    def trigger(self, driven: DrivenGroup) -> None:
        """Something changed: begin a round soon, or another one after this."""
        now = self._context.now()
        match driven.state:
            case State.STABLE:
                driven.state = State.PENDING
                driven.since = now
                driven.plan = driven.reading = None
                driven.returned.clear()
                is_tired = driven.failed_rounds >= FAILURES_MAX
                driven.timer = now + (BACKOFF_S if is_tired else DELAY_S)
            case State.PENDING:
                if driven.was_empty:
                    driven.timer = min(now + DELAY_S, driven.since + DELAY_MAX_S)
            case State.RECOVERING:
                if not driven.awaited:
                    self.begin(driven)
            case _:
                driven.is_dirty = True

    def begin(self, driven: DrivenGroup) -> None:
        """Stop those who read."""
        driven.state = State.STOPPING
        driven.is_dirty = driven.was_empty = driven.round_failed = False
        driven.awaited.clear()
        driven.timer = math.inf
        for _, consumer in sorted(driven.consumers.items()):
            if consumer.owned:
                self._dialogue.stop(driven, consumer)
        self.go_on(driven)

    def go_on(self, driven: DrivenGroup) -> None:
        """Go to the next state if nobody is missing for it."""
        if driven.state is State.STOPPING and not any(
            each.owned for each in driven.consumers.values()
        ):
            self._await_worker(driven)
        elif driven.state is State.ASSIGNING and not driven.consumers:
            driven.timer = self._context.now()  # nothing to wait for: the alarm stores that
        elif driven.state is State.STARTING and not self._is_starting_any(driven):
            self._finish(driven)

    def _is_starting_any(self, driven: DrivenGroup) -> bool:
        plan = driven.plan
        assert plan is not None, f"{driven.key} starts by a plan"
        return any(self._is_starting(driven, plan, name) for name in plan.consumers)

    @staticmethod
    def _is_starting(driven: DrivenGroup, plan: Plan, name: str) -> bool:
        consumer = driven.consumers.get(name)
        return consumer is plan.consumers[name] and consumer.generation < plan.generation

    def _await_worker(self, driven: DrivenGroup) -> None:
        driven.state = State.ASSIGNING
        driven.plan = driven.reading = None
        if driven.consumers:
            self._ask_worker(driven)
        else:
            self.go_on(driven)

    def bring_back(self, driven: DrivenGroup, consumer: Consumer) -> None:
        """A member is here again, as it was: have it told again what it reads."""
        driven.returned[consumer.id] = None
        self._ask_worker(driven)

    def _ask_worker(self, driven: DrivenGroup) -> None:
        """Have a worker come, and another one when that has not helped in time."""
        driven.timer = self._context.now() + COMMIT_S
        self._due.add(driven.key)

    def on_timer(self, driven: DrivenGroup) -> None:
        """The state has lasted long enough. Raises what writing raises."""
        match driven.state:
            case State.PENDING | State.RECOVERING:
                self.begin(driven)
            case State.ASSIGNING if driven.reading is not None and driven.consumers:
                self._ask_worker(driven)  # it is still being found out
            case State.ASSIGNING if driven.consumers:
                self._await_worker(driven)
            case State.ASSIGNING:
                self._store_nobody(driven)
            case State.STABLE if _is_looked_at(driven):
                self._ask_worker(driven)
            case _:
                driven.timer = math.inf

    # --- assigning --------------------------------------------------------------------------------

    def topics_changed(self, driven: DrivenGroup) -> None:
        """What there is to read is something else now: have that looked at, once the group is
        stable."""
        driven.looks_again = True
        if driven.state is State.STABLE:
            self._ask_worker(driven)

    def look(self, driven: DrivenGroup, topics: Numbers) -> Reading | None:
        """Begin to find out who reads what of ``topics``; None when nothing is to be done."""
        is_assigning = driven.state is State.ASSIGNING and driven.consumers
        if is_assigning:
            driven.is_dirty = False
        elif driven.state is not State.STABLE or not _is_looked_at(driven):
            return None
        driven.looks_again = False
        driven.timer = self._context.now() + COMMIT_S
        reading = driven.reading = Reading(driven, topics)
        return reading

    def assign(self, driven: DrivenGroup, reading: Reading) -> Plan | None:
        """Store who reads what from now on, as has been found out; None when nothing is to be done.
        Raises what writing raises."""
        if driven.reading is not reading:
            return None  # another one, perhaps, of the same group
        driven.reading = None
        if driven.state is State.STABLE:
            if reading.seen != driven.seen or self.ids_of(reading.seen) != driven.seen_ids:
                self.trigger(driven)
                return None
            if driven.returned:
                return self._plan_returned(driven, reading)
            driven.timer = math.inf
            return None
        consumers = {
            name: each
            for name, each in reading.consumers.items()
            if driven.consumers.get(name) is each
        }
        if not consumers:
            self._await_worker(driven)
            return None
        self.store_positions(driven)
        driven.timer = self._context.now() + COMMIT_S
        driven.seen = reading.seen
        driven.seen_ids = self.ids_of(driven.seen)
        shares = {name: reading.shares[name] for name in consumers}
        generation = self._generation(driven.key) + 1
        members = tuple(
            [
                replace(each.member, assignment=reading.assignments[name])
                for name, each in sorted(consumers.items())
            ]
        )
        self._context.write_group(
            driven.key, Group(generation, Phase.STABLE, PROTOCOL_TYPE, PROTOCOL, members=members)
        )
        self.rebalances += 1
        driven.plan = self._plan(driven, generation, shares, consumers)
        return driven.plan

    def ids_of(self, topics: Iterable[str]) -> dict[str, TopicId | None]:
        """Which topics these are now."""
        return {topic: self._context.topics.current(topic) for topic in topics}

    def _generation(self, key: GroupKey) -> int:
        group = self._context.group(key)
        return 0 if group is None else group.generation

    def _plan(
        self,
        driven: DrivenGroup,
        generation: int,
        shares: dict[str, list[Share]],
        consumers: dict[str, Consumer],
    ) -> Plan:
        committed = {}
        for mine in shares.values():
            for share in mine:
                found = self._offsets.fetch(driven.key, *share.at)
                if found is not None:
                    committed[share.at] = found.offset
        topics = sorted({share.at[0] for mine in shares.values() for share in mine})
        return Plan(generation, shares, consumers, committed, self.ids_of(topics))

    def _plan_returned(self, driven: DrivenGroup, reading: Reading) -> Plan | None:
        """As they were, if the topics are the same."""
        names = [name for name in driven.returned if name in reading.consumers]
        if not names:
            return None
        group = self._context.group(driven.key)
        assert group is not None, f"{driven.key} has members"
        before = {each.member_id: each.assignment for each in group.members}
        ids = driven.seen_ids
        is_other = any(driven.topic_ids.get(topic, ids[topic]) != ids[topic] for topic in ids)
        if is_other or any(before.get(name) != reading.assignments[name] for name in names):
            self.trigger(driven)
            return None
        self.store_positions(driven)
        driven.plan = self._plan(
            driven,
            group.generation,
            {name: reading.shares[name] for name in names},
            {name: driven.consumers[name] for name in names},
        )
        return driven.plan

    # --- starting ---------------------------------------------------------------------------------

    def settle(self, driven: DrivenGroup, plan: Plan, beginnings: Beginnings) -> None:
        """Store the new beginnings among ``beginnings``. Raises what writing raises."""
        if driven.plan is not plan:
            return
        new = {at: each.offset for at, each in beginnings.items() if each.is_new}
        self._commit(driven, new, plan.topic_ids)

    def start(self, driven: DrivenGroup, plan: Plan, beginnings: Beginnings) -> None:
        """Tell the consumers of ``plan`` who are still here what they read, and from where."""
        if driven.plan is not plan:
            return
        if driven.state is State.ASSIGNING:
            driven.state = State.STARTING
            driven.positions.clear()
            driven.unstored.clear()
            driven.topic_ids.clear()
        driven.topic_ids.update(plan.topic_ids)
        driven.timer = math.inf
        for name, shares in sorted(plan.shares.items()):
            consumer = driven.consumers.get(name)
            driven.returned.pop(name, None)
            if consumer is not plan.consumers[name]:
                continue
            consumer.own({share.at for share in shares})
            for at in consumer.owned:
                if beginnings[at].offset >= 0:
                    driven.positions[at] = beginnings[at].offset
                else:
                    driven.positions.pop(at, None)
            request = self._start_request(plan, shares, beginnings)
            self._dialogue.start(driven, consumer, request)
        self.go_on(driven)

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

    def _finish(self, driven: DrivenGroup) -> None:
        driven.failed_rounds = driven.failed_rounds + 1 if driven.round_failed else 0
        driven.state = State.STABLE
        driven.plan = None
        if driven.is_dirty or not driven.consumers:
            driven.is_dirty = False
            self.trigger(driven)
        elif driven.looks_again:
            self._ask_worker(driven)

    # --- storing ----------------------------------------------------------------------------------

    def store_positions(self, driven: DrivenGroup) -> None:
        """Commit how far consumers have read. Raises what writing raises."""
        while driven.unstored:
            self.store_some(driven)
        driven.store_at = math.inf

    def store_some(self, driven: DrivenGroup) -> bool:
        """Commit some of that, and the rest when others have had their turn; whether there is one.
        Raises what writing raises."""
        some = list(islice(driven.unstored, _OFFSETS_AT_ONCE))
        offsets = {at: driven.positions[at] for at in some if at in driven.positions}
        self._commit(driven, offsets, driven.topic_ids)
        for at in some:
            del driven.unstored[at]
        driven.store_at = self._context.now() if driven.unstored else math.inf
        return bool(driven.unstored)

    def _commit(
        self,
        driven: DrivenGroup,
        offsets: Mapping[TopicAndNumber, int],
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
            self._offsets.store(driven.key, some, OffsetRule.FREE)

    def _store_nobody(self, driven: DrivenGroup) -> None:
        """The last consumer is gone, and with it what was known of the group."""
        self.store_positions(driven)
        group = self._context.group(driven.key)
        if group is not None and group.members:
            emptied = Group(group.generation + 1, Phase.EMPTY, PROTOCOL_TYPE, PROTOCOL)
            self._context.write_group(driven.key, emptied)
        driven.timer = math.inf


def _is_looked_at(driven: DrivenGroup) -> bool:
    """Whether a stable group wants a worker, or has one, unless that was lost."""
    return driven.looks_again or bool(driven.returned) or driven.reading is not None
