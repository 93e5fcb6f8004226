"""What groups are called, and which partition of ``__groups`` each one lives in."""

from __future__ import annotations

import enum
from typing import NamedTuple

from paceline.wire.peer.names import GroupName

GROUPS_TOPIC = "__groups"
_OFFSET_BASIS = 2166136261
_PRIME = 16777619
_MASK = 0xFFFFFFFF


class Family(enum.Enum):
    """Groups of different families never meet, whatever their names (DESIGN 1.1)."""

    V1 = "v1"
    CURSUS = "cursus"
    COORDINATOR = "coordinator"
    KAFKA = "kafka"

    __hash__ = object.__hash__
    """Each look-up of a group asks for it, and that of enumerations is not built in."""


class GroupKey(NamedTuple):
    """A group. ``subject`` is the topic of a group that exists once for each topic (``cursus``),
    otherwise empty. To the core it is opaque."""

    family: Family
    group: str
    subject: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.family.value, self.group, self.subject) if part)

    @classmethod
    def named(cls, name: GroupName) -> GroupKey:
        """The group of that name. Raises ValueError where its family is unknown."""
        return cls(Family(name.family), name.group, name.subject)

    @property
    def name(self) -> GroupName:
        """What it is called on the wire, and in records."""
        return GroupName(self.family.value, self.group, self.subject)


TopicAndNumber = tuple[str, int]
"""A partition: the name of its topic, and its number in it."""


def partition_of(key: GroupKey, partition_count: int) -> int:
    """The partition of ``__groups`` that holds ``key``: FNV-1a over its parts, each behind a zero
    byte. Family ``coordinator`` is always partition 0, as its clients name no group when they ask
    (DESIGN 1.2); those of ``cursus`` name the group but not the topic."""
    if key.family is Family.COORDINATOR:
        return 0
    found = _OFFSET_BASIS
    subject = "" if key.family is Family.CURSUS else key.subject
    for part in (key.family.value, key.group, subject):
        for byte in b"\0" + part.encode():
            found = ((found ^ byte) * _PRIME) & _MASK
    return found % partition_count
