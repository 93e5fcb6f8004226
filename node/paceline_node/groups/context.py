"""What the policies of all families share: state, sessions, alarms, and the way to write."""

from __future__ import annotations

import random
from collections.abc import Set
from dataclasses import replace
from uuid import UUID

from paceline.errors import GroupFull, InvalidGroup
from paceline_node.coordination.alarms import Alarms
from paceline_node.coordination.machine import Entry, Journal
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.records import Group, Member, group_entry
from paceline_node.groups.sessions import Sessions
from paceline_node.groups.store import GroupStore

_NAME_BYTES_MAX = 255


class GroupContext:
    """``journal`` is there while this replica leads, and only then is anything decided."""

    def __init__(self, limits: GroupLimits, rng: random.Random) -> None:
        self.limits = limits
        self.store = GroupStore()
        self.sessions = Sessions()
        self.alarms: Alarms[GroupKey] = Alarms()
        self._rng = rng
        self._journal: Journal | None = None
        self.epoch = -1
        """The leader epoch in which this replica leads, or led last."""

    # --- leading ----------------------------------------------------------------------------------

    def begin(self, journal: Journal) -> None:
        """Decide from now on."""
        self._journal = journal
        self.epoch = journal.led_epoch

    def end(self) -> None:
        """Decide nothing any more; sessions and alarms end."""
        self._journal = None
        self.sessions.clear()
        self.alarms.clear()

    @property
    def leads(self) -> bool:
        return self._journal is not None

    @property
    def journal(self) -> Journal:
        assert self._journal is not None, "only a leader decides"
        return self._journal

    def now(self) -> float:
        return self.journal.now()

    def wall_ms(self) -> int:
        return self.journal.wall_ms()

    def new_id(self, prefix: str) -> str:
        """An id that nobody has."""
        return f"{prefix}-{UUID(int=self._rng.getrandbits(128), version=4)}"

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

    def write_group(self, key: GroupKey, group: Group) -> None:
        """Store a group's new state, stamped with the time and with when its members were last
        heard of."""
        wall_ms = self.wall_ms()
        members = tuple([self._stamped(key, member) for member in group.members])
        stamped = replace(group, members=members, changed_ms=wall_ms)
        known = self.group(key)
        assert known is None or stamped.generation >= known.generation, (key, known, group)
        self.write(key, group_entry(key, stamped))

    def _stamped(self, key: GroupKey, member: Member) -> Member:
        heard_ms = self.sessions.heard_ms(key, member.member_id)
        if heard_ms is None or heard_ms == member.heard_ms:
            return member
        return replace(member, heard_ms=heard_ms)

    def heard(self, key: GroupKey, member_id: str) -> None:
        """The member showed that it lives."""
        self.sessions.heard(key, member_id, self.now(), self.wall_ms())

    # --- limits -----------------------------------------------------------------------------------

    def check_new_group(self, key: GroupKey, volatile: Set[GroupKey] = frozenset()) -> None:
        """Raise InvalidGroup for an impossible name, GroupFull when there are too many;
        ``volatile`` are groups that are about to be."""
        if not 1 <= _utf8_size(key.group) <= _NAME_BYTES_MAX:
            raise InvalidGroup(f"group name: expected 1 to {_NAME_BYTES_MAX} bytes of UTF-8")
        store = self.store
        if key in store.groups or key in store.offsets or key in volatile:
            return
        count = max(len(store.groups), len(store.offsets)) + len(volatile)
        if count >= self.limits.groups_max:
            raise GroupFull(
                f"group {key}: its coordinator keeps {self.limits.groups_max} groups already "
                "(groups.groups_max)"
            )

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
