"""Torn or rotten: what a bad batch at or above the durable mark may be taken for.

Pure. Below the mark everything was synced once, so what is bad there is damage. Above it nobody may
have been told of a record; but the mark may be older than the last sync. How the process before
ended says what can have happened to bytes that were not synced:

* an orderly stop syncs everything: nothing may be bad;
* a kill leaves the page cache as it was: at most the last batch is cut short, inside its write;
* a power cut keeps any of the pages that were not synced. Those that it did not keep were never
  written: the file ends before them, or they read as zeros, since every file system takes care not
  to show what else lay there. A batch in which no sector is missing was not torn.

What the ending does not explain is rot. It is kept and reported like damage below the mark: the
replica counts for nothing until it has the records from a peer.
"""

from __future__ import annotations

import enum

SECTOR_BYTES = 512
_TELLING_BYTES = 16
"""A stretch of zeros at the edge of what is looked at must be longer than this: a batch may well
begin or end with some zeros, but never with so many."""


class Ending(enum.Enum):
    """How the process before this one left its files."""

    CLEAN = "clean"
    """It stopped in an orderly way."""
    KILLED = "killed"
    """It died, and the same kernel still runs: what it wrote is there, synced or not."""
    POWER_CUT = "power cut"
    """Anything else: what it had not synced may be there in part."""

    @classmethod
    def of(cls, *, clean: bool, same_boot: bool) -> Ending:
        if clean:
            return cls.CLEAN
        return cls.KILLED if same_boot else cls.POWER_CUT


class Tail(enum.Enum):
    """What may be cut off at or above the mark."""

    NOTHING = "nothing"
    SHORT = "short"
    """A last batch that the file ends in."""
    UNWRITTEN = "unwritten"
    """That, and where sectors were never written, with all that lies behind."""
    ALL = "all"
    """Anything: the mark is exact, so nobody was told of what lies above it."""

    @classmethod
    def after(cls, ending: Ending, *, mark_exact: bool) -> Tail:
        if ending is Ending.CLEAN:
            return cls.NOTHING
        if ending is Ending.POWER_CUT:
            return cls.UNWRITTEN
        return cls.ALL if mark_exact else cls.SHORT

    @property
    def may_lack_segments(self) -> bool:
        """Whether the end of one segment may be missing although the next one is there."""
        return self in (Tail.UNWRITTEN, Tail.ALL)


def has_unwritten_sector(data: bytes, position: int) -> bool:
    """Whether any sector of ``data``, which lies at byte ``position`` of a file, reads as zeros."""
    at = 0
    while at < len(data):
        end = min(at + SECTOR_BYTES - (position + at) % SECTOR_BYTES, len(data))
        if end - at >= _TELLING_BYTES and not any(data[at:end]):
            return True
        at = end
    return False
