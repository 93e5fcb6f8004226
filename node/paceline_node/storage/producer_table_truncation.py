"""The producer table of a log that was cut back, or whose records were replaced: what it knew of
what is gone is undone, and what it had to forget for that is read from the log again.

Where the log cannot be read, the table stays short. Nobody may rely on it then (``known_to`` of
its transactions says how far it goes), and the unreadable records are damage like any other: they
are fetched from the leader, and the table is rebuilt over them (``scrubbing.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.errors import CorruptMessage
from paceline_node.storage import producer_file
from paceline_node.storage.damage import DamagedRange
from paceline_node.storage.log_segment import Boundary, Hole, Segment
from paceline_node.storage.producers import ProducerTable

Lost = tuple[Segment, list[tuple[Hole, str]]]
"""All holes of one segment, with their reasons."""


def prepare(table: ProducerTable, segments: Sequence[Segment], end: int) -> None:
    """See that :func:`forget_from` will be able to read what it has to: files may rest, and find no
    descriptor then. Raises OSError."""
    start = table.known_before(end)
    for segment in segments:
        if segment.base_offset < end and segment.next_offset > start:
            segment.file.fileno()


def forget_from(
    table: ProducerTable, segments: Sequence[Segment], known: Sequence[DamagedRange], end: int
) -> Lost | None:
    """Let ``table`` follow the log, ``segments``, which ends at ``end`` now. ``known`` is damage
    that was known before; the result is that of a segment in which more was found."""
    start = table.truncate(end)
    index = table.transactions
    if index.known_to is not None:  # it is being rebuilt: that goes on from there
        index.known_to = min(index.known_to, start)
        return None
    reached = Boundary(-1, start)
    try:
        for boundary in producer_file.replaying(segments, table, start, end):
            reached = boundary
    except CorruptMessage as error:
        index.known_to = table.truncate(start)
        return _lost_behind(reached, segments, known, str(error))
    return None


def rebuild_from(table: ProducerTable, offset: int) -> None:
    """The records from ``offset`` on are others now, or were never seen: ``table`` is to be fed
    from ``known_to`` on."""
    start = table.truncate(offset)
    known_to = table.transactions.known_to
    table.transactions.known_to = start if known_to is None else min(start, known_to)


def _lost_behind(
    reached: Boundary, segments: Sequence[Segment], known: Sequence[DamagedRange], reason: str
) -> Lost:
    """The batch behind ``reached`` cannot be read: its segment is lost from there to its end."""
    segment = next(each for each in segments if each.next_offset > reached.offset)
    start = Boundary(0, segment.base_offset)
    if reached.position >= 0 and reached.offset > segment.base_offset:
        start = reached
    reasons = {each.start: each.reason for each in known}
    before = [hole for hole in segment.holes if hole.start < start.offset]
    lost = Hole(start.offset, segment.next_offset, start.position, segment.size)
    return segment, [*((hole, reasons.get(hole.start, reason)) for hole in before), (lost, reason)]
