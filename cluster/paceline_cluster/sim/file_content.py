"""What lies where in a node's files, for those who harm them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paceline.wire.batch_header import HEADER_BYTES
from paceline_cluster.sim.fault_model import kind_of
from paceline_cluster.sim.machine import Machine
from paceline_node.storage.layout import TOPICS
from paceline_node.storage.memory_file import MemoryNode

_SLOT_BYTES = 64
BASE_OFFSET, _LENGTH_AT, _UP_TO_LENGTH, EPOCH = slice(0, 8), 8, 12, slice(12, 16)
"""Of a batch's header: what no checksum covers."""
_PAIRS = (
    ("logstart-copy.ckpt", "logstart.ckpt"),
    ("compaction-copy.ckpt", "compaction.ckpt"),
)
"""Files that say the same, in one directory."""


def with_copy(path: str) -> list[str]:
    """The file, and what a node keeps beside it in case that is bad; none where it keeps none."""
    directory, slash, name = path.rpartition("/")
    pair = next((pair for pair in _PAIRS if name in pair), ())
    return [f"{directory}{slash}{each}" for each in pair]


def twins(machine: Machine, path: str) -> list[str]:
    """Files of the same name, and of other content, of other partitions."""
    disk, name = machine.disk, path.rpartition("/")[2]
    kind = kind_of(path)
    is_used = path.startswith(f"{TOPICS}/") and not path.startswith(f"{TOPICS}/stray-")
    if kind is None or not is_used or "exchange" not in kind.media:
        return []
    files = disk.files()
    content = next(bytes(node.content) for each, node in files if each == path)
    return [
        each
        for each, node in files
        if each.startswith(f"{TOPICS}/")
        and not each.startswith(f"{TOPICS}/stray-")
        and each.endswith(f"/{name}")
        and node.content != content
    ]


def batches(log: bytes) -> list[int]:
    """Where the batches of a file begin, as far as their lengths say."""
    found, position = [0], 0
    while (position := position + _UP_TO_LENGTH + _int(log, position + _LENGTH_AT)) < len(log):
        if position <= found[-1] or len(log) - position < HEADER_BYTES:
            break
        found.append(position)
    return found


def _int(log: bytes, at: int) -> int:
    return int.from_bytes(log[at : at + 4], "big", signed=True)


def slots_around(node: MemoryNode, places: Iterable[int]) -> list[tuple[int, bytes]]:
    """What lies in the slots of these places. Whoever writes one anew writes all of it, and may
    well write the very byte there that it rotted to."""
    starts = {at // _SLOT_BYTES * _SLOT_BYTES for at in places}
    return [(start, bytes(node.content[start : start + _SLOT_BYTES])) for start in starts]


def has_any(node: MemoryNode, rotten: Sequence[tuple[int, bytes]]) -> bool:
    return any(node.content[start : start + len(slot)] == slot for start, slot in rotten)
