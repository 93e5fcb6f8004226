"""The files of one log in their order: adding, replacing and removing them.

What belongs here: names in the log's directory and open handles. Offsets, epochs and producers
that go with them are ``log.py``'s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from paceline_node.env import Disk, File
from paceline_node.storage.durability import Durability
from paceline_node.storage.segment import LOG_SUFFIX, Segment, segment_name


class SegmentFiles:
    """Segments, oldest first, never none; the last one is active. All methods raise OSError."""

    def __init__(
        self, disk: Disk, directory: str, segments: list[Segment], durability: Durability
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._durability = durability
        self._segments = segments
        # Unlinked, but a fetch may still hold a slice of them: closed at the second call of
        # close_retired from now, so at least one pause between two calls later.
        self._retired: list[File] = []
        self._closing: list[File] = []
        self._announced: str | None = None

    @property
    def all(self) -> Sequence[Segment]:
        return self._segments

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    def at(self, offset: int) -> Segment:
        """The segment that holds ``offset``; the first one for offsets before it."""
        found = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
        return self._segments[max(0, found)]

    def add(self, base_offset: int) -> Segment:
        """Begin a new, empty active segment."""
        file = self._disk.create(f"{self._directory}/{segment_name(base_offset)}{LOG_SUFFIX}")
        self._durability.touch(file)
        self._durability.touch_directory()
        self._segments.append(Segment(self._directory, base_offset, file))
        return self.active

    def cut_back(self, base_offset: int) -> None:
        """Remove segments that begin at or above ``base_offset``, newest first; one must remain."""
        self._drop_announced()
        while len(self._segments) > 1 and self.active.base_offset >= base_offset:
            self._remove(self._segments.pop())

    def begin_anew(self, base_offset: int) -> None:
        """Remove all segments, newest first, and begin an empty one: a new file even under an old
        name, so that old and new bytes never share one."""
        self._drop_announced()
        while self._segments:
            self._remove(self._segments.pop())
        self.add(base_offset)

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
