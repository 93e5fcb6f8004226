"""Writing a file's bytes anew after a sync has failed.

When a sync fails, Linux keeps the pages and calls them clean: reads, by this process and by the
next, show bytes that no later sync will write. (Seen with PostgreSQL in 2018; Rebello et al., "Can
Applications Recover from fsync Failures?", USENIX ATC 2020, for ext4, XFS and Btrfs.) Such bytes
are either given up or written again; here they are written again, since this may be the only copy:
who reads them checks them first, and who has synced them after :func:`rewrite` may count on them.

Names in directories need no such care: a file system whose own journal fails stops by itself.
"""

from __future__ import annotations

import contextlib

from paceline.errors import CorruptMessage
from paceline_node.env import File

_PIECE_BYTES = 1024 * 1024
_PAGE_BYTES = 4096


async def rewrite(file: File, start: int = 0) -> None:
    """Write what ``file`` holds from byte ``start`` on over itself, so that the next sync writes it
    to the disk. A crash in between leaves what was there before. Raises OSError."""
    size = file.size()
    for position in range(start, size, _PIECE_BYTES):
        count = min(_PIECE_BYTES, size - position)
        try:
            file.pwrite(await file.read(count, position), position)
        except CorruptMessage:
            await _rewrite_pages(file, position, position + count)


async def _rewrite_pages(file: File, start: int, end: int) -> None:
    """As :func:`rewrite`, but for what cannot be read: that is damage already."""
    for position in range(start, end, _PAGE_BYTES):
        count = min(_PAGE_BYTES, end - position)
        with contextlib.suppress(CorruptMessage):
            file.pwrite(await file.read(count, position), position)
