"""The members of one Kafka group by id, and sums over them, so that a request costs no search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from paceline_node.groups.kafka_rounds import Waiting, size_of
from paceline_node.groups.records import Group, Member


class Roster:
    """Members that are stored in ``group``, and those of ``joined`` as they say of themselves now.

    It is that of one stored state and one round: whoever changes ``joined`` tells it. ``size`` is
    the bytes of what all say of themselves, ``missing`` how many stored members are not in
    ``joined``.
    """

    __slots__ = ("_holders", "_members", "_names", "group", "joined", "missing", "size", "stored")

    def __init__(self, group: Group, joined: dict[str, Waiting] | None) -> None:
        self.group = group
        self.joined = joined
        self.stored: Mapping[str, Member] = {each.member_id: each for each in group.members}
        self.size = 0
        self._names: Counter[str] = Counter()
        self._holders: dict[str, Member] = {}
        self._members: dict[str, Member] = {}
        self.missing = len(self.stored)
        for member_id, member in self.stored.items():
            waiting = None if joined is None else joined.get(member_id)
            self._add(member if waiting is None else waiting.member)
            self.missing -= waiting is not None
        for member_id, waiting in () if joined is None else joined.items():
            if member_id not in self.stored:
                self._add(waiting.member)

    # --- looking ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._members)

    @property
    def members(self) -> Collection[Member]:
        """All of them."""
        return self._members.values()

    def find(self, member_id: str) -> Member | None:
        """The member of that id."""
        return self._members.get(member_id)

    def holder(self, instance_id: str) -> Member | None:
        """The static member with that instance id."""
        return self._holders.get(instance_id)

    def have_in_common(self, names: Iterable[str], without: Member | None) -> bool:
        """Whether all members but ``without`` know one of ``names``."""
        count = len(self._members) - (without is not None)
        own = set() if without is None else {each.name for each in without.protocols}
        return any(self._names[name] - (name in own) == count for name in names)

    # --- changing ---------------------------------------------------------------------------------

    def joins(self, member: Member) -> None:
        """A member was put into ``joined``, which it was not in."""
        before = self._members.get(member.member_id)
        if before is not None:
            self._remove(before)
            self.missing -= 1
        self._add(member)

    def leaves(self, member: Member) -> None:
        """A member was taken out of ``joined``."""
        self._remove(member)
        stored = self.stored.get(member.member_id)
        if stored is not None:
            self._add(stored)
            self.missing += 1

    def _add(self, member: Member) -> None:
        self._members[member.member_id] = member
        for name in {each.name for each in member.protocols}:
            self._names[name] += 1
        self.size += size_of(member.protocols)
        if member.instance_id is not None:
            self._holders[member.instance_id] = member

    def _remove(self, member: Member) -> None:
        del self._members[member.member_id]
        for name in {each.name for each in member.protocols}:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]
        self.size -= size_of(member.protocols)
        if member.instance_id is not None and self._holders.get(member.instance_id) is member:
            del self._holders[member.instance_id]
