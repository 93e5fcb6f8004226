"""The group flush of a data directory (DESIGN 2.2, mode ``group``).

One task. All logs that asked since the last sync began share the next one, which starts as soon as
that has ended: under load the cost of an ``fdatasync`` is divided by all who wait for it, and a
lone write waits for nobody. A failed sync ends flushing for good: pages may be gone that a
second sync would call clean.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import trio

from paceline.values import dataclass
from paceline_node.env import Env, is_full
from paceline_node.storage.durability import Marked, SyncTicket
from paceline_node.storage.durable_marks import DurableMarks
from paceline_node.storage.log import Log
from paceline_node.storage.waiting_for_space import when_there_is_room

_REMEMBERED = 256
SLOW_SYNC_S = 1.0
"""A sync that takes longer is a slow one (replication/DESIGN 7)."""

OnDurable = Callable[[Log], None]
OnFailed = Callable[[OSError], None]
OnSynced = Callable[[float, int, int], None]
"""Told of each group: seconds, logs, records that shared the sync."""


@dataclass(frozen=True, slots=True)
class FlushStatistics:
    """Durations in seconds, over the last syncs; ``running_s`` is how long the present one has
    taken so far (0 when none runs): a hanging disk shows there and nowhere else. ``count`` and
    ``slow_count`` count all there ever were."""

    count: int
    slow_count: int
    p50_s: float
    p99_s: float
    max_s: float
    running_s: float


def _unmeasured(seconds: float, logs: int, records: int) -> None:
    """Nobody counts."""


def _nothing() -> None:
    """Nobody sums up."""


class Flusher:
    """Syncs logs in groups. ``on_failed`` is called once, with the error of the disk;
    ``after_group`` after the callbacks of all logs that one sync covered. A sync waits ``linger_s``
    for more logs and records to share it. ``marks`` are written after each group."""

    def __init__(
        self,
        env: Env,
        on_failed: OnFailed,
        *,
        linger_s: float = 0.0,
        on_synced: OnSynced = _unmeasured,
        after_group: Callable[[], None] = _nothing,
        marks: DurableMarks | None = None,
    ) -> None:
        self._env = env
        self._marks = marks
        self._on_failed = on_failed
        self._linger_s = linger_s
        self._on_synced = on_synced
        self._after_group = after_group
        self._callbacks: dict[Log, OnDurable] = {}
        self._waiting: dict[Log, None] = {}
        self._wake = trio.Event()
        self._durations: deque[float] = deque(maxlen=_REMEMBERED)
        self._count = 0
        self._slow_count = 0
        self._started_at: float | None = None
        self.error: OSError | None = None

    def register(self, log: Log, on_durable: OnDurable) -> None:
        """Call ``on_durable(log)`` after each sync that covered ``log``; synchronously."""
        self._callbacks[log] = on_durable

    def unregister(self, log: Log) -> None:
        """Forget a log that is about to be closed; its last request is dropped."""
        self._callbacks.pop(log, None)
        self._waiting.pop(log, None)

    def request(self, log: Log) -> None:
        """Let the next sync cover everything that is in ``log`` now. Never blocks; asking twice
        costs nothing. Ignored after a failure."""
        if self.error is None:
            self._waiting[log] = None
            self._wake.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Flush until cancelled or until a sync fails. Cancellation waits for the running sync."""
        task_status.started()
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            if self._waiting and self._linger_s:
                await trio.sleep(self._linger_s)
            if self._waiting and not await when_there_is_room(self._flush, self._env.waits):
                return

    @property
    def waiting_count(self) -> int:
        """Logs that wait for the next sync."""
        return len(self._waiting)

    def statistics(self) -> FlushStatistics:
        """Figures for metrics and for telling a degraded disk (replication/DESIGN 7)."""
        ordered = sorted(self._durations)
        running = 0.0 if self._started_at is None else self._env.now() - self._started_at
        if not ordered:
            return FlushStatistics(0, 0, 0.0, 0.0, 0.0, running)
        return FlushStatistics(
            self._count,
            self._slow_count,
            ordered[len(ordered) // 2],
            ordered[len(ordered) * 99 // 100],
            ordered[-1],
            running,
        )

    async def _flush(self) -> bool:
        """One group; False when the disk has failed. Raises OSError where there is no room for the
        marks: nobody was told of anything, and it is to be tried again."""
        group = [(log, log.files_to_sync()) for log in self._waiting if log.failed is None]
        self._waiting = {}
        self._started_at = self._env.now()
        try:
            await self._sync(group)
            await self._mark(group)
        except OSError as error:
            if is_full(error):
                self._put_back(group)
                raise
            self._fail(error)
            return False
        except trio.Cancelled:  # while there was no descriptor to sync with
            self._put_back(group)
            raise
        finally:
            self._note_duration()
        records = 0
        for log, ticket in group:
            before = log.durable_offset
            log.synced(ticket)
            records += log.durable_offset - before
        if group:
            self._on_synced(self._durations[-1], len(group), records)
        for log, _ in group:
            callback = self._callbacks.get(log)
            if callback is not None:
                callback(log)
        self._after_group()
        return True

    async def _sync(self, group: Sequence[tuple[Log, SyncTicket]]) -> None:
        disk = self._env.disk
        files = [file for _, ticket in group for file in ticket.files]
        if self._marks is not None and files:
            files += self._marks.to_ride(self._env.now())
        await disk.sync(files)
        if self._marks is not None:
            self._marks.rode()
        for log, ticket in group:
            if ticket.directory is None:
                continue
            try:
                await disk.fsync_dir(ticket.directory)
            except OSError:
                if not log.closed:  # else there may be no directory of that name any more
                    raise

    async def _mark(self, group: Sequence[tuple[Log, SyncTicket]]) -> None:
        """Write how far the logs are synced now, before anybody is told; what is of a new leader
        epoch must be found by a start after a power cut, too."""
        if self._marks is None:
            return
        for log, ticket in group:
            if ticket.end_offset > log.durable_offset:
                log.mark.reach(Marked.of(ticket.end_offset, log.epochs, ticket.fingerprint))
        self._marks.flush()
        if self._marks.begins_term:
            await self._marks.sync()

    def _put_back(self, group: Sequence[tuple[Log, SyncTicket]]) -> None:
        for log, ticket in group:
            log.put_back(ticket)
            if log in self._callbacks:
                self._waiting[log] = None
        if self._marks is not None:
            self._marks.fell_off()

    def _fail(self, error: OSError) -> None:
        self.error = error
        self._waiting = {}
        for log in self._callbacks:
            log.fail(error)
        self._on_failed(error)

    def _note_duration(self) -> None:
        if self._started_at is not None:
            seconds = self._env.now() - self._started_at
            self._durations.append(seconds)
            self._count += 1
            self._slow_count += seconds > SLOW_SYNC_S
            self._started_at = None
