"""Bytes of quorum messages: round trips, golden vectors, hostile input at every length."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import RemoteProtocolError
from paceline.types import NodeId
from paceline_cluster.sim.raft.durable import CLUSTER, member_id
from paceline_node.controller.raft_messages import (
    Append,
    AppendResponse,
    Grant,
    RaftMessage,
    SnapshotChunk,
    SnapshotResponse,
    TimeoutNow,
    VoteKind,
    VoteRequest,
    VoteResponse,
    decode,
    encode,
)
from paceline_node.controller.raft_types import (
    UNKNOWN_ENTRY,
    Entry,
    EntryAt,
    EntryKind,
    MemberId,
)

A, B = member_id(1), member_id(2, disk=3)
HEAD = (A, B, 7)
HEAD_SIZE = 65
EXAMPLES: list[RaftMessage] = [
    VoteRequest(*HEAD, VoteKind.FORCED, 12, 6, EntryAt(5, 2), True, 78),
    VoteResponse(*HEAD, VoteKind.PRE, Grant.WAITS, 77, 6, 12, 6, 13, 78),
    Append(
        *HEAD,
        4,
        2,
        3,
        9,
        0,
        EntryAt(3, 1),
        (Entry(5, 2, EntryKind.NOOP), Entry(6, 7, EntryKind.RECORDS, b"x")),
    ),
    Append(*HEAD, 0, 0, 0, 0, 11, UNKNOWN_ENTRY),
    AppendResponse(*HEAD, False, 0, 9, 4, 2, 77, Grant.WAITS),
    SnapshotChunk(*HEAD, 50, 6, EntryAt(3, 1), 9, 0xFFFFFFFF, 3, b"chunk"),
    SnapshotResponse(*HEAD, 50, 3),
    TimeoutNow(*HEAD),
]
GOLDEN = {
    "VoteRequest": (
        "01000000000000000000000000000000c1"
        "0000000100000000000000000000000200000000"
        "0000000200000000000000000000000300000003"
        "0000000000000007"
        "02000000000000000c0000000000000006"
        "0000000000000005000000000000000201"
        "000000000000004e"
    ),
    "TimeoutNow": (
        "07000000000000000000000000000000c1"
        "0000000100000000000000000000000200000000"
        "0000000200000000000000000000000300000003"
        "0000000000000007"
    ),
}

u64 = st.integers(0, 2**64 - 1)
ids = st.builds(
    MemberId, st.integers(0, 2**31 - 1).map(NodeId), st.binary(min_size=16, max_size=16)
)
heads = st.tuples(ids, ids, u64)


@st.composite
def appends(draw: st.DrawFn) -> Append:
    first = draw(st.integers(0, 2**40))
    data = draw(st.lists(st.tuples(u64, st.sampled_from(EntryKind), st.binary(max_size=40))))
    entries = tuple(
        Entry(first + 1 + i, term, kind, body) for i, (term, kind, body) in enumerate(data)
    )
    since = EntryAt(draw(u64), draw(u64))
    return Append(*draw(heads), first, *(draw(u64) for _ in range(4)), since, entries)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_round_trip(message: RaftMessage) -> None:
    data = encode(message, CLUSTER)
    assert decode(data, CLUSTER) == message
    assert decode(memoryview(data), CLUSTER) == message


@given(appends())
def test_append_round_trip(message: Append) -> None:
    assert decode(encode(message, CLUSTER), CLUSTER) == message


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_golden_bytes(name: str) -> None:
    message = next(m for m in EXAMPLES if type(m).__name__ == name)
    assert encode(message, CLUSTER).hex() == GOLDEN[name]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_cut_off_anywhere(message: RaftMessage) -> None:
    data = encode(message, CLUSTER)
    for size in range(len(data)):
        if isinstance(message, SnapshotChunk) and size >= len(data) - len(message.data):
            continue  # a shorter chunk is a chunk
        with pytest.raises(RemoteProtocolError):
            decode(data[:size], CLUSTER)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_trailing_bytes(message: RaftMessage) -> None:
    if isinstance(message, SnapshotChunk):
        with pytest.raises(RemoteProtocolError, match="beyond the total"):
            decode(encode(message, CLUSTER) + b"12", CLUSTER)
    else:
        with pytest.raises(RemoteProtocolError):
            decode(encode(message, CLUSTER) + b"\0", CLUSTER)


@given(st.binary(max_size=200))
def test_arbitrary_bytes(data: bytes) -> None:
    prefix = encode(EXAMPLES[0], CLUSTER)[1:65]
    for whole in (data, data[:1] + prefix + data[1:]):
        try:
            decode(whole, CLUSTER)
        except RemoteProtocolError:
            continue


def test_other_cluster_unknown_kind_bad_flag() -> None:
    data = encode(EXAMPLES[1], CLUSTER)
    with pytest.raises(RemoteProtocolError, match="of cluster"):
        decode(data, UUID(int=5))
    with pytest.raises(RemoteProtocolError, match="unknown kind 99"):
        decode(b"\x63" + data[1:], CLUSTER)
    with pytest.raises(RemoteProtocolError, match="Grant"):
        decode(data[:HEAD_SIZE] + b"\x00\x04" + data[HEAD_SIZE + 2 :], CLUSTER)
    with pytest.raises(RemoteProtocolError, match="VoteKind"):
        decode(data[:HEAD_SIZE] + b"\x09\x01" + data[HEAD_SIZE + 2 :], CLUSTER)


def test_count_beyond_the_message_is_refused_before_reading() -> None:
    data = bytearray(encode(Append(*HEAD, 0, 0, 0, 0, 11, UNKNOWN_ENTRY), CLUSTER))
    data[-4:] = b"\xff\xff\xff\xff"
    with pytest.raises(RemoteProtocolError, match="do not fit"):
        decode(bytes(data), CLUSTER)
