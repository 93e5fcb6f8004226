"""The file form of a history."""

from __future__ import annotations

import io
from pathlib import Path
from typing import get_args

import pytest

from paceline_cluster.checker import events, judge
from paceline_cluster.checker.events import Event
from paceline_cluster.checker.history import (
    HistoryWriter,
    from_line,
    read_history,
    read_lines,
    to_line,
)
from paceline_cluster.errors import BadInput
from tests.unit.checker.story import AT, Story

ONE_OF_EACH: list[Event] = [
    events.Begin(0.0, 1, {"seed": 7}),
    events.Stream(0.1, 0, "w0", "a", AT, "all", True, True),
    events.Invoke(0.2, 0, 0, 50),
    events.Ok(0.3, 0, 0, 30, 100, 3),
    events.Fail(0.3, 0, 30, 10, "NotEnoughReplicas: …"),
    events.Unknown(0.3, 0, 40, 10, "RequestTimedOut"),
    events.Together(1.25, ((3, 0, 2), (4, 7, 1))),
    events.Seek(0.4, "r0", AT, 100),
    events.Read(0.5, "r0", AT, 100, 3, ((0, 0, 30), (events.HIDDEN, 0, 1))),
    events.Final(0.6, AT, 0, 131),
    events.FinalRead(0.7, AT, 0, 3, ((0, 0, 30),)),
    events.Commit(0.8, 1, "g", AT, 120, 4),
    events.CommitOk(0.9, 1),
    events.CommitFail(0.9, 2, "IllegalGeneration"),
    events.CommitUnknown(0.9, 3, "RequestTimedOut"),
    events.AskOffset(1.0, 4, "g", AT),
    events.OffsetTold(1.1, 4, -1),
    events.Join(1.2, 5, "g", "m"),
    events.Joined(1.3, 5, 4),
    events.Worked(1.3, "workers", AT, 100, 110),
    events.Kept(1.3, "workers", AT, 110),
    events.AskKept(1.3, 6, "workers", AT),
    events.KeptTold(1.4, 6, 110),
    events.Fault(1.4, 0, "kill", "leader of orders/0", (2,), (AT,)),
    events.Healed(1.5, 0),
]


def test_every_event_comes_back_from_its_line() -> None:
    assert {type(event) for event in ONE_OF_EACH} == set(get_args(Event))
    for event in ONE_OF_EACH:
        assert from_line(to_line(event)) == event


def test_a_history_in_a_file_is_judged_as_it_was_told(tmp_path: Path) -> None:
    story = Story()
    stream = story.stream()
    story.write(stream, 3)
    story.read("r", 0, 3)
    story.logs[AT].pop()
    told = story.finish()
    path = tmp_path / "history.jsonl"
    with path.open("w", encoding="utf-8") as file:
        writer = HistoryWriter(file)
        for event in told:
            writer.write(event)
    assert judge(read_history(path)) == judge(told)


def test_a_last_line_cut_off_by_a_kill_is_passed_over() -> None:
    file = io.StringIO()
    writer = HistoryWriter(file)
    writer.write(ONE_OF_EACH[2])
    writer.flush()
    lines = [file.getvalue(), to_line(ONE_OF_EACH[3])[:20]]
    assert list(read_lines(lines, "h")) == [ONE_OF_EACH[2]]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "line 1"),
        ("[1]", "expected a JSON object, found list"),
        ('{"event":"dance"}', "unknown event 'dance'"),
        ('{"event":"invoke","t":0}', "event invoke"),
        ('{"event":"begin","t":0,"version":9,"facts":{}}', "history version 9, expected 1"),
    ],
)
def test_a_line_that_does_not_fit_is_named(line: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        list(read_lines([line + "\n"], "h.jsonl"))
