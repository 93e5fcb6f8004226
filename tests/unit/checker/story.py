"""Tells histories: a cluster of the mind that keeps its promises, unless a test has it lie."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline_cluster.checker import events
from paceline_cluster.checker.events import Event, Run

AT = "orders/0"
Record = tuple[int, int]
"""(stream, counter)."""


@dataclass
class Story:
    """Events so far, and what the partitions hold: records with their leader epochs."""

    told: list[Event] = field(default_factory=list)
    logs: dict[str, list[tuple[Record, int]]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    streams: list[events.Stream] = field(default_factory=list)
    next_counter: dict[int, int] = field(default_factory=dict)
    ops: int = 0

    @property
    def t(self) -> float:
        return len(self.told) / 1000

    def stream(
        self, at: str = AT, *, acks: str = "all", idempotent: bool = True, ordered: bool = True
    ) -> int:
        number = len(self.streams)
        event = events.Stream(self.t, number, f"w{number}", "k", at, acks, idempotent, ordered)
        self.streams.append(event)
        self.told.append(event)
        self.logs.setdefault(at, [])
        self.epochs.setdefault(at, 1)
        self.next_counter[number] = 0
        return number

    def at(self, stream: int) -> str:
        return self.streams[stream].at

    def invoke(self, stream: int, count: int = 1) -> int:
        """Returns the first counter."""
        first = self.next_counter[stream]
        self.next_counter[stream] += count
        self.told.append(events.Invoke(self.t, stream, first, count))
        return first

    def append(self, stream: int, first: int, count: int = 1) -> int:
        """The leader stores them. Returns the base offset."""
        at = self.at(stream)
        log = self.logs[at]
        base = len(log)
        log += [((stream, first + step), self.epochs[at]) for step in range(count)]
        return base

    def ok(self, stream: int, first: int, count: int, base: int) -> None:
        epoch = self.epochs[self.at(stream)]
        self.told.append(events.Ok(self.t, stream, first, count, base, epoch))

    def write(self, stream: int, count: int = 1) -> int:
        """Written, stored, acknowledged. Returns the base offset."""
        first = self.invoke(stream, count)
        base = self.append(stream, first, count)
        self.ok(stream, first, count, base)
        return base

    def fail(self, stream: int, first: int, count: int = 1) -> None:
        self.told.append(events.Fail(self.t, stream, first, count, "NotEnoughReplicas"))

    def unknown(self, stream: int, first: int, count: int = 1) -> None:
        self.told.append(events.Unknown(self.t, stream, first, count, "RequestTimedOut"))

    def read(self, reader: str, start: int, end: int, at: str = AT) -> None:
        for base, epoch, runs in batches(self.logs[at], start, end):
            self.told.append(events.Read(self.t, reader, at, base, epoch, runs))

    def say(self, *told: Event) -> None:
        self.told.extend(told)

    def fault(self, *moves: str) -> int:
        number = sum(isinstance(event, events.Fault) for event in self.told)
        self.told.append(events.Fault(self.t, number, "kill", "leader", (1,), moves))
        return number

    def op(self) -> int:
        self.ops += 1
        return self.ops

    def finish(self) -> list[Event]:
        """Everything is read; the whole history."""
        for at in sorted(self.logs):
            log = self.logs[at]
            self.told.append(events.Final(self.t, at, 0, len(log)))
            for base, epoch, runs in batches(log, 0, len(log)):
                self.told.append(events.FinalRead(self.t, at, base, epoch, runs))
        return self.told


def batches(
    log: list[tuple[Record, int]], start: int, end: int
) -> list[tuple[int, int, tuple[Run, ...]]]:
    """(base, epoch, runs) of ``start .. end``: one for every run of one epoch."""
    found = []
    while start < end:
        epoch = log[start][1]
        stop = start
        while stop < end and log[stop][1] == epoch:
            stop += 1
        found.append((start, epoch, runs_of([record for record, _ in log[start:stop]])))
        start = stop
    return found


def runs_of(records: list[Record]) -> tuple[Run, ...]:
    runs: list[Run] = []
    for stream, counter in records:
        if runs:
            last, first, count = runs[-1]
            if last == stream and (stream < 0 or first + count == counter):
                runs[-1] = (last, first, count + 1)
                continue
        runs.append((stream, counter, 1))
    return tuple(runs)
