"""Past what compaction emptied, for one answer of Kafka's FETCH (DESIGN 6.2).

A compacted segment keeps its offsets by empty batches (storage/DESIGN 9.1). Kafka's clients take
gaps for granted and need none of them. librdkafka takes an answer without a record for one that was
too small: it asks for twice as much each time, and then tells its user of an error. So where a
range holds nothing else, that behind it is answered, and where nothing is behind it, or too much,
a marker that leads there.
"""

from __future__ import annotations

from paceline.errors import PacelineError
from paceline.wire.end_marker import build_passing_marker
from paceline_node.listeners.kafka.batch_conversion import Converter, Made, Reader
from paceline_node.loop_turns import Turns
from paceline_node.net.transport import FilePart
from paceline_node.services.records.fetch import ReadResult, size_of

_RANGES = 32
"""As many are passed over for one answer."""


class ReadOn:
    """``room_bytes``: what the answer may hold beside the ranges that were found at first."""

    def __init__(self, converter: Converter, turns: Turns, room_bytes: int) -> None:
        self._converter = converter
        self._turns = turns
        self._room_bytes = room_bytes
        self._left = _RANGES

    async def batches(
        self, found: ReadResult, max_bytes: int, read: Reader
    ) -> tuple[ReadResult, FilePart | bytes]:
        """What to send of ``found``, or of a range of at most ``max_bytes`` behind it, and of which
        it is. Raises CorruptMessage of the first; what is wrong with others, and what ``read``
        raises, is told to a client that comes there."""
        made = await self._made(found)
        while made.emptied is not None:
            sent = found, bytes(build_passing_marker(made.emptied))
            if not self._left:
                return sent
            self._left -= 1
            await self._turns.next()
            room = size_of(found) + self._room_bytes
            try:
                found = read(made.next_offset, max(1, min(max_bytes, room)))
                if found.slice is None or found.slice.size > room:
                    return sent
                made = await self._made(found)
            except PacelineError:
                return sent
            if not made.records and made.emptied is None:
                return sent  # it is to be made anew, and there is no room for that
            self._room_bytes = room - found.slice.size
        return found, made.records

    async def _made(self, found: ReadResult) -> Made:
        at = found.slice
        assert at is not None, "there is a range"
        return await self._converter.batches(
            FilePart(at.file, at.position, at.size), at.next_offset
        )
