"""What a log of the segment protocol adds up to: its ends, and each writer's level (DESIGN 8.3).

Pure; ``producers.py`` keeps these states in the one producer table, with its snapshots, marks and
undo. A *segment* here is the protocol's: a partition whose batches hold runs of bytes, each at a
byte position. Not to be mixed up with ``log_segment.py``, a file of a log.

Of an extended batch (``paceline/wire/batch_header.py``) these logs use::

    kind            1 Events, 5 raw bytes | 2 seal | 3 truncate | 4 expire
    namespace, key  whose dialect, which writer (connection id); a key of zeros: no writer
    first, last     kinds 1 and 5: the writer's level before and after; kind 3: the new first
                    position, kind 4: the cut-off time in ms, both in ``first``
    base position   the segment's length before the batch, for every kind: so positions never
                    fall from batch to batch, and any batch tells where the segment ends
    event count     Events; record offsets that the batch uses

A truncation's start and an expiry's time lie in ``first``, not in the base position: so a position
is found by searching the batches themselves, without an index of its own (``byte_positions.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from paceline.errors import OutOfOrderSequence, SegmentSealed
from paceline.wire.batch_header import (
    BatchExtension,
    BatchHeader,
    PayloadKind,
    ProducerNamespace,
)
from paceline.wire.segment.pravega_messages import NO_EVENT

StateKey = tuple[int, bytes]
NO_WRITER = bytes(16)
MARKS_KEY: StateKey = (ProducerNamespace.SEGMENT_SEED, NO_WRITER)
"""Where the table keeps the segment's own marks: the writer that nobody is."""
DIALECTS = frozenset((ProducerNamespace.SEGMENT_SEED, ProducerNamespace.SEGMENT_PRAVEGA))
DATA_KINDS = frozenset((PayloadKind.EVENTS, PayloadKind.RAW))


class WriterState(NamedTuple):
    """One writer: its level behind its last batch, that batch's last offset and timestamp."""

    end: int
    last_offset: int
    last_timestamp: int


class SegmentMarks(NamedTuple):
    """The segment: positions ``start_position..end_position`` as the log has them (retention may
    have removed more), where it was sealed (-1: it was not), and its last batch."""

    end_position: int = 0
    start_position: int = 0
    sealed_at: int = -1
    last_offset: int = -1

    @property
    def is_sealed(self) -> bool:
        return self.sealed_at >= 0


EMPTY = SegmentMarks()


def writer_key(namespace: ProducerNamespace, writer: bytes) -> StateKey:
    """Where the table keeps a writer."""
    return (namespace, writer)


def level_of(namespace: int, writer: WriterState | None) -> int:
    """A writer's level, also of one that has stored nothing: bytes in the seed dialect, the number
    of the last Event in Pravega's."""
    if writer is not None:
        return writer.end
    return NO_EVENT if namespace == ProducerNamespace.SEGMENT_PRAVEGA else 0


def require_next(marks: SegmentMarks, level: int, start: int) -> None:
    """The compare-and-set of an append: the writer's ``level`` must be ``start``.

    Raises SegmentSealed, and OutOfOrderSequence when another connection of the same writer has
    appended meanwhile.
    """
    if marks.is_sealed:
        raise SegmentSealed(f"the segment was sealed at offset {marks.sealed_at}")
    if level != start:
        raise OutOfOrderSequence(f"the writer's level is {level}, the append begins at {start}")


def changes(
    header: BatchHeader,
    extension: BatchExtension,
    base_offset: int,
    marks: SegmentMarks,
) -> Iterator[tuple[StateKey, WriterState | SegmentMarks]]:
    """What a batch at ``base_offset`` changes, behind ``marks``. Never refuses. Whom a batch of
    kind EXPIRE removes is :func:`silent`'s to say."""
    last_offset = base_offset + header.last_offset_delta
    marks = marks._replace(end_position=extension.base_position, last_offset=last_offset)
    match extension.kind:
        case PayloadKind.EVENTS | PayloadKind.RAW:
            payload = header.size_bytes - header.payload_start
            marks = marks._replace(end_position=extension.base_position + payload)
            if extension.producer_key != NO_WRITER:
                yield (
                    writer_key(extension.namespace, extension.producer_key),
                    WriterState(extension.last_sequence, last_offset, header.max_timestamp),
                )
        case PayloadKind.SEAL:
            marks = marks._replace(sealed_at=base_offset)
        case PayloadKind.TRUNCATE:
            start = max(marks.start_position, extension.first_sequence)
            marks = marks._replace(start_position=start)
    yield MARKS_KEY, marks


def silent(states: Iterable[tuple[StateKey, object]], cutoff_ms: int) -> Iterator[StateKey]:
    """Writers whose last batch is older than ``cutoff_ms``."""
    for key, state in states:
        if isinstance(state, WriterState) and state.last_timestamp < cutoff_ms:
            yield key


def row_to_state(
    namespace: int, key: bytes, numbers: list[int]
) -> tuple[StateKey, WriterState | SegmentMarks]:
    """A snapshot's row. Raises ValueError or TypeError for what is none."""
    if any(type(number) is not int for number in numbers):
        raise ValueError("a row with something else than numbers")
    if (namespace, key) == MARKS_KEY:
        return MARKS_KEY, SegmentMarks(*numbers)
    return (namespace, key), WriterState(*numbers)
