"""What the checker can find, and its verdict."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import field
from typing import Any

from paceline.values import dataclass

KEPT_PER_KIND = 20
"""So many findings of a kind are told in words; all are counted."""


class Kind(enum.StrEnum):
    """What is wrong. Each value is the heading it is reported under."""

    LOST = "acknowledged write lost"
    MISPLACED = "stored elsewhere than acknowledged"
    DUPLICATE = "stored twice by an idempotent producer"
    REORDERED = "stored in another order than written"
    REAL_TIME_ORDER = "stored before what was acknowledged earlier"
    REFUSED_STORED = "refused but stored"
    TORN = "a part of a transaction"
    NEVER_WRITTEN = "read but never written"
    UNCOMMITTED_READ = "read but not committed"
    INCONSISTENT = "one offset told with two contents"
    GAP = "offsets passed over"
    WENT_BACK = "offsets went back"
    EPOCH_WENT_BACK = "leader epoch went back in the log"
    STALE_OFFSET = "stale committed offset"
    OFFSET_FROM_NOWHERE = "committed offset that nobody committed"
    GENERATION_WENT_BACK = "group generation went back"
    ZOMBIE_COMMIT = "commit of an old generation accepted"
    SET_BACK = "committed offset set back"
    PASSED_OVER = "committed, and worked through by nobody"
    BAD_HISTORY = "the history contradicts itself"
    VACUOUS = "the run proves too little"


class Outcome(enum.StrEnum):
    """The verdict in one word. INVALID outranks VACUOUS."""

    VALID = "valid"
    VACUOUS = "vacuous"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, ``t`` seconds into the run as far as it has a time."""

    kind: Kind
    text: str
    t: float

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind.name.lower(), "text": self.text, "t": round(self.t, 3)}


@dataclass(slots=True)
class Findings:
    """Collects findings; keeps the first of each kind."""

    counts: Counter[Kind] = field(default_factory=Counter)
    kept: list[Finding] = field(default_factory=list)
    now: float = 0.0

    def add(self, kind: Kind, text: str, count: int = 1) -> None:
        """Note ``count`` cases told by one sentence."""
        if self.counts[kind] < KEPT_PER_KIND:
            self.kept.append(Finding(kind, text, self.now))
        self.counts[kind] += count


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a history proves. ``counts`` are numbers of records, reads, faults and so on;
    ``finding_counts`` tells how many cases of each kind there are, kept in ``findings`` or not."""

    findings: tuple[Finding, ...]
    finding_counts: dict[Kind, int]
    counts: dict[str, int]

    @property
    def outcome(self) -> Outcome:
        wrong = [kind for kind, count in self.finding_counts.items() if count]
        if any(kind is not Kind.VACUOUS for kind in wrong):
            return Outcome.INVALID
        return Outcome.VACUOUS if wrong else Outcome.VALID

    def lines(self) -> list[str]:
        """The verdict for people: one line of figures, then every kind with its examples."""
        figures = ", ".join(
            f"{count:,} {name.replace('_', ' ')}" for name, count in self.counts.items()
        )
        lines = [f"{self.outcome}: {figures}"]
        for kind in Kind:
            count = self.finding_counts.get(kind, 0)
            if count:
                lines.append(f"{count} x {kind}:")
                lines += [f"  {each.text}" for each in self.findings if each.kind is kind]
        return lines

    def to_json(self) -> dict[str, Any]:
        return {
            "outcome": str(self.outcome),
            "counts": dict(self.counts),
            "finding_counts": {
                kind.name.lower(): count for kind, count in self.finding_counts.items() if count
            },
            "findings": [finding.to_json() for finding in self.findings],
        }
