"""How much may be lost at once: never the last good copy (DESIGN 3).

A losing fault (an emptied disk, a call that fails, rot, a file that is gone, a power cut where
acknowledged records are not synced) counts against its machine until the disk is whole and the
machine back everywhere: registered as it runs, in sync in all its partitions, and, where it votes
in the metadata quorum, again in possession of all that was committed when it was hurt.
"""

from __future__ import annotations

from collections.abc import Callable

from paceline.values import dataclass
from paceline_cluster.sim.machine import Machine
from paceline_cluster.sim.oracle import Oracle
from paceline_node.app.broker import Broker
from paceline_node.controller.image import Image


@dataclass(frozen=True, slots=True)
class Hurt:
    """Something is wrong with a disk for as long as ``is_there``; ``committed`` is the newest
    metadata index when it happened."""

    is_there: Callable[[], bool]
    committed: int
    about: str


def _nothing_left() -> bool:
    return False


class LossBudget:
    """``limit`` machines may have lost data at a time: min ISR - 1."""

    def __init__(self, machines: list[Machine], oracle: Oracle, *, limit: int, voters: int) -> None:
        self._machines = machines
        self._oracle = oracle
        self._limit = limit
        self._voters = voters
        self._hurts: dict[int, list[Hurt]] = {}

    def hurt(self) -> list[Machine]:
        """The machines that have lost data and are not back yet."""
        for number in sorted(self._hurts):
            if self.is_back(self._machines[number]):
                del self._hurts[number]
                self._machines[number].disk_is_whole()
        return [self._machines[number] for number in sorted(self._hurts)]

    def may_lose(self, machine: Machine) -> bool:
        """Whether ``machine`` may lose data now."""
        return len({machine.number, *(each.number for each in self.hurt())}) <= self._limit

    def lost(
        self, machine: Machine, is_there: Callable[[], bool] = _nothing_left, about: str = ""
    ) -> None:
        """``machine`` has lost data. ``is_there``: whether the disk still has that fault, as far as
        can be seen from outside."""
        newest = self._oracle.metadata.newest
        committed = 0 if newest is None else newest.offset
        self._hurts.setdefault(machine.number, []).append(Hurt(is_there, committed, about))

    def complaints(self) -> list[str]:
        """What is not whole yet, and why."""
        return [f"n{each.number}: {self._complaint(each)}" for each in self.hurt()]

    def is_back(self, machine: Machine) -> bool:
        """Whether ``machine`` is everywhere again, as far as anybody knows."""
        return self._complaint(machine) is None

    def _complaint(self, machine: Machine) -> str | None:
        newest = self._oracle.metadata.newest
        broker = None if machine.node is None else machine.node.broker
        if newest is None or broker is None:
            return "it is down"
        registered = next((b for n, b in newest.brokers.items() if n == machine.number), None)
        if registered is None or registered.fenced:
            return "it is fenced"
        if broker.replicas.broker_epoch != registered.broker_epoch:
            return "it is not registered as it runs"
        for topic in newest.topics.values():
            for number, each in topic.partitions.items():
                if machine.number in each.replicas and machine.number not in each.isr:
                    return f"it is not in sync in {topic.name}/{number}"
        return self._quorum_complaint(broker, newest) or self._disk_complaint(machine, broker)

    def _quorum_complaint(self, broker: Broker, image: Image) -> str | None:
        # A wiped voter's old identity stays in the quorum until the leader has replaced it.
        voters = broker.metadata.quorum.voters
        if len(voters) < self._voters:
            return f"the quorum has {len(voters)} voters"
        for voter in voters:
            registered = image.brokers.get(voter.node_id)
            if registered is None or registered.directory_id != voter.directory_id:
                return f"voter n{voter.node_id} is not there any more"
        return None

    def _disk_complaint(self, machine: Machine, broker: Broker) -> str | None:
        hurts = self._hurts.get(machine.number, [])
        needed = max((hurt.committed for hurt in hurts), default=0)
        if broker.metadata.quorum.commit_index < needed:
            return f"it lacks metadata below {needed}"
        log = self._oracle.damaged_log(machine)
        if log is not None:
            return f"not sound is {log}"
        left = [hurt.about for hurt in hurts if hurt.is_there()]
        return f"still hurt: {', '.join(left)}" if left else None
