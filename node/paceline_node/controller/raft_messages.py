"""Messages between quorum members, and their bytes.

A message is the payload of one one-way RAFT frame. Big-endian; every message begins with

::

    0      1            17          21              37        41            57     65
    +------+------------+-----------+---------------+---------+-------------+------+
    | kind | cluster id | from node | from dir. id  | to node | to dir. id  | term |
    | u8   | 16 bytes   | i32       | 16 bytes      | i32     | 16 bytes    | u64  |
    +------+------------+-----------+---------------+---------+-------------+------+

and goes on by kind:

::

    1 VOTE              u8 vote kind (0 pre, 1 real, 2 forced), u64 last index, u64 last term,
                        u64 voters index, u64 voters term, u8 voters are committed, u64 life
    2 VOTE_RESPONSE     u8 vote kind, u8 grant (0 refused, 1 sure, 2 unsure, 3 waits), u64 life,
                        u64 last term, u64 last index, u64 last term heard, u64 last index heard,
                        u64 candidate's life
    3 APPEND            u64 prev index, u64 prev term, u64 commit, u64 round, u64 sure life,
                        u64 voters index, u64 voters term,
                        u32 count, count x (u64 term, u8 entry kind, u32 size, size bytes)
    4 APPEND_RESPONSE   u8 ok, u64 match, u64 reject index, u64 hint, u64 round,
                        u64 life, u8 word (1 sure, 2 unsure, 3 waits)
    5 SNAPSHOT          u64 index, u64 term, u64 voters index, u64 voters term,
                        u64 total size, u32 CRC-32C of all, u64 offset, bytes
    6 SNAPSHOT_RESPONSE u64 index, u64 next offset
    7 TIMEOUT_NOW       (nothing)

Entries of an APPEND follow ``prev index`` without gaps, so their indexes are not sent. Messages of
another cluster are refused here; the core never sees them. Rules: RAFT 2 and 3.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from uuid import UUID

from paceline.errors import RemoteProtocolError
from paceline.types import NodeId
from paceline.values import dataclass
from paceline_node.controller.raft_types import Entry, EntryAt, EntryKind, MemberId


class VoteKind(enum.IntEnum):
    """PRE asks whether an election could be won; FORCED follows a leadership transfer and
    overrides the rule that a live leader's followers ignore candidates."""

    PRE = 0
    REAL = 1
    FORCED = 2


class Grant(enum.IntEnum):
    """An answer, and how far to trust it: a process whose leader has not been confirmed since it
    started may stand on a disk that went back in time (RAFT 2.6). WAITS: it started just now, and a
    voter that knows more may come back; UNSURE: it started a while ago."""

    REFUSED = 0
    SURE = 1
    UNSURE = 2
    WAITS = 3


@dataclass(frozen=True, slots=True)
class RaftMessage:
    """Base: who to whom, and the sender's term (a PRE vote carries the term it would have)."""

    sender: MemberId
    to: MemberId
    term: int


@dataclass(frozen=True, slots=True)
class VoteRequest(RaftMessage):
    """``last_index`` and ``last_term``: where the sender's log ends. ``voters_since``: the newest
    change of voters in it; ``is_committed``: and that is known to be committed. ``life`` tells the
    sender's process from earlier ones on the same disk."""

    kind: VoteKind
    last_index: int
    last_term: int
    voters_since: EntryAt
    is_committed: bool
    life: int


@dataclass(frozen=True, slots=True)
class VoteResponse(RaftMessage):
    """A granted PRE vote carries the request's term; a rejection the receiver's own. ``life`` tells
    the sender's process from earlier ones on the same disk. ``last_term`` and ``last_index`` are
    the end of its log, 0 where it may not lead; ``heard_term`` and ``heard_index`` that of the
    newest log of another voter that it has heard just now. ``candidate_life``: that of the request,
    for a vote that an earlier process asked for is none for this one."""

    kind: VoteKind
    grant: Grant
    life: int
    last_term: int
    last_index: int
    heard_term: int
    heard_index: int
    candidate_life: int


@dataclass(frozen=True, slots=True)
class Append(RaftMessage):
    """Entries behind (prev_index, prev_term); none = heartbeat. ``round`` numbers the leader's
    confirmations. ``sure_life``: the process of the receiver that may be sure from now on; 0:
    nothing is said. ``voters_since``: the newest change of voters in the sender's log."""

    prev_index: int
    prev_term: int
    commit: int
    round: int
    sure_life: int
    voters_since: EntryAt
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class AppendResponse(RaftMessage):
    """``ok``: the sender's log equals the leader's up to ``match`` and is on stable storage.
    Otherwise ``reject_index`` repeats the prev_index and ``hint`` is the sender's guess where the
    logs may agree. ``life`` tells the sender's process from earlier ones on the same disk; ``word``
    says how far to trust it."""

    ok: bool
    match: int
    reject_index: int
    hint: int
    round: int
    life: int
    word: Grant


@dataclass(frozen=True, slots=True)
class SnapshotChunk(RaftMessage):
    """Part of an encoded snapshot; (index, snapshot_term) name it, ``crc`` covers the whole.
    ``voters_since``: the newest change of voters in the sender's log."""

    index: int
    snapshot_term: int
    voters_since: EntryAt
    total: int
    crc: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SnapshotResponse(RaftMessage):
    """The receiver holds the first ``next_offset`` bytes (in memory: promises nothing)."""

    index: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class TimeoutNow(RaftMessage):
    """The leader hands over: campaign at once."""


class _Kind(enum.IntEnum):
    VOTE = 1
    VOTE_RESPONSE = 2
    APPEND = 3
    APPEND_RESPONSE = 4
    SNAPSHOT = 5
    SNAPSHOT_RESPONSE = 6
    TIMEOUT_NOW = 7


_HEAD = struct.Struct(">B16si16si16sQ")
_VOTE = struct.Struct(">BQQQQBQ")
_VOTE_RESPONSE = struct.Struct(">BBQQQQQQ")
_APPEND = struct.Struct(">QQQQQQQI")
_ENTRY = struct.Struct(">QBI")
_APPEND_RESPONSE = struct.Struct(">BQQQQQB")
_SNAPSHOT = struct.Struct(">QQQQQIQ")
_SNAPSHOT_RESPONSE = struct.Struct(">QQ")

Head = tuple[MemberId, MemberId, int]


def encode(message: RaftMessage, cluster_id: UUID) -> bytes:
    """The bytes of one message."""
    kind, body = _body(message)
    head = _HEAD.pack(kind, cluster_id.bytes, *message.sender, *message.to, message.term)
    return head + body


def _body(message: RaftMessage) -> tuple[_Kind, bytes]:
    match message:
        case Append():
            return _Kind.APPEND, _append_body(message)
        case AppendResponse(_, _, _, ok, match, reject_index, hint, round_, life, word):
            packed = _APPEND_RESPONSE.pack(ok, match, reject_index, hint, round_, life, word)
            return _Kind.APPEND_RESPONSE, packed
        case VoteRequest(_, _, _, kind, last_index, last_term, since, is_committed, life):
            return _Kind.VOTE, _VOTE.pack(kind, last_index, last_term, *since, is_committed, life)
        case VoteResponse():
            return _Kind.VOTE_RESPONSE, _vote_response_body(message)
        case SnapshotChunk(_, _, _, index, term, since, total, crc, offset, data):
            head = _SNAPSHOT.pack(index, term, *since, total, crc, offset)
            return _Kind.SNAPSHOT, head + data
        case SnapshotResponse(_, _, _, index, next_offset):
            return _Kind.SNAPSHOT_RESPONSE, _SNAPSHOT_RESPONSE.pack(index, next_offset)
        case TimeoutNow():
            return _Kind.TIMEOUT_NOW, b""
        case _:
            raise TypeError(f"no wire form for {type(message).__name__}")


def _vote_response_body(message: VoteResponse) -> bytes:
    return _VOTE_RESPONSE.pack(
        message.kind,
        message.grant,
        message.life,
        message.last_term,
        message.last_index,
        message.heard_term,
        message.heard_index,
        message.candidate_life,
    )


def _append_body(message: Append) -> bytes:
    parts = [
        _APPEND.pack(
            message.prev_index,
            message.prev_term,
            message.commit,
            message.round,
            message.sure_life,
            *message.voters_since,
            len(message.entries),
        )
    ]
    for entry in message.entries:
        parts.append(_ENTRY.pack(entry.term, entry.kind, len(entry.data)))
        parts.append(entry.data)
    return b"".join(parts)


def decode(data: bytes | memoryview, cluster_id: UUID) -> RaftMessage:
    """Inverse of :func:`encode`. Raises RemoteProtocolError for malformed bytes, unknown kinds
    and messages of another cluster."""
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise RemoteProtocolError(f"raft message of {len(view)} bytes is shorter than its head")
    kind, cluster, from_node, from_dir, to_node, to_dir, term = _HEAD.unpack_from(view)
    if cluster != cluster_id.bytes:
        raise RemoteProtocolError(
            f"raft message of cluster {UUID(bytes=cluster)}, not {cluster_id}"
        )
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise RemoteProtocolError(f"raft message of unknown kind {kind}")
    head = (MemberId(NodeId(from_node), from_dir), MemberId(NodeId(to_node), to_dir), term)
    try:
        return decoder(head, view[_HEAD.size :])
    except (struct.error, ValueError) as error:
        raise RemoteProtocolError(f"raft message of kind {kind}: {error}") from None


def _flag(value: int) -> bool:
    if value > 1:
        raise ValueError(f"{value} is no flag")
    return value == 1


def _decode_vote(head: Head, body: memoryview) -> RaftMessage:
    kind, last_index, last_term, at, term, is_committed, life = _VOTE.unpack(body)
    since = EntryAt(at, term)
    news = since, _flag(is_committed)
    return VoteRequest(*head, VoteKind(kind), last_index, last_term, *news, life)


def _decode_vote_response(head: Head, body: memoryview) -> RaftMessage:
    kind, grant, *rest = _VOTE_RESPONSE.unpack(body)
    return VoteResponse(*head, VoteKind(kind), Grant(grant), *rest)


def _decode_append(head: Head, body: memoryview) -> RaftMessage:
    fields = _APPEND.unpack_from(body)
    prev_index, prev_term, commit, round_, sure_life, *since, count = fields
    position = _APPEND.size
    if count * _ENTRY.size > len(body) - position:
        raise ValueError(f"{count} entries do not fit in {len(body)} bytes")
    entries = []
    for index in range(prev_index + 1, prev_index + 1 + count):
        term, kind, size = _ENTRY.unpack_from(body, position)
        position += _ENTRY.size
        if size > len(body) - position:
            raise ValueError(f"entry {index} of {size} bytes is cut off")
        data = bytes(body[position : position + size])
        entries.append(Entry(index, term, EntryKind(kind), data))
        position += size
    if position != len(body):
        raise ValueError(f"{len(body) - position} bytes behind the last entry")
    return Append(
        *head, prev_index, prev_term, commit, round_, sure_life, EntryAt(*since), tuple(entries)
    )


def _decode_append_response(head: Head, body: memoryview) -> RaftMessage:
    ok, match, reject_index, hint, round_, life, word = _APPEND_RESPONSE.unpack(body)
    if word == Grant.REFUSED:
        raise ValueError("an answer without a word")
    return AppendResponse(*head, _flag(ok), match, reject_index, hint, round_, life, Grant(word))


def _decode_snapshot(head: Head, body: memoryview) -> RaftMessage:
    index, term, *since, total, crc, offset = _SNAPSHOT.unpack_from(body)
    data = bytes(body[_SNAPSHOT.size :])
    if offset + len(data) > total:
        raise ValueError(f"chunk {offset}+{len(data)} lies beyond the total of {total}")
    return SnapshotChunk(*head, index, term, EntryAt(*since), total, crc, offset, data)


def _decode_snapshot_response(head: Head, body: memoryview) -> RaftMessage:
    index, next_offset = _SNAPSHOT_RESPONSE.unpack(body)
    return SnapshotResponse(*head, index, next_offset)


def _decode_timeout_now(head: Head, body: memoryview) -> RaftMessage:
    if len(body):
        raise ValueError(f"{len(body)} bytes too many")
    return TimeoutNow(*head)


_DECODERS: dict[int, Callable[[Head, memoryview], RaftMessage]] = {
    _Kind.VOTE: _decode_vote,
    _Kind.VOTE_RESPONSE: _decode_vote_response,
    _Kind.APPEND: _decode_append,
    _Kind.APPEND_RESPONSE: _decode_append_response,
    _Kind.SNAPSHOT: _decode_snapshot,
    _Kind.SNAPSHOT_RESPONSE: _decode_snapshot_response,
    _Kind.TIMEOUT_NOW: _decode_timeout_now,
}
