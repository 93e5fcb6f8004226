"""Memory for a large frame that is to arrive.

A length alone must cost nothing, and neither may its frame in one piece: memory that is cleared
when it is taken, or that grows by copying what it holds, makes tens of megabytes of page faults in
one step of whoever receives. Pages of an anonymous mapping are made one by one as bytes come.
"""

from __future__ import annotations

import mmap

from paceline.errors import RemoteProtocolError

HEAP_BYTES = 4 * 1024 * 1024
"""Below this the heap is quick enough, and quicker than a mapping."""
RECEIVE_BYTES = 1024 * 1024
"""At most this is received into such memory at once."""


def memory_for(size: int, *, believed_bytes: int) -> memoryview:
    """Writable memory of ``size`` bytes (1 or more), given back when nobody refers to it any more.

    Of more than ``believed_bytes`` only what is written takes memory. Raises RemoteProtocolError
    when there is no address space left for it.
    """
    if size <= min(believed_bytes, HEAP_BYTES):
        return memoryview(bytearray(size))
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise RemoteProtocolError(f"no memory for a frame of {size} bytes: {error}") from error
    return memoryview(pages)


def taken_bytes(size: int, arrived: int) -> int:
    """What ``arrived`` bytes of a frame of ``size`` take at most."""
    return min(size, arrived + mmap.PAGESIZE)
