"""``chaos``: faults on a cluster of its own, under a workload, judged."""

from __future__ import annotations

import json
import random
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import trio

from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.errors import Exit, Refused

if TYPE_CHECKING:
    from paceline_cluster.chaos.run import Report
    from paceline_cluster.chaos.scenario import Scenario
    from paceline_cluster.checker import Outcome

REPORT_PAGE = "report.html"
REPORT_DATA = "report.json"
BROKEN = 1
"""Exit code: a promise was broken, or the cluster did not heal."""
PROVES_TOO_LITTLE = 2
"""Exit code: nothing wrong was found, but the run does not prove much either."""


@click.group()
def chaos() -> None:
    """Inject faults into a cluster of real processes while clients write, and judge the history.

    Every run starts a cluster of its own, in its own directory, and removes it at the end.
    """


@chaos.command("list")
@output_option
def list_(printer: Printer) -> None:
    """Show the scenarios, and the kinds of faults that a scenario of your own may name."""
    from paceline_cluster.chaos.faults import KINDS
    from paceline_cluster.chaos.scenario import built_in

    scenarios = built_in()
    data = {
        "scenarios": [
            {"name": each.name, "seconds": each.seconds, "description": each.description}
            for each in scenarios
        ],
        "faults": [
            {"kind": name, "text": kind.text, "settings": dict(kind.numbers)}
            for name, kind in KINDS.items()
        ],
    }
    printer.result(
        data,
        Table(
            ("scenario", "seconds", "description"),
            [(each.name, f"{each.seconds:g}", each.description) for each in scenarios],
        ),
        Table(
            ("fault", "what it does", "settings"),
            [
                (name, kind.text, [f"{key}={value:g}" for key, value in kind.numbers.items()])
                for name, kind in KINDS.items()
            ],
        ),
    )


@chaos.command()
@click.option("--scenario", "name", help="One of 'paceline chaos list'.")
@click.option(
    "--file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A scenario of your own, as TOML.",
)
@click.option("--minutes", type=click.FloatRange(min=0.01), help="How long faults strike.")
@click.option("--seed", type=int, help="Draws the faults; without it a new one, which is shown.")
@click.option(
    "--report",
    "report_dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to leave report, history and nodes' logs (default: paceline-chaos-SEED).",
)
@click.option("--keep", is_flag=True, help="Keep the nodes' data directories as well.")
@click.option("--tls", is_flag=True, help="Encrypt everything, as 'up --tls' does.")
@output_option
def run(
    name: str | None,
    file: Path | None,
    minutes: float | None,
    seed: int | None,
    report_dir: Path | None,
    keep: bool,
    tls: bool,
    printer: Printer,
) -> int:
    """Run a scenario, then check every acknowledged write and every read.

    Exit code 0: every promise was kept; 1: one was broken, or the cluster did not heal; 2: nothing
    wrong, but the faults missed the writing.
    """
    from paceline_cluster.chaos.run import run as run_scenario

    scenario = _scenario(name, file)
    chosen = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    folder = (report_dir or Path(f"paceline-chaos-{chosen}")).resolve()
    _make_empty(folder)
    seconds = scenario.seconds if minutes is None else minutes * 60
    report = trio.run(
        partial(
            run_scenario,
            scenario,
            seconds=seconds,
            seed=chosen,
            folder=folder,
            say=printer.say,
            tls=tls,
        )
    )
    _leave(report, folder, keep=keep)
    data = report.to_json()
    printer.result(data, _fault_table(report))
    for line in report.lines():
        printer.say(line)
    printer.say(f"report: {folder / REPORT_PAGE}")
    return _exit_code(report.outcome)


@chaos.command()
@click.argument("history", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@output_option
def check(history: Path, printer: Printer) -> int:
    """Judge a history that a run left. Exit codes as for 'chaos run'."""
    from paceline_cluster.checker import judge
    from paceline_cluster.checker.history import read_history

    verdict = judge(read_history(history))
    rows = [(each.kind.name.lower(), f"{each.t:.2f}", each.text) for each in verdict.findings]
    printer.result(verdict.to_json(), Table(("finding", "at s", "what"), rows))
    printer.say(verdict.lines()[0])
    return _exit_code(verdict.outcome)


def _scenario(name: str | None, file: Path | None) -> Scenario:
    from paceline_cluster.chaos.scenario import named, read

    if (name is None) == (file is None):
        raise click.UsageError("name one scenario, with --scenario or --file")
    if file is not None:
        return read(file)
    assert name is not None, "one of both is given"
    return named(name)


def _make_empty(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise Refused(f"{folder} is not empty; choose another --report")


def _leave(report: Report, folder: Path, *, keep: bool) -> None:
    """Write the report beside the history; of the cluster only the logs stay."""
    from paceline_cluster.chaos.page import page

    (folder / REPORT_PAGE).write_text(page(report), encoding="utf-8")
    text = json.dumps(report.to_json(), indent=2, ensure_ascii=False)
    (folder / REPORT_DATA).write_text(text + "\n", encoding="utf-8")
    cluster = folder / "cluster"
    for log in sorted(cluster.glob("node-*/node.log")):
        shutil.copyfile(log, folder / f"{log.parent.name}.log")
    if not keep:
        shutil.rmtree(cluster)


def _fault_table(report: Report) -> Table:
    return Table(
        ("from s", "to s", "fault", "of", "nodes", "stall s", "takeover s"),
        [
            (
                f"{fault.event.t:.2f}",
                f"{fault.end:.2f}",
                fault.event.kind,
                fault.event.target,
                fault.event.nodes,
                f"{fault.stall_s:.2f}",
                None if fault.takeover_s is None else f"{fault.takeover_s:.2f}",
            )
            for fault in report.timeline.faults
        ],
    )


def _exit_code(outcome: Outcome) -> int:
    from paceline_cluster.checker import Outcome

    codes = {
        Outcome.VALID: int(Exit.OK),
        Outcome.INVALID: BROKEN,
        Outcome.VACUOUS: PROVES_TOO_LITTLE,
    }
    return codes[outcome]
