"""What a log knows of one producer: v2's own kind, and how each kind is kept in a snapshot.

Pure. The table of all of them is ``producers.py``'s.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

from paceline.errors import DuplicateSequence, OutOfOrderSequence
from paceline.wire.batch_header import BatchHeader, ProducerNamespace
from paceline_node.storage import byte_segment_state, sequenced_records
from paceline_node.storage.byte_segment_state import SegmentMarks, WriterState
from paceline_node.storage.sequenced_records import STREAM_EPOCH, SequencedState

WINDOW = 5
"""Batches remembered per producer. Fewer than a client has in flight would turn its retries into
out-of-order errors (redpanda issues 3038 and 3039)."""

_ROW_WITHOUT_KNOWN = 3
_SEQUENCES = 2**31
_KNOWN_MAX = _SEQUENCES // 2
"""Sequences wrap: more than half a turn back cannot be told from ahead."""

ProducerKey = tuple[int, bytes]


class Written(NamedTuple):
    """One remembered batch; sequences and offsets inclusive."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class Duplicate(NamedTuple):
    """The batch is in the log already, at these offsets (inclusive); do not append it again."""

    base_offset: int
    last_offset: int


class ProducerState(NamedTuple):
    """One producer; immutable, so that undoing an update is putting the former one back.

    ``window`` is empty when a marker has raised the epoch since. ``last_offset`` is that of its
    last batch or marker. ``open_offset`` is where its open transaction begins, -1 for none;
    ``coordinator_epoch`` that of its last marker. ``known`` counts the sequences, up to the newest
    one and without a gap, that are in the log for certain: those below may never have been.
    """

    epoch: int
    last_timestamp: int
    window: tuple[Written, ...]
    last_offset: int
    open_offset: int = -1
    coordinator_epoch: int = -1
    known: int = 0

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open."""
        return self.open_offset >= 0


State = ProducerState | SequencedState | WriterState | SegmentMarks


def key_of(header: BatchHeader) -> ProducerKey | None:
    """The key of the batch's producer; None when the batch is not idempotent."""
    if header.producer_id < 0 or header.base_sequence < 0:
        return None
    return key_of_id(header.producer_id)


def key_of_id(producer_id: int) -> ProducerKey:
    """The key of a producer of v2 batches."""
    return (0, producer_id.to_bytes(16, "big"))


def is_stream(state: State | None) -> bool:
    """Whether a state is an event stream's."""
    return isinstance(state, SequencedState) and state.epoch == STREAM_EPOCH


def may_go(state: State | None) -> TypeGuard[ProducerState | SequencedState | WriterState]:
    """Whether a state is a producer's, which may be forgotten: it has no transaction open."""
    if isinstance(state, ProducerState):
        return not state.is_open
    return isinstance(state, WriterState) or (
        isinstance(state, SequencedState) and state.epoch != STREAM_EPOCH
    )


def known_after(former: ProducerState | None, header: BatchHeader) -> int:
    """How many sequences are in the log for certain behind one more batch."""
    count = header.last_offset_delta + 1
    if former is None or not former.window or former.epoch != header.producer_epoch:
        return count
    if header.base_sequence != (former.window[-1].last_sequence + 1) % _SEQUENCES:
        return count
    return min(former.known + count, _KNOWN_MAX)


def check_sequence(header: BatchHeader, state: ProducerState) -> Duplicate | None:
    """The same producer and epoch: a duplicate, the next batch, or an error.

    DuplicateSequence is an acknowledgement to clients, so it is said only of a batch all of whose
    records are in the log for certain.
    """
    first = header.base_sequence
    last = header.last_sequence
    for written in state.window:
        if written.first_sequence == first and written.last_sequence == last:
            return Duplicate(written.base_offset, written.last_offset)
    last_sequence = state.window[-1].last_sequence if state.window else -1
    expected = (last_sequence + 1) % _SEQUENCES
    if first == expected:
        return None
    place = f"producer {header.producer_id} epoch {header.producer_epoch}"
    if (last_sequence - last) % _SEQUENCES <= (last_sequence - first) % _SEQUENCES < state.known:
        raise DuplicateSequence(
            f"{place}: sequences {first}..{last} lie before {expected} and are stored already"
        )
    raise OutOfOrderSequence(
        f"{place}: sequences {first}..{last}, expected {expected}; the log holds the "
        f"{state.known} before that for certain, and knows of no others"
    )


def state_to_row(key: ProducerKey, state: State) -> list[Any]:
    if isinstance(state, ProducerState):
        window = [list(entry) for entry in state.window]
        return [*key, state.epoch, state.last_timestamp, window, *state[3:]]
    if isinstance(state, SequencedState):
        return [*key, *sequenced_records.to_row(state)]
    return [*key, *state]


def row_to_state(row: Any) -> tuple[ProducerKey, State]:
    namespace, key, *rest = row
    if type(key) is not bytes or len(key) != 16:
        raise ValueError("a row without a 16-byte key")
    if namespace in byte_segment_state.DIALECTS:
        return byte_segment_state.row_to_state(namespace, key, rest)
    if namespace == ProducerNamespace.CURSUS:
        return (namespace, key), sequenced_records.from_row(rest)
    epoch, last_timestamp, window, *after = rest
    if namespace != 0 or len(window) > WINDOW:
        raise ValueError("a row of no known producer")
    numbers_of([epoch, last_timestamp], 2)
    entries = tuple(Written(*numbers_of(entry, 4)) for entry in window)
    if len(after) == _ROW_WITHOUT_KNOWN:
        after = [*after, in_a_row(entries)]
    return (0, key), ProducerState(epoch, last_timestamp, entries, *numbers_of(after, 4))


def sequences_between(older: Written, newer: Written) -> int:
    """How many sequences further the newer of two batches ends."""
    return (newer.last_sequence - older.last_sequence) % _SEQUENCES


def in_a_row(window: tuple[Written, ...]) -> int:
    """Sequences that the last batches hold without a gap."""
    known = 0
    following: int | None = None
    for written in reversed(window):
        if following is not None and (written.last_sequence + 1) % _SEQUENCES != following:
            break
        known += (written.last_sequence - written.first_sequence) % _SEQUENCES + 1
        following = written.first_sequence
    return known


def numbers_of(values: Any, count: int) -> Any:
    if len(values) != count or any(type(value) is not int for value in values):
        raise ValueError(f"{values}: expected {count} numbers")
    return values
