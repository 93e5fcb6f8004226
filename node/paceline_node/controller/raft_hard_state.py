"""Bytes of the hard state: the term a member is in, whom it voted for, and where its log ends.

``hardstate`` is a checkpoint file (``storage/checkpoint.py``); its payload is
``msgpack [term, null | [node id, directory id (16 bytes)], number of the newest log segment]``.
A newer segment may be there; one that is not was lost. Earlier versions wrote no number.
"""

from __future__ import annotations

import msgpack

from paceline.errors import CorruptMessage
from paceline.types import NodeId
from paceline.values import dataclass
from paceline_node.controller.raft_types import HardState, MemberId
from paceline_node.storage import checkpoint

HARD_STATE = "hardstate"
_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class Kept:
    """What the file says; ``segment`` is the log's newest one, 0 where there need not be any."""

    state: HardState
    segment: int


def encode_hard_state(kept: Kept) -> bytes:
    """The content of the file."""
    state = kept.state
    vote = None if state.vote is None else list(state.vote)
    payload = msgpack.packb([state.term, vote, kept.segment])
    return checkpoint.encode(checkpoint.Kind.RAFT_STATE, payload)


def decode_hard_state(content: bytes) -> Kept:
    """Inverse of :func:`encode_hard_state`. Raises CorruptMessage for what no member wrote."""
    payload = checkpoint.decode(checkpoint.Kind.RAFT_STATE, content)
    try:
        term, vote, *segment = msgpack.unpackb(payload)
        if segment == []:
            return Kept(_hard_state_of(term, vote), 0)
        if len(segment) != 1 or type(segment[0]) is not int or segment[0] < 0:
            raise ValueError(f"segment {segment!r}")
        return Kept(_hard_state_of(term, vote), segment[0])
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
