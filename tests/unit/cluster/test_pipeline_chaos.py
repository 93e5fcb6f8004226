"""The report of ``scripts/spark-chaos``: what it remembers, and what it calls held."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from paceline_cluster.pipeline_chaos import points
from paceline_cluster.pipeline_chaos.report import BROKEN, HELD, UNFINISHED, Report
from paceline_cluster.pipeline_chaos.trial import Trial, draw

TWO = (points.BEFORE_BEGIN, points.ZOMBIE)


def held(point: str) -> Trial:
    """As a trial looks when all went well."""
    trial = draw(point, random.Random(1))
    return replace(trial, hit=True, done=True, audited=True, starts=1, answer="Refused: too late")


def opened(
    path: Path, *, seed: int | None = None, records: int = 4000, master: str = "local[2]"
) -> Report:
    return Report.open(path, seed=seed, new_seed=7, records=records, master=master)


def test_a_report_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.json"
    report = opened(path)
    assert (report.seed, report.done, report.verdict(TWO)) == (7, set(), UNFINISHED)
    report.note(held(points.ZOMBIE), TWO)
    again = Report.open(path, seed=None, new_seed=8, records=4000, master="local[2]")
    assert (again.seed, again.done, again.verdict(TWO)) == (7, {points.ZOMBIE}, UNFINISHED)
    again.note(held(points.BEFORE_BEGIN), TWO)
    assert json.loads(path.read_text())["verdict"] == HELD
    assert opened(path).verdict(TWO) == HELD


@pytest.mark.parametrize(
    ("seed", "records", "master"),
    [(8, 4000, "local[2]"), (7, 5000, "local[2]"), (None, 5000, "local[2]"), (7, 4000, "spark://")],
)
def test_a_report_of_another_run_is_not_gone_on_with(
    tmp_path: Path, seed: int | None, records: int, master: str
) -> None:
    path = tmp_path / "report.json"
    opened(path).note(held(points.ZOMBIE), TWO)
    with pytest.raises(ValueError, match="is of seed 7 and 4000 records on local"):
        opened(path, seed=seed, records=records, master=master)


@pytest.mark.parametrize(
    "flaw",
    [
        {"hit": False},
        {"done": False},
        {"audited": False},
        {"findings": {"RECORD_LOST": 1}},
        {"answer": ""},
        {"answer": f"write: {points.NOT_REFUSED}; begin: Refused"},
    ],
)
def test_what_breaks_a_trial_breaks_the_run(tmp_path: Path, flaw: dict[str, object]) -> None:
    path = tmp_path / "report.json"
    report = opened(path)
    report.note(held(points.BEFORE_BEGIN), TWO)
    report.note(replace(held(points.ZOMBIE), **flaw), TWO)
    assert report.verdict(TWO) == BROKEN
    assert opened(path).verdict(TWO) == BROKEN


def test_a_seed_draws_the_same_blows_again() -> None:
    first, second = (
        [draw(point, rng) for point in points.POINTS]
        for rng in (random.Random(3), random.Random(3))
    )
    assert first == second
    assert {trial.batch for trial in first} <= set(range(3))
