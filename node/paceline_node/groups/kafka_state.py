"""What is known of a Kafka group beyond what is stored: its round, and ids that were handed out."""

from __future__ import annotations

import math

from paceline.errors import PacelineError
from paceline_node.groups.context import GroupContext
from paceline_node.groups.kafka_rounds import Round
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.records import Group, Member, Phase

_NONE = Group(0, Phase.EMPTY)


class KafkaState:
    """Stored and volatile state as one view. ``handed_out`` are ids that nobody has joined with
    yet, and when they are void."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self.rounds: dict[GroupKey, Round] = {}
        self.handed_out: dict[GroupKey, dict[str, float]] = {}

    def group(self, key: GroupKey) -> Group:
        """The stored state; an empty one in generation 0 for a group that there is not."""
        return self._context.group(key) or _NONE

    def phase(self, key: GroupKey) -> Phase:
        """The phase now."""
        round_ = self.rounds.get(key)
        return self.group(key).phase if round_ is None else round_.phase

    def members(self, key: GroupKey) -> list[Member]:
        """Stored members, and those who are joining for the first time."""
        group = self.group(key)
        round_ = self.rounds.get(key)
        joining = [] if round_ is None else [each.member for each in round_.joined.values()]
        new = [each for each in joining if group.member(each.member_id) is None]
        return [*group.members, *new]

    def find(self, key: GroupKey, member_id: str) -> Member | None:
        """The member of that id, stored or joining."""
        return next((each for each in self.members(key) if each.member_id == member_id), None)

    def holder(self, key: GroupKey, instance_id: str | None) -> Member | None:
        """The static member with that instance id, stored or joining."""
        if instance_id is None:
            return None
        return next((each for each in self.members(key) if each.instance_id == instance_id), None)

    def waits(self, key: GroupKey, member_id: str) -> bool:
        """Whether a request of the member is open here, which is as good as a heartbeat."""
        round_ = self.rounds.get(key)
        return round_ is not None and (member_id in round_.joined or member_id in round_.syncing)

    def session_end(self, key: GroupKey, member: Member) -> float:
        """When the member is removed unless it is heard of."""
        heard_at = self._context.sessions.heard_at(key, member.member_id)
        return heard_at + member.session_timeout_ms / 1000

    def next_alarm(self, key: GroupKey) -> float:
        """The first moment at which something may be over."""
        ends = [
            self.session_end(key, each)
            for each in self.group(key).members
            if not self.waits(key, each.member_id)
        ]
        ends += self.handed_out.get(key, {}).values()
        round_ = self.rounds.get(key)
        if round_ is not None:
            ends.append(round_.ends_at())
        return min(ends, default=math.inf)

    def drop_waiting(self, key: GroupKey, member_id: str, error: PacelineError) -> None:
        """Refuse the member's open requests."""
        round_ = self.rounds.get(key)
        if round_ is None:
            return
        joining = round_.joined.pop(member_id, None)
        if joining is not None:
            joining.answer.deliver(error)
        syncing = round_.syncing.pop(member_id, None)
        if syncing is not None:
            syncing.deliver(error)

    def void_ids(self, key: GroupKey, now: float) -> None:
        """Forget ids that nobody came back with in time."""
        ids = self.handed_out.get(key)
        if ids is None:
            return
        for member_id in [each for each, until in ids.items() if until <= now]:
            del ids[member_id]
        if not ids:
            del self.handed_out[key]

    def clear(self, error: PacelineError) -> None:
        """Tell everyone who waits, and forget all that is volatile."""
        rounds, self.rounds = self.rounds, {}
        self.handed_out.clear()
        for round_ in rounds.values():
            for joining in round_.joined.values():
                joining.answer.deliver(error)
            for syncing in round_.syncing.values():
                syncing.deliver(error)
