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

from collections.abc import Collection, Iterable, Mapping

import trio

from paceline_node.env import Disk
from paceline_node.storage import layout
from paceline_node.storage.layout import CheckpointedStart, Offsets, PartitionKey

DECISIVE = (Offsets.RECOVERY, Offsets.LOG_START)
"""Without these a start cannot know what its logs must hold; without high watermarks it can."""


class KnownOffsets:
    """The three files, as they are in memory and on disk. Methods that write raise OSError."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._offsets: dict[Offsets, dict[PartitionKey, int]] = {which: {} for which in Offsets}
        self._written: dict[Offsets, dict[PartitionKey, int]] = {}
        self._changes: dict[Offsets, int] = dict.fromkeys(Offsets, 0)
        self._written_changes: dict[Offsets, int] = {}
        """Up to which change each file was written. Counted, for to compare thousands of offsets
        with each new log would cost more than all else that it takes to make one."""
        self._removed: dict[PartitionKey, int] = {}
        self._beside: dict[PartitionKey, CheckpointedStart] = {}
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
                self._written_changes[which] = 0
        self.unreadable = tuple(unreadable)
        self._beside = await layout.read_beside(self._disk)
        self._removed = {key: each.removed_to for key, each in self._beside.items()}
        starts = {key: each.log_start for key, each in self._beside.items()}
        known = layout.higher((self._offsets[Offsets.LOG_START], starts)) or {}
        if known != self._offsets[Offsets.LOG_START]:
            self._offsets[Offsets.LOG_START] = known
            self._changes[Offsets.LOG_START] += 1
        if self._stands_beside(self._offsets[Offsets.HIGH_WATERMARK]) != self._beside:
            self._changes[Offsets.HIGH_WATERMARK] += 1

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
        self._take_over(Offsets.RECOVERY, {key: 0})
        self._drop(Offsets.HIGH_WATERMARK, (key,))
        self._removed.pop(key, None)
        self._changes[Offsets.HIGH_WATERMARK] += key in self._beside
        if key in self._beside:
            await self._write(Offsets.HIGH_WATERMARK)
        await self._write(Offsets.RECOVERY)

    async def remove(self, keys: Collection[PartitionKey]) -> None:
        """The partitions are not kept here any more; durable on return."""
        for which in Offsets:
            self._drop(which, keys)
        await self._write(Offsets.RECOVERY)

    async def write(self, which: Offsets, changed: Mapping[PartitionKey, int]) -> None:
        """Take over newer offsets and write the file, unless it says so already: an idle node
        leaves its disk alone. Nothing new leaves even a lost file alone: it stays known as lost
        until this process hosts something, and so was heard by the controller."""
        if changed:
            self._take_over(which, changed)
            await self._write(which)
            if which is Offsets.LOG_START and self._is_lower(changed):
                await self._write(Offsets.HIGH_WATERMARK)

    async def write_watermarks(
        self, changed: Mapping[PartitionKey, int], removed: Mapping[PartitionKey, int]
    ) -> None:
        """As :meth:`write`, with up to where compaction has removed something of each log."""
        if any(self._removed.get(key, 0) != offset for key, offset in removed.items()):
            self._removed.update(removed)
            self._changes[Offsets.HIGH_WATERMARK] += 1
        await self.write(Offsets.HIGH_WATERMARK, changed)

    def _take_over(self, which: Offsets, changed: Mapping[PartitionKey, int]) -> None:
        offsets = self._offsets[which]
        if any(offsets.get(key) != offset for key, offset in changed.items()):
            offsets.update(changed)
            self._changes[which] += 1
            if which is Offsets.LOG_START:  # which stands beside the high watermarks, too
                self._changes[Offsets.HIGH_WATERMARK] += 1

    def _drop(self, which: Offsets, keys: Iterable[PartitionKey]) -> None:
        offsets = self._offsets[which]
        gone = [key for key in keys if offsets.pop(key, None) is not None]
        self._changes[which] += bool(gone)

    def _is_lower(self, starts: Mapping[PartitionKey, int]) -> bool:
        """Whether a log was begun anew below where ``hw.ckpt`` has it begin."""
        return any(
            start < self._beside.get(key, layout.NOTHING).log_start for key, start in starts.items()
        )

    async def _write(self, which: Offsets) -> None:
        async with self._writing:
            changes = self._changes[which]
            if self._written_changes.get(which) == changes:
                return
            offsets = dict(self._offsets[which])
            if which is Offsets.HIGH_WATERMARK:
                await self._write_watermarks(offsets)
            else:
                await layout.write_offsets(self._disk, which, offsets)
            self._written[which] = offsets
            self._written_changes[which] = changes

    async def _write_watermarks(self, watermarks: dict[PartitionKey, int]) -> None:
        beside = self._stands_beside(watermarks)
        await layout.write_watermarks(self._disk, watermarks, beside)
        self._beside = beside

    def _stands_beside(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, CheckpointedStart]:
        starts = self._offsets[Offsets.LOG_START]
        return {key: CheckpointedStart(starts.get(key, 0), self.removed_to(key)) for key in keys}
