"""JOIN_CLUSTER: a node asks to listen to the metadata quorum (controller/RAFT 4.3)."""

from __future__ import annotations

from uuid import UUID

from paceline.types import NodeId
from paceline.values import dataclass
from paceline.wire.message import Message


@dataclass(frozen=True, slots=True)
class JoinCluster(Message):
    """``host`` and ``port`` are where the node's peer listener is reached. Asking again is fine
    and updates the address."""

    node_id: NodeId
    directory_id: UUID
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class QuorumMember(Message):
    node_id: NodeId
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class JoinReply(Message):
    """``leader`` is -1 while none is known; only the leader admits, so a joining node asks on
    until ``admitted``. ``members`` are all nodes of the quorum as the answering node knows them."""

    cluster_id: UUID
    admitted: bool
    leader: NodeId
    members: tuple[QuorumMember, ...]
