"""Checking what a segment's log adds up to (DESIGN 8.3), as far as a log alone can tell.

I1 to I3 and I8 are about batches. What clients are told is taken from the batches, or from the
snapshots of writers' levels, which outlive them: so a snapshot must say what the batches before it
add up to, or a level would be told that nothing stands behind (I5), or fall (I6). Levels without a
gap (I2) over whole Events (I3) are all that I7 asks of a log; that the bytes are their writer's,
and that none is sent before it is committed (I4), the simulator judges. I9 is comparing replicas.
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.errors import CorruptMessage
from paceline.wire.batch_header import (
    BatchHeader,
    PayloadKind,
    ProducerNamespace,
    read_extension,
)
from paceline.wire.segment.events import walk_events
from paceline_node.storage.byte_segment_state import (
    DATA_KINDS,
    DIALECTS,
    NO_WRITER,
    StateKey,
    level_of,
)
from paceline_node.storage.producers import ProducerTable


class SegmentCheck:
    """Fed with every batch of one log, in order. A log that retention has cut begins somewhere:
    the first batch and the first of each writer are then taken as they are."""

    def __init__(self, *, is_whole: bool) -> None:
        self._end: int | None = 0 if is_whole else None
        self._is_whole = is_whole
        self.has_batches = False
        """Whether there is a segment at all."""
        self._levels: dict[StateKey, int] = {}
        self._sealed_at = -1

    def batch(self, header: BatchHeader, data: memoryview) -> Iterator[str]:
        """What is wrong with the extended batch that fills ``data``."""
        try:
            extension = read_extension(data)
        except CorruptMessage as error:
            yield str(error)
            return
        if extension.namespace not in DIALECTS:
            return
        self.has_batches = True
        start = extension.base_position
        if self._end is not None and start != self._end:
            yield f"byte position {start}, expected {self._end} (I1)"
        payload = data[header.payload_start :]
        if extension.kind in DATA_KINDS:
            if self._sealed_at >= 0:
                yield f"data behind the seal at offset {self._sealed_at} (I8)"
            yield from self._data(header, extension.kind, extension.event_count, payload)
            self._end = start + len(payload)
        else:
            self._end = start
        if extension.kind is PayloadKind.SEAL and self._sealed_at < 0:
            self._sealed_at = header.base_offset
        if extension.kind is PayloadKind.EXPIRE:
            # Which writers are gone depends on timestamps; none of them is held to its level.
            self._levels.clear()
            self._is_whole = False
        if extension.kind in DATA_KINDS and extension.producer_key != NO_WRITER:
            key = (extension.namespace, extension.producer_key)
            first = level_of(extension.namespace, None) if self._is_whole else None
            before = self._levels.get(key, first)
            yield from self._writer(key, before, extension.first_sequence)
            if (
                extension.namespace == ProducerNamespace.SEGMENT_SEED
                and extension.last_sequence - extension.first_sequence != len(payload)
            ):
                yield (
                    f"writer {key[1].hex()} goes from {extension.first_sequence} to "
                    f"{extension.last_sequence} with {len(payload)} bytes (I2)"
                )
            self._levels[key] = extension.last_sequence

    def snapshot(self, table: ProducerTable) -> Iterator[str]:
        """What is wrong with a snapshot that was taken behind the last batch."""
        marks, writers = table.marks, table.writers()
        if (marks.end_position, marks.is_sealed) != (self._end, self._sealed_at >= 0):
            yield f"the snapshot's segment is {marks}, it ends at byte {self._end} (I5)"
        for key, level in self._levels.items():
            state = writers.get(key)
            if state is None:
                yield f"the snapshot does not know writer {key[1].hex()} at {level} (I6)"
            elif state.end != level:
                yield f"the snapshot has writer {key[1].hex()} at {state.end}, not {level} (I5)"
        if self._is_whole and (strangers := writers.keys() - self._levels.keys()):
            names = sorted(key.hex() for _, key in strangers)
            yield f"the snapshot knows writers that have stored nothing: {', '.join(names)} (I5)"

    def _writer(self, key: StateKey, before: int | None, start: int) -> Iterator[str]:
        if before is not None and start != before:
            yield f"writer {key[1].hex()} goes on at {start}, its level is {before} (I2)"

    def _data(
        self, header: BatchHeader, kind: PayloadKind, count: int, payload: memoryview
    ) -> Iterator[str]:
        if kind is PayloadKind.RAW:
            found = 1
        else:
            try:
                found = sum(1 for _ in walk_events(payload))
            except CorruptMessage as error:
                yield f"{error} (I3)"
                return
        if not found == count == header.record_count == header.last_offset_delta + 1:
            yield (
                f"{found} Events, the extension says {count}, the header {header.record_count} "
                f"in {header.last_offset_delta + 1} offsets (I3)"
            )
