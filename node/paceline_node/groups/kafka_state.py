"""What is known of a Kafka group beyond what is stored: its round, and ids that were handed out."""

from __future__ import annotations

import math

from paceline.errors import PacelineError
from paceline_node.groups.context import GroupContext
from paceline_node.groups.kafka_roster import Roster
from paceline_node.groups.kafka_rounds import Round, Waiting
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.records import Group, Member, Phase

_NONE = Group(0, Phase.EMPTY)
_ID_KEPT_S = 10.0
"""How long an id waits for its member, which has only to send it back: whoever went away with one
holds up the others that long. One that comes later is told to ask for another."""


class KafkaState:
    """Stored and volatile state as one view. ``handed_out`` are ids that nobody has joined with
    yet, and when they are void. ``told`` are members that were told here that they lead."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self.rounds: dict[GroupKey, Round] = {}
        self.handed_out: dict[GroupKey, dict[str, float]] = {}
        self.told: dict[GroupKey, str] = {}
        self._rosters: dict[GroupKey, Roster] = {}

    def group(self, key: GroupKey) -> Group:
        """The stored state; an empty one in generation 0 for a group that there is not."""
        return self._context.group(key) or _NONE

    def phase(self, key: GroupKey) -> Phase:
        """The phase now."""
        round_ = self.rounds.get(key)
        return self.group(key).phase if round_ is None else round_.phase

    def roster(self, key: GroupKey) -> Roster:
        """Stored members, and those who are joining for the first time. Made anew once a round and
        once a stored state."""
        group, round_ = self.group(key), self.rounds.get(key)
        joined = None if round_ is None else round_.joined
        found = self._rosters.get(key)
        if found is None or found.group is not group or found.joined is not joined:
            found = Roster(group, joined)
            if group.members or round_ is not None:
                self._rosters[key] = found
            else:
                self._rosters.pop(key, None)
        return found

    def find(self, key: GroupKey, member_id: str) -> Member | None:
        """The member of that id, stored or joining."""
        return self.roster(key).find(member_id)

    def holder(self, key: GroupKey, instance_id: str | None) -> Member | None:
        """The static member with that instance id, stored or joining."""
        return None if instance_id is None else self.roster(key).holder(instance_id)

    def join(self, key: GroupKey, waiting: Waiting) -> None:
        """Take a member, which is not in it, into the round."""
        roster = self.roster(key)
        self.rounds[key].joined[waiting.member.member_id] = waiting
        roster.joins(waiting.member)

    def leader_watches(self, key: GroupKey) -> bool:
        """Whether the leader knows that it leads, and so watches its topics. A static one may have
        come back and been told of another leader, also by an earlier coordinator."""
        roster = self.roster(key)
        leader = roster.stored.get(roster.group.leader)
        if leader is None or leader.instance_id is None:
            return True
        return self.told.get(key) == leader.member_id

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
        roster = self.roster(key)
        joining = round_.joined.pop(member_id, None)
        if joining is not None:
            roster.leaves(joining.member)
            joining.answer.deliver(error)
        syncing = round_.syncing.pop(member_id, None)
        if syncing is not None:
            syncing.deliver(error)

    def hand_out(self, key: GroupKey, member_id: str, session_timeout_ms: int) -> None:
        """Let ``member_id`` be joined with. Ids are promises, not members: where there are as many
        as there may be members, or groups, the oldest make room."""
        limits = self._context.limits
        ids = self.handed_out.get(key)
        if ids is None:
            if len(self.handed_out) >= limits.groups_max:
                del self.handed_out[next(iter(self.handed_out))]
            ids = self.handed_out[key] = {}
        elif len(ids) >= limits.members_max:
            del ids[next(iter(ids))]
        ids[member_id] = self._context.now() + min(_ID_KEPT_S, session_timeout_ms / 1000)
        self._context.alarms.ask(key, ids[member_id])

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
        self.told.clear()
        self._rosters.clear()
        for round_ in rounds.values():
            for joining in round_.joined.values():
                joining.answer.deliver(error)
            for syncing in round_.syncing.values():
                syncing.deliver(error)
