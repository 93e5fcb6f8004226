"""Replicas that clients simulate while this is the only node (DESIGN 8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline_node.replication.isr import SimulatedSlots
from paceline_node.replication.partition_context import PartitionContext
from paceline_node.replication.replica import Replica
from paceline_node.storage.log import Log


class Simulation:
    """The vacant slots of one partition. ``settle`` is told when one has moved."""

    def __init__(
        self, context: PartitionContext[Any], replica: Replica, log: Log, settle: Callable[[], None]
    ) -> None:
        self._context = context
        self._replica = replica
        self._log = log
        self._settle = settle
        self._slots = SimulatedSlots(lag_max_s=context.lag_max_s, max_lag=context.simulated_max_lag)

    @property
    def is_on(self) -> bool:
        """Whether the partition has vacant slots that clients may simulate now."""
        registration = self._replica.registration
        return (
            self._context.simulate
            and registration is not None
            and registration.slots > len(registration.replicas)
        )

    def acknowledge(self, slot: int, end: int) -> None:
        """A client says that vacant ``slot`` holds the log up to ``end`` (exclusive)."""
        if self.is_on:
            now = self._context.env.now()
            self._slots.acknowledge(slot, end, self._log.log_end_offset, now)
            self._settle()

    def in_sync(self) -> tuple[int, ...]:
        """Simulated slots that are in sync now (DESIGN 8); empty when the simulation is off."""
        if not self.is_on:
            return ()
        return self._slots.in_sync(self._log.log_end_offset, self._context.env.now())

    def clear(self) -> None:
        """A new leader epoch, or a second node registered: all of it is dropped. Whoever waits for
        simulated slots goes on waiting for real ones."""
        self._slots.clear()
