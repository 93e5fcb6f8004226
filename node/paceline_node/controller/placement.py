"""Where replicas go: spread by rack first, then by load (DESIGN 9.3).

Pure and deterministic: equal inputs give equal placements. A :class:`Placer` carries the load that
exists and adds what it places, so the partitions of one topic spread as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from paceline.types import NodeId
from paceline.values import dataclass
from paceline_node.controller.image import Broker
from paceline_node.controller.metadata_records import PartitionRegistration


@dataclass(frozen=True, slots=True)
class _Site:
    node: NodeId
    rack: str
    rank: int
    """0 for brokers that are fit, more for those that serve only when nobody else can."""


class Placer:
    """Chooses replicas among ``brokers``, given the partitions that exist."""

    def __init__(
        self, brokers: Iterable[Broker], partitions: Iterable[PartitionRegistration]
    ) -> None:
        self._sites = [
            _Site(b.node_id, b.rack, _rank(b)) for b in sorted(brokers, key=lambda b: b.node_id)
        ]
        self._replicas: Counter[NodeId] = Counter()
        self._preferred: Counter[NodeId] = Counter()
        self._pairs: Counter[tuple[NodeId, NodeId]] = Counter()
        for partition in partitions:
            self._count(partition.replicas)

    def place(self, count: int) -> tuple[NodeId, ...]:
        """``count`` replicas for a new partition, the preferred leader first; fewer only when
        there are fewer brokers."""
        chosen = self._extended((), count)
        self._count(chosen)
        return chosen

    def grow(self, replicas: tuple[NodeId, ...], count: int) -> tuple[NodeId, ...]:
        """``replicas`` and as many more as make ``count``; whoever of them is preferred least
        elsewhere comes first, so that leaderships spread over newcomers."""
        chosen = self._extended(replicas, count)
        if len(chosen) == len(replicas):
            return replicas
        self._count(replicas, by=-1)
        first = min(chosen, key=lambda node: (self._preferred[node], chosen.index(node)))
        ordered = (first, *(node for node in chosen if node != first))
        self._count(ordered)
        return ordered

    def _extended(self, replicas: tuple[NodeId, ...], count: int) -> tuple[NodeId, ...]:
        chosen = list(replicas)
        racks = {site.node: site.rack for site in self._sites}
        used = Counter(racks.get(node, "") for node in replicas)
        while len(chosen) < count:
            free = [site for site in self._sites if site.node not in chosen]
            if not free:
                break
            best = min(free, key=lambda site: self._weight(site, chosen, used))
            chosen.append(best.node)
            used[best.rack] += 1
        return tuple(chosen)

    def _weight(
        self, site: _Site, chosen: Sequence[NodeId], used_racks: Counter[str]
    ) -> tuple[int, ...]:
        """Smaller is better. Leaders spread by the leaderships they are meant to have, followers
        by load and by how often they follow the same leader: when it dies, its partitions then
        go to different nodes."""
        node = site.node
        if not chosen:
            return (site.rank, self._preferred[node], self._replicas[node], node)
        crowding = used_racks[site.rack] if site.rack else 0
        return (site.rank, crowding, self._replicas[node], self._pairs[chosen[0], node], node)

    def _count(self, replicas: tuple[NodeId, ...], by: int = 1) -> None:
        for node in replicas:
            self._replicas[node] += by
        if replicas:
            self._preferred[replicas[0]] += by
        if len(replicas) > 1:
            self._pairs[replicas[0], replicas[1]] += by


def _rank(broker: Broker) -> int:
    if not broker.active:
        return 2
    return 1 if broker.operator_fenced or broker.degraded else 0
