"""What all partitions of a node share, and what a read of one gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from paceline.types import LeaderEpoch, NodeId
from paceline.values import dataclass
from paceline_node.env import Env
from paceline_node.net.burst import Burst
from paceline_node.net.deadlines import Deadlines
from paceline_node.observe.metrics import TopicTraffic
from paceline_node.replication.admission import Admission
from paceline_node.replication.producer_quota import ProducerShares
from paceline_node.storage.log import Log
from paceline_node.storage.reading import LogSlice
from paceline_node.storage.transactions import AbortedTransaction

if TYPE_CHECKING:
    from paceline_node.replication.partition import Partition


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


@dataclass(slots=True)
class PartitionContext:
    """What all partitions of a node share. The callbacks are synchronous and cheap.

    ``tell_followers``: there may be records, or another role, for them to learn of. ``advanced``:
    the high watermark moved. ``proposing``: a proposal is pending. ``durable``: a follower's
    durable offset moved, or its log start on disk. ``start_moved``: a log start is to be written
    down. ``failed``: the disk failed. ``suspect``: the batch at an offset does not hold.
    ``unreadable``: the disk cannot give bytes of the segment that begins at an offset.
    ``append_failed``: an append raised StorageError or StorageFull. ``state_due``: snapshots of a
    log wait to be written. ``simulate`` is on while this is the only registered node and simulated
    slots are allowed (DESIGN 8). ``burst`` joins the answers that one step gives. ``shares``:
    how many producers each client has.
    """

    env: Env
    node_id: NodeId
    deadlines: Deadlines
    admission: Admission
    burst: Burst
    request_flush: Callable[[Log], None]
    tell_followers: Callable[[Partition], None]
    advanced: Callable[[Partition], None]
    proposing: Callable[[Partition], None]
    durable: Callable[[Partition], None]
    start_moved: Callable[[], None]
    failed: Callable[[OSError], None]
    suspect: Callable[[Partition, int], None]
    unreadable: Callable[[Partition, int, str], None]
    append_failed: Callable[[Log], None]
    state_due: Callable[[Log], None]
    traffic: Callable[[str], TopicTraffic]
    lag_max_s: float
    acks1_early: bool = False
    simulated_max_lag: int = 0
    simulate: bool = False
    shares: ProducerShares = field(default_factory=ProducerShares)
