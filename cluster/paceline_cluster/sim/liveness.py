"""Whether the cluster is healthy again: what must hold some time after everything was healed."""

from __future__ import annotations

from collections.abc import Callable

import trio

from paceline.types import NO_NODE
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.oracle import Oracle
from paceline_cluster.sim.plan import Plan

_LOOK_S = 0.1


class Health:
    """Looks at the newest metadata and at the processes."""

    def __init__(self, plan: Plan, cluster: SimCluster, oracle: Oracle) -> None:
        self._plan = plan
        self._cluster = cluster
        self._oracle = oracle
        self._complaint: str | None = None

    async def within(self, seconds: float, holds: Callable[[], bool]) -> bool:
        """Whether ``holds`` does within so much virtual time."""
        with trio.move_on_after(seconds):
            while not holds():  # noqa: ASYNC110  there is nobody to be told by
                await trio.sleep(_LOOK_S)
            return True
        return False

    def complaint(self) -> str:
        """What the last look missed."""
        return self._complaint or "nothing"

    def serves(self) -> bool:
        """Every process serves clients."""
        waiting = [
            machine.number
            for machine in self._cluster.members
            if machine.life is None or not machine.is_up or not machine.life.is_serving
        ]
        self._complaint = f"nodes {waiting} do not serve" if waiting else None
        return not waiting

    def has_halted(self) -> bool:
        """Whether more was lost than may be: the quorum's majority, or every complete replica of a
        partition. The cluster waits for its operator then, and so it should."""
        wiped = sum(machine.wipes > 0 for machine in self._cluster.members)
        if wiped > self._plan.voters // 2:
            return True
        newest = self._oracle.metadata.newest
        return newest is not None and any(
            partition.leader == NO_NODE and not partition.isr and not partition.elr
            for topic in newest.topics.values()
            for partition in topic.partitions.values()
        )

    def is_whole(self) -> bool:
        """Every partition has a leader and all its replicas in sync, and every process serves."""
        self._complaint = None
        if not self.serves():
            return False
        newest = self._oracle.metadata.newest
        if newest is None:
            return False
        for node, broker in newest.brokers.items():
            if broker.fenced:
                self._complaint = f"n{node} is fenced"
        for topic in newest.topics.values():
            for partition in topic.partitions.values():
                if partition.leader == NO_NODE or set(partition.isr) != set(partition.replicas):
                    self._complaint = f"{topic.name}: {partition}"
        return self._complaint is None
