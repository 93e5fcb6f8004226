"""Bytes of the hard state: the term a member is in, and whom it voted for.

``hardstate`` is a checkpoint file (``storage/checkpoint.py``); its payload is
``msgpack [term, null | [node id, directory id (16 bytes)]]``.
"""

from __future__ import annotations

import msgpack

from paceline.errors import CorruptMessage
from paceline.types import NodeId
from paceline_node.controller.raft_types import HardState, MemberId
from paceline_node.storage import checkpoint

HARD_STATE = "hardstate"
_ID_BYTES = 16


def encode_hard_state(state: HardState) -> bytes:
    """The content of the file."""
    vote = None if state.vote is None else list(state.vote)
    return checkpoint.encode(checkpoint.Kind.RAFT_STATE, msgpack.packb([state.term, vote]))


def decode_hard_state(content: bytes) -> HardState:
    """Inverse of :func:`encode_hard_state`. Raises CorruptMessage for what no member wrote."""
    payload = checkpoint.decode(checkpoint.Kind.RAFT_STATE, content)
    try:
        return _hard_state_of(*msgpack.unpackb(payload))
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise CorruptMessage(str(error)) from None


def _hard_state_of(term: object, vote: object) -> HardState:
    if type(term) is not int or term < 0:
        raise ValueError(f"term {term!r}")
    if vote is None:
        return HardState(term)
    node, directory = vote if type(vote) is list else (None, None)
    if type(node) is not int or type(directory) is not bytes or len(directory) != _ID_BYTES:
        raise ValueError(f"vote {vote!r}")
    return HardState(term, MemberId(NodeId(node), directory))
