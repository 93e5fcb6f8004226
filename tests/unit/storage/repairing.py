"""Putting back a range that fits in memory: all of it at once, whole and in order."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.errors import CorruptMessage
from paceline_node.env import Disk
from paceline_node.storage.damage import DamagedRange
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.log import Log
from paceline_node.storage.scrubbing import begin_repair, finish_repair


async def replace_range(
    disk: Disk,
    log: Log,
    damaged: DamagedRange,
    batches: Sequence[memoryview],
    leader_epochs: EpochCache | None = None,
) -> None:
    """Repair a segment with one damaged range from its leader's ``batches``."""
    repair = begin_repair(disk, log, damaged, leader_epochs)
    try:
        for data in batches:
            await repair.fill(data)
        if repair.missing is not None:
            raise CorruptMessage(f"{log.identity}: offset {repair.missing[0]} is still missing")
        await finish_repair(disk, log, repair)
    finally:
        repair.abandon()
