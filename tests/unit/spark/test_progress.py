"""Rate, backlog and time left: what is computed, and where it is shown."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from paceline.spark.archive_log import ArchiveLog
from paceline.spark.jobs.progress import (
    RECORDS,
    Figures,
    Meter,
    duration,
    progress_options,
    shown,
)
from paceline.spark.jobs.restoring import records_behind
from tests.unit.spark.test_archive import archive, rows


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rate_and_time_left_follow_the_last_steps() -> None:
    clock = Clock()
    meter = Meter("archive", RECORDS, clock)
    first = meter.figures()
    assert (first.done, first.backlog, first.per_second, first.seconds_left) == (
        0,
        None,
        None,
        None,
    )
    for step in range(20):
        clock.now += 10
        meter.count((step + 1) * 1000, (19 - step) * 1000)
        meter.run((3, 4))
        if step == 9:
            assert meter.figures() == Figures(
                "archive", RECORDS, 100, 10_000, 10_000, 100, 100, (3, 4)
            )
    assert meter.figures().seconds_left == 0
    clock.now += 10
    meter.count(20_000, 5_000)
    slower = meter.figures()
    assert slower.per_second is not None
    assert slower.per_second < 100, "nothing has come for a while"
    for _ in range(10):
        clock.now += 1
        meter.count(meter.figures().done + 1000, 5_000)
    assert meter.figures().per_second == 1000, "what was long ago counts no more"


def test_durations() -> None:
    assert [duration(each) for each in (0, 61.4, 3723)] == ["0:00", "1:01", "1:02:03"]


def run(words: list[str], body: Callable[[], None]) -> None:
    """As one of the jobs' commands."""
    command = progress_options(click.command("job")(body))
    command.main(words, standalone_mode=False)


def figures(seconds: float, **more: Any) -> Figures:
    return Figures("audit", RECORDS, seconds, round(seconds), **more)


def show_three() -> str:
    stream = io.StringIO()
    with shown(stream) as show:
        for seconds in (1, 2, 3.0):
            show(figures(seconds, backlog=2000, per_second=1234.5, seconds_left=61))
    return stream.getvalue()


def test_nothing_is_shown_where_there_is_no_terminal() -> None:
    told: list[str] = []
    run([], lambda: told.append(show_three()))
    run(["--progress", "none"], lambda: told.append(show_three()))
    assert told == ["", ""]
    assert show_three() == "", "outside a command, too"


def test_lines_for_a_log_come_now_and_then_and_at_the_end() -> None:
    told: list[str] = []
    run(["--progress", "plain"], lambda: told.extend(show_three().splitlines()))
    assert told == [
        "audit: 1 records done, 1,234/s, 2,000 behind, 1:01 left, 0:01 so far",
        "audit: 3 records done, 1,234/s, 2,000 behind, 1:01 left, 0:03 so far",
    ]


def test_a_file_has_the_newest_figures(tmp_path: Path) -> None:
    path = tmp_path / "now.json"
    run(["--progress-file", str(path)], lambda: show_three() and None)
    assert json.loads(path.read_text()) == {
        "job": "audit",
        "unit": "records",
        "seconds": 3,
        "done": 3,
        "backlog": 2000,
        "per_second": 1234.5,
        "seconds_left": 61,
        "tasks": None,
    }
    assert [each.name for each in tmp_path.iterdir()] == ["now.json"]


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    with shown(stream) as show:
        show(figures(5, backlog=10, tasks=(1, 2)))
    assert "5 records done" in stream.getvalue()


def test_a_restore_knows_what_is_left(tmp_path: Path) -> None:
    for number in range(3):
        archive(tmp_path, number, rows(number * 2, number * 2 + 1))
    behind = records_behind(tmp_path)

    def left(end: dict[str, int] | None) -> int | None:
        return behind({"sources": [{"endOffset": end}]})

    version = ArchiveLog(tmp_path).versions()[-1]
    ends = [{"version": version, "index": index} for index in range(4)]
    assert [left(end) for end in ends] == [6, 4, 2, 0]
    assert left(None) is None
