"""Judges committed offsets and generations of consumer groups. Pure.

A committed offset is a register: whoever asks must be told what the last commit that was done by
then wrote, or what a commit wrote that may have happened since. A commit of unknown outcome may
happen at any later time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from paceline.values import dataclass
from paceline_cluster.checker import events
from paceline_cluster.checker.findings import Findings, Kind

NONE_COMMITTED = -1


@dataclass(slots=True)
class _Commit:
    event: events.Commit
    invoked: int
    newest_generation: int
    ended: int | None = None


@dataclass(slots=True)
class _Register:
    """What may be committed: commits that none which began after their end has replaced."""

    possible: list[_Commit] = field(default_factory=list)
    initial: bool = True
    written: set[int] = field(default_factory=lambda: {NONE_COMMITTED})


@dataclass(slots=True)
class _Question:
    event: events.AskOffset
    asked: int
    allowed: set[int]


class GroupsJudge:
    """Takes the group events in order."""

    def __init__(self, findings: Findings, counts: Counter[str]) -> None:
        self._findings = findings
        self._counts = counts
        self._clock = 0
        self._registers: dict[tuple[str, str], _Register] = {}
        self._commits: dict[int, _Commit] = {}
        self._questions: dict[int, _Question] = {}
        self._joins: dict[int, tuple[events.Join, int]] = {}
        self._generations: dict[str, int] = {}

    # --- commits ----------------------------------------------------------------------------------

    def commit(self, event: events.Commit) -> None:
        made = _Commit(event, self._tick(), self._generations.get(event.group, -1))
        self._commits[event.op] = made
        register = self._register(event.group, event.at)
        register.possible.append(made)
        register.written.add(event.offset)
        for question in self._questions.values():
            if (question.event.group, question.event.at) == (event.group, event.at):
                question.allowed.add(event.offset)

    def commit_ok(self, event: events.CommitOk) -> None:
        done = self._commits.pop(event.op, None)
        if done is None:
            self._bad(event.op)
            return
        self._counts["commits"] += 1
        done.ended = self._tick()
        register = self._register(done.event.group, done.event.at)
        register.initial = False
        register.possible = [
            each for each in register.possible if each.ended is None or each.ended > done.invoked
        ]
        if 0 <= done.event.generation < done.newest_generation:
            self._findings.add(
                Kind.ZOMBIE_COMMIT,
                f"group {done.event.group}, {done.event.at}: offset {done.event.offset} of "
                f"generation {done.event.generation} accepted, although generation "
                f"{done.newest_generation} had been told before it was sent",
            )

    def commit_fail(self, event: events.CommitFail) -> None:
        failed = self._commits.pop(event.op, None)
        if failed is None:
            self._bad(event.op)
            return
        self._tick()
        self._register(failed.event.group, failed.event.at).possible.remove(failed)

    def commit_unknown(self, event: events.CommitUnknown) -> None:
        if self._commits.pop(event.op, None) is None:
            self._bad(event.op)
        self._tick()  # it stays possible for ever: its ``ended`` remains None

    # --- asking -----------------------------------------------------------------------------------

    def ask(self, event: events.AskOffset) -> None:
        register = self._register(event.group, event.at)
        allowed = {each.event.offset for each in register.possible}
        if register.initial:
            allowed.add(NONE_COMMITTED)
        self._questions[event.op] = _Question(event, self._tick(), allowed)

    def told(self, event: events.OffsetTold) -> None:
        question = self._questions.pop(event.op, None)
        if question is None:
            self._bad(event.op)
            return
        self._tick()
        self._counts["committed_offsets_told"] += 1
        if event.offset in question.allowed:
            return
        asked = question.event
        known = event.offset in self._register(asked.group, asked.at).written
        expected = ", ".join(map(str, sorted(question.allowed)))
        self._findings.add(
            Kind.STALE_OFFSET if known else Kind.OFFSET_FROM_NOWHERE,
            f"group {asked.group}, {asked.at}: offset {event.offset} told, expected {expected}",
        )

    # --- generations ------------------------------------------------------------------------------

    def join(self, event: events.Join) -> None:
        self._joins[event.op] = (event, self._generations.get(event.group, -1))

    def joined(self, event: events.Joined) -> None:
        asked = self._joins.pop(event.op, None)
        if asked is None:
            self._bad(event.op)
            return
        join, newest = asked
        self._counts["generations_told"] += 1
        if event.generation < newest:
            self._findings.add(
                Kind.GENERATION_WENT_BACK,
                f"group {join.group}: {join.member} was told generation {event.generation}, "
                f"although {newest} had been told before it asked",
            )
        known = self._generations.get(join.group, -1)
        self._generations[join.group] = max(known, event.generation)

    # --- inside -----------------------------------------------------------------------------------

    def _register(self, group: str, at: str) -> _Register:
        return self._registers.setdefault((group, at), _Register())

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _bad(self, op: int) -> None:
        self._findings.add(Kind.BAD_HISTORY, f"an answer to question {op}, which nobody asked")
