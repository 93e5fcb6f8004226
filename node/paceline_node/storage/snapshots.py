"""Which of the snapshots in a log's directory a start may believe."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.errors import CorruptMessage
from paceline.types import NO_EPOCH
from paceline_node.env import Disk
from paceline_node.storage import producer_file
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.owner import Owner
from paceline_node.storage.producer_file import Snapshot


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

    async def newest(self, epochs: EpochCache, oldest: int, limit: int) -> Snapshot | None:
        """The newest usable one within ``oldest`` and ``limit``; bad ones are passed over. Raises
        OSError."""
        for offset in sorted(self.offsets, reverse=True):
            if not oldest <= offset <= limit:
                continue
            try:
                kept = await producer_file.read(self._disk, self._directory, offset, self._owner)
            except CorruptMessage:
                self.offsets.remove(offset)
                continue
            # The table says nothing about offsets that retention has removed.
            if kept is not None and epochs.epoch_at(offset - 1) in (NO_EPOCH, kept.epoch):
                return kept
        return None
