"""What a history says about time: throughput, stalls, and how long each fault was felt. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Any

from paceline.values import dataclass
from paceline_cluster.checker import events
from paceline_cluster.checker.events import Event

STALL_S = 0.1
"""A shorter time without acknowledgements in a partition is no stall."""
_AFTERMATH_S = 2.0
"""Stalls that begin so soon after a fault's end are still its own, unless another began before."""


@dataclass(frozen=True, slots=True)
class Stall:
    """No write of a partition was acknowledged from ``begin`` to ``end``."""

    at: str
    begin: float
    end: float


@dataclass(slots=True)
class FaultTimes:
    """A fault as the clients felt it. ``stall_s``: the longest time, from the fault on, without an
    acknowledgement in some partition (``stalled``). ``takeover_s``: until the last of the
    partitions it moved had an acknowledgement of a newer leader."""

    event: events.Fault
    end: float
    stall_s: float = 0.0
    stalled: str = ""
    takeover_s: float | None = None
    _before: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.event.kind,
            "target": self.event.target,
            "nodes": list(self.event.nodes),
            "begin": round(self.event.t, 3),
            "end": round(self.end, 3),
            "longest_stall_s": round(self.stall_s, 3),
            "stalled_partition": self.stalled,
            "takeover_s": None if self.takeover_s is None else round(self.takeover_s, 3),
        }


@dataclass(slots=True)
class Timeline:
    """Numbers a bucket of ``bucket_s`` seconds, stalls, faults."""

    bucket_s: float
    end: float
    acknowledged: list[int]
    read: list[int]
    unknown: list[int]
    stalls: list[Stall]
    faults: list[FaultTimes]


def timeline(history: Iterable[Event], *, bucket_s: float = 0.25) -> Timeline:
    """Everything at once, in one pass."""
    taker = _Taker(bucket_s)
    for event in history:
        taker.take(event)
    return taker.finish()


class _Taker:
    def __init__(self, bucket_s: float) -> None:
        self._bucket_s = bucket_s
        self._end = 0.0
        self._counts: dict[str, dict[int, int]] = {"acknowledged": {}, "read": {}, "unknown": {}}
        self._at: dict[int, str] = {}
        self._last: dict[str, float] = {}
        self._epoch: dict[str, int] = {}
        self._stalls: list[Stall] = []
        self._faults: dict[int, FaultTimes] = {}
        self._moving: list[FaultTimes] = []

    def take(self, event: Event) -> None:
        match event:
            case events.Stream():
                self._at[event.stream] = event.at
            case events.Ok():
                self._ok(event)
            case events.Unknown():
                self._count("unknown", event.t, event.count)
            case events.Read():
                self._count("read", event.t, sum(count for _, _, count in event.runs))
            case events.Fault():
                self._fault(event)
            case events.Healed() if event.fault in self._faults:
                self._faults[event.fault].end = event.t
            case _:
                pass

    def _count(self, name: str, t: float, count: int) -> None:
        self._end = max(self._end, t)
        bucket = int(t / self._bucket_s)
        counts = self._counts[name]
        counts[bucket] = counts.get(bucket, 0) + count

    def _ok(self, event: events.Ok) -> None:
        self._count("acknowledged", event.t, event.count)
        at = self._at[event.stream]
        last = self._last.get(at)
        if last is not None and event.t - last > STALL_S:
            self._stalls.append(Stall(at, last, event.t))
        self._last[at] = event.t
        known = self._epoch.get(at, -1)
        if event.epoch <= known:
            return
        self._epoch[at] = event.epoch
        for fault in self._moving:
            if event.epoch > fault._before.get(at, event.epoch):
                fault.takeover_s = max(fault.takeover_s or 0.0, event.t - fault.event.t)
                del fault._before[at]
        self._moving = [fault for fault in self._moving if fault._before]

    def _fault(self, event: events.Fault) -> None:
        self._end = max(self._end, event.t)
        before = {at: self._epoch[at] for at in event.moves if at in self._epoch}
        fault = self._faults[event.fault] = FaultTimes(event, event.t, _before=before)
        if before:
            self._moving.append(fault)

    def finish(self) -> Timeline:
        begins = sorted(fault.event.t for fault in self._faults.values())
        for fault in self._faults.values():
            following = next((t for t in begins if t > fault.event.t), float("inf"))
            self._felt(fault, max(fault.end, min(fault.end + _AFTERMATH_S, following)))
        length = int(self._end / self._bucket_s) + 1
        acknowledged, read, unknown = (
            [self._counts[name].get(bucket, 0) for bucket in range(length)]
            for name in ("acknowledged", "read", "unknown")
        )
        faults = list(self._faults.values())
        return Timeline(
            self._bucket_s, self._end, acknowledged, read, unknown, self._stalls, faults
        )

    def _felt(self, fault: FaultTimes, until: float) -> None:
        for stall in self._stalls:
            if stall.end > fault.event.t and stall.begin < until:
                length = stall.end - max(stall.begin, fault.event.t)
                if length > fault.stall_s:
                    fault.stall_s, fault.stalled = length, stall.at
