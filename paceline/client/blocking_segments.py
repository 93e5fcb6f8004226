"""Blocking segments; programs import them from ``paceline.client.blocking``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from paceline.client import segment_reader as trio_reader
from paceline.client import segment_writer as trio_writer
from paceline.client import segments as trio_segments
from paceline.client.blocking_facade import Facade, Open, blocking_twin
from paceline.client.loop_thread import Held, LoopThread
from paceline.client.segment_writer import SegmentWriterSettings


class SegmentWriter(Open[trio_writer.SegmentWriter]):
    """As :class:`paceline.client.SegmentWriter`; ``close`` or ``with`` flushes it."""

    append = blocking_twin(trio_writer.SegmentWriter.append)
    append_all = blocking_twin(trio_writer.SegmentWriter.append_all)
    flush = blocking_twin(trio_writer.SegmentWriter.flush)
    ready = blocking_twin(trio_writer.SegmentWriter.ready)

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def writer(self) -> UUID:
        return self._inner.writer

    @property
    def level(self) -> int:
        """As :attr:`paceline.client.SegmentWriter.level`."""
        return self._inner.level

    @property
    def position(self) -> int:
        """As :attr:`paceline.client.SegmentWriter.position`."""
        return self._inner.position


class SegmentReader(Facade[trio_reader.SegmentReader]):
    """As :class:`paceline.client.SegmentReader`, for one thread at a time."""

    read = blocking_twin(trio_reader.SegmentReader.read)
    events = blocking_twin(trio_reader.SegmentReader.events)

    def __iter__(self) -> Iterator[bytes]:
        """Events one by one, waiting at the tail for more, until the segment is sealed."""
        while not self.at_end:
            yield from self.events()

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def position(self) -> int:
        """The next byte that :meth:`read` returns."""
        return self._inner.position

    @property
    def event_position(self) -> int:
        """As :attr:`paceline.client.SegmentReader.event_position`."""
        return self._inner.event_position

    @property
    def at_end(self) -> bool:
        """Whether the segment is sealed and its last byte was read."""
        return self._inner.at_end

    @property
    def at_tail(self) -> bool:
        """Whether the last read reached what was committed then."""
        return self._inner.at_tail


class Segments(Open[trio_segments.Segments]):
    """As :class:`paceline.client.Segments`. Its writers are closed before it, or with the client.

    ``opened`` is told what the client is to close."""

    create = blocking_twin(trio_segments.Segments.create)
    delete = blocking_twin(trio_segments.Segments.delete)
    seal = blocking_twin(trio_segments.Segments.seal)
    truncate = blocking_twin(trio_segments.Segments.truncate)
    info = blocking_twin(trio_segments.Segments.info)

    def __init__(
        self,
        loop: LoopThread,
        held: Held[trio_segments.Segments],
        opened: Callable[[Held[Any]], None],
    ) -> None:
        super().__init__(loop, held)
        self._opened = opened

    def writer(
        self,
        name: str,
        *,
        writer: UUID | None = None,
        settings: SegmentWriterSettings | None = None,
    ) -> SegmentWriter:
        """As :meth:`paceline.client.Segments.writer`."""
        held = self._loop.enter(self._inner.writer(name, writer=writer, settings=settings))
        self._opened(held)
        return SegmentWriter(self._loop, held)

    def reader(self, name: str, position: int = 0) -> SegmentReader:
        """As :meth:`paceline.client.Segments.reader`."""
        return SegmentReader(self._loop, self._inner.reader(name, position))
