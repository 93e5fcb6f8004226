"""What idempotent producers have written to one log (spec replication 4.4, SETTLED B9).

Pure. The table is a function of the log: leader and followers build it from the same batches, so a
new leader knows every duplicate that its predecessor knew. Keys are (namespace, 16 bytes);
namespace 0 is v2's own producer id. The policy here is ``kafka``: the last five batches of a
producer are remembered, because no client keeps more than five in flight. Policy ``segment`` is
``segment_state.py``'s, the policies of producers that number each record are ``numbered.py``'s;
their states lie in the same table.

A snapshot, as kept in ``producers-<offset>.snap`` (checkpoint.py frames it)::

    msgpack [[namespace, key (16 bytes), ...], ...], the rest by namespace:
        0     epoch, last timestamp (ms),
              [[first seq, last seq, base offset, last offset], ... oldest first, at most 5]
        1     epoch, last timestamp (ms), last offset, [[first, last number stored], ...]
        2, 3  level, last offset, last timestamp (ms) of a segment writer
        2 and a key of zeros: end position, start position, offset of the seal, last offset
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack

from paceline.errors import (
    CorruptMessage,
    DuplicateSequence,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    UnknownProducerId,
)
from paceline.wire.batch_header import BatchExtension, BatchHeader, PayloadKind, ProducerNamespace
from paceline_node.storage import numbered, segment_state
from paceline_node.storage.numbered import NumberedState
from paceline_node.storage.segment_state import SegmentMarks, WriterState

WINDOW = 5
"""Batches remembered per producer. Fewer than a client has in flight would turn its retries into
out-of-order errors (redpanda issues 3038 and 3039)."""

_JOURNAL = 8192
_MARKS = 3
_SEQUENCES = 2**31

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
    """One producer; immutable, so that undoing an update is putting the former one back."""

    epoch: int
    last_timestamp: int
    window: tuple[Written, ...]

    @property
    def last_sequence(self) -> int:
        return self.window[-1].last_sequence

    @property
    def last_offset(self) -> int:
        return self.window[-1].last_offset


State = ProducerState | NumberedState | WriterState | SegmentMarks


class _Undo(NamedTuple):
    base_offset: int
    key: ProducerKey
    former: State | None


@dataclass(frozen=True, slots=True)
class ProducerPolicy:
    """``strict`` refuses an unknown producer whose first sequence is not 0."""

    strict: bool = False


def key_of(header: BatchHeader) -> ProducerKey | None:
    """The key of the batch's producer; None when the batch is not idempotent."""
    if header.producer_id < 0 or header.base_sequence < 0:
        return None
    return (0, header.producer_id.to_bytes(16, "big"))


class ProducerTable:
    """Producer states of one log."""

    def __init__(
        self, policy: ProducerPolicy | None = None, *, journal_batches: int = _JOURNAL
    ) -> None:
        """``journal_batches``: how many updates can be undone without reading the log."""
        self._policy = policy or ProducerPolicy()
        self._states: dict[ProducerKey, State] = {}
        self._journal: deque[_Undo] = deque(maxlen=journal_batches)
        self._marks: list[tuple[int, dict[ProducerKey, State]]] = []
        self._undoable_from = 0  # updates at or above this offset are all in the journal
        self._forgot_at = -1  # where a producer was forgotten last: nothing in the table shows it

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[tuple[ProducerKey, State]]:
        return iter(self._states.items())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerTable):
            return NotImplemented
        return self._states == other._states

    __hash__ = None  # type: ignore[assignment]  # mutable

    def get(self, key: ProducerKey) -> ProducerState | None:
        """A producer of v2 batches."""
        state = self._states.get(key)
        return state if isinstance(state, ProducerState) else None

    def numbered(self, key: ProducerKey) -> NumberedState | None:
        """A producer that numbers its records."""
        state = self._states.get(key)
        return state if isinstance(state, NumberedState) else None

    @property
    def marks(self) -> SegmentMarks:
        """The segment that the log holds; an empty one where it holds none."""
        state = self._states.get(segment_state.MARKS_KEY)
        return state if isinstance(state, SegmentMarks) else segment_state.EMPTY

    def writer(self, key: ProducerKey) -> WriterState | None:
        """A writer of the segment."""
        state = self._states.get(key)
        return state if isinstance(state, WriterState) else None

    def writers(self) -> Mapping[ProducerKey, WriterState]:
        """All writers of the segment."""
        return {key: state for key, state in self._states.items() if isinstance(state, WriterState)}

    def check(self, header: BatchHeader) -> Duplicate | None:
        """Judge a batch before the leader appends it.

        None: append it (also when it is not idempotent). Duplicate: answer those offsets. Raises
        InvalidProducerEpoch, OutOfOrderSequence, DuplicateSequence or UnknownProducerId; nothing
        may be appended then.
        """
        key = key_of(header)
        if key is None:
            return None
        state = self.get(key)
        first = header.base_sequence
        if state is None:
            if self._policy.strict and first != 0:
                raise UnknownProducerId(
                    f"producer {header.producer_id} is not known, its sequence begins at {first}"
                )
            return None
        if header.producer_epoch < state.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id}: epoch {header.producer_epoch}, "
                f"newest is {state.epoch}"
            )
        if header.producer_epoch > state.epoch:
            if first != 0:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id}: new epoch {header.producer_epoch} begins "
                    f"with sequence {first}, expected 0"
                )
            return None
        return _check_sequence(header, state)

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """Note a batch that was appended at ``base_offset``; never refuses (followers call it)."""
        key = key_of(header)
        if key is None:
            return
        former = self.get(key)
        written = Written(
            header.base_sequence,
            header.last_sequence,
            base_offset,
            base_offset + header.last_offset_delta,
        )
        if former is None or former.epoch != header.producer_epoch:
            window: tuple[Written, ...] = (written,)
        else:
            window = (*former.window[1 - WINDOW :], written)
        state = ProducerState(header.producer_epoch, header.max_timestamp, window)
        self._put(key, state, base_offset)

    def update_extended(
        self, header: BatchHeader, extension: BatchExtension, base_offset: int
    ) -> None:
        """As :meth:`update`, for an extended batch."""
        if extension.namespace is ProducerNamespace.CURSUS:
            if extension.kind is PayloadKind.EXPIRE:
                for key in list(numbered.silent(self._states.items(), extension.first_sequence)):
                    self._put(key, None, base_offset)
                return
            key = numbered.table_key(extension.producer_key)
            known = self.numbered(key)
            self._put(key, numbered.after(known, header, extension, base_offset), base_offset)
        elif extension.namespace in segment_state.DIALECTS:
            changes = segment_state.changes(header, extension, base_offset, self._states)
            for key, state in list(changes):
                self._put(key, state, base_offset)

    def _put(self, key: ProducerKey, state: State | None, base_offset: int) -> None:
        """Change one state (None: forget it) in a way that can be undone."""
        if len(self._journal) == self._journal.maxlen:
            self._undoable_from = self._journal[0].base_offset + 1
        self._journal.append(_Undo(base_offset, key, self._states.get(key)))
        if state is None:
            self._states.pop(key, None)
            self._forgot_at = base_offset
        else:
            self._states[key] = state

    def mark(self, offset: int) -> None:
        """Keep a copy of the table as it is at ``offset``, the log's end, for :meth:`truncate`."""
        self._marks = [*self._marks[1 - _MARKS :], (offset, dict(self._states))]

    def truncate(self, offset: int) -> int:
        """Forget batches at or above ``offset``.

        Returns the offset from which the caller must feed the log's batches to :meth:`update`
        again, up to ``offset``; ``offset`` itself when nothing is missing, which is usual.
        """
        self._marks = [mark for mark in self._marks if mark[0] <= offset]
        if offset >= self._undoable_from:
            while self._journal and self._journal[-1].base_offset >= offset:
                undo = self._journal.pop()
                if undo.former is None:
                    self._states.pop(undo.key, None)
                else:
                    self._states[undo.key] = undo.former
            return offset
        if self._forgot_at < offset and all(
            state.last_offset < offset for state in self._states.values()
        ):
            return offset
        marks = self._marks
        start, states = marks[-1] if marks else (0, {})
        self.clear(start)
        self._states = dict(states)
        self._marks = marks
        return start

    def clear(self, offset: int = 0) -> None:
        """Start anew for a log that is rebuilt from ``offset``."""
        self._states = {}
        self._marks = []
        self._journal.clear()
        self._undoable_from = offset
        self._forgot_at = -1

    def snapshot(self) -> bytes:
        """The whole table; equal tables give equal bytes."""
        packed: bytes = msgpack.packb(
            [_state_to_row(key, state) for key, state in sorted(self._states.items())]
        )
        return packed

    def restore(self, data: bytes, offset: int) -> None:
        """Replace the table by a snapshot taken at ``offset``. Raises CorruptMessage."""
        try:
            rows: Any = msgpack.unpackb(data)
            states = dict(_row_to_state(row) for row in rows)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise CorruptMessage(f"producer snapshot at offset {offset}: {error}") from None
        self.clear(offset)
        self._states = states
        self.mark(offset)


def _check_sequence(header: BatchHeader, state: ProducerState) -> Duplicate | None:
    """The same producer and epoch: a duplicate, the next batch, or an error."""
    first = header.base_sequence
    last = header.last_sequence
    for written in state.window:
        if written.first_sequence == first and written.last_sequence == last:
            return Duplicate(written.base_offset, written.last_offset)
    expected = (state.last_sequence + 1) % _SEQUENCES
    if first == expected:
        return None
    # Serial arithmetic: sequences wrap, so "not above the last" means less than half a turn back.
    behind = (state.last_sequence - first) % _SEQUENCES
    place = f"producer {header.producer_id} epoch {header.producer_epoch}"
    if behind < _SEQUENCES // 2:
        raise DuplicateSequence(
            f"{place}: sequences {first}..{last} lie before {expected} and are remembered no more"
        )
    raise OutOfOrderSequence(f"{place}: sequence {first}, expected {expected}")


def _state_to_row(key: ProducerKey, state: State) -> list[Any]:
    if isinstance(state, ProducerState):
        return [*key, state.epoch, state.last_timestamp, [list(entry) for entry in state.window]]
    if isinstance(state, NumberedState):
        return [*key, *numbered.to_row(state)]
    return [*key, *state]


def _row_to_state(row: Any) -> tuple[ProducerKey, State]:
    namespace, key, *rest = row
    if type(key) is not bytes or len(key) != 16:
        raise ValueError("a row without a 16-byte key")
    if namespace in segment_state.DIALECTS:
        return segment_state.row_to_state(namespace, key, rest)
    if namespace == ProducerNamespace.CURSUS:
        return (namespace, key), numbered.from_row(rest)
    epoch, last_timestamp, window = rest
    if not 1 <= len(window) <= WINDOW:
        raise ValueError("a row without a window")
    numbers = [namespace, epoch, last_timestamp, *(number for entry in window for number in entry)]
    if any(type(number) is not int for number in numbers):
        raise ValueError("a row with something else than numbers")
    entries = tuple(Written(*entry) for entry in window)
    return (namespace, key), ProducerState(epoch, last_timestamp, entries)
