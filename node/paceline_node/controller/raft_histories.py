"""Whether a leader's log is another history than what is known to be committed here (RAFT 2.7).

A leader that was elected by disks that tell the truth has every committed entry. One that has not
was elected with the vote of a disk that had gone back in time. Pure.
"""

from __future__ import annotations

from paceline_node.controller.raft_messages import Append, SnapshotChunk, VoteRequest
from paceline_node.controller.raft_state import NodeState
from paceline_node.controller.raft_types import (
    UNKNOWN_ENTRY,
    Apart,
    EntryAt,
    Outlived,
    Snapshot,
)


def explained(apart: Apart | Outlived) -> str:
    """What is wrong, and the ways on, for operators."""
    if isinstance(apart, Outlived):
        return (
            f"{apart}: its disk is an older copy, or it followed one. Format it: paceline "
            "node format --replace; where the others elect nobody, stop all and run 'paceline "
            f"metadata force-quorum' on the directory of node {apart.witness.node} first"
        )
    return (
        f"{apart}; the disk of a voter was an older copy. Nothing is changed here. To go on with "
        "this node's metadata, stop all nodes, run 'paceline metadata force-quorum' on its "
        "directory alone and format the other voters with --replace; to give it up, format this "
        "one: paceline node format --replace"
    )


def contradiction(state: NodeState, message: Append | SnapshotChunk) -> Apart | Outlived | None:
    """What the message says otherwise than what is committed here; None: nothing. Where its sender
    has newer voters, it is this member that knows less."""
    found = _contradiction(state, message)
    theirs, mine = message.voters_since, state.log.newest_voters_since
    if found is None or UNKNOWN_ENTRY in (theirs, mine) or theirs.at <= mine.at:
        return found
    return Outlived(message.sender, theirs.at)


def _contradiction(state: NodeState, message: Append | SnapshotChunk) -> Apart | None:
    """Where terms are equal the content decides: disks that went back in time may give out a term
    twice."""
    log, known = state.log, state.known_commit
    if isinstance(message, SnapshotChunk):
        return _differs(state, message, message.index, message.snapshot_term)
    found = _differs(state, message, message.prev_index, message.prev_term)
    for entry in message.entries:
        if found is not None or entry.index > min(known, log.last_index):
            break
        found = _differs(state, message, entry.index, entry.term)
        if found is None and entry.index > log.base_index and log.entry(entry.index) != entry:
            found = _apart(message, entry.index, entry.term, entry.term)
    return found


def lacking(state: NodeState, chunk: SnapshotChunk, snapshot: Snapshot) -> Apart | None:
    """What a snapshot that replaces all that is here was made without; None: nothing that it would
    tell. A forced history says nothing of the one before it, and replaces it. ``chunk`` is its
    last."""
    index = min(state.known_commit, state.log.last_index)
    theirs = snapshot.term_of(index)
    return None if theirs is None else _differs(state, chunk, index, theirs)


def lacks_voters(state: NodeState, theirs: EntryAt) -> bool:
    """Whether a log whose newest change of voters is ``theirs`` lacks one that is known to be
    committed here: who leads by it, or would, stands on an older copy (RAFT 2.10)."""
    known = state.log.voters_since(state.known_commit)
    if UNKNOWN_ENTRY in (known, theirs):
        return False
    return theirs.at < known.at or (theirs.at == known.at and theirs != known)


def outlived(state: NodeState, request: VoteRequest) -> Outlived | None:
    """What a lone voter hears where its disk is a copy from before others voted, too: nobody but
    itself could have let them in (RAFT 2.10)."""
    theirs, mine = request.voters_since, state.log.newest_voters_since
    is_lone = state.log.config.voter_ids == {state.me}
    if not is_lone or not request.is_committed or UNKNOWN_ENTRY in (mine, theirs):
        return None
    if theirs.at <= mine.at or state.log.is_up_to_date(request.last_term, request.last_index):
        return None  # nothing was added here since, so it may have the vote
    return Outlived(request.sender, theirs.at)


def refutes(request: VoteRequest, apart: Apart | Outlived | None) -> bool:
    """Whether the leader that a member stands apart from is on an older copy itself: who asks knows
    of voters who were let in since, to be committed, and nothing of that leader's (RAFT 2.10)."""
    if not isinstance(apart, Apart) or not request.is_committed:
        return False
    theirs, denied = request.voters_since, apart.voters_since
    if UNKNOWN_ENTRY in (theirs, denied):
        return False
    return theirs.at > denied.at and request.last_term < apart.theirs


def shows(state: NodeState, message: Append | SnapshotChunk) -> bool:
    """Whether the message proves that its sender has all that is known to be committed here."""
    if isinstance(message, SnapshotChunk):
        index, term = message.index, message.snapshot_term
    else:
        index, term = message.prev_index, message.prev_term
    return index >= state.known_commit and state.log.term_at(index) == term


def _differs(
    state: NodeState, message: Append | SnapshotChunk, index: int, theirs: int
) -> Apart | None:
    mine = state.log.term_at(index)
    if index > state.known_commit or mine in (None, theirs):
        return None
    assert mine is not None
    return _apart(message, index, mine, theirs)


def _apart(message: Append | SnapshotChunk, index: int, mine: int, theirs: int) -> Apart:
    return Apart(message.sender, index, mine, theirs, message.voters_since)
