"""How large compaction left the segments that it wrote anew, and which is not that file.

A sealed segment may be as it was before a compaction: from a backup, or on a disk that lost the
rename. Every checksum in it holds, it begins and ends where it should, and what was deleted lies in
it again, while the tombstone that stood behind it may have gone. So do records of aborted
transactions whose markers have gone. Only its size tells: whoever drops a record writes another
number of bytes.

Ends are kept as well. A segment that has become the newest one again may have grown since, and one
that was cut may be cut elsewhere: then its size says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from paceline_node.storage.fingerprint import ForeignLog
from paceline_node.storage.log_segment import Segment


class Rewritten(NamedTuple):
    """A segment from ``base`` up to before ``end``, as compaction left it."""

    base: int
    end: int
    size_bytes: int


def of(segment: Segment) -> Rewritten:
    """How large it is now."""
    return Rewritten(segment.base_offset, segment.next_offset, segment.size)


def replaced(known: Iterable[Rewritten], new: Rewritten) -> tuple[Rewritten, ...]:
    """``new`` has taken the place of all in its range."""
    left = [each for each in known if not new.base <= each.base < new.end]
    return tuple(sorted([*left, new]))


def without(known: Iterable[Rewritten], base: int) -> tuple[Rewritten, ...]:
    """What is known but of the segment that begins at ``base``."""
    return tuple(each for each in known if each.base != base)


def still_there(known: Iterable[Rewritten], segments: Iterable[Segment]) -> tuple[Rewritten, ...]:
    """What is known of ``segments``; retention has deleted the others."""
    bases = {segment.base_offset for segment in segments}
    return tuple(each for each in known if each.base in bases)


def check(segments: Sequence[Segment], known: Iterable[Rewritten]) -> None:
    """Raise ForeignLog naming a segment that is whole and not of the size that compaction left. One
    with damage is refetched anyway."""
    sizes = {(each.base, each.end): each.size_bytes for each in known}
    for segment in segments[:-1]:
        size = sizes.get((segment.base_offset, segment.next_offset), segment.size)
        if segment.size != size and not segment.holes:
            raise ForeignLog(
                f"{segment.path()} has {segment.size} bytes, and compaction has left {size}: it is "
                "as it was some time ago"
            )


def pack(known: Iterable[Rewritten]) -> list[list[int]]:
    """For :func:`unpack`."""
    return [list(each) for each in known]


def unpack(rows: Any) -> tuple[Rewritten, ...]:
    """Raises ValueError, TypeError."""
    found = tuple(Rewritten(*row) for row in rows)
    if any(type(number) is not int for each in found for number in each):
        raise ValueError("rewritten segments with something else than numbers")
    return found
