"""Events as they are stored: back to back, each behind its eight-byte header (DESIGN 3.1).

::

    +-------------+----------------+----------------+--------
    | 00 00 00 00 | u32 length     | ``length`` bytes | the next one
    +-------------+----------------+----------------+--------

These bytes are the segment: positions count them, headers included, and readers find boundaries
by walking them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paceline.errors import CorruptMessage, LocalProtocolError
from paceline.wire.batch_header import Buffer
from paceline.wire.segment.messages import HEADER, HEADER_BYTES, MAX_PAYLOAD_BYTES, Event

MAX_SENT_EVENT_BYTES = MAX_PAYLOAD_BYTES - HEADER_BYTES
"""Largest Event data that our own clients send: real Pravega counts the header."""


def frame_events(events: Iterable[bytes]) -> bytes:
    """The stored form of ``events``. Raises LocalProtocolError when one is too large."""
    parts: list[bytes] = []
    for data in events:
        if len(data) > MAX_SENT_EVENT_BYTES:
            raise LocalProtocolError(
                f"an Event of {len(data)} bytes, at most {MAX_SENT_EVENT_BYTES}"
            )
        parts.append(HEADER.pack(Event.TYPE, len(data)))
        parts.append(data)
    return b"".join(parts)


def walk_events(run: Buffer) -> Iterator[tuple[int, int]]:
    """(start, end) of every stored Event in ``run``, header included.

    Raises CorruptMessage where the bytes are not whole Events.
    """
    at = 0
    size = len(run)
    while at < size:
        if size - at < HEADER_BYTES:
            raise CorruptMessage(f"{size - at} bytes after the last Event at byte {at}")
        kind, length = HEADER.unpack_from(run, at)
        end = at + HEADER_BYTES + length
        if kind != Event.TYPE or end > size:
            raise CorruptMessage(
                f"byte {at} announces type {kind} with {length} bytes, "
                f"expected an Event within {size - at}"
            )
        yield at, end
        at = end


def event_data(run: Buffer) -> list[bytes]:
    """The data of every Event in ``run``. Raises CorruptMessage."""
    return [bytes(run[start + HEADER_BYTES : end]) for start, end in walk_events(run)]
