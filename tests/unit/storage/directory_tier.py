"""An older tier that keeps whole segments in a directory of its own, and waits for each byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import trio

from paceline.errors import OffsetOutOfRange
from paceline.wire.batch_header import iter_batches
from paceline_node.storage.log import Log
from paceline_node.storage.reading import LogSlice
from paceline_node.storage.transaction_index import AbortedTransaction


class FarFile:
    """Has no descriptor, and gives nothing at once."""

    def __init__(self, path: Path, tier: DirectoryTier) -> None:
        self._path = path
        self._tier = tier

    @property
    def path(self) -> str:
        return str(self._path)

    def pread(self, size: int, position: int) -> None:
        return None

    async def read(self, size: int, position: int) -> bytes:
        self._tier.reads += 1
        return (await trio.Path(self._path).read_bytes())[position : position + size]

    def fileno(self) -> None:
        return None


class DirectoryTier:
    """The sealed segments that ``log`` has now; where each lies is known without waiting."""

    def __init__(self, log: Log, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.reads = 0
        self.start_offset = log.log_start_offset
        self.end_offset = log.segments[-1].base_offset
        self._aborted = list(log.producers.transactions.aborted)
        self._files: list[tuple[int, FarFile]] = []
        for segment in log.segments[:-1]:
            path = directory / f"{segment.base_offset}.object"
            path.write_bytes(segment.file.pread(segment.size, 0))
            self._files.append((segment.next_offset, FarFile(path, self)))

    async def find(self, offset: int, max_bytes: int, end_offset: int) -> LogSlice | None:
        if not self.start_offset <= offset < self.end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not in this tier")
        file = next(file for end, file in self._files if offset < end)
        found: LogSlice | None = None
        for position, header in iter_batches(await file.read(1 << 20, 0)):
            if header.next_offset <= offset:
                continue
            first = LogSlice(file, position, 0, header.base_offset, 0) if found is None else found
            size = position + header.size_bytes - first.position
            if header.next_offset > end_offset or (found is not None and size > max_bytes):
                break
            found = LogSlice(file, first.position, size, first.base_offset, header.next_offset)
        return found

    async def aborted_in(self, start: int, end: int) -> Sequence[AbortedTransaction]:
        await trio.lowlevel.checkpoint()
        return [
            each for each in self._aborted if each.first_offset < end and start <= each.last_offset
        ]
