"""``compaction.ckpt``: how far a log is compacted, and which replacement of segments is under way.

Framed as in ``checkpoint.py``; the payload is::

    msgpack [cleaned offset, earliest delete horizon in ms (-1: none), replacement or nil, rules,
             removals, number, rewritten]
    replacement: [[[base offset, bytes], ... the old segments], bytes, CRC-32C of the new file]
    rules: what was compacted: 1, records of transactions too. Without it they were passed over:
        values that tombstones delete may lie in them, so the log is looked at from its start again
    removals: [removed to, settled from, [[horizon, cleaned offset], ...], copy epoch, copied at],
        as in ``removed_tombstones.py``. Without them, or without the file, they are not known
    number: of this writing of the file, one more than the last
    rewritten: [[base offset, end, bytes], ...], as in ``compacted_sizes.py``; with a replacement
    under
        way as it will be. Without them no size is known

What a log lacks stands nowhere else, and a file may be gone, rotten, or as it was some time ago. So
there are two, equal ones: ``compaction-copy.ckpt`` is written first, and nothing is done that rests
on a state before both have it. The one with the higher number is believed.

A log that is cut below its cleaned offset has both renamed to ``compaction-cut.ckpt`` and
``compaction-copy-cut.ckpt``: only the removals in them are true from then on.

One new file may take the place of several segments, which no single rename can do. So the new file
is written and synced under ``<base>.log.cleaned``, then the replacement is noted here, durably, and
only then is the file renamed over the first segment and the others removed. Opening the log after a
crash does what is left of that, if it finds the new file under either name, whole. Otherwise the
old segments are all there, and it does nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace
from typing import Any, NamedTuple

import msgpack

from paceline.errors import CorruptMessage
from paceline.values import dataclass
from paceline.wire.checksum import crc32c
from paceline_node.bare_errors import bare
from paceline_node.env import Disk, is_full
from paceline_node.storage import checkpoint, compacted_sizes
from paceline_node.storage.compacted_sizes import Rewritten
from paceline_node.storage.file_owner import Owner
from paceline_node.storage.fingerprint import ForeignLog
from paceline_node.storage.log_file import LogFile, Unreadable, open_file
from paceline_node.storage.log_segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_name,
)
from paceline_node.storage.removed_tombstones import UNKNOWN, Removals

NAME = "compaction.ckpt"
COPY_NAME = "compaction-copy.ckpt"
CUT_NAME = "compaction-cut.ckpt"
CUT_COPY_NAME = "compaction-copy-cut.ckpt"
_CUTS = {COPY_NAME: CUT_COPY_NAME, NAME: CUT_NAME}
CLEANED = ".cleaned"
"""Suffix of a segment that a compaction is writing; recovery renames or removes it."""

_READ_BYTES = 1024 * 1024
_RULES = 1


@dataclass(frozen=True, slots=True)
class Replacement:
    """``old``: base offset and size of each segment that goes, ascending; ``size`` and ``crc``
    tell the new file, which begins at the first one's offset."""

    old: tuple[tuple[int, int], ...]
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class CompactionState:
    """``cleaned_offset``: below it no key occurs twice, as of the last compaction. ``horizon_ms``:
    when the first of its tombstones may go; -1: there is none. ``removals``: which have gone.
    ``rewritten``: how large it left what it wrote anew."""

    cleaned_offset: int = 0
    horizon_ms: int = -1
    replacement: Replacement | None = None
    removals: Removals = field(default_factory=Removals)
    rewritten: tuple[Rewritten, ...] = ()

    def is_cut_at(self, end: int) -> bool:
        """Whether a log that ends there has lost something that was compacted."""
        reach = max((each.end for each in self.rewritten), default=0)
        return end < max(reach, self.cleaned_offset)


async def write(disk: Disk, directory: str, owner: Owner, state: CompactionState) -> None:
    """Replace both files durably. Raises OSError."""
    found = await _found(disk, directory, owner, _CUTS)
    number = max((each.number for each in found), default=0) + 1
    new = state.replacement
    packed = None if new is None else [[list(each) for each in new.old], new.size, new.crc]
    removals = state.removals.pack()
    sizes = compacted_sizes.pack(state.rewritten)
    rows = [state.cleaned_offset, state.horizon_ms, packed, _RULES, removals, number, sizes]
    for name in _CUTS:
        path = f"{directory}/{name}"
        await checkpoint.write(disk, path, checkpoint.Kind.COMPACTION, msgpack.packb(rows), owner)
    for name in _CUTS.values():
        disk.remove(f"{directory}/{name}")


async def read(disk: Disk, directory: str, owner: Owner) -> CompactionState:
    """What is known, by the newer of the two files of ``owner``; nothing when both are missing.
    Raises CorruptMessage where neither can be read, OSError."""
    bad: list[CorruptMessage] = []
    kept = await _found(disk, directory, owner, _CUTS, bad)
    cuts = await _found(disk, directory, owner, _CUTS.values(), bad)
    if not kept and not cuts:
        if bad:
            raise bad.pop(0)
        return unknown()
    by_age = sorted(kept or cuts, key=lambda each: each.number)
    newest = by_age[-1].state
    removals = newest.removals if kept else newest.removals.cut()
    if removals.removed_to != UNKNOWN:  # it never falls
        every = [each.state.removals.removed_to for each in (*kept, *cuts)]
        removals = replace(removals, removed_to=max(every))
    if not kept:
        return CompactionState(removals=removals)
    state = replace(newest, removals=removals)
    numbered = len(kept) == 1 and by_age[-1].number > 0
    if numbered or by_age[0].number != by_age[-1].number:
        try:
            await write(disk, directory, owner, state)
        except OSError as error:
            if not is_full(error):  # the next writing mends it
                raise
    return state


def exists(disk: Disk, directory: str) -> bool:
    """Whether any of the files is there."""
    names = (*_CUTS, *_CUTS.values())
    return any(disk.exists(f"{directory}/{name}") for name in names)


def refuse_older(directory: str, state: CompactionState, removed_to: int) -> None:
    """Raise ForeignLog where something up to ``removed_to`` is known to have been removed, and the
    files know less. They are older; segments may be, too, and what they hold may be deleted."""
    says = state.removals.removed_to
    if UNKNOWN != says < removed_to:
        raise ForeignLog(
            f"{directory}: compaction has removed tombstones up to offset {removed_to}, and "
            f"{NAME} says {says}: it is as it was some time ago"
        )


def unknown() -> CompactionState:
    """Of a log that says nothing."""
    return CompactionState(removals=Removals(UNKNOWN))


class _Found(NamedTuple):
    number: int
    state: CompactionState


async def _found(
    disk: Disk,
    directory: str,
    owner: Owner,
    names: Iterable[str],
    bad: list[CorruptMessage] | None = None,
) -> list[_Found]:
    """What these files say; ``bad`` gets why one cannot be read."""
    found = []
    for name in names:
        try:
            each = await _read(disk, f"{directory}/{name}", owner)
        except CorruptMessage as error:
            if bad is not None:
                bad.append(bare(error))
        else:
            if each is not None:
                found.append(each)
    return found


async def _read(disk: Disk, path: str, owner: Owner) -> _Found | None:
    payload = await checkpoint.read(disk, path, checkpoint.Kind.COMPACTION, owner)
    if payload is None:
        return None
    try:
        cleaned, horizon, packed, *more = msgpack.unpackb(payload)
        new = None if packed is None else _replacement(*packed)
        removals = Removals.unpack(more[1]) if len(more) > 1 else Removals(UNKNOWN)
        number = more[2] if len(more) > 2 else 0
        sizes = compacted_sizes.unpack(more[3]) if len(more) > 3 else ()
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise CorruptMessage(f"{path}: {error}") from None
    if any(type(each) is not int for each in (cleaned, horizon, number)):
        raise CorruptMessage(f"{path}: expected three numbers, a replacement and removals")
    if more[:1] != [_RULES]:
        return _Found(number, CompactionState(replacement=new, removals=removals))
    return _Found(number, CompactionState(cleaned, horizon, new, removals, sizes))


def forget(disk: Disk, directory: str, state: CompactionState) -> CompactionState:
    """The log was cut below its cleaned offset: only what was removed is still true. A crash may
    undo the renaming only together with the cut; a file that names an offset beyond the log end is
    not believed either (``recovery.py``)."""
    for name, cut in _CUTS.items():
        if disk.exists(f"{directory}/{name}"):
            disk.rename(f"{directory}/{name}", f"{directory}/{cut}")
    return CompactionState(removals=state.removals.cut())


def _replacement(old: Any, size: Any, crc: Any) -> Replacement:
    pairs = tuple((base, length) for base, length in old)
    if any(type(each) is not int for each in (size, crc, *(n for pair in pairs for n in pair))):
        raise ValueError("a replacement with something else than numbers")
    return Replacement(pairs, size, crc)


async def finish(
    disk: Disk, directory: str, owner: Owner, state: CompactionState
) -> CompactionState:
    """Before a log is opened: do what is left of a replacement that was under way.

    Returns the state without it. Raises Unreadable where a file in its place cannot be opened,
    OSError; the next opening tries again then.
    """
    new = state.replacement
    if new is None:
        return state
    base = new.old[0][0]
    target = _path(directory, base)
    is_done = False
    if await _is(disk, target + CLEANED, new):
        if await _untouched(disk, directory, new):
            _remove_indexes(disk, directory, base)
            disk.rename(target + CLEANED, target)
            await disk.fsync_dir(directory)
            is_done = True
    else:
        is_done = await _is(disk, target, new)
    if is_done:
        await _remove_old(disk, directory, new)
    sizes = state.rewritten if is_done else compacted_sizes.without(state.rewritten, base)
    done = replace(state, replacement=None, rewritten=sizes)
    await write(disk, directory, owner, done)
    return done


async def _remove_old(disk: Disk, directory: str, new: Replacement) -> None:
    """Remove the segments that the new file covers, as far as they are still there."""
    for base, size in new.old[1:]:
        if await _size(disk, _path(directory, base)) == size:
            _remove_indexes(disk, directory, base)
            disk.remove(_path(directory, base))
    await disk.fsync_dir(directory)


async def _untouched(disk: Disk, directory: str, new: Replacement) -> bool:
    """Whether the old segments are what they were: the first one is there, and none differs."""
    sizes = [await _size(disk, _path(directory, base)) for base, _ in new.old]
    known = zip(sizes, new.old, strict=True)
    return sizes[0] is not None and all(found in (None, size) for found, (_, size) in known)


async def _size(disk: Disk, path: str) -> int | None:
    if not disk.exists(path):
        return None
    file = await open_file(disk, path)
    try:
        return file.size()
    finally:
        file.close()


async def _is(disk: Disk, path: str, new: Replacement) -> bool:
    """Whether ``path`` is the replacement's file, whole."""
    try:
        if await _size(disk, path) != new.size:
            return False
        file = LogFile(await open_file(disk, path))
    except Unreadable:
        return False
    try:
        crc = 0
        for position in range(0, new.size, _READ_BYTES):
            crc = crc32c(await file.read(_READ_BYTES, position), crc)
        return crc == new.crc
    except Unreadable:
        return False
    finally:
        file.close()


def _path(directory: str, base: int) -> str:
    return f"{directory}/{segment_name(base)}{LOG_SUFFIX}"


def _remove_indexes(disk: Disk, directory: str, base: int) -> None:
    for suffix in (TIME_INDEX_SUFFIX, INDEX_SUFFIX):
        disk.remove(f"{directory}/{segment_name(base)}{suffix}")
