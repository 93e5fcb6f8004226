"""What is committed of one segment, taken in batch by batch."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.wire.batch_header import BatchHeader, PayloadKind, ProducerNamespace, read_extension
from paceline_node.storage.byte_positions import batch_at
from paceline_node.storage.byte_segment_state import WriterState
from paceline_node.storage.log import Log
from paceline_node.storage.producers import ProducerTable
from paceline_node.storage.verify_byte_segment import SegmentCheck

Stored = tuple[bytes, int, bytes]
"""A writer, its level before, and what it has stored."""


class SegmentContent:
    """A segment up to log offset ``end``: the bytes of all its Events from position 0 on, also of
    those that were given up since, and every writer's level."""

    def __init__(self) -> None:
        self.end = 0
        self.data = bytearray()
        self.start = 0
        self.is_sealed = False
        self.writers: dict[bytes, WriterState] = {}
        self.starts: dict[int, int] = {}
        """Base offsets of data batches by the position at which they begin."""
        self._check = SegmentCheck(is_whole=True)

    def level(self, writer: bytes) -> int:
        """Bytes that are committed of a writer."""
        state = self.writers.get(writer)
        return 0 if state is None else state.end

    def take(self, header: BatchHeader, batch: memoryview) -> Iterator[Stored]:
        """Take in the next batch; what it stores for a writer, if it does. Raises ValueError with
        what is wrong with it (I1, I2, I3, I8)."""
        for problem in self._check.batch(header, batch):
            raise ValueError(f"offset {header.base_offset}: {problem}")
        extension = read_extension(batch)
        assert extension.namespace == ProducerNamespace.SEGMENT_SEED, extension
        self.end = header.next_offset
        match extension.kind:
            case PayloadKind.EVENTS:
                payload = bytes(batch[header.payload_start :])
                self.starts[len(self.data)] = header.base_offset
                self.data += payload
                writer = extension.producer_key
                self.writers[writer] = WriterState(
                    extension.last_sequence, header.last_offset, header.max_timestamp
                )
                yield writer, extension.first_sequence, payload
            case PayloadKind.SEAL:
                self.is_sealed = True
            case PayloadKind.TRUNCATE:
                self.start = max(self.start, extension.first_sequence)

    def differs(self, table: ProducerTable) -> str | None:
        """How the table of a replica that ends at ``end`` differs (I9), if it does."""
        marks = table.marks
        held = (marks.end_position, marks.start_position, marks.is_sealed)
        expected = (len(self.data), self.start, self.is_sealed)
        if held != expected:
            return f"its segment is {held}, committed is {expected}"
        writers = {key: state for (_, key), state in table.writers().items()}
        if writers != self.writers:
            return f"its writers are {writers}, committed are {self.writers}"
        return None


def misplaced(content: SegmentContent, log: Log) -> str | None:
    """The first batch that a log finds elsewhere, by its position, than it lies (I9)."""
    for position, offset in content.starts.items():
        if offset < log.log_start_offset or offset >= log.log_end_offset:
            continue
        found = batch_at(log, position)
        if found is None or (found.start, found.base_offset) != (position, offset):
            return f"byte {position} is found in {found}, it lies at offset {offset}"
    return None
