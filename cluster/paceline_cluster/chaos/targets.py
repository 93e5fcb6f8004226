"""Which nodes a fault strikes, by role; looked up when it strikes. Pure.

    node 2 · controller · leader of orders/1 · leader of orders/* · follower of orders/1
    any · a minority · a majority · all

``*`` stands for a partition chosen at random; "a" and "the" may stand in front.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

from paceline.values import dataclass

_ROLE = re.compile(r"(leader|follower) of ([A-Za-z0-9._-]+)/(\d+|\*)\Z")
_NODE = re.compile(r"node (\d+)\Z")
_WORDS = frozenset({"controller", "any", "minority", "majority", "all"})
FORMS = (
    "'node 2', 'controller', 'leader of TOPIC/0', 'follower of TOPIC/*', 'any', 'a minority', "
    "'a majority' or 'all'"
)


@dataclass(frozen=True, slots=True)
class PartitionView:
    """Who leads and who holds a partition."""

    leader: int | None
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """The cluster as it is when a fault strikes. ``partitions`` by ``topic/number``; ``serving``
    are the nodes that say they serve."""

    nodes: tuple[int, ...]
    controller: int | None
    partitions: Mapping[str, PartitionView]
    is_healthy: bool
    serving: frozenset[int] = frozenset()


class NoTarget(Exception):
    """Nobody has the role at the moment."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target as it was written, and read."""

    text: str

    def nodes(self, picture: Picture, rng: random.Random) -> list[int]:
        """The nodes meant, sorted. Raises NoTarget."""
        words = _plain(self.text)
        if found := _NODE.match(words):
            number = int(found[1])
            if number not in picture.nodes:
                raise NoTarget(f"there is no node {number}")
            return [number]
        if found := _ROLE.match(words):
            return [_by_role(picture, rng, found[1], found[2], found[3])]
        if words == "controller":
            if picture.controller is None:
                raise NoTarget("there is no controller")
            return [picture.controller]
        return sorted(rng.sample(picture.nodes, _count(words, len(picture.nodes))))


def parse_target(text: str) -> Target:
    """Raises ValueError saying what a target may look like."""
    words = _plain(text)
    if words in _WORDS or _NODE.match(words) or _ROLE.match(words):
        return Target(text)
    raise ValueError(f"{text!r} is no target; expected {FORMS}")


def _plain(text: str) -> str:
    words = " ".join(text.split())
    for article in ("a ", "the "):
        words = words.removeprefix(article)
    return words


def _count(words: str, nodes: int) -> int:
    return {"any": 1, "all": nodes, "majority": nodes // 2 + 1, "minority": (nodes - 1) // 2}[words]


def _by_role(picture: Picture, rng: random.Random, role: str, topic: str, partition: str) -> int:
    names = [
        name
        for name in sorted(picture.partitions)
        if name == f"{topic}/{partition}" or (partition == "*" and name.startswith(f"{topic}/"))
    ]
    found: list[int] = []
    for name in names:
        found += _holders(picture.partitions[name], role)
    if not found:
        raise NoTarget(f"nobody is {role} of {topic}/{partition}")
    return rng.choice(found)


def _holders(partition: PartitionView, role: str) -> Sequence[int]:
    if role == "leader":
        return [] if partition.leader is None else [partition.leader]
    return [node for node in partition.replicas if node != partition.leader]
