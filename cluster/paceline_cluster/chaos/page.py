"""The report of a run as one HTML page that needs nothing else: verdict, plot, faults, findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from paceline_cluster.chaos.plot import plot
from paceline_cluster.chaos.run import Report
from paceline_cluster.checker import Kind, Outcome

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem;
       color: #1b2733; background: #fff }
h1 { font-size: 1.5rem; margin: 0 0 .2rem } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
.verdict { display: inline-block; padding: .15rem .7rem; border-radius: 1rem; color: #fff }
.valid { background: #1d7f4c } .invalid { background: #b3261e } .vacuous { background: #a86a00 }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .25rem .6rem;
       border-bottom: 1px solid #d9e0e6; font-variant-numeric: tabular-nums }
th { font-weight: 600 } td.n, th.n { text-align: right } pre { white-space: pre-wrap }
svg { width: 100%; height: auto } .faint { color: #5c6b78 }
@media (prefers-color-scheme: dark) { body { color: #dfe7ee; background: #12181d }
  th, td { border-color: #2c3843 } .faint { color: #93a3b1 } }
"""


def page(report: Report) -> str:
    """The whole page."""
    scenario = report.scenario
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width'>",
        f"<title>{escape(scenario.name)}, seed {report.seed}</title><style>{_STYLE}</style>",
        (
            f"<h1>{escape(scenario.name)} <span class='verdict {report.outcome}'>{report.outcome}"
            "</span></h1>"
        ),
        (
            f"<p>{escape(scenario.description)} <span class=faint>Seed {report.seed}, "
            f"{report.seconds:.0f} s of faults, {scenario.nodes} nodes.</span></p>"
        ),
        plot(report.timeline),
        _counts(report),
        _problems(report),
        _findings(report),
        _faults(report),
        _passed_over(report),
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _counts(report: Report) -> str:
    rows = [(name.replace("_", " "), f"{n:,}") for name, n in report.verdict.counts.items()]
    rows.append(("replicas' logs verified", f"{report.verified_logs:,}"))
    return "<h2>What was checked</h2>" + _table(("", "count"), rows, numbers={1})


def _problems(report: Report) -> str:
    if not report.problems:
        return ""
    items = "".join(f"<li><pre>{escape(problem)}</pre>" for problem in report.problems)
    return f"<h2>Problems</h2><ul>{items}</ul>"


def _findings(report: Report) -> str:
    verdict = report.verdict
    if verdict.outcome is Outcome.VALID:
        return ""
    parts = ["<h2>Findings</h2>"]
    for kind in Kind:
        count = verdict.finding_counts.get(kind, 0)
        if count:
            items = [each for each in verdict.findings if each.kind is kind]
            listed = "".join(f"<li>{escape(each.text)}" for each in items)
            parts.append(f"<p><b>{count} x {escape(kind)}</b></p><ul>{listed}</ul>")
    return "".join(parts)


def _faults(report: Report) -> str:
    rows = [
        (
            f"{fault.event.t:.2f}",
            f"{fault.end:.2f}",
            fault.event.kind,
            fault.event.target,
            ", ".join(map(str, fault.event.nodes)),
            f"{fault.stall_s:.2f}",
            fault.stalled,
            "" if fault.takeover_s is None else f"{fault.takeover_s:.2f}",
        )
        for fault in report.timeline.faults
    ]
    if not rows:
        return ""
    heads = ("from s", "to s", "fault", "of", "nodes", "stall s", "in", "takeover s")
    return (
        "<h2>Faults</h2><p class=faint>Stall: the longest time without an acknowledgement in some "
        "partition. Takeover: until every partition that lost its leader had an acknowledgement "
        "of a newer one.</p>" + _table(heads, rows, numbers={0, 1, 5, 7})
    )


def _passed_over(report: Report) -> str:
    rows = [
        (f"{each.begin:.2f}", each.kind, each.target, each.why)
        for each in report.strikes
        if not each.nodes
    ]
    if not rows:
        return ""
    heads = ("at s", "fault", "of", "why")
    return "<h2>Passed over</h2>" + _table(heads, rows, numbers={0})


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: set[int]) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if place in numbers else ''}>{escape(cell)}"
            for place, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}" for row in rows)
    return f"<table><tr>{cells('th', heads)}{body}</table>"
