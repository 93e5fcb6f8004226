"""What is known of one Kafka group beyond what is stored: its round, and ids that were handed out;
and what the groups of a coordinator share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from paceline.errors import PacelineError
from paceline_node.groups.context import GroupContext
from paceline_node.groups.kafka_roster import Roster
from paceline_node.groups.kafka_rounds import Round, Waiting
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.member_records import ReadyMembers
from paceline_node.groups.records import Group, Member, Phase

_NONE = Group(0, Phase.EMPTY)
_NO_IDS: Mapping[str, float] = MappingProxyType({})
_ID_KEPT_S = 10.0
"""How long an id waits for its member, which has only to send it back: whoever went away with one
holds up the others that long. One that comes later is told to ask for another."""


class Coordinated:
    """What all groups of a coordinator share: bounds over all of them, and a count.

    ``handed_out`` are ids that nobody has joined with yet, and when they are void. They are
    promises, not members: where there are as many as there may be members, or groups, the oldest
    make room. ``in_rounds`` are the groups with a round; ``rebalances`` counts those begun.
    """

    def __init__(self, context: GroupContext) -> None:
        self.context = context
        self.handed_out: dict[GroupKey, dict[str, float]] = {}
        self.in_rounds: set[GroupKey] = set()
        self.rebalances = 0

    def ids_of(self, key: GroupKey) -> dict[str, float]:
        """Where one more id of the group goes; others have made room."""
        limits = self.context.limits
        ids = self.handed_out.get(key)
        if ids is None:
            if len(self.handed_out) >= limits.groups_max:
                del self.handed_out[next(iter(self.handed_out))]
            ids = self.handed_out[key] = {}
        elif len(ids) >= limits.members_max:
            del ids[next(iter(ids))]
        return ids


class KafkaState:
    """Stored and volatile state of the group ``key`` as one view. ``told`` is the member that was
    told here that it leads."""

    __slots__ = ("_context", "_coordinated", "_roster", "_round", "key", "told")

    def __init__(self, key: GroupKey, coordinated: Coordinated) -> None:
        self.key = key
        self._coordinated = coordinated
        self._context = coordinated.context
        self._round: Round | None = None
        self._roster: Roster | None = None
        self.told: str | None = None

    # --- what there is ----------------------------------------------------------------------------

    @property
    def stored(self) -> Group:
        """The stored state; an empty one in generation 0 for a group that there is not."""
        return self._context.group(self.key) or _NONE

    @property
    def round(self) -> Round | None:
        """The rebalance that goes on now."""
        return self._round

    @property
    def phase(self) -> Phase:
        """The phase now."""
        return self.stored.phase if self._round is None else self._round.phase

    @property
    def roster(self) -> Roster:
        """Stored members, and those who are joining for the first time. Made anew once a round and
        once a stored state."""
        group = self.stored
        joined = None if self._round is None else self._round.joined
        found = self._roster
        if found is None or found.group is not group or found.joined is not joined:
            found = self._roster = Roster(group, joined)
        return found

    @property
    def is_idle(self) -> bool:
        """Whether there is neither a member nor a round."""
        return self._round is None and not self.stored.members

    def holder(self, instance_id: str | None) -> Member | None:
        """The static member with that instance id, stored or joining."""
        return None if instance_id is None else self.roster.holder(instance_id)

    @property
    def leader_watches(self) -> bool:
        """Whether the leader knows that it leads, and so watches its topics. A static one may have
        come back and been told of another leader, also by an earlier coordinator."""
        leader = self.roster.stored.get(self.stored.leader)
        if leader is None or leader.instance_id is None:
            return True
        return self.told == leader.member_id

    # --- times ------------------------------------------------------------------------------------

    def wake_at(self, at: float) -> None:
        """Have the group's alarm at ``at`` at the latest."""
        self._context.alarms.ask(self.key, at)

    def waits(self, member_id: str) -> bool:
        """Whether a request of the member is open here, which is as good as a heartbeat."""
        round_ = self._round
        return round_ is not None and (member_id in round_.joined or member_id in round_.syncing)

    def heard(self, *member_ids: str) -> None:
        """These members showed that they live."""
        self._context.heard(self.key, *member_ids)

    def session_end(self, member: Member) -> float:
        """When the member is removed unless it is heard of."""
        heard_at = self._context.sessions.heard_at(self.key, member.member_id)
        return heard_at + member.session_timeout_ms / 1000

    def next_alarm(self) -> float:
        """The first moment at which something may be over."""
        members = self.stored.members
        ends = [self.session_end(each) for each in members if not self.waits(each.member_id)]
        ends += self.handed_out.values()
        if self._round is not None:
            ends.append(self._round.ends_at())
        return min(ends, default=math.inf)

    # --- ids that were handed out -----------------------------------------------------------------

    @property
    def handed_out(self) -> Mapping[str, float]:
        """Ids that nobody has joined with yet, and when they are void."""
        return self._coordinated.handed_out.get(self.key, _NO_IDS)

    def hand_out(self, member_id: str, session_timeout_ms: int) -> None:
        """Let ``member_id`` be joined with."""
        until = self._context.now() + min(_ID_KEPT_S, session_timeout_ms / 1000)
        self._coordinated.ids_of(self.key)[member_id] = until
        self.wake_at(until)

    def take_back(self, member_id: str) -> bool:
        """The id is not waited for any more; whether it was."""
        ids = self._coordinated.handed_out.get(self.key, {})
        return ids.pop(member_id, None) is not None

    def void_ids(self, now: float) -> None:
        """Forget ids that nobody came back with in time."""
        ids = self._coordinated.handed_out.get(self.key)
        if ids is None:
            return
        for member_id in [each for each, until in ids.items() if until <= now]:
            del ids[member_id]
        if not ids:
            del self._coordinated.handed_out[self.key]

    # --- changes ----------------------------------------------------------------------------------

    def write(self, group: Group, ready: ReadyMembers | None = None) -> None:
        """Store the group's new state; raises what writing raises, with nothing changed."""
        self._context.write_group(self.key, group, ready or {})

    def begin(self, round_: Round) -> None:
        """The round begins, in place of one that was not over."""
        self._round = round_
        self._coordinated.in_rounds.add(self.key)
        self._coordinated.rebalances += 1

    def end(self) -> None:
        """There is no round any more; idempotent."""
        self._round = None
        self._coordinated.in_rounds.discard(self.key)

    def join(self, round_: Round, waiting: Waiting) -> None:
        """Take a member, which is not in it, into the round."""
        roster = self.roster
        round_.joined[waiting.member.member_id] = waiting
        roster.joins(waiting.member)

    def drop_waiting(self, member_id: str, error: PacelineError) -> None:
        """Refuse the member's open requests."""
        round_ = self._round
        if round_ is None:
            return
        roster = self.roster
        joining = round_.joined.pop(member_id, None)
        if joining is not None:
            roster.leaves(joining.member)
            joining.answer.deliver(error)
        syncing = round_.syncing.pop(member_id, None)
        if syncing is not None:
            syncing.deliver(error)
