"""One machine beside its partition's replica: following the log, loading, leading.

::

    FOLLOWING   folds what is committed (warm standby)
       | elected: the log's end at this moment is noted
    LOADING     folds the rest of its own log, waits until all of that is committed
       | high watermark >= that end                       (so no predecessor's decision is
    LEADING     each write is appended and folded at once  lost, and none is told too early)
       | any other leader epoch
    FOLLOWING   what was folded but is not committed may be truncated: then it folds anew

Nothing that a leading machine says leaves this node before everything it knew of the same scope is
committed (:meth:`MachineReplica.when_committed`), so nobody ever hears of a state that a failover
could take back. A leader that was deposed without knowing cannot commit, and stops by itself when
its session with the controller ends. Synchronous and free of I/O but for the log it is given.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from paceline.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    PacelineError,
)
from paceline.wire.batch import build_batch, iter_batches
from paceline.wire.records import Record, decode_records
from paceline_node.state_machines.machine import EVERYTHING, Entry, Machine, Scope
from paceline_node.storage.folding import FoldStart

FOLD_BYTES = 16 * 1024
"""Read and folded in one step: about a millisecond."""


class StateLog(Protocol):
    """What a machine needs of its partition's replica on this node."""

    @property
    def is_leader(self) -> bool: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def losses(self) -> int:
        """As :attr:`Journal.losses`."""

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which the record at ``offset`` was written; -1 where that is not
        known."""

    def fold_start(self) -> FoldStart:
        """What to keep of the log as it is now, for :meth:`leads_on`."""

    def leads_on(self, start: FoldStart, offset: int) -> bool:
        """Whether what was folded since ``start`` is still what the records below ``offset`` say,
        and those behind tell all that has happened since."""

    def check_serving(self) -> None:
        """Raise a PacelineError unless this node may act as a leader now."""

    def read(self, offset: int, max_bytes: int, end: int) -> bytes | None:
        """Whole batches from the one with ``offset`` on, checked, none that reaches ``end``; None
        when there is none. Raises PacelineError."""

    def append(self, batch: bytearray) -> None:
        """Append in this leader epoch, to be held by enough replicas. Raises PacelineError with
        nothing appended."""

    def when_committed(self, offset: int, callback: Callable[[], None]) -> object:
        """Call ``callback`` once the high watermark is above ``offset`` or the role changes.
        Returns a token for :meth:`cancel`."""

    def cancel(self, token: object) -> None: ...


class Clock(Protocol):
    """Two kinds of time."""

    def now(self) -> float: ...
    def wall_ms(self) -> int: ...


class Phase(enum.Enum):
    FOLLOWING = "following"
    LOADING = "loading"
    LEADING = "leading"


class MachineReplica:
    """Keeps ``machine`` in step with ``log``; is the machine's journal while it leads."""

    def __init__(self, name: str, log: StateLog, machine: Machine, clock: Clock) -> None:
        self.name = name
        self.machine = machine
        self._log = log
        self._clock = clock
        self.phase = Phase.FOLLOWING
        self.applied = log.log_start_offset
        self._applied_epoch = -1
        self._start = log.fold_start()
        self._load_end = 0
        self._led_epoch = -1
        self._write_count = 0
        self._last_writes: dict[Scope, int] = {}
        self._floor = -1

    # --- following and loading --------------------------------------------------------------------

    def role_changed(self) -> None:
        """The partition's leader epoch, or this node's part in it, is another one now."""
        if self.phase is not Phase.FOLLOWING:
            self._step_down(NotCoordinator(f"{self.name}: another node coordinates"))
        if self._log.is_leader:
            self.phase = Phase.LOADING
            self._led_epoch = self._log.leader_epoch
            self._load_end = self._log.log_end_offset
        elif self.applied > self._log.high_watermark:
            self._start_over()

    def close(self) -> None:
        """The partition is hosted here no longer."""
        if self.phase is not Phase.FOLLOWING:
            self._step_down(NotCoordinator(f"{self.name}: no longer on this node"))

    def _step_down(self, error: PacelineError) -> None:
        was_leading = self.phase is Phase.LEADING
        self.phase = Phase.FOLLOWING
        self._last_writes.clear()
        self._floor = -1
        if was_leading:
            self.machine.resign(error)

    def _start_over(self) -> None:
        self.machine.reset()
        self.applied = self._log.log_start_offset
        self._applied_epoch = -1
        self._start = self._log.fold_start()

    def step(self) -> bool:
        """Fold the next piece of the log; True when there is more to do at once.

        Raises PacelineError: what lies there cannot be read, or the machine cannot begin to lead
        yet; call again later.
        """
        if self.phase is Phase.LEADING:
            return False
        log = self._log
        if not self._goes_on:
            self._start_over()
        end = log.log_end_offset if self.phase is Phase.LOADING else log.high_watermark
        data = log.read(self.applied, FOLD_BYTES, end) if self.applied < end else None
        if data is not None:
            self._fold(data)
            return True
        if self.phase is Phase.LOADING and self._is_loaded:
            self._lead()
        return False

    def _fold(self, data: bytes) -> None:
        for position, header in iter_batches(data):
            if header.record_count:
                for record in decode_records(data, position):
                    if record.offset >= self.applied and record.key is not None:
                        self.machine.apply(Entry(record.key, record.value))
            self.applied = header.next_offset
        self._applied_epoch = self._log.epoch_at(self.applied - 1)

    @property
    def _goes_on(self) -> bool:
        """Whether the log still leads on from what was folded. Not where what was folded last is
        gone: behind an unclean election a log is cut below what was committed, and may have grown
        again since. Nor where others took the records' place, which may be offsets and epochs as
        before: a replica begins anew because it lacks tombstones, and its new log lacks them, too.
        """
        log, applied = self._log, self.applied
        if not log.log_start_offset <= applied <= log.log_end_offset:
            return False
        if applied > log.log_start_offset and log.epoch_at(applied - 1) != self._applied_epoch:
            return False
        return log.leads_on(self._start, applied)

    @property
    def _is_loaded(self) -> bool:
        return self.applied >= self._load_end and self._log.high_watermark >= self._load_end

    def _lead(self) -> None:
        self._log.check_serving()
        self.phase = Phase.LEADING
        try:
            self.machine.lead(self, log_is_empty=self._log.log_end_offset == 0)
        except PacelineError as error:
            self.phase = Phase.LOADING
            self.machine.resign(error)
            raise
        # What the machine wrote to begin with concerns every scope.
        self._floor = max(self._last_writes.values(), default=-1)

    def watch(self, callback: Callable[[], None]) -> object | None:
        """Call ``callback`` when :meth:`step` has more to do; the token is for :meth:`unwatch`."""
        match self.phase:
            case Phase.FOLLOWING:
                return self._log.when_committed(self.applied, callback)
            case Phase.LOADING:
                return self._log.when_committed(self._load_end - 1, callback)
            case Phase.LEADING:
                return None

    def unwatch(self, token: object | None) -> None:
        """Forget a callback; idempotent."""
        if token is not None:
            self._log.cancel(token)

    # --- leading ----------------------------------------------------------------------------------

    @property
    def leads_log(self) -> bool:
        """Whether this replica leads the partition, its machine loaded or not."""
        return self._log.is_leader

    @property
    def write_count(self) -> int:
        """How often the machine has written."""
        return self._write_count

    def check_leading(self) -> None:
        """Raise CoordinatorLoadInProgress, or NotCoordinator, unless the machine may decide."""
        if not self._log.is_leader:
            raise NotCoordinator(f"{self.name}: another node coordinates")
        if self.phase is not Phase.LEADING:
            raise CoordinatorLoadInProgress(f"{self.name}: still reading up to {self._load_end}")
        if self._led_epoch != self._log.leader_epoch:
            raise NotCoordinator(f"{self.name}: leader epoch {self._led_epoch} is over")
        try:
            self._log.check_serving()
        except PacelineError as error:
            raise CoordinatorNotAvailable(f"{self.name}: {error}") from error

    @property
    def serves(self) -> bool:
        """Whether :meth:`check_leading` allows the machine to decide."""
        try:
            self.check_leading()
        except PacelineError:
            return False
        return True

    def ring(self, now: float) -> None:
        """Let the machine do what is due at ``now``, if it may decide: a process that was suspended
        may have been deposed, and must not send a word to the members of another's group."""
        if self._alarm() <= now and self.serves:
            self.machine.on_alarm()

    def next_ring(self, now: float, retry_s: float) -> float:
        """When to call :meth:`ring` again; ``retry_s`` from now for a machine that may not decide
        at the moment. inf: not before it is heard of again."""
        alarm = self._alarm()
        return alarm if alarm > now or self.serves else now + retry_s

    def _alarm(self) -> float:
        return self.machine.next_alarm() if self.phase is Phase.LEADING else math.inf

    def write(self, scope: Scope, entries: Sequence[Entry]) -> None:
        """Append and fold (see :class:`~paceline_node.state_machines.machine.Journal`)."""
        assert self.phase is Phase.LEADING, f"{self.name}: a write while {self.phase}"
        assert self.applied == self._log.log_end_offset, f"{self.name}: somebody else appended"
        stamp = self._clock.wall_ms()
        batch = build_batch([Record(-1, stamp, entry.key, entry.value) for entry in entries])
        try:
            self._log.append(batch)
        except PacelineError as error:
            raise CoordinatorNotAvailable(f"{self.name}: {error}") from error
        self.applied = self._log.log_end_offset
        self._applied_epoch = self._log.epoch_at(self.applied - 1)
        self._write_count += 1
        self._last_writes[scope] = self.applied - 1
        for entry in entries:
            self.machine.apply(entry)

    @property
    def losses(self) -> int:
        """See :class:`~paceline_node.state_machines.machine.Journal`."""
        return self._log.losses

    def now(self) -> float:
        return self._clock.now()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def uncommitted(self, scope: Scope) -> int | None:
        """The last offset that must be committed before anything is said about ``scope``; None
        when it is."""
        committed = self._log.high_watermark
        if scope is EVERYTHING:
            return None if self.applied <= committed else self.applied - 1
        offset = max(self._last_writes.get(scope, -1), self._floor)
        if offset >= committed:
            return offset
        self._last_writes.pop(scope, None)
        return None

    def when_committed(self, offset: int, callback: Callable[[], None]) -> object:
        """Call ``callback`` once ``offset`` is committed or the role changes; the token is for
        :meth:`unwatch`."""
        return self._log.when_committed(offset, callback)

    def is_committed(self, offset: int, led_epoch: int) -> bool:
        """Whether ``offset``, written or read while leading in ``led_epoch``, is committed."""
        return self.led_epoch == led_epoch and self._log.high_watermark > offset

    @property
    def led_epoch(self) -> int:
        """The leader epoch in which this machine leads; -1 while it does not."""
        return self._led_epoch if self.phase is Phase.LEADING else -1
