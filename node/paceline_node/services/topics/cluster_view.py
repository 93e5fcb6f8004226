"""What the metadata say of the cluster, as those see it who only look.

``controller/image.py`` holds all of it; these are the parts of that which listeners tell clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from paceline.types import LeaderEpoch, NodeId, TopicId


class AddressView(Protocol):
    """Where a listener can be reached."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class BrokerView(Protocol):
    """A registered node. ``active``: it may be in sync; ``operator_fenced``: it is to lead nothing
    (controller/DESIGN 11.2)."""

    @property
    def node_id(self) -> NodeId: ...
    @property
    def rack(self) -> str: ...
    @property
    def fenced(self) -> bool: ...
    @property
    def operator_fenced(self) -> bool: ...
    @property
    def active(self) -> bool: ...

    def endpoint(self, name: str, /) -> AddressView | None:
        """The advertised address of its listener ``name``, or None where it has none."""


class ExternalView(Protocol):
    """A broker entry of V1's that no node owns."""

    @property
    def fenced(self) -> bool: ...


class PartitionView(Protocol):
    """A partition as it is registered; ``leader`` is -1 while nobody leads."""

    @property
    def leader(self) -> NodeId: ...
    @property
    def leader_epoch(self) -> LeaderEpoch: ...
    @property
    def replicas(self) -> tuple[NodeId, ...]: ...
    @property
    def isr(self) -> tuple[NodeId, ...]: ...
    @property
    def adding(self) -> tuple[NodeId, ...]: ...
    @property
    def removing(self) -> tuple[NodeId, ...]: ...


class TopicView(Protocol):
    """A topic and its partitions by number."""

    @property
    def topic_id(self) -> TopicId: ...
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def replication_factor(self) -> int: ...
    @property
    def configs(self) -> Mapping[str, str]: ...
    @property
    def partitions(self) -> Mapping[int, PartitionView]: ...


class ClusterView(Protocol):
    """The cluster at a metadata offset. ``topic_ids`` maps names to ids."""

    @property
    def cluster_id(self) -> UUID: ...
    @property
    def offset(self) -> int: ...
    @property
    def brokers(self) -> Mapping[NodeId, BrokerView]: ...
    @property
    def externals(self) -> Mapping[NodeId, ExternalView]: ...
    @property
    def topics(self) -> Mapping[TopicId, TopicView]: ...
    @property
    def topic_ids(self) -> Mapping[str, TopicId]: ...

    def active_brokers(self) -> Sequence[BrokerView]:
        """Nodes that may be in sync, by id."""

    def partitions(self) -> Iterable[PartitionView]:
        """All partitions, in the order of their topics' creation."""
