"""A registered broker, as the image has it, and what a change makes of it (DESIGN 2)."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from paceline.types import BrokerEpoch, NodeId
from paceline.values import dataclass
from paceline.wire.message import Message
from paceline_node.controller.metadata_records import BrokerChange, Endpoint


@dataclass(frozen=True, slots=True)
class Broker(Message):
    """A registered broker.

    ``broker_epoch`` is the metadata offset of its registration. ``prev_epoch`` is what that
    registration named as its former epoch; ``activated`` tells whether it was ever unfenced.
    ``operator_fenced`` is an operator's wish that it leads nothing (DESIGN 11.2); it stays in its
    ISRs. ``most_partitions`` is how many it may hold a replica of, 0 where it did not say.
    """

    node_id: NodeId
    broker_epoch: BrokerEpoch
    incarnation_id: UUID
    boot_seq: int
    directory_id: UUID
    prev_epoch: BrokerEpoch
    trusted: bool
    activated: bool
    fenced: bool
    in_controlled_shutdown: bool
    degraded: bool
    operator_fenced: bool
    endpoints: tuple[Endpoint, ...]
    rack: str = ""
    most_partitions: int = 0

    @property
    def active(self) -> bool:
        """May be in ISRs: unfenced and not shutting down."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def electable(self) -> bool:
        """May lead: active, and no operator keeps it from leading."""
        return self.active and not self.operator_fenced

    def endpoint(self, name: str) -> Endpoint | None:
        """The advertised address of its listener ``name``, or None where it has none."""
        return next((e for e in self.endpoints if e.name == name), None)


def changed_broker(broker: Broker, change: BrokerChange) -> Broker:
    """``broker`` with the flags that ``change`` names."""
    fenced = broker.fenced if change.fenced is None else change.fenced
    return replace(
        broker,
        fenced=fenced,
        activated=broker.activated or not fenced,
        in_controlled_shutdown=_flag(change.in_controlled_shutdown, broker.in_controlled_shutdown),
        degraded=_flag(change.degraded, broker.degraded),
        operator_fenced=_flag(change.operator_fenced, broker.operator_fenced),
    )


def _flag(change: bool | None, current: bool) -> bool:
    return current if change is None else change
