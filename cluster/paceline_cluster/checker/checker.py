"""The checker: events in, verdict out. One pass, no clock, no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from paceline_cluster.checker import events
from paceline_cluster.checker.events import Event
from paceline_cluster.checker.findings import Findings, Verdict
from paceline_cluster.checker.groups import GroupsJudge
from paceline_cluster.checker.processing import ProcessingJudge
from paceline_cluster.checker.records import RecordsJudge
from paceline_cluster.checker.vacuity import VacuityJudge


class Checker:
    """Feed it every event of a history, in order, then take its :meth:`verdict` once.

    A live harness feeds it while the run goes on; nothing of the history is kept but what
    ``records.py`` says.
    """

    def __init__(self) -> None:
        self._findings = Findings()
        self._counts: Counter[str] = Counter()
        self._records = RecordsJudge(self._findings, self._counts)
        self._groups = GroupsJudge(self._findings, self._counts)
        self._work = ProcessingJudge(self._findings, self._counts)
        self._vacuity = VacuityJudge(self._findings, self._counts, self._records)
        self._takers: dict[type[Any], Callable[[Any], None]] = {
            events.Begin: _ignore,
            events.Healed: _ignore,
            events.Fault: self._vacuity.fault,
            events.Stream: self._records.opened,
            events.Invoke: self._records.invoked,
            events.Ok: self._acknowledged,
            events.Fail: self._records.refused,
            events.Unknown: self._records.given_up,
            events.Together: self._records.together,
            events.Seek: self._records.sought,
            events.Read: self._records.read,
            events.Final: self._records.final,
            events.FinalRead: self._final_read,
            events.Commit: self._groups.commit,
            events.CommitOk: self._groups.commit_ok,
            events.CommitFail: self._groups.commit_fail,
            events.CommitUnknown: self._groups.commit_unknown,
            events.AskOffset: self._groups.ask,
            events.OffsetTold: self._groups.told,
            events.Join: self._groups.join,
            events.Joined: self._groups.joined,
            events.Worked: self._work.worked,
            events.Kept: self._work.kept,
            events.AskKept: self._work.ask,
            events.KeptTold: self._work.told,
        }

    def feed(self, event: Event) -> None:
        """Take the next event."""
        self._findings.now = event.t
        self._takers[type(event)](event)

    def _acknowledged(self, event: events.Ok) -> None:
        self._records.acknowledged(event)
        at = self._records.partition_of(event.stream)
        if at is not None:
            self._vacuity.acknowledged(at, event.epoch)

    def _final_read(self, event: events.FinalRead) -> None:
        self._records.final_read(event)
        self._work.final_read(event)

    def verdict(self) -> Verdict:
        """Judge the whole."""
        self._records.finish()
        self._vacuity.finish()
        findings = self._findings
        return Verdict(tuple(findings.kept), dict(findings.counts), dict(self._counts))


def _ignore(_event: Event) -> None:
    """Says nothing about promises."""


def judge(history: Iterable[Event]) -> Verdict:
    """The verdict on a whole history."""
    checker = Checker()
    for event in history:
        checker.feed(event)
    return checker.verdict()
