"""HELLO and PROVE: how two nodes convince each other that they belong together (peers/DESIGN 1).

::

    initiator                                                acceptor
        | -- HELLO request   Hello      (who, lane, nonce) ----> |
        | <- HELLO response  HelloReply (who, nonce) ----------- |
        | -- PROVE request   Prove      (initiator's proof) ---> |
        | <- PROVE response  Prove      (acceptor's proof) ----- |

A proof is HMAC-SHA256 with the cluster secret as its key over::

    label || u32 length || hello || u32 length || reply

label: ``paceline/peer/1/initiator`` or ``paceline/peer/1/acceptor`` and a zero byte, so that
neither side's proof passes as the other's; hello and reply: msgpack bytes of the two bodies as they
were sent, elements unknown to the receiver included. The initiator proves first, so a
stranger who connects learns no proof. The handshake authenticates the connection's beginning; it
does not encrypt.
"""

from __future__ import annotations

from uuid import UUID

from paceline.types import NodeId
from paceline.values import dataclass
from paceline.wire.message import Message

PEER_VERSION = 1
NONCE_BYTES = 32
MAX_HANDSHAKE_FRAME_BYTES = 4096

UNKNOWN_CLUSTER = UUID(int=0)
"""Cluster id in the HELLO of a node that has yet to learn it (joining)."""


@dataclass(frozen=True, slots=True)
class Hello(Message):
    """First frame of a connection. ``target`` is the node the initiator means to reach, -1 when it
    knows an address only; ``lane`` names what the connection is for. ``boot_seq`` and
    ``incarnation_id`` say which start of its directory the process is; 0 where that is not said."""

    version: int
    cluster_id: UUID
    node_id: NodeId
    directory_id: UUID
    target: NodeId
    lane: str
    nonce: bytes
    boot_seq: int = 0
    incarnation_id: UUID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class HelloReply(Message):
    version: int
    cluster_id: UUID
    node_id: NodeId
    directory_id: UUID
    nonce: bytes


@dataclass(frozen=True, slots=True)
class Prove(Message):
    proof: bytes
