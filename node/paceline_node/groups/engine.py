"""The group engine of one partition of ``__groups``: the machine that its coordinator runs.

Brings store, offsets, retention and the families' policies together. Commands are methods of the
parts: ``engine.v1.join(...)``, ``engine.kafka.sync(...)``, ``engine.offsets.fetch(...)``; what is
asked about groups of any family is in ``inspection.py``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from paceline.errors import PacelineError
from paceline.types import TopicId
from paceline_node.groups.committed_offsets import OffsetBook
from paceline_node.groups.context import GroupContext
from paceline_node.groups.cursus_groups import CursusGroups
from paceline_node.groups.driven_groups import DrivenGroups
from paceline_node.groups.driven_state import RoundsDue
from paceline_node.groups.kafka_groups import KafkaGroups
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.member_sessions import MemberSessions
from paceline_node.groups.membership_policy import MembershipPolicy
from paceline_node.groups.offset_retention import Retention
from paceline_node.groups.partition_growth import CountOf
from paceline_node.groups.records import Begun, marker_entry
from paceline_node.groups.store import GroupStore
from paceline_node.groups.topic_sweep import TopicSweep
from paceline_node.groups.transactional_offsets import TransactionalOffsets
from paceline_node.groups.v1_groups import V1Groups
from paceline_node.state_machines.machine import Entry, Journal

_START = "start"
"""Scope of a partition's first records."""


class GroupEngine:
    """See :class:`~paceline_node.state_machines.machine.Machine`. ``imports`` are records that an
    empty log begins with (DESIGN 3.6). ``due`` is where family
    ``coordinator`` asks for workers. ``topic_ids``: the topics there are, by name;
    ``partition_count``: how many partitions each has."""

    def __init__(
        self,
        limits: GroupLimits,
        rng: random.Random,
        topic_ids: Callable[[], Mapping[str, TopicId]],
        imports: Sequence[Entry] = (),
        due: RoundsDue | None = None,
        partition_count: CountOf = lambda _: 0,
    ) -> None:
        self._context = context = GroupContext(limits, rng, topic_ids, partition_count)
        self._imports = imports
        self.offsets = OffsetBook(context)
        self.transactional = TransactionalOffsets(context, self.offsets)
        self.v1 = V1Groups(context, self.offsets)
        self.kafka = KafkaGroups(context)
        self.cursus = CursusGroups(context, self.offsets)
        self.coordinator = DrivenGroups(context, self.offsets, due or RoundsDue())
        self.policies: Mapping[Family, MembershipPolicy] = {
            Family.V1: self.v1,
            Family.KAFKA: self.kafka,
            Family.CURSUS: self.cursus,
            Family.COORDINATOR: self.coordinator,
        }
        context.has_members = self.has_members
        self._retention = Retention(context, self.offsets, self.has_members)
        self._sweep = TopicSweep(context, self.cursus)

    @property
    def store(self) -> GroupStore:
        return self._context.store

    @property
    def sessions(self) -> MemberSessions:
        return self._context.sessions

    @property
    def leads(self) -> bool:
        """Whether it decides now."""
        return self._context.leads

    @property
    def serves(self) -> bool:
        """Whether it leads, and its node may still act as the leader."""
        return self._context.leads and self._context.journal.serves

    @property
    def limits(self) -> GroupLimits:
        return self._context.limits

    def now(self) -> float:
        """The journal's time, while it leads."""
        return self._context.now()

    def has_members(self, key: GroupKey) -> bool:
        """Whether anybody is, or is becoming, a member."""
        return self.policies[key.family].member_count(key) > 0

    def topics_changed(self) -> None:
        """Topics were made or deleted: what is of those that are no more is forgotten soon."""
        self._sweep.begin()

    def topics_grew(self) -> None:
        """Topics got more partitions: leaders that do not watch them are told soon."""
        self.kafka.topics_grew()

    # --- the machine ------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> None:
        """Fold one record."""
        self._context.store.apply(entry)

    def reset(self) -> None:
        """Forget everything."""
        self._context.store.clear()

    def lead(self, journal: Journal, *, log_is_empty: bool) -> None:
        """Decide from now on; every known member gets a fresh session."""
        context = self._context
        context.begin(journal)
        if log_is_empty:
            marker = marker_entry(Begun(len(self._imports), journal.wall_ms()))
            journal.write(_START, [marker, *self._imports])
        self._imports = ()
        self._retention.begin()
        self._sweep.begin()
        for key, group in list(context.store.groups.items()):
            if not group.members:
                continue
            for member in group.members:
                context.sessions.resume(key, member.member_id, context.now(), member.heard_ms)
            self.policies[key.family].resume(key, group)

    def resign(self, error: PacelineError) -> None:
        """Decide nothing any more."""
        for policy in self.policies.values():
            policy.resign(error)
        self._retention.end()
        self._sweep.end()
        self.transactional.resign()
        self.offsets.resign()
        self._context.end()

    def next_alarm(self) -> float:
        return min(self._context.alarms.next(), self._retention.next_at(), self._sweep.next_at())

    def on_alarm(self) -> None:
        """Some of what is due; what cannot be stored now is tried again in a second."""
        now = self._context.now()
        self._context.alarms.ring(now, lambda key: self.policies[key.family].on_alarm(key))
        if self._sweep.next_at() <= now:
            self._sweep.look()
        if self._retention.next_at() <= now:
            try:
                self._retention.look()
            except PacelineError:
                self._retention.begin()
