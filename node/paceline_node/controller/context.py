"""What a request handler gets and gives: the image it decides on, and its outcome.

Handlers are pure. They read a :class:`Context`, raise a typed error, or return an
:class:`Outcome`: the records to append as one entry, and the answer to give once that entry is
committed. :class:`Draft` collects the records of one outcome and shows their effect meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from uuid import UUID

from paceline.errors import BrokerNotRegistered, NotController, StaleBrokerEpoch
from paceline.types import BrokerEpoch, NodeId, TopicId
from paceline.values import dataclass
from paceline.wire.message import Message
from paceline_node.controller.image import Broker, Image, changed_broker
from paceline_node.controller.liveness import Sessions
from paceline_node.controller.metadata_records import BrokerChange, PartitionRegistration, Record
from paceline_node.controller.partition_change import Change, change_partition
from paceline_node.settings.coordination import GroupSettings
from paceline_node.settings.counts import ACLS, EXTERNAL_BROKERS, LISTED_BYTES, LISTED_GROUPS
from paceline_node.settings.tree import BrokerSettings, TopicSettings
from paceline_node.settings.tree import ControllerSettings as ControllerDefaults

MAX_BATCH_RECORDS = 10_000
"""Records of one atomic entry (DESIGN 1.3)."""
MAX_STEP_RECORDS = 250
"""Records after which a decision about many partitions goes on in another step: some milliseconds
of everybody's loop (DESIGN 1.3)."""
MAX_MOVES_PER_BATCH = 200
"""Partitions that one step of a controlled shutdown or a handover moves (DESIGN 3.5)."""


def internal_topics(group_partitions: int) -> tuple[tuple[str, int], ...]:
    """What every cluster has from its first start on, with how many partitions."""
    return ("__groups", group_partitions), ("__transactions", 1)


_CONTROLLER = ControllerDefaults()
_TOPICS = TopicSettings()


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """Of topics that are created without saying more."""

    partitions: int = _TOPICS.partitions
    replication_factor: int = _TOPICS.replication_factor
    min_isr: int = _TOPICS.min_insync_replicas


_TOPIC_DEFAULTS = TopicDefaults()


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Timings in seconds and the cluster's defaults for topics.

    ``bootstrap_grace_s`` is how long a new controller waits for all nodes of a fresh cluster
    before it makes the internal topics; ``topics_on_demand`` are those that are made when a node
    first asks. ``max_waiting`` bounds the requests that wait for their
    entries; more are refused (THROTTLED). ``max_externals`` and ``max_listed_groups``: external
    brokers, and groups with a list of topics; ``max_listed_bytes``: of all those lists.
    ``max_acls``: of the cluster.
    """

    session_timeout_s: float = BrokerSettings().session_ms / 1000
    balance_interval_s: float = _CONTROLLER.balance_interval_ms / 1000
    noop_interval_s: float = _CONTROLLER.noop_interval_ms / 1000
    bootstrap_grace_s: float = 1.0
    topics: TopicDefaults = _TOPIC_DEFAULTS
    max_partitions_per_request: int = 2_000
    internal_topics: tuple[tuple[str, int], ...] = internal_topics(GroupSettings().partitions)
    topics_on_demand: tuple[tuple[str, int], ...] = (("__tables", 1),)
    internal_replication_factor: int = 3
    internal_min_isr: int = 2
    max_waiting: int = 10_000
    max_externals: int = EXTERNAL_BROKERS.bound
    max_listed_groups: int = LISTED_GROUPS.bound
    max_listed_bytes: int = LISTED_BYTES.bound
    max_acls: int = ACLS.bound


@dataclass(frozen=True, slots=True)
class Position:
    """Where an outcome came to lie: offset of its entry, and the quorum's term."""

    offset: int
    term: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """``records`` to append atomically, and the answer for when they are committed. Without
    records the answer still waits for what it was judged by. ``unfinished``: what follows from
    them for more partitions is to be settled (DESIGN 1.3)."""

    records: tuple[Record, ...]
    reply: Callable[[Position], Message]
    unfinished: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """One request's surroundings. ``image`` is the newest appended state, maybe uncommitted.

    ``now`` is monotonic seconds; ``wall_ms`` is for display only. ``expected_brokers`` is how many
    nodes the cluster was formed with, as far as the quorum knows. ``settled``: no decision of
    several steps is under way.
    """

    image: Image
    now: float
    wall_ms: int
    settings: ControllerSettings
    sessions: Sessions
    new_id: Callable[[], UUID]
    expected_brokers: int = 1
    active_since: float = 0.0
    settled: bool = True

    def broker(self, node: NodeId, epoch: BrokerEpoch) -> Broker:
        """The broker that speaks. Raises BrokerNotRegistered, StaleBrokerEpoch, or NotController
        when the epoch is newer than this controller's state."""
        broker = self.image.brokers.get(node)
        if epoch > self.image.offset:
            raise NotController(f"broker epoch {epoch} is beyond offset {self.image.offset}")
        if broker is None:
            raise BrokerNotRegistered(f"node {node} is not registered")
        if broker.broker_epoch != epoch:
            raise StaleBrokerEpoch(
                f"node {node}: broker epoch {epoch}, registered {broker.broker_epoch}"
            )
        return broker


@dataclass(slots=True)
class Draft:
    """Records being collected over an image; reads show their effect. An :class:`Electorate`.

    ``most``: how many records :meth:`has_room` allows; None: any number. It is for those who change
    partitions in a way that :mod:`unfinished_decisions` can go on with.
    """

    image: Image
    most: int | None = None
    records: list[Record] = field(default_factory=list)
    unfinished: bool = False
    _brokers: dict[NodeId, Broker] = field(default_factory=dict)
    _partitions: dict[tuple[TopicId, int], PartitionRegistration] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Append a record of a kind that no lookup of this draft shows."""
        self.records.append(record)

    def has_room(self) -> bool:
        """Whether another partition may be changed; where not, the draft is unfinished."""
        self.unfinished = self.most is not None and len(self.records) >= self.most
        return not self.unfinished

    # --- brokers ---------------------------------------------------------------------------

    def broker(self, node: NodeId) -> Broker | None:
        return self._brokers.get(node) or self.image.brokers.get(node)

    def change_broker(
        self,
        node: NodeId,
        *,
        fenced: bool | None = None,
        in_controlled_shutdown: bool | None = None,
        degraded: bool | None = None,
        operator_fenced: bool | None = None,
    ) -> None:
        """Record changed flags of a registered broker; nothing if they are so already."""
        broker = self.broker(node)
        assert broker is not None, f"node {node} is not registered"
        record = BrokerChange(
            node, broker.broker_epoch, fenced, in_controlled_shutdown, degraded, operator_fenced
        )
        changed = changed_broker(broker, record)
        if changed != broker:
            self._brokers[node] = changed
            self.records.append(record)

    def active(self, node: NodeId) -> bool:
        """Whether ``node`` may be in ISRs."""
        broker = self.broker(node)
        return broker is not None and broker.active

    def electable(self, node: NodeId) -> bool:
        broker = self.broker(node)
        return broker is not None and broker.electable

    def degraded(self, node: NodeId) -> bool:
        broker = self.broker(node)
        return broker is not None and broker.degraded

    # --- partitions ------------------------------------------------------------------------

    def partition(self, topic_id: TopicId, number: int) -> PartitionRegistration | None:
        changed = self._partitions.get((topic_id, number))
        return changed or self.image.find_partition(topic_id, number)

    def partitions(self) -> Iterator[PartitionRegistration]:
        """All partitions as they now stand; they may be changed while iterating."""
        for partition in self.image.partitions():
            yield self._partitions.get((partition.topic_id, partition.partition), partition)

    def change(self, partition: PartitionRegistration, change: Change) -> PartitionRegistration:
        """Apply the partition change function and record its result; returns what now holds."""
        changed = change_partition(partition, self, change)
        if changed is None:
            return partition
        self.put(changed)
        return changed

    def put(self, partition: PartitionRegistration) -> None:
        """Record a partition's next registration, one partition epoch above the last (I9)."""
        self._partitions[partition.topic_id, partition.partition] = partition
        self.records.append(partition)
