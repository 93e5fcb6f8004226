"""Comparing the replicas of one partition offline (replication/DESIGN 2: I1, I6).

Reads only; no node may be writing to the directories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.wire.batch import BatchHeader
from paceline_node.env import Disk, File
from paceline_node.storage.last_values import compare_last_values
from paceline_node.storage.log_segment import segment_name
from paceline_node.storage.verify import BatchCursor, Finding, Problem, segment_bases


class _LogCursor:
    """All batches of one log, over its segments."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._bases = segment_bases(disk, path)
        self._file: File | None = None
        self._cursor: BatchCursor | None = None
        self.head: BatchHeader | None = None
        self.is_compacted = False

    async def advance(self) -> None:
        """Move ``head`` to the next batch; None at the end."""
        while True:
            if self._cursor is not None:
                batch = await self._cursor.advance()
                if batch is not None:
                    self.head = header = batch.header
                    has_all = header.record_count == header.last_offset_delta + 1
                    self.is_compacted |= not (has_all or header.is_extended)
                    return
                self.close()
            if not self._bases:
                self.head = None
                return
            name = f"{self._path}/{segment_name(self._bases.pop(0))}.log"
            self._file = await self._disk.open(name)
            self._cursor = BatchCursor(self._file)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._cursor = None


async def compare_replicas(
    replicas: Mapping[str, tuple[Disk, str]], *, high_watermark: int
) -> list[Finding]:
    """Compare the logs of one partition, by a name for each replica.

    Replicas hold the same bytes, batch for batch. For each replica, its first batch that differs
    from another's is reported; only below ``high_watermark``, since what is not committed may
    differ for a while. Logs may begin and end at different offsets. Where one of them has been
    compacted, they are compared by the last value of each key instead. Raises OSError.
    """
    cursors = {name: _LogCursor(*place) for name, place in sorted(replicas.items())}
    findings: dict[str, Finding] = {}
    try:
        for cursor in cursors.values():
            await cursor.advance()
        while heads := _heads(cursors, high_watermark):
            offset = min(header.base_offset for header in heads.values())
            now = {name: header for name, header in heads.items() if header.base_offset == offset}
            for name, message in _differences(now, heads, offset):
                finding = Finding(Problem.DIVERGED, replicas[name][1], offset, f"{name}: {message}")
                findings.setdefault(name, finding)
            for name in now:
                await cursors[name].advance()
    finally:
        for cursor in cursors.values():
            cursor.close()
    if any(cursor.is_compacted for cursor in cursors.values()):
        return await compare_last_values(replicas, high_watermark=high_watermark)
    return list(findings.values())


def _heads(cursors: Mapping[str, _LogCursor], limit: int) -> dict[str, BatchHeader]:
    return {
        name: cursor.head
        for name, cursor in cursors.items()
        if cursor.head is not None and cursor.head.base_offset < limit
    }


def _differences(
    now: Mapping[str, BatchHeader], heads: Mapping[str, BatchHeader], offset: int
) -> Sequence[tuple[str, str]]:
    """Replicas whose batch at ``offset`` is not that of the first one that has one there."""
    reference, expected = next(iter(now.items()))
    found = []
    for name, header in now.items():
        if _identity(header) != _identity(expected):
            message = f"{_describe(header)}; {reference} has {_describe(expected)}"
            found.append((name, message))
    found += [
        (name, f"a batch begins at {header.base_offset}, inside one of {reference}'s")
        for name, header in heads.items()
        if offset < header.base_offset <= expected.last_offset
    ]
    return found


def _identity(header: BatchHeader) -> tuple[int, int, int]:
    return header.leader_epoch, header.crc, header.last_offset


def _describe(header: BatchHeader) -> str:
    return (
        f"offsets {header.base_offset}..{header.last_offset} epoch {header.leader_epoch} "
        f"crc {header.crc:08x}"
    )
