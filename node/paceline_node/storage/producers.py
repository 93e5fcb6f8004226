"""What idempotent producers have written to one log (DESIGN 8).

Pure. The table is a function of the log: leader and followers build it from the same batches, so a
new leader knows every duplicate that its predecessor knew. Keys are (namespace, 16 bytes);
namespace 0 is v2's own producer id. The policy here is ``kafka``: the last five batches of a
producer are remembered, because no client keeps more than five in flight. Policy ``segment`` is
``byte_segment_state.py``'s, the policies of producers that number each record are
``sequenced_records.py``'s; their states lie in the same table.

A snapshot, as kept in ``producers-<offset>.snap`` (checkpoint.py frames it)::

    msgpack [producers, aborted], where aborted (``transaction_index.py``) is
        [[producer id, first offset, offset of the marker], ... by marker]
    and producers [[namespace, key (16 bytes), ...], ...], the rest by namespace:
        0     epoch, last timestamp (ms),
              [[first seq, last seq, base offset, last offset], ... oldest first, at most 5],
              last offset, first offset of the open transaction or -1, coordinator epoch or -1,
              how many sequences are known to be in the log (missing: those of the batches)
        1     epoch, last timestamp (ms), last offset, [[first, last number stored], ...]
        2, 3  level, last offset, last timestamp (ms) of a segment writer
        2 and a key of zeros: end position, start position, offset of the seal, last offset
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

import msgpack

from paceline.errors import InvalidProducerEpoch, OutOfOrderSequence
from paceline.values import dataclass
from paceline.wire.batch_header import (
    BatchExtension,
    BatchHeader,
    Buffer,
    PayloadKind,
    ProducerNamespace,
    read_extension,
)
from paceline.wire.end_marker import EndMarker, is_end_marker, read_end_marker
from paceline_node.storage import byte_segment_state, sequenced_records
from paceline_node.storage.byte_segment_state import SegmentMarks, WriterState
from paceline_node.storage.producer_evictions import Eviction, eviction_batch, read_eviction
from paceline_node.storage.producer_state import (
    WINDOW,
    Duplicate,
    ProducerKey,
    ProducerState,
    State,
    Written,
    check_sequence,
    is_stream,
    key_of,
    key_of_id,
    known_after,
    may_go,
    state_to_row,
)
from paceline_node.storage.sequenced_records import SequencedState
from paceline_node.storage.state_map import FrozenMap, StateMap, expiry_slice
from paceline_node.storage.transaction_index import AbortedTransaction, TransactionIndex

_JOURNAL = 8192
_MARKS = 3

Detail = BatchExtension | EndMarker | Eviction


class _Undo(NamedTuple):
    base_offset: int
    key: ProducerKey
    former: State | None


def read_detail(data: Buffer, position: int, header: BatchHeader) -> Detail | None:
    """What the table needs of a batch besides its header. Raises CorruptMessage."""
    if header.is_extended:
        extension = read_extension(data, position)
        return read_eviction(data, position, header, extension) or extension
    if is_end_marker(header):
        return read_end_marker(data, position)
    return None


@dataclass(frozen=True, slots=True)
class FrozenTable:
    """A table as it was when the log ended at ``offset``. ``open`` are its open transactions,
    ``aborted`` the aborted ones (:class:`TransactionIndex`), ``streams`` counts states that are
    never forgotten."""

    offset: int
    states: FrozenMap[State] = field(default_factory=FrozenMap)
    open: Mapping[int, int] = field(default_factory=dict)
    aborted: Sequence[AbortedTransaction] = ()
    streams: int = 0


class ProducerTable:
    """Producer states of one log."""

    def __init__(self, *, journal_batches: int = _JOURNAL) -> None:
        """``journal_batches``: how many updates can be undone without reading the log."""
        self._states: StateMap[State] = StateMap()
        self._journal: deque[_Undo] = deque(maxlen=journal_batches)
        self._marks: list[FrozenTable] = [FrozenTable(0)]
        self._undoable_from = 0  # updates at or above this offset are all in the journal
        self._changed_at = -1  # by the batch at this offset, the last one
        self._streams = 0
        self.transactions = TransactionIndex()

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[tuple[ProducerKey, State]]:
        return iter(self._states.items())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerTable):
            return NotImplemented
        return (
            self._states == other._states
            and self.transactions.aborted == other.transactions.aborted
        )

    __hash__ = None  # type: ignore[assignment]  # mutable

    @property
    def producer_count(self) -> int:
        """How many of the states are producers, which may be forgotten; event streams may not."""
        return len(self._states) - self._streams

    @property
    def stream_count(self) -> int:
        """How many of the states are event streams'."""
        return self._streams

    def state(self, key: ProducerKey) -> State | None:
        """What is known of any producer."""
        return self._states.get(key)

    def get(self, key: ProducerKey) -> ProducerState | None:
        """A producer of v2 batches."""
        state = self._states.get(key)
        return state if isinstance(state, ProducerState) else None

    def producer(self, producer_id: int) -> ProducerState | None:
        """As :meth:`get`, by the id in its batches."""
        return self.get(key_of_id(producer_id))

    def sequenced(self, key: ProducerKey) -> SequencedState | None:
        """A producer that numbers its records."""
        state = self._states.get(key)
        return state if isinstance(state, SequencedState) else None

    @property
    def marks(self) -> SegmentMarks:
        """The segment that the log holds; an empty one where it holds none."""
        state = self._states.get(byte_segment_state.MARKS_KEY)
        return state if isinstance(state, SegmentMarks) else byte_segment_state.EMPTY

    def writer(self, key: ProducerKey) -> WriterState | None:
        """A writer of the segment."""
        state = self._states.get(key)
        return state if isinstance(state, WriterState) else None

    def writers(self) -> Mapping[ProducerKey, WriterState]:
        """All writers of the segment."""
        return {key: state for key, state in self._states.items() if isinstance(state, WriterState)}

    def states_of(self, number: int) -> Iterator[tuple[ProducerKey, State]]:
        """The states of one slice of the keys (``state_map.py``)."""
        return self._states.items_of(number)

    @property
    def shard_count(self) -> int:
        """Pieces that the states lie in, one where there are few."""
        return self._states.shard_count

    def shard(self, number: int) -> Iterator[tuple[ProducerKey, State]]:
        """The states in one of them."""
        return self._states.shard(number)

    def eviction(self, keys: Sequence[ProducerKey], timestamp_ms: int) -> bytearray:
        """The record that forgets these producers, for the end of this log."""
        if self._states.get(byte_segment_state.MARKS_KEY) is None:
            return eviction_batch(keys, timestamp_ms)
        return eviction_batch(
            keys,
            timestamp_ms,
            namespace=ProducerNamespace.SEGMENT_SEED,
            base_position=self.marks.end_position,
        )

    def check(self, header: BatchHeader) -> Duplicate | None:
        """Judge a batch before the leader appends it.

        None: append it (also when it is not idempotent). Duplicate: answer those offsets. Raises
        InvalidProducerEpoch, OutOfOrderSequence or DuplicateSequence; nothing may be appended then.
        """
        key = key_of(header)
        if key is None:
            return None
        state = self.get(key)
        first = header.base_sequence
        if state is None:
            # What it wrote may have expired or gone with retention. Whatever it numbered before
            # this batch is not known to be stored, and is refused from here on.
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
        return check_sequence(header, state)

    def note(self, header: BatchHeader, detail: Detail | None, base_offset: int) -> None:
        """Note any batch at ``base_offset``; ``detail`` is what :func:`read_detail` gave for it."""
        if isinstance(detail, BatchExtension):
            self.update_extended(header, detail, base_offset)
        elif isinstance(detail, Eviction):
            self._evict(header, detail, base_offset)
        elif isinstance(detail, EndMarker):
            self.update_marker(header, detail, base_offset)
        else:
            self.update(header, base_offset)

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """Note a batch that was appended at ``base_offset``; never refuses (followers call it)."""
        key = key_of(header)
        if key is None:
            return
        former = self.get(key)
        last_offset = base_offset + header.last_offset_delta
        written = Written(header.base_sequence, header.last_sequence, base_offset, last_offset)
        if former is None or former.epoch != header.producer_epoch:
            window: tuple[Written, ...] = (written,)
        else:
            window = (*former.window[1 - WINDOW :], written)
        opened = -1 if former is None else former.open_offset
        if header.is_transactional and opened < 0:
            opened = base_offset
        coordinator = -1 if former is None else former.coordinator_epoch
        state = ProducerState(
            header.producer_epoch,
            header.max_timestamp,
            window,
            last_offset,
            opened,
            coordinator,
            known_after(former, header),
        )
        self._put(key, state, base_offset)

    def update_marker(self, header: BatchHeader, marker: EndMarker, base_offset: int) -> None:
        """Note an end marker at ``base_offset``: it ends the producer's transaction, if one is
        open, and may raise its epoch."""
        key = key_of_id(header.producer_id)
        former = self.get(key)
        window: tuple[Written, ...] = ()
        epoch, known = header.producer_epoch, 0
        if former is not None:
            if former.epoch >= epoch:
                epoch, window, known = former.epoch, former.window, former.known
            if former.is_open:
                self.transactions.ended(
                    header.producer_id, former.open_offset, base_offset, commits=marker.commits
                )
        self._put(
            key,
            ProducerState(
                epoch,
                header.max_timestamp,
                window,
                base_offset,
                coordinator_epoch=marker.coordinator_epoch,
                known=known,
            ),
            base_offset,
        )

    def update_extended(
        self, header: BatchHeader, extension: BatchExtension, base_offset: int
    ) -> None:
        """As :meth:`update`, for an extended batch."""
        if extension.namespace is ProducerNamespace.NONE:
            if extension.kind is PayloadKind.EXPIRE:
                states, cutoff = self._named(extension), extension.first_sequence
                self._forget(list(idle_before(states, cutoff)), base_offset)
            return
        if extension.namespace is ProducerNamespace.CURSUS:
            if extension.kind is PayloadKind.EXPIRE:
                states, cutoff = self._named(extension), extension.first_sequence
                self._forget(list(sequenced_records.silent(states, cutoff)), base_offset)
                return
            key = sequenced_records.table_key(extension.producer_key)
            known = self.sequenced(key)
            self._put(
                key, sequenced_records.after(known, header, extension, base_offset), base_offset
            )
        elif extension.namespace in byte_segment_state.DIALECTS:
            if extension.kind is PayloadKind.EXPIRE:
                states, cutoff = self._named(extension), extension.first_sequence
                self._forget(list(byte_segment_state.silent(states, cutoff)), base_offset)
            changes = byte_segment_state.changes(header, extension, base_offset, self.marks)
            for key, state in changes:
                self._put(key, state, base_offset)

    def _evict(self, header: BatchHeader, eviction: Eviction, base_offset: int) -> None:
        states = ((key, self._states.get(key)) for key in eviction.keys)
        self._forget([key for key, state in states if may_go(state)], base_offset)
        if eviction.extension.namespace in byte_segment_state.DIALECTS:
            for key, state in byte_segment_state.changes(
                header, eviction.extension, base_offset, self.marks
            ):
                self._put(key, state, base_offset)

    def _named(self, extension: BatchExtension) -> Iterable[tuple[ProducerKey, State]]:
        """Whom a record that forgets producers looks at: one slice of them, or all."""
        number = expiry_slice(extension.producer_key)
        return self._states.items() if number is None else self._states.items_of(number)

    def _forget(self, keys: Iterable[ProducerKey], base_offset: int) -> None:
        for key in keys:
            self._put(key, None, base_offset)

    def _put(self, key: ProducerKey, state: State | None, base_offset: int) -> None:
        """Change one state (None: forget it) in a way that can be undone."""
        if len(self._journal) == self._journal.maxlen:
            self._undoable_from = self._journal[0].base_offset + 1
        self._journal.append(_Undo(base_offset, key, self._states.get(key)))
        self._set(key, state)
        self._changed_at = base_offset

    def _set(self, key: ProducerKey, state: State | None) -> None:
        if key[0] == ProducerNamespace.CURSUS:
            self._streams += is_stream(state) - is_stream(self._states.get(key))
        if state is None:
            self._states.remove(key)
        else:
            self._states.put(key, state)
        if key[0] == 0:
            producer_id = int.from_bytes(key[1], "big")
            if isinstance(state, ProducerState) and state.is_open:
                self.transactions.open[producer_id] = state.open_offset
            else:
                self.transactions.open.pop(producer_id, None)

    def take(self, key: ProducerKey, state: State | None) -> None:
        """Know this of one from elsewhere, not from a batch (None: it is not there)."""
        self._set(key, state)

    def freeze(self, offset: int) -> FrozenTable:
        """The table as it is now, ``offset`` being the log's end."""
        index = self.transactions
        aborted = tuple(index.aborted)
        return FrozenTable(offset, self._states.freeze(), dict(index.open), aborted, self._streams)

    def mark(self, frozen: FrozenTable) -> None:
        """Keep ``frozen``, this table as it is at the log's end, for :meth:`truncate`."""
        floor, *others = self._marks
        self._marks = [floor, *others[1 - _MARKS :], frozen]

    @property
    def floor(self) -> FrozenTable:
        """The oldest mark."""
        return self._marks[0]

    def marked_within(self, start: int, end: int) -> FrozenTable | None:
        """The newest mark of ``start..end``, both included."""
        return next((each for each in reversed(self._marks) if start <= each.offset <= end), None)

    def as_of(self, offset: int) -> FrozenTable:
        """The states as they were when the log ended at ``offset``; of the newest mark before it
        where too much has changed since."""
        if not self._can_undo(offset):
            return self.marked_within(0, offset) or self.floor
        states = StateMap(self._states.freeze())
        for undo in reversed(self._journal):
            if undo.base_offset < offset:
                break
            if undo.former is None:
                states.remove(undo.key)
            else:
                states.put(undo.key, undo.former)
        return FrozenTable(offset, states.freeze())

    def set_floor(self, floor: FrozenTable) -> None:
        """Let truncations go back to ``floor``, at most."""
        self._marks = [floor, *(mark for mark in self._marks if mark.offset > floor.offset)]

    def forget_below(self, offset: int) -> None:
        """The log begins at ``offset``: no truncation goes further back."""
        while len(self._marks) > 1 and self._marks[1].offset <= offset:
            del self._marks[0]
        self.transactions.forget_below(offset)

    def known_before(self, offset: int) -> int:
        """What :meth:`truncate` would return."""
        if self._can_undo(offset):
            return offset
        floor, *others = self._marks
        return max((mark.offset for mark in others if mark.offset <= offset), default=floor.offset)

    def _can_undo(self, offset: int) -> bool:
        return offset >= self._undoable_from or self._changed_at < offset

    def truncate(self, offset: int) -> int:
        """Forget batches at or above ``offset``, which must not lie below the oldest mark.

        Returns the offset from which the caller must feed the log's batches to :meth:`update`
        again, up to ``offset``; ``offset`` itself when nothing is missing, which is usual.
        """
        floor, *others = self._marks
        self._marks = [floor, *(mark for mark in others if mark.offset <= offset)]
        self.transactions.truncate(offset)
        if self._can_undo(offset):
            while self._journal and self._journal[-1].base_offset >= offset:
                undo = self._journal.pop()
                self._set(undo.key, undo.former)
            return offset
        marks = self._marks
        start = marks[-1].offset
        # Markers from ``start`` on are fed again.
        aborted = [each for each in self.transactions.aborted if each.last_offset < start]
        self._go_back(marks[-1], aborted)
        self._marks = marks
        return start

    def _go_back(self, to: FrozenTable, aborted: Sequence[AbortedTransaction]) -> None:
        self._journal.clear()
        self._undoable_from = to.offset
        self._changed_at = to.offset - 1
        self.transactions.clear()
        self.transactions.open.update(to.open)
        self.transactions.replace_aborted(aborted)
        self._states = StateMap(to.states)
        self._streams = to.streams

    def clear(self, offset: int = 0) -> None:
        """Start anew for a log that is rebuilt from ``offset``."""
        self.load(FrozenTable(offset))

    def load(self, frozen: FrozenTable, floor: FrozenTable | None = None) -> None:
        """Replace the table by what it was at an offset: the log is rebuilt from there.
        Truncations may go back to ``floor``."""
        self._go_back(frozen, frozen.aborted)
        self._marks = [frozen]
        if floor is not None and floor.offset < frozen.offset:
            self._marks = [floor, frozen]

    def snapshot(self) -> bytes:
        """The whole table; equal tables give equal bytes."""
        rows = [state_to_row(key, state) for key, state in sorted(self._states.items())]
        packed: bytes = msgpack.packb([rows, [list(each) for each in self.transactions.aborted]])
        return packed


def idle_before(states: Iterable[tuple[ProducerKey, State]], offset: int) -> Iterator[ProducerKey]:
    """Producers of v2 batches that have written nothing at or above ``offset`` and have no
    transaction open."""
    for key, state in states:
        if isinstance(state, ProducerState) and state.last_offset < offset and not state.is_open:
            yield key
