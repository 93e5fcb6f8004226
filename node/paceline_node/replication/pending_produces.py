"""Produce requests that were appended and wait for what their acks ask for (DESIGN 4.1).

Three ways to wait: for the high watermark (acks=all), for the own disk (acks=1 where only synced
records count), and, on a lone node, for the high watermark and enough simulated slots (DESIGN 8).
Nobody waits across a leader epoch: the partition fails everyone first (I14).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from paceline.errors import PacelineError, RequestTimedOut
from paceline.types import NO_EPOCH, LeaderEpoch
from paceline_node.net.deadlines import Deadline, Deadlines
from paceline_node.replication.waiters import OffsetWaiters

_STEP_S = 0.02
"""All who wait are looked at when an alarm rings, so that it does not ring for each: where nothing
is committed, thousands may wait."""


class ProduceResult(NamedTuple):
    """Where a produce request came to lie; offsets inclusive, high watermark exclusive."""

    base_offset: int
    last_offset: int
    leader_epoch: LeaderEpoch
    high_watermark: int
    log_start_offset: int
    duplicate: bool


Done = Callable[[ProduceResult | PacelineError], None]


class PendingProduce:
    """A request that was appended. ``done`` takes its result; ``is_duplicate``: all of it had been
    stored before. ``leader_epoch`` is the one in which an answer is waited for."""

    __slots__ = (
        "base_offset",
        "done",
        "is_duplicate",
        "last_offset",
        "leader_epoch",
        "required_isr",
    )

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        required_isr: int,
        done: Done,
        *,
        is_duplicate: bool,
    ) -> None:
        self.leader_epoch = NO_EPOCH
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.required_isr = required_isr
        self.done = done
        self.is_duplicate = is_duplicate


class PendingProduces:
    """All waiting producers of one partition; ``name`` is the partition's, for errors. ``succeed``
    tells a producer that it is stored as asked."""

    def __init__(
        self,
        name: str,
        now: Callable[[], float],
        deadlines: Deadlines,
        succeed: Callable[[PendingProduce], None],
    ) -> None:
        self._name = name
        self._now = now
        self._deadlines = deadlines
        self._succeed = succeed
        self._committing: OffsetWaiters[PendingProduce] = OffsetWaiters()
        self._syncing: OffsetWaiters[PendingProduce] = OffsetWaiters()
        self._simulated: list[tuple[float, PendingProduce]] = []
        self._alarm: Deadline | None = None
        self._alarm_at = math.inf

    def __len__(self) -> int:
        return len(self._committing) + len(self._syncing) + len(self._simulated)

    def wait_committed(self, request: PendingProduce, timeout_s: float) -> None:
        """Answer once the high watermark is above the request's last offset."""
        deadline = self._now() + timeout_s
        self._committing.add(request.last_offset, request, self._succeed, deadline)
        self._arm(deadline)

    def wait_durable(self, request: PendingProduce, timeout_s: float) -> None:
        """Answer once this node's disk has the request's last offset."""
        deadline = self._now() + timeout_s
        self._syncing.add(request.last_offset, request, self._succeed, deadline)
        self._arm(deadline)

    def wait_simulated(self, request: PendingProduce, timeout_s: float) -> None:
        """Answer once :meth:`settle_simulated` finds it committed with enough replicas."""
        deadline = self._now() + timeout_s
        self._simulated.append((deadline, request))
        self._arm(deadline)

    @property
    def waits_for_slots(self) -> bool:
        """Whether anyone waits for simulated slots."""
        return bool(self._simulated)

    def committed(self, high_watermark: int) -> None:
        """The high watermark moved."""
        self._committing.advance(high_watermark)

    def durable(self, durable_offset: int) -> None:
        """The own durable offset moved."""
        self._syncing.advance(durable_offset)

    def settle_simulated(self, high_watermark: int, in_sync: int) -> None:
        """Answer those that are committed and held by enough replicas, simulated ones included."""
        waiting, self._simulated = self._simulated, []
        for deadline, request in waiting:
            if request.last_offset < high_watermark and in_sync >= request.required_isr:
                self._succeed(request)
            else:
                self._simulated.append((deadline, request))

    def fail_committing(self, error: PacelineError) -> None:
        """Too few replicas are left: whoever waits for the high watermark is told."""
        _tell(self._committing.drain(), error)

    def fail_all(self, error: PacelineError) -> None:
        """The leader epoch ended here."""
        _tell(self._committing.drain(), error)
        _tell(self._syncing.drain(), error)
        simulated, self._simulated = self._simulated, []
        _tell([request for _, request in simulated], error)

    def _arm(self, deadline: float) -> None:
        """One alarm for all who wait, however they do, at the earliest of their deadlines, or a
        little after."""
        if deadline < self._alarm_at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_at = deadline
            self._alarm = self._deadlines.at(deadline, self._expire)

    def _expire(self) -> None:
        self._alarm, self._alarm_at = None, math.inf
        now = self._now()
        error = RequestTimedOut(f"{self._name}: not acknowledged in time; outcome unknown")
        expired = [*self._committing.expire(now), *self._syncing.expire(now)]
        expired += [request for deadline, request in self._simulated if deadline <= now]
        self._simulated = [entry for entry in self._simulated if entry[0] > now]
        earliest = min(
            self._committing.earliest_deadline(),
            self._syncing.earliest_deadline(),
            *(deadline for deadline, _ in self._simulated),
        )
        self._arm(max(earliest, now + _STEP_S))
        _tell(expired, error)


def _tell(requests: Iterable[PendingProduce], error: PacelineError) -> None:
    for request in requests:
        request.done(error)
