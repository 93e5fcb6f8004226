"""What a data directory's offsets checkpoints say, and which partitions it is known to keep.

``recovery.ckpt``, ``hw.ckpt`` and ``logstart.ckpt`` (``layout.py``) are replaced as a whole, so
each writing must also say what is known of partitions that nobody hosts yet: a node that waits for
a quorum has opened its logs and hosts none of them. An entry goes only when the partition does.

``logstart.ckpt`` is kept twice, and ``hw.ckpt`` has what it said when that was written. A log start
is the highest of them: files of some time ago would bring back what was deleted since. It also has
up to where compaction has removed tombstones, which is else known in the log's directory alone.

``recovery.ckpt`` is also the list of the logs that this directory holds. An entry is made when a
log is, before the log is used, and removed before the log is. A partition that is listed and has no
directory was lost, not new.
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from paceline_node.env import Disk
from paceline_node.storage import layout
from paceline_node.storage.layout import Beside, Offsets, PartitionKey

DECISIVE = (Offsets.RECOVERY, Offsets.LOG_START)
"""Without these a start cannot know what its logs must hold; without high watermarks it can."""


class KnownOffsets:
    """The three files, as they are in memory and on disk. Methods that write raise OSError."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._offsets: dict[Offsets, dict[PartitionKey, int]] = {which: {} for which in Offsets}
        self._written: dict[Offsets, dict[PartitionKey, int]] = {}
        self._removed: dict[PartitionKey, int] = {}
        self._beside: dict[PartitionKey, Beside] = {}
        """As it is on disk."""
        self._writing = trio.Lock()
        self.unreadable: tuple[Offsets, ...] = ()
        """Files that were missing or rotten when they were loaded."""

    async def load(self) -> None:
        """Read all files; a new directory was formatted with empty ones."""
        unreadable = []
        for which in Offsets:
            each = await layout.read_each(self._disk, which)
            found = layout.higher(each)
            if found is None:
                unreadable.append(which)
                continue
            self._offsets[which] = found
            if all(says == found for says in each):  # else the next writing mends it
                self._written[which] = dict(found)
        self.unreadable = tuple(unreadable)
        self._beside = await layout.read_beside(self._disk)
        self._removed = {key: each.removed_to for key, each in self._beside.items()}
        starts = {key: each.log_start for key, each in self._beside.items()}
        known = layout.higher((self._offsets[Offsets.LOG_START], starts))
        self._offsets[Offsets.LOG_START] = known or {}

    @property
    def partitions(self) -> frozenset[PartitionKey]:
        """Every partition that is kept here: those of the list, or if that is lost, those that any
        other file speaks of."""
        if not self.list_is_lost:
            return frozenset(self._offsets[Offsets.RECOVERY])
        return frozenset(key for offsets in self._offsets.values() for key in offsets)

    @property
    def list_is_lost(self) -> bool:
        """Whether partitions may have been kept here that no file speaks of any more."""
        return Offsets.RECOVERY in self.unreadable

    def of(self, which: Offsets, key: PartitionKey) -> int | None:
        """The offset that ``which`` names for a partition; None when it says nothing."""
        return self._offsets[which].get(key)

    def removed_to(self, key: PartitionKey) -> int:
        """Up to where compaction has removed something of a partition's log, at least."""
        return self._removed.get(key, 0)

    def all(self, which: Offsets) -> Mapping[PartitionKey, int]:
        return self._offsets[which]

    def on_disk(self, which: Offsets) -> Mapping[PartitionKey, int]:
        """What the file says now."""
        return self._written.get(which, {})

    async def begin(self, key: PartitionKey) -> None:
        """A partition is kept here from now on, in an empty log; what was known of a former one
        does not hold. Durable on return; calls at the same time share one writing."""
        self._offsets[Offsets.RECOVERY][key] = 0
        self._offsets[Offsets.HIGH_WATERMARK].pop(key, None)
        self._removed.pop(key, None)
        if key in self._beside:
            await self._write(Offsets.HIGH_WATERMARK)
        await self._write(Offsets.RECOVERY)

    async def remove(self, key: PartitionKey) -> None:
        """The partition is not kept here any more; durable on return."""
        for offsets in self._offsets.values():
            offsets.pop(key, None)
        await self._write(Offsets.RECOVERY)

    async def write(self, which: Offsets, changed: Mapping[PartitionKey, int]) -> None:
        """Take over newer offsets and write the file, unless it says so already: an idle node
        leaves its disk alone. Nothing new leaves even a lost file alone: it stays known as lost
        until this process hosts something, and so was heard by the controller."""
        if changed:
            self._offsets[which].update(changed)
            await self._write(which)
            if which is Offsets.LOG_START and self._is_lower(changed):
                await self._write(Offsets.HIGH_WATERMARK)

    async def write_watermarks(
        self, changed: Mapping[PartitionKey, int], removed: Mapping[PartitionKey, int]
    ) -> None:
        """As :meth:`write`, with up to where compaction has removed something of each log."""
        self._removed.update(removed)
        await self.write(Offsets.HIGH_WATERMARK, changed)

    def _is_lower(self, starts: Mapping[PartitionKey, int]) -> bool:
        """Whether a log was begun anew below where ``hw.ckpt`` has it begin."""
        return any(
            start < self._beside.get(key, layout.NOTHING).log_start for key, start in starts.items()
        )

    async def _write(self, which: Offsets) -> None:
        async with self._writing:
            offsets = dict(self._offsets[which])
            if which is Offsets.HIGH_WATERMARK:
                await self._write_watermarks(offsets)
            elif self._written.get(which) != offsets:
                await layout.write_offsets(self._disk, which, offsets)
                self._written[which] = offsets

    async def _write_watermarks(self, watermarks: dict[PartitionKey, int]) -> None:
        starts = self._offsets[Offsets.LOG_START]
        beside = {key: Beside(starts.get(key, 0), self.removed_to(key)) for key in watermarks}
        if (self._written.get(Offsets.HIGH_WATERMARK), self._beside) != (watermarks, beside):
            await layout.write_watermarks(self._disk, watermarks, beside)
            self._written[Offsets.HIGH_WATERMARK] = watermarks
            self._beside = beside
