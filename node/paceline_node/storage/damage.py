"""What is known to be wrong with a log (DESIGN 2.5), and ``damaged.ckpt``, which keeps
it known across restarts until it is repaired (framed as in ``checkpoint.py``)::

    msgpack [[start offset, end offset (exclusive), reason], ...]   ascending
"""

from __future__ import annotations

from collections.abc import Sequence

import msgpack

from paceline.errors import CorruptMessage
from paceline.values import dataclass
from paceline_node.env import Disk
from paceline_node.storage import checkpoint
from paceline_node.storage.file_owner import Owner

NAME = "damaged.ckpt"


@dataclass(frozen=True, slots=True, order=True)
class DamagedRange:
    """Offsets ``start..end`` (end exclusive) were stored once and cannot be read any more.

    Lies in one segment. Never truncated because of a bad checksum: it is reported, the replica
    leaves the ISR, and the range is fetched again (``repair.py``).
    """

    start: int
    end: int
    reason: str

    def __str__(self) -> str:
        return f"offsets {self.start}..{self.end - 1}: {self.reason}"


def renewed(
    known: Sequence[DamagedRange], start: int, end: int, found: Sequence[DamagedRange]
) -> tuple[DamagedRange, ...]:
    """What is known after offsets ``start..end`` (exclusive) were read again."""
    others = [each for each in known if not start <= each.start < end]
    return tuple(sorted([*others, *found]))


def above(known: Sequence[DamagedRange], start: int) -> tuple[DamagedRange, ...]:
    """What is left of it in a log that begins at ``start``: the rest was given up."""
    return tuple(each for each in known if each.end > start)


async def write(disk: Disk, directory: str, owner: Owner, ranges: Sequence[DamagedRange]) -> None:
    """Replace the list durably; an empty one removes the file."""
    path = f"{directory}/{NAME}"
    if ranges:
        payload = msgpack.packb([[each.start, each.end, each.reason] for each in ranges])
        await checkpoint.write(disk, path, checkpoint.Kind.DAMAGE, payload, owner)
    elif disk.exists(path):
        disk.remove(path)
        await disk.fsync_dir(directory)


async def read(disk: Disk, directory: str, owner: Owner | None = None) -> list[DamagedRange]:
    """The list; empty when there is no file. Raises CorruptMessage, also where it is not of
    ``owner`` (None: whoever has it)."""
    path = f"{directory}/{NAME}"
    payload = await checkpoint.read(disk, path, checkpoint.Kind.DAMAGE, owner)
    if payload is None:
        return []
    rows = checkpoint.unpack_rows(payload, 3)
    if any((type(a), type(b), type(c)) != (int, int, str) for a, b, c in rows):
        raise CorruptMessage(f"{path}: expected start, end and reason")
    return [DamagedRange(*row) for row in rows]
