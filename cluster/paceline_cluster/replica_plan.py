"""Which replicas should lie where: a plan by rack and load, or away from nodes (DESIGN 5).

Pure and deterministic: equal inputs give equal plans. A plan changes as little as it can: what lies
well stays where it is, and in which place of its list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from paceline.counted import counted
from paceline.types import NodeId, TopicPartition
from paceline.values import dataclass

LOOKED_AT = 100
"""Of a node's partitions so many are compared for the next move; more would take long and gain
little."""


@dataclass(frozen=True, slots=True)
class Site:
    """A registered node. ``may_take``: replicas may be moved to it."""

    node: NodeId
    rack: str
    may_take: bool


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a partition lies, preferred leader first, and how large its log is."""

    at: TopicPartition
    replicas: tuple[NodeId, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Move:
    """A partition, the replicas that it has and those that it shall have."""

    at: TopicPartition
    before: tuple[NodeId, ...]
    after: tuple[NodeId, ...]
    size_bytes: int

    @property
    def adding(self) -> tuple[NodeId, ...]:
        """Who has to fetch the log."""
        return tuple(node for node in self.after if node not in self.before)


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """``stuck``: a sentence for each replica that no other node can take."""

    moves: tuple[Move, ...]
    stuck: tuple[str, ...]


def away_from(
    leaving: Iterable[NodeId], sites: Iterable[Site], partitions: Iterable[Placed]
) -> ReplicaPlan:
    """Move every replica of the nodes ``leaving`` to another node, and nothing else."""
    board = _Board(sites, partitions, frozenset(leaving))
    stuck = board.evacuate()
    return ReplicaPlan(board.moves(), tuple(stuck))


def balanced(sites: Iterable[Site], partitions: Iterable[Placed]) -> ReplicaPlan:
    """Put replicas of one partition on different racks where that can be, then give each node as
    many replicas as the others (to one) and as much data, then as many preferred leaders."""
    board = _Board(sites, partitions, frozenset())
    board.spread_over_racks()
    board.even_out()
    board.even_out_leaders()
    return ReplicaPlan(board.moves(), ())


class _Board:
    """The placement as it changes while a plan is made."""

    def __init__(
        self, sites: Iterable[Site], partitions: Iterable[Placed], leaving: frozenset[NodeId]
    ) -> None:
        known = sorted(sites, key=lambda site: site.node)
        self._leaving = leaving
        self._racks = {site.node: site.rack for site in known}
        self._takers = [s.node for s in known if s.may_take and s.node not in leaving]
        self._placed = {
            each.at: each
            for each in sorted(partitions, key=lambda each: (-each.size_bytes, each.at))
        }
        self._now = {at: list(each.replicas) for at, each in self._placed.items()}
        replicas = [(node, each) for each in self._placed.values() for node in each.replicas]
        self._count = Counter(node for node, _ in replicas)
        self._bytes: Counter[NodeId] = Counter()
        for node, each in replicas:
            self._bytes[node] += each.size_bytes
        self._led = Counter(each.replicas[0] for each in self._placed.values() if each.replicas)

    def moves(self) -> tuple[Move, ...]:
        """What differs from the beginning, by topic and partition."""
        return tuple(
            Move(at, each.replicas, tuple(self._now[at]), each.size_bytes)
            for at, each in sorted(self._placed.items())
            if tuple(self._now[at]) != each.replicas
        )

    def evacuate(self) -> list[str]:
        """The largest first, so that the small ones fill what is uneven after them."""
        stuck = []
        for at, replicas in self._now.items():
            for old in [node for node in replicas if node in self._leaving]:
                new = self._taker(at, old)
                if new is None:
                    stuck.append(
                        f"{at} has {counted(len(replicas), 'replica')}, and no node without one "
                        f"of them can take that of node {old}"
                    )
                else:
                    self._replace(at, old, new)
        return stuck

    def spread_over_racks(self) -> None:
        """A later replica leaves a rack where another one is, if a rack without any can take it."""
        for at, replicas in self._now.items():
            for old in reversed(replicas[1:]):
                if not self._crowding(at, old, old):
                    continue
                new = self._taker(at, old)
                if new is not None and not self._crowding(at, old, new):
                    self._replace(at, old, new)

    def even_out(self) -> None:
        """Move one replica after the other from a node with many to one with few."""
        while (step := self._next_step()) is not None:
            self._replace(*step)

    def even_out_leaders(self) -> None:
        """Another order of replicas costs nothing."""
        while True:
            nodes = sorted(self._takers, key=lambda node: (self._led[node], node))
            step = next(
                (
                    (at, low)
                    for high in reversed(nodes)
                    for low in nodes
                    if self._led[high] - self._led[low] > 1
                    for at, replicas in self._now.items()
                    if replicas[0] == high and low in replicas
                ),
                None,
            )
            if step is None:
                return
            at, low = step
            replicas = self._now[at]
            self._led[replicas[0]] -= 1
            self._led[low] += 1
            replicas.remove(low)
            replicas.insert(0, low)

    def _next_step(self) -> tuple[TopicPartition, NodeId, NodeId] | None:
        nodes = sorted(self._takers, key=lambda node: (self._count[node], self._bytes[node], node))
        for high in reversed(nodes):
            for low in nodes:
                if self._count[high] - self._count[low] <= 1:
                    break
                at = self._best(high, low)
                if at is not None:
                    return at, high, low
        return None

    def _best(self, high: NodeId, low: NodeId) -> TopicPartition | None:
        """The partition whose replica on ``high`` is best moved to ``low``: it leaves the two most
        even in bytes. None where none may."""
        movable = islice(
            (
                at
                for at, replicas in self._now.items()
                if high in replicas
                and low not in replicas
                and self._crowding(at, high, low) <= self._crowding(at, high, high)
            ),
            LOOKED_AT,
        )
        gap = self._bytes[high] - self._bytes[low]
        return min(
            movable, key=lambda at: (abs(gap - 2 * self._placed[at].size_bytes), at), default=None
        )

    def _taker(self, at: TopicPartition, old: NodeId) -> NodeId | None:
        replicas = self._now[at]
        return min(
            (node for node in self._takers if node not in replicas),
            key=lambda node: (
                self._crowding(at, old, node),
                self._count[node],
                self._bytes[node],
                node,
            ),
            default=None,
        )

    def _crowding(self, at: TopicPartition, old: NodeId, node: NodeId) -> int:
        """How many of the partition's replicas beside ``old`` are in the rack of ``node``."""
        rack = self._racks.get(node, "")
        others: Sequence[NodeId] = self._now[at]
        if not rack:
            return 0
        return sum(self._racks.get(each) == rack for each in others if each != old)

    def _replace(self, at: TopicPartition, old: NodeId, new: NodeId) -> None:
        """The newcomer takes the place in the list, so a preferred leader stays one."""
        replicas = self._now[at]
        place = replicas.index(old)
        replicas[place] = new
        size = self._placed[at].size_bytes
        self._count[old] -= 1
        self._count[new] += 1
        self._bytes[old] -= size
        self._bytes[new] += size
        if place == 0:
            self._led[old] -= 1
            self._led[new] += 1
