"""How much may be lost at once: never the last good copy (spec testing 3.3, "atlas").

A losing fault (an emptied disk, a failed sync, rot, a power cut where acknowledged records are not
synced) counts against its machine until that is back everywhere: registered as it runs, in sync in
all its partitions, and a member of the metadata quorum again.
"""

from __future__ import annotations

from paceline_cluster.sim.machine import Machine
from paceline_cluster.sim.oracle import Oracle
from paceline_node.controller.image import Image


class LossBudget:
    """``limit`` machines may have lost data at a time: min ISR - 1."""

    def __init__(self, machines: list[Machine], oracle: Oracle, *, limit: int, voters: int) -> None:
        self._machines = machines
        self._oracle = oracle
        self._limit = limit
        self._voters = voters
        self._lossy: set[int] = set()

    def may_lose(self, machine: Machine) -> bool:
        """Whether ``machine`` may lose data now."""
        for number in sorted(self._lossy):
            if self.is_back(self._machines[number]):
                self._lossy.discard(number)
        return len(self._lossy | {machine.number}) <= self._limit

    def lost(self, machine: Machine) -> None:
        """``machine`` has lost data."""
        self._lossy.add(machine.number)

    def is_back(self, machine: Machine) -> bool:
        """Whether ``machine`` is everywhere again, as far as anybody knows."""
        newest = self._oracle.metadata.newest
        return newest is not None and self._is_back(machine, newest)

    def _is_back(self, machine: Machine, image: Image) -> bool:
        broker = None if machine.node is None else machine.node.broker
        registered = next((b for n, b in image.brokers.items() if n == machine.number), None)
        if broker is None or registered is None or registered.fenced:
            return False
        if self._oracle.is_damaged(machine):
            return False
        if broker.replicas.broker_epoch != registered.broker_epoch:
            return False
        for topic in image.topics.values():
            for partition in topic.partitions.values():
                if machine.number in partition.replicas and machine.number not in partition.isr:
                    return False
        # A wiped voter's old identity stays in the quorum until the leader has replaced it.
        quorum = broker.metadata.quorum
        return len(quorum.voters) >= self._voters and all(
            self._is_alive(voter.node_id, voter.directory_id, image) for voter in quorum.voters
        )

    def _is_alive(self, node: int, directory_id: object, image: Image) -> bool:
        return any(
            n == node and broker.directory_id == directory_id for n, broker in image.brokers.items()
        )
