"""Judges groups of programs that say what they have worked through. Pure.

Each record is worked through by somebody before the group is past it, however its programs fail;
what a commit has kept for the group stays kept, since none of its programs goes back on purpose.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from paceline.values import dataclass
from paceline_cluster.checker import events
from paceline_cluster.checker.findings import Findings, Kind
from paceline_cluster.checker.intervals import IntervalSet


@dataclass(slots=True)
class _Place:
    """A partition as a group works through it. ``kept``: everybody who asks from now on is told
    this offset, or a higher one."""

    done: IntervalSet = field(default_factory=IntervalSet)
    kept: int = -1


class ProcessingJudge:
    """Takes the events of working groups, and what partitions hold in the end, in order."""

    def __init__(self, findings: Findings, counts: Counter[str]) -> None:
        self._findings = findings
        self._counts = counts
        self._places: dict[tuple[str, str], _Place] = {}
        self._questions: dict[int, tuple[events.AskKept, int]] = {}

    def worked(self, event: events.Worked) -> None:
        self._place(event.group, event.at).done.add(event.first, event.end)
        self._counts["records_worked_through"] += event.end - event.first

    def kept(self, event: events.Kept) -> None:
        place = self._place(event.group, event.at)
        place.kept = max(place.kept, event.offset)
        self._counts["commits_by_name"] += 1

    def ask(self, event: events.AskKept) -> None:
        self._questions[event.op] = event, self._place(event.group, event.at).kept

    def told(self, event: events.KeptTold) -> None:
        asked = self._questions.pop(event.op, None)
        if asked is None:
            self._findings.add(Kind.BAD_HISTORY, f"an answer to question {event.op}, never asked")
            return
        question, least = asked
        if event.offset < least:
            self._findings.add(
                Kind.SET_BACK,
                f"group {question.group}, {question.at}: offset {event.offset} told, {least} or "
                "more was kept before that was asked",
            )
        place = self._place(question.group, question.at)
        place.kept = max(place.kept, event.offset)

    def final_read(self, event: events.FinalRead) -> None:
        for (group, at), place in self._places.items():
            if at == event.at:
                self._look(group, event, place)

    def _look(self, group: str, event: events.FinalRead, place: _Place) -> None:
        offset = event.base
        for stream, _, count in event.runs:
            end = min(offset + count, place.kept)
            if stream != events.HIDDEN and offset < end:
                for first, last in place.done.missing(offset, end):
                    self._findings.add(
                        Kind.PASSED_OVER,
                        f"group {group}, {event.at}: offsets {first} to {last - 1}, the group "
                        f"is at {place.kept}",
                        last - first,
                    )
            offset += count

    def _place(self, group: str, at: str) -> _Place:
        return self._places.setdefault((group, at), _Place())
