"""What a check for a monitoring system found: measured against thresholds, and written as text,
JSON, for Nagios and all that take its plugins, or for Prometheus. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from typing import Any

from paceline.health import Check
from paceline.values import dataclass


class Status(enum.IntEnum):
    """How a check ends: the exit code that plugins of Nagios have."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3
    """It could not be found out."""


_WORST_FIRST = (Status.CRITICAL, Status.WARNING, Status.UNKNOWN, Status.OK)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on a value is bad; ``is_floor``: below them, else at and above. None: never."""

    warning: float | None
    critical: float | None
    is_floor: bool = False

    def judge(self, value: float) -> Status:
        """What a value means."""
        if self._is_beyond(value, self.critical):
            return Status.CRITICAL
        return Status.WARNING if self._is_beyond(value, self.warning) else Status.OK

    def _is_beyond(self, value: float, limit: float | None) -> bool:
        if limit is None:
            return False
        return value < limit if self.is_floor else value >= limit

    def of_nagios(self) -> str:
        """``;warning;critical`` as performance data have them."""

        def shown(limit: float | None) -> str:
            return "" if limit is None else f"{limit:g}{':' if self.is_floor else ''}"

        return f"{shown(self.warning)};{shown(self.critical)}"


NONE = Thresholds(None, None)


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that a check looked at; ``unit`` as Nagios has them: ``s``, ``%``, ``B``, none."""

    name: str
    value: float
    unit: str = ""
    thresholds: Thresholds = NONE
    node: int | None = None

    @property
    def status(self) -> Status:
        return self.thresholds.judge(self.value)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not in order, and what to do."""

    status: Status
    reason: str
    what_to_do: str = ""
    node: int | None = None


def finding_of(check: Check) -> Finding:
    """What health found, as a finding."""
    return Finding(Status(int(check.level)), check.reason, check.what_to_do, check.node)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one check. ``summary`` is the sentence for when all is in order."""

    check: str
    summary: str
    findings: tuple[Finding, ...] = ()
    measures: tuple[Measure, ...] = ()

    @property
    def status(self) -> Status:
        """The worst of all findings; not to know is better than to know that it is bad."""
        seen = {each.status for each in self.findings}
        return next((each for each in _WORST_FIRST if each in seen), Status.OK)

    @property
    def headline(self) -> str:
        """One sentence."""
        bad = [each.reason for each in self.findings if each.status is self.status]
        if self.status is Status.OK or not bad:
            return self.summary
        return bad[0] if len(bad) == 1 else f"{bad[0]} (and {len(bad) - 1} more)"


def unknown(check: str, why: str) -> Verdict:
    """That it could not be found out."""
    return Verdict(check, "", (Finding(Status.UNKNOWN, why),))


def measured(
    check: str,
    summary: str,
    measures: Iterable[Measure],
    reason: Callable[[Measure], tuple[str, str]],
    others: Iterable[Finding] = (),
) -> Verdict:
    """A verdict over measures; ``reason`` says what a bad one means, and what to do."""
    all_ = tuple(measures)
    bad = (Finding(each.status, *reason(each), each.node) for each in all_ if each.status)
    return Verdict(check, summary, (*bad, *others), all_)


# --- how it is written ----------------------------------------------------------------------------


class Form(enum.StrEnum):
    """What a check prints."""

    TEXT = "text"
    JSON = "json"
    NAGIOS = "nagios"
    PROMETHEUS = "prometheus"


def to_json(verdict: Verdict) -> dict[str, Any]:
    """For a program."""
    return {
        "check": verdict.check,
        "status": verdict.status.name.lower(),
        "summary": verdict.headline,
        "findings": [
            {
                "status": each.status.name.lower(),
                "reason": each.reason,
                "what_to_do": each.what_to_do,
                "node": each.node,
            }
            for each in verdict.findings
        ],
        "measures": [
            {
                "name": each.name,
                "value": each.value,
                "unit": each.unit,
                "warning": each.thresholds.warning,
                "critical": each.thresholds.critical,
                "node": each.node,
            }
            for each in verdict.measures
        ],
    }


def to_text(verdict: Verdict) -> str:
    """For a person: the verdict, then all that is not in order with what to do, which stands behind
    the last of several in a row that need the same."""
    lines = [f"{verdict.status.name} {verdict.check}: {verdict.headline}"]
    for each, following in zip_longest(verdict.findings, verdict.findings[1:]):
        is_told_next = following is not None and following.what_to_do == each.what_to_do
        is_said = is_told_next or each.what_to_do in each.reason
        todo = "" if is_said else f"; {each.what_to_do}"
        lines.append(f"  {each.status.name}: {each.reason}{todo}")
    return "\n".join(lines)


def to_nagios(verdict: Verdict) -> str:
    """The first line with performance data, then the findings. The bar divides text from data."""
    data = " ".join(map(_performance, verdict.measures))
    head = f"PACELINE {verdict.check.upper()} {verdict.status.name} - {_plain(verdict.headline)}"
    lines = [f"{head} | {data}" if data else head]
    lines += [_plain(f"{each.status.name}: {each.reason}") for each in verdict.findings]
    return "\n".join(lines)


def _performance(measure: Measure) -> str:
    label = measure.name if measure.node is None else f"node_{measure.node}_{measure.name}"
    return f"{label}={measure.value:g}{measure.unit};{measure.thresholds.of_nagios()}"


def _plain(text: str) -> str:
    return " ".join(text.replace("|", "/").split())


def to_prometheus(verdict: Verdict) -> str:
    """Gauges in the text format, for the node exporter's directory of text files."""
    lines = [
        "# HELP paceline_check_status How a check ended: 0 ok, 1 warning, 2 critical, 3 unknown.",
        "# TYPE paceline_check_status gauge",
        _sample("paceline_check_status", {"check": verdict.check}, verdict.status),
    ]
    if verdict.measures:
        lines += [
            "# HELP paceline_check_value What a check measured.",
            "# TYPE paceline_check_value gauge",
        ]
    for each in verdict.measures:
        labels = {"check": verdict.check, "name": each.name, "unit": each.unit}
        if each.node is not None:
            labels["node"] = str(each.node)
        lines.append(_sample("paceline_check_value", labels, each.value))
    return "\n".join(lines)


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{shown}}} {value:g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
