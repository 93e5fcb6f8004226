"""What was freed goes back to the system.

glibc's allocator keeps much of it. An arena for each thread that ever needed one; all of the heap
below the highest block that is in use; and once a large block was freed, others of its size come
from the heap, too, and not from maps of their own. After floods of large frames a node held 700 MiB
of which 20 were in use. So large blocks stay maps, there are two arenas, and while the process is
larger than it was :meth:`Allocator.give_back` lets the system have the free pages in between: 7 ms
for each 100 MiB of them, in a thread. Other allocators (musl, macOS) are left as they are.

What a connection held should not stay in cycles: the garbage collector has set them aside, and 130
MiB of one flood stayed for ever. Those that were found are broken (net/DESIGN 6). In case there are
others, where the process has grown by much that no client holds, and nothing is free, it looks
through everything.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
"""Parameters of mallopt(3)."""
_MIB: Final = 1 << 20
LARGE: Final = 256 * 1024
"""From this size on a block is a map of its own, for its whole life."""
GROWTH: Final = 16 * _MIB
"""Free pages are looked for while the process is larger by this than it was at its smallest."""
PERIOD_S: Final = 2.0
MUCH: Final = 192 * _MIB
"""Garbage is looked for after a growth by this, and by a quarter, since the last time: in a quiet
moment, for nothing else happens meanwhile, up to half a second; after twice that in any."""
_PART: Final = 100
"""Looking for garbage may take one part in so many of the time."""
_STATM: Final = Path("/proc/self/statm")


class Allocator:
    """The C library's, where it is glibc; elsewhere all of this does nothing."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        self._libc = libc if hasattr(libc, "malloc_trim") and hasattr(libc, "mallopt") else None

    @property
    def keeps_freed_memory(self) -> bool:
        """Whether it is one that this file knows how to tell."""
        return self._libc is not None and _STATM.exists()

    def configure(self) -> None:
        """Before any thread but the first one runs."""
        if self._libc is not None:
            self._libc.mallopt(_ARENA_MAX, 2)
            self._libc.mallopt(_MMAP_THRESHOLD, LARGE)
            self._libc.mallopt(_TRIM_THRESHOLD, 2 * LARGE)

    def give_back(self) -> None:
        """Let the system have all free pages; blocks the caller."""
        if self._libc is not None:
            self._libc.malloc_trim(0)


def resident_bytes() -> int:
    """How much of this process is in memory."""
    return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Growth:
    """Decides when to look for garbage, from what is in memory when nothing is free, but for what
    clients hold."""

    def __init__(self, resident: int) -> None:
        self._after_last = self._before = resident
        self._not_before = 0.0

    def is_much(self, resident: int, now: float) -> bool:
        """Whether to look now."""
        self._after_last = min(self._after_last, resident)
        grown = resident - self._after_last
        is_quiet, self._before = resident <= self._before, resident
        limit = max(MUCH, self._after_last // 4)
        return grown > (limit if is_quiet else 2 * limit) and now >= self._not_before

    def looked(self, resident: int, began: float, now: float) -> None:
        """It was looked for, between these times."""
        self._after_last = resident
        self._not_before = now + _PART * (now - began)


async def watch(
    allocator: Allocator,
    look_through: Callable[[], object],
    client_bytes: Callable[[], int],
    resident: Callable[[], int] = resident_bytes,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Give back what is free, again and again while the process is larger than it once was: what
    is in use now may be free soon, and nothing tells when. Where nothing is free that takes less
    than a millisecond. ``look_through`` frees garbage; ``client_bytes`` is what clients hold, none
    of which is any. Runs until cancelled."""
    if not allocator.keeps_freed_memory:
        return
    least = resident()
    growth = Growth(least - client_bytes())
    while True:
        await trio.sleep(PERIOD_S)
        now = resident()
        if now > least + GROWTH:
            await trio.to_thread.run_sync(allocator.give_back)
            if growth.is_much(resident() - client_bytes(), clock()):
                began = clock()
                look_through()
                looked = clock()
                await trio.to_thread.run_sync(allocator.give_back)
                growth.looked(resident() - client_bytes(), began, looked)
        least = min(least, now)
