"""Compacting the logs of this node's partitions, one at a time, the dirtiest first.

Leader and followers compact their own logs, each when it is due: what replicas have in common then
is the last value of each key, not bytes. Only what lies below both the high watermark
and the last stable offset is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field

import structlog
import trio

from paceline.errors import CorruptMessage, StorageError
from paceline.values import dataclass
from paceline_node.env import Env, is_full
from paceline_node.replication.partition import Partition, PartitionContext, PartitionKey
from paceline_node.settings.tree import LogSettings
from paceline_node.storage.cleaner import CleanerLimits, CleanerStatistics, Cleaning, cleanable
from paceline_node.storage.compaction import Cleanable


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """``check_s``: pause between two looks for logs to compact."""

    check_s: float = LogSettings().compaction_check_ms / 1000
    limits: CleanerLimits = field(default_factory=CleanerLimits)


class Compactions:
    """``find`` looks a hosted partition up, ``hosted`` gives them all."""

    def __init__(
        self,
        env: Env,
        context: PartitionContext[Partition],
        *,
        find: Callable[[PartitionKey], Partition | None],
        hosted: Callable[[], Iterable[Partition]],
        settings: CompactionSettings | None = None,
    ) -> None:
        self._env = env
        self._failed = context.events.failed
        self._find = find
        self._hosted = hosted
        self._settings = settings or CompactionSettings()
        self._log = structlog.get_logger(component="compaction", node=context.node_id)
        self.statistics = CleanerStatistics()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; a compaction under way is given up then."""
        task_status.started()
        while True:
            await trio.sleep(self._settings.check_s)
            await self.compact_due()

    async def compact_due(self) -> None:
        """Compact every log that is due, once."""
        tried: set[PartitionKey] = set()
        while (partition := self._dirtiest_due(tried)) is not None:
            tried.add(partition.key)
            await self._compact(partition)

    def dirtiest(self) -> float:
        """The largest share of a compacted log here that no compaction has seen, 0 to 1."""
        return max((found.dirty_ratio for _, found in self._judged()), default=0.0)

    def _judged(self) -> Iterable[tuple[Partition, Cleanable]]:
        now_ms = self._env.expiry_ms()
        for partition in self._hosted():
            log = partition.log
            rules = log.settings.compaction
            if rules is None or log.damaged or log.failed is not None:
                continue
            stable = _stable_offset(partition)
            yield partition, cleanable(log, rules, stable_offset=stable, now_ms=now_ms)

    def _dirtiest_due(self, tried: set[PartitionKey]) -> Partition | None:
        due = [
            (found.dirty_ratio, partition)
            for partition, found in self._judged()
            if found.is_due and partition.key not in tried
        ]
        return max(due, key=lambda each: each[0])[1] if due else None

    async def _compact(self, partition: Partition) -> None:
        log = partition.log
        size, start = log.size_bytes, self._env.now()
        try:
            while await self._round(partition):
                pass
        except LookupError as gone:
            self._log.debug("compaction given up", partition=str(partition), reason=str(gone))
        except (OSError, StorageError, CorruptMessage) as error:
            self._on_error(partition, error)
        else:
            self._log.info(
                "log compacted",
                partition=str(partition),
                cleaned_offset=log.compaction.cleaned_offset,
                bytes_before=size,
                bytes_after=log.size_bytes,
                seconds=round(self._env.now() - start, 3),
            )

    async def _round(self, partition: Partition) -> bool:
        """One round; whether another one is needed, because not all keys fitted in memory."""
        rules = partition.log.settings.compaction
        if rules is None or self._find(partition.key) is not partition:
            return False
        cleaning = Cleaning(
            self._env,
            partition.log,
            rules,
            self._settings.limits,
            self.statistics,
            stable_offset=_stable_offset(partition),
        )
        try:
            return await cleaning.run()
        except CorruptMessage:
            partition.suspect(cleaning.at_offset)
            raise

    def _on_error(self, partition: Partition, error: Exception) -> None:
        if self._find(partition.key) is not partition:
            return  # its log was closed or removed meanwhile
        if isinstance(error, OSError) and not is_full(error):
            self._failed(error)
        elif isinstance(error, StorageError) and partition.log.failed is not None:
            self._failed(partition.log.failed)
        else:
            self._log.warning("compaction failed", partition=str(partition), reason=str(error))


def _stable_offset(partition: Partition) -> int:
    return min(partition.high_watermark, partition.last_stable_offset)
