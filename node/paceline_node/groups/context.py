"""What the policies of all families share: state, sessions, alarms, and the way to write."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from uuid import UUID

from paceline.errors import GroupFull, InvalidGroup
from paceline.types import TopicId
from paceline_node.groups.group_eviction import unused
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.member_records import NONE_READY, ReadyMembers, records_of
from paceline_node.groups.member_sessions import MemberSessions
from paceline_node.groups.partition_growth import CountOf
from paceline_node.groups.records import Group, Member, group_entry
from paceline_node.groups.store import GroupStore
from paceline_node.groups.topic_ids import TopicIds
from paceline_node.state_machines.alarms import Alarms
from paceline_node.state_machines.leading import Leading
from paceline_node.state_machines.machine import Entry, Journal

_AT_ONCE = 50
_FULL_S = 1.0
"""For how long nobody looks again for groups that nobody uses, where there were none."""
_NAME_BYTES_MAX = 255
_ID_PREFIX_BYTES_MAX = 255


class GroupContext(Leading):
    """Belongs to one engine."""

    def __init__(
        self,
        limits: GroupLimits,
        rng: random.Random,
        topic_ids: Callable[[], Mapping[str, TopicId]],
        partition_count: CountOf,
    ) -> None:
        super().__init__()
        self.limits = limits
        self.topics = TopicIds(topic_ids)
        self.partition_count = partition_count
        self.store = GroupStore()
        self.sessions = MemberSessions()
        self.alarms: Alarms[GroupKey] = Alarms()
        self.has_members: Callable[[GroupKey], bool] = lambda _: False
        """Whether anybody is, or is becoming, a member, as the families know it."""
        self._rng = rng
        self._full_until: dict[Family, float] = {}
        self.epoch = -1
        """The leader epoch in which this replica leads, or led last."""

    # --- leading ----------------------------------------------------------------------------------

    def begin(self, journal: Journal) -> None:
        """Decide from now on."""
        self._journal = journal
        self.topics.begin()
        self.epoch = journal.led_epoch

    def end(self) -> None:
        """Decide nothing any more; sessions and alarms end."""
        self._journal = None
        self._full_until.clear()
        self.topics.end()
        self.sessions.clear()
        self.alarms.clear()

    def new_id(self, prefix: str) -> str:
        """An id that nobody has; it begins with ``prefix``, cut where that is long."""
        begin = prefix.encode()[:_ID_PREFIX_BYTES_MAX].decode(errors="ignore")
        return f"{begin}-{UUID(int=self._rng.getrandbits(128), version=4)}"

    def number_below(self, limit: int) -> int:
        """A random number from 0 on."""
        return self._rng.randrange(limit)

    # --- state ------------------------------------------------------------------------------------

    def group(self, key: GroupKey) -> Group | None:
        """The group as it stands."""
        return self.store.groups.get(key)

    def write(self, key: GroupKey, *entries: Entry) -> None:
        """Change ``key`` by these records; nothing changed when this raises."""
        self.journal.write(key, entries)

    def write_group(self, key: GroupKey, group: Group, ready: ReadyMembers = NONE_READY) -> None:
        """Store a group's new state, stamped with the time; those of its members that changed, with
        when they were last heard of. ``ready`` are records that were made before."""
        self.put_group(key, replace(group, changed_ms=self.wall_ms()), ready)

    def put_group(self, key: GroupKey, group: Group, ready: ReadyMembers = NONE_READY) -> None:
        """As :meth:`write_group`, without the time."""
        known = self.group(key)
        assert (
            known is None
            or group.generation >= known.generation
            or group.topic_id != known.topic_id
        ), (key, known, group)
        stamped = partial(self.stamped, key)
        written = records_of(key, group, self.store.seats.get(key), ready, stamped)
        self.store.wrote(written)
        self.write(key, *[entry for entry, _ in written])

    def stamped(self, key: GroupKey, member: Member) -> Member:
        """The member with when it was last heard of."""
        heard_ms = self.sessions.heard_ms(key, member.member_id)
        if heard_ms is None or heard_ms == member.heard_ms:
            return member
        return replace(member, heard_ms=heard_ms)

    def heard(self, key: GroupKey, *member_ids: str) -> None:
        """These members showed that they live."""
        self.sessions.heard(key, member_ids, self.now(), self.wall_ms())

    # --- limits -----------------------------------------------------------------------------------

    def check_new_group(self, key: GroupKey, *volatile: Collection[GroupKey]) -> None:
        """Raise InvalidGroup for an impossible name, GroupFull when its family has too many, and
        none that makes room (``group_eviction.py``); ``volatile`` are groups that are about to
        be."""
        if not 1 <= _utf8_size(key.group) <= _NAME_BYTES_MAX:
            raise InvalidGroup(f"group name: expected 1 to {_NAME_BYTES_MAX} bytes of UTF-8")
        if self.store.knows(key) or any(key in each for each in volatile):
            return
        count = self.store.counts[key.family] + max(map(len, volatile), default=0)
        if count >= self.limits.groups_max and not self._make_room(key.family):
            raise GroupFull(
                f"group {key}: its coordinator keeps {self.limits.groups_max} groups of family "
                f"{key.family.value} already (groups.groups_max)"
            )

    def _make_room(self, family: Family) -> bool:
        """Forget groups of the family that nobody uses; whether there were any."""
        now = self.now()
        if now < self._full_until.get(family, now):
            return False
        before_ms = self.wall_ms() - int(self.limits.unused_kept_s * 1000)
        found = list(islice(unused(self.store, family, before_ms, self.has_members), _AT_ONCE))
        for key in found:
            self.write(key, group_entry(key, None))
        if not found:
            self._full_until[family] = now + _FULL_S
        return bool(found)

    def check_member_count(self, key: GroupKey, count: int) -> None:
        """Raise GroupFull when a group of ``count`` members would be too large."""
        if count > self.limits.members_max:
            raise GroupFull(
                f"group {key}: {self.limits.members_max} members already (groups.members_max)"
            )


def _utf8_size(text: str) -> int:
    """Bytes of ``text`` as UTF-8; 0 where it is none."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0
