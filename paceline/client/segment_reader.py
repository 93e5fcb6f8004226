"""Reading a segment by byte position, across moves of its leader."""

from __future__ import annotations

from collections.abc import AsyncIterator

from paceline.client.segment_link import SegmentLink
from paceline.client.segment_writer import Connecting
from paceline.wire.segment import messages as m
from paceline.wire.segment.events import event_data
from paceline.wire.segment.messages import HEADER, HEADER_BYTES

DEFAULT_READ_BYTES = 1024 * 1024


class SegmentReader:
    """Made by :meth:`Segments.reader`; for one task. Only committed bytes are ever seen."""

    def __init__(
        self, connecting: Connecting, name: str, position: int, *, timeout_s: float
    ) -> None:
        self.name = name
        self.position = position
        """The next byte that :meth:`read` returns."""
        self.at_end = False
        """Whether the segment is sealed and its last byte was read."""
        self.at_tail = False
        """Whether the last read reached what was committed then."""
        self._connecting = connecting
        self._timeout_s = timeout_s
        self._rest = b""

    @property
    def event_position(self) -> int:
        """Where the next Event of :meth:`events` begins."""
        return self.position - len(self._rest)

    async def read(self, max_bytes: int = DEFAULT_READ_BYTES) -> bytes:
        """The next bytes, at least one where there are some; empty when none came for a few
        seconds at the tail, and at the end (:attr:`at_end`).

        Raises UnknownTopicOrPartition, OffsetOutOfRange (truncated, or beyond the end),
        RequestTimedOut when no leader answers. Cancel-safe: nothing is skipped.
        """
        data = b""

        async def use(link: SegmentLink) -> None:
            nonlocal data
            request = m.ReadSegment(self.name, self.position, max_bytes)
            data = await self._read_with(link, request)

        await self._connecting.serve(self.name, use, timeout_s=self._timeout_s)
        return data

    async def _read_with(self, link: SegmentLink, request: m.ReadSegment) -> bytes:
        reply = await link.ask(request, m.SegmentRead, timeout_s=self._timeout_s)
        parts = [reply.data]
        while not (reply.flags or sum(map(len, parts)) >= request.suggested_length):
            reply = await link.more(m.SegmentRead, timeout_s=self._timeout_s)
            parts.append(reply.data)
        data = b"".join(parts)
        self.position += len(data)
        self.at_end = reply.flags == m.ReadFlags.END
        self.at_tail = reply.flags == m.ReadFlags.TAIL
        return data

    async def events(self) -> list[bytes]:
        """The data of the next whole Events; empty as :meth:`read`. For a position at which an
        Event begins. Raises CorruptMessage where no Event is, and as :meth:`read`."""
        data = self._rest + await self.read()
        whole = _whole(data)
        self._rest = data[whole:]
        while not whole and self._rest and not self.at_end:
            # An Event larger than one read.
            more = await self.read()
            if not more:
                return []
            self._rest += more
            whole = _whole(self._rest)
            data, self._rest = self._rest, self._rest[whole:]
        return event_data(data[:whole])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Events one by one, waiting at the tail for more, until the segment is sealed."""
        while not self.at_end:
            for event in await self.events():
                yield event


def _whole(data: bytes) -> int:
    """How many of the bytes are whole Events."""
    at = 0
    while len(data) - at >= HEADER_BYTES:
        _, length = HEADER.unpack_from(data, at)
        if at + HEADER_BYTES + length > len(data):
            break
        at += HEADER_BYTES + length
    return at
