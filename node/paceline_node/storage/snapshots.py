"""Which of the snapshots in a log's directory a start may believe."""

from __future__ import annotations

import math
from collections.abc import Iterable

from paceline.errors import CorruptMessage
from paceline.types import NO_EPOCH
from paceline.values import dataclass
from paceline_node.env import Disk
from paceline_node.storage import producer_file
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.file_owner import Owner
from paceline_node.storage.producer_file import Snapshot


@dataclass(frozen=True, slots=True)
class KnownTerms:
    """What a start knows of the leader epochs of records that it has not read, or that are gone.

    ``table`` has every term that began below ``until``. ``newest`` is the last term of all; where
    in the table it begins may be the log start of its time instead."""

    table: EpochCache
    until: float = math.inf
    newest: float = math.inf

    def allow(self, offset: int, epoch: int) -> bool:
        """Whether the record at ``offset`` may be of ``epoch``."""
        said = self.table.epoch_at(offset)
        return said in (NO_EPOCH, epoch) or (offset >= self.until and said < epoch <= self.newest)


class Snapshots:
    """The snapshots of ``owner``'s log. ``offsets`` are those that none has spoken against: one
    that cannot be read, or is another log's, is as good as missing, and may be taken anew."""

    def __init__(self, disk: Disk, directory: str, owner: Owner) -> None:
        self._disk = disk
        self._directory = directory
        self._owner = owner
        self.offsets: list[int] = []

    def found(self, names: Iterable[str]) -> None:
        """These files are in the directory."""
        self.offsets = producer_file.offsets(names)

    async def newest(self, terms: KnownTerms, oldest: int, limit: int) -> Snapshot | None:
        """The newest usable one within ``oldest`` and ``limit``; passed over are bad ones,
        and those whose last record is of no term that it may be of. Raises OSError."""
        return await self._first(sorted(self.offsets, reverse=True), terms, oldest, limit)

    async def oldest(self, terms: KnownTerms, oldest: int, limit: int) -> Snapshot | None:
        """The oldest usable one, as :meth:`newest`."""
        return await self._first(sorted(self.offsets), terms, oldest, limit)

    async def _first(
        self, offsets: Iterable[int], terms: KnownTerms, oldest: int, limit: int
    ) -> Snapshot | None:
        for offset in offsets:
            if not oldest <= offset <= limit:
                continue
            try:
                kept = await producer_file.read(self._disk, self._directory, offset, self._owner)
            except CorruptMessage:
                self.offsets.remove(offset)
                continue
            if kept is not None and terms.allow(offset - 1, kept.epoch):
                return kept
        return None
