"""STREAM: records pushed as they become readable, keepalives between them (DESIGN 5.4).

A stream has its own task beside the one that reads the connection. It never is cancelled while a
frame is on its way, so frames stay whole; ending it means asking it to end.
"""

from __future__ import annotations

from typing import NamedTuple

import trio

from paceline.errors import PacelineError
from paceline.values import dataclass
from paceline.wire.cursus.errors import CursusError
from paceline.wire.cursus.frames import KEEPALIVE
from paceline.wire.cursus.replies import stream_close, stream_out_of_range
from paceline.wire.cursus.requests import ReadPlace
from paceline_node.listeners.cursus.errors import as_cursus
from paceline_node.listeners.cursus.record_frames import OutOfRange, ReadSource
from paceline_node.listeners.cursus.session import FrameSink, text

STOPPED = "stopped"
REMOVED = "removed"
REPLACED = "replaced"
ERROR = "error"
_SILENT = ""


class StreamKey(NamedTuple):
    """What only one stream of a group reads at a time."""

    topic: str
    partition: int
    group: str


class CursusStream:
    """One reader's stream."""

    def __init__(
        self,
        place: ReadPlace,
        source: ReadSource,
        sink: FrameSink,
        offset: int,
        *,
        keepalive_s: float,
    ) -> None:
        self.place = place
        self.offset = offset
        self._source = source
        self._sink = sink
        self._keepalive_s = keepalive_s
        self._end: str | None = None
        self._waiting = trio.CancelScope()

    @property
    def key(self) -> StreamKey | None:
        """None for a reader without a group: nobody replaces it."""
        if self.place.group is None:
            return None
        return StreamKey(self.place.topic, self.place.partition, self.place.group)

    def stop(self, reason: str) -> None:
        """End the stream with a CLOSE frame of this reason; the first reason counts."""
        if self._end is None:
            self._end = reason
            self._waiting.cancel("the stream was asked to end")

    def abandon(self) -> None:
        """End the stream without a word: its client has sent another frame."""
        self.stop(_SILENT)

    async def run(self) -> None:
        """Push until asked to end, or until the log ends it. Raises trio's errors of a broken
        connection."""
        last_words = ""
        while self._end is None:
            try:
                frame = await self._next_frame()
            except OutOfRange as error:
                last_words = stream_out_of_range(
                    error.requested, error.earliest, error.latest, self.offset
                )
                self.stop(ERROR)
            except CursusError as error:
                self.stop(REMOVED if error.word == "topic_not_found" else ERROR)
            except PacelineError as error:
                gone = as_cursus(error, "STREAM").word == "topic_not_found"
                self.stop(REMOVED if gone else ERROR)
            else:
                if frame is not None:
                    await self._sink.send_streamed(frame)
        if self._end != _SILENT:
            close = last_words or stream_close(self._end, self.offset)
            await self._sink.send(text(close))

    async def _next_frame(self) -> bytes | None:
        with trio.CancelScope() as self._waiting:
            if self._end is not None:
                return None
            found = await self._source.read(self.offset, self._keepalive_s)
            self.offset = found.next_offset
            if not found.records:
                return KEEPALIVE
            return len(found.body).to_bytes(4, "big") + found.body
        return None


@dataclass(slots=True)
class StreamTable:
    """The streams of this node: how many, and those that a newer one may replace."""

    _by_key: dict[StreamKey, list[CursusStream]]
    count: int = 0

    @classmethod
    def empty(cls) -> StreamTable:
        return cls({})

    def enter(self, stream: CursusStream) -> None:
        """Note a stream; those of the same member, or of an older generation, end."""
        self.count += 1
        key = stream.key
        if key is None:
            return
        others = self._by_key.setdefault(key, [])
        for other in others:
            if _replaces(stream.place, other.place):
                other.stop(REPLACED)
        others.append(stream)

    def leave(self, stream: CursusStream) -> None:
        """Forget a stream that has ended."""
        self.count -= 1
        key = stream.key
        if key is None:
            return
        others = self._by_key[key]
        others.remove(stream)
        if not others:
            del self._by_key[key]


def _replaces(new: ReadPlace, old: ReadPlace) -> bool:
    if new.member is not None and new.member == old.member:
        return True
    return (new.generation or 0) > (old.generation or 0)
