"""The files of one log in their order: adding, replacing and removing them.

What belongs here: names in the log's directory and open handles. Offsets, epochs and producers
that go with them are ``log.py``'s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial

from paceline.errors import CorruptMessage
from paceline_node.env import Disk, File, is_full
from paceline_node.storage.checkpoint import TEMPORARY
from paceline_node.storage.durability import Durability
from paceline_node.storage.log_segment import LOG_SUFFIX, Boundary, Segment, segment_name
from paceline_node.storage.obstructing_entries import make_way


class SegmentFiles:
    """Segments, oldest first, never none; the last one is active. All methods raise OSError."""

    def __init__(
        self, disk: Disk, directory: str, segments: list[Segment], durability: Durability
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._durability = durability
        self._segments = segments
        self._on_unreadable: Callable[[int, CorruptMessage], None] | None = None
        for segment in segments:
            self._watch(segment)
        # Unlinked, but a fetch may still hold a slice of them: closed at the second call of
        # close_retired from now, so at least one pause between two calls later.
        self._retired: list[File] = []
        self._closing: list[File] = []
        self._announced: str | None = None
        self._is_nameless = False  # the active file, which is empty then

    @property
    def all(self) -> Sequence[Segment]:
        return self._segments

    @property
    def bases(self) -> Sequence[int]:
        return [segment.base_offset for segment in self._segments]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    def at(self, offset: int) -> Segment:
        """The segment that holds ``offset``; the first one for offsets before it."""
        found = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
        return self._segments[max(0, found)]

    def whole_from(self, start: int) -> int:
        """From where on nothing is damaged that lies wholly below ``start``."""
        return max(self._segments[0].base_offset, self.given_up_to(start))

    def given_up_to(self, start: int) -> int:
        """The end of the last hole that lies wholly below ``start``; -1: there is none."""
        found = -1
        for segment in self._segments:
            if segment.base_offset >= start:
                break
            for hole in segment.holes:
                found = max(found, hole.end) if hole.end <= start else found
        return found

    @property
    def last_hole_end(self) -> int:
        """The end of the last hole; -1: there is none."""
        ends = (segment.holes[-1].end for segment in reversed(self._segments) if segment.holes)
        return next(ends, -1)

    def add(self, base_offset: int) -> Segment:
        """Begin a new, empty active segment."""
        return self._begin(base_offset, self._disk.create(self._path(base_offset)))

    def _path(self, base_offset: int) -> str:
        return f"{self._directory}/{segment_name(base_offset)}{LOG_SUFFIX}"

    def _begin(self, base_offset: int, file: File) -> Segment:
        self._durability.begun(file, base_offset)
        self._segments.append(Segment(self._directory, base_offset, file))
        self._watch(self.active)
        return self.active

    def _watch(self, segment: Segment) -> None:
        segment.file.on_unreadable = partial(self.tell, segment.base_offset)

    def watch_reads(self, on_unreadable: Callable[[int, CorruptMessage], None]) -> None:
        """Call ``on_unreadable(base offset of the segment, error)`` whenever the disk cannot give
        bytes to whoever reads them; it must be quick and must not read."""
        self._on_unreadable = on_unreadable

    def tell(self, base_offset: int, error: CorruptMessage) -> None:
        """The segment that begins there is to be read as a whole."""
        if self._on_unreadable is not None:
            self._on_unreadable(base_offset, error)

    def prepare(self, boundary: Boundary) -> File:
        """What :meth:`cut_back` to ``boundary`` will write to: a new file where nothing is left,
        under a name that recovery removes. Whoever lacks the room for it has lost nothing."""
        if boundary.offset > self._segments[0].base_offset:
            file = self.at(boundary.offset - 1).file
            file.fileno()  # it may rest, and find no descriptor
            return file
        return self.prepare_anew(boundary.offset)

    def prepare_anew(self, base_offset: int) -> File:
        """The file of :meth:`begin_anew`, as :meth:`prepare` makes it."""
        self.name_active()
        path = self._path(base_offset) + TEMPORARY
        make_way(self._disk, path)
        return self._disk.create(path)

    def cut_back(self, boundary: Boundary, prepared: File) -> None:
        """Remove what lies at or above ``boundary``, newest first; ``prepared`` for that."""
        if boundary.offset == self._segments[0].base_offset:
            self.begin_anew(boundary.offset, prepared)
            return
        self._drop_announced()
        if self.active.base_offset >= boundary.offset:
            self._durability.newest_removed()
        while self.active.base_offset >= boundary.offset:
            self._remove(self._segments.pop())
        active = self.active
        if active.next_offset > boundary.offset:
            active.truncate(boundary)
            active.remove_indexes(self._disk)
            self._durability.shortened(active.file)
            self._durability.touch_directory()

    def begin_anew(self, base_offset: int, prepared: File) -> None:
        """Remove all segments, newest first, and begin an empty one: a new file even under an old
        name, so that old and new bytes never share one. Without room for its name it goes by the
        one it has, and :meth:`name_active` is to be tried before anything is written to it."""
        self._drop_announced()
        while self._segments:
            self._remove(self._segments.pop())
        self._begin(base_offset, prepared)
        self._is_nameless = True
        try:
            self.name_active()
        except OSError as error:
            if not is_full(error):
                raise

    def name_active(self) -> None:
        """Give the active file the name that recovery knows, where that found no room."""
        if self._is_nameless:
            path = self._path(self.active.base_offset)
            self._disk.rename(path + TEMPORARY, path)
            self._durability.touch_directory()
            self._is_nameless = False

    def remove_oldest(self, count: int) -> None:
        """Remove ``count`` segments, oldest first; the active one is never among them."""
        for _ in range(count):
            self._remove(self._segments.pop(0))

    def announce(self, path: str) -> None:
        """The file at ``path`` is about to be put in the place of segments, and recovery would do
        it too; whoever cuts the log removes it first."""
        self._announced = path

    def _drop_announced(self) -> None:
        if self._announced is not None:
            self._disk.remove(self._announced)
            self._announced = None

    def swap(self, old: Sequence[Segment], new: Segment, path: str) -> None:
        """Put ``new``, written under ``path``, in the place of ``old``: segments in a row, of which
        the first one has its base offset."""
        first, *others = old
        at = self._segments.index(first)
        assert self._segments[at : at + len(old)] == list(old), f"{old} are not in a row"
        first.remove_indexes(self._disk)  # they must not be taken for the new file's
        self._disk.rename(path, first.path())
        self._announced = None
        self._segments[at] = new
        self._watch(new)
        self._durability.removed(first.file)
        self._retired.append(first.file)
        for segment in others:
            self._segments.remove(segment)
            self._remove(segment)

    def close_retired(self) -> None:
        """Close the files of segments removed before the last call."""
        for file in self._closing:
            file.close()
        self._closing, self._retired = self._retired, []

    def close(self) -> None:
        """Close everything; idempotent."""
        self.close_retired()
        self.close_retired()
        for segment in self._segments:
            segment.file.close()

    def _remove(self, segment: Segment) -> None:
        segment.unlink(self._disk)
        self._durability.removed(segment.file)
        self._retired.append(segment.file)
