"""What all partitions of a node share, and what a read of one gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Generic, NamedTuple, Protocol, TypeVar

from paceline.types import LeaderEpoch, NodeId
from paceline.values import dataclass
from paceline_node.env import Env
from paceline_node.net.deadlines import Deadlines
from paceline_node.net.frame_bursts import Burst
from paceline_node.observe.metrics import TopicTraffic
from paceline_node.replication.producer_quota import ProducerShares
from paceline_node.replication.write_admission import Admission
from paceline_node.storage.log import Log
from paceline_node.storage.reading import LogSlice
from paceline_node.storage.transaction_index import AbortedTransaction

P = TypeVar("P")
"""What a partition of the node is: ``partition.py``'s, which is built on this."""
P_contra = TypeVar("P_contra", contravariant=True)


class ReadResult(NamedTuple):
    """What may be read; ``slice`` is None when nothing lies at the offset yet. ``aborted``: whose
    records in it readers of committed data must drop."""

    slice: LogSlice | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    log_end_offset: int
    leader_epoch: LeaderEpoch
    aborted: Sequence[AbortedTransaction] = ()


class PartitionEvents(Protocol[P_contra]):
    """What happens in the partitions of a node, for those who act on it. All calls are synchronous
    and cheap."""

    def request_flush(self, log: Log) -> None:
        """Something was appended that is to be synced."""

    def tell_followers(self, partition: P_contra) -> None:
        """There may be records, or another role, for them to learn of."""

    def advanced(self, partition: P_contra) -> None:
        """The high watermark or the log start moved."""

    def proposing(self, partition: P_contra) -> None:
        """A proposal is pending."""

    def durable(self, partition: P_contra) -> None:
        """A follower's durable offset moved, or its log start on disk."""

    def start_moved(self) -> None:
        """A log start is to be written down."""

    def suspect(self, partition: P_contra, offset: int) -> None:
        """The batch at ``offset`` does not hold."""

    def unreadable(self, partition: P_contra, offset: int, reason: str) -> None:
        """The disk cannot give bytes of the segment that begins at ``offset``."""

    def append_failed(self, log: Log) -> None:
        """An append raised StorageError or StorageFull."""

    def state_due(self, log: Log) -> None:
        """Snapshots of a log wait to be written."""

    def failed(self, error: OSError) -> None:
        """The disk failed."""


@dataclass(slots=True)
class PartitionContext(Generic[P]):
    """What all partitions of a node share. ``simulate`` is on while this is the only registered
    node and simulated slots are allowed (DESIGN 8). ``burst`` joins the answers that one step
    gives. ``shares``: how many producers each client has."""

    env: Env
    node_id: NodeId
    deadlines: Deadlines
    admission: Admission
    burst: Burst
    events: PartitionEvents[P]
    traffic: Callable[[str], TopicTraffic]
    lag_max_s: float
    acks1_early: bool = False
    simulated_max_lag: int = 0
    simulate: bool = False
    shares: ProducerShares = field(default_factory=ProducerShares)
