from __future__ import annotations

import json
from dataclasses import replace

from paceline_cluster.chaos.nemesis import Strike
from paceline_cluster.chaos.page import page
from paceline_cluster.chaos.run import Report
from paceline_cluster.chaos.scenario import named
from paceline_cluster.chaos.timeline import timeline
from paceline_cluster.checker import Outcome, events, judge
from tests.unit.checker.story import AT, Story


def _report(story: Story, *problems: str) -> Report:
    told = story.finish()
    return Report(
        scenario=replace(named("quick"), description="<quick & short>"),
        seconds=10.0,
        seed=7,
        strikes=[
            Strike("kill", "leader of orders/0", nodes=(1,), begin=0.1, end=0.2),
            Strike("wipe", "any", begin=0.3, end=0.3, why="not everything is in sync"),
        ],
        verdict=judge(told),
        timeline=timeline(told),
        problems=list(problems),
        verified_logs=9,
    )


def _story() -> Story:
    story = Story()
    stream = story.stream()
    story.write(stream, 3)
    story.fault(AT)
    story.epochs[AT] += 1
    story.write(stream)
    story.say(events.Healed(story.t, 0))
    return story


def test_a_valid_run() -> None:
    report = _report(_story())
    assert report.outcome is Outcome.VALID
    text = page(report)
    assert "<span class='verdict valid'>valid</span>" in text
    assert "&lt;quick &amp; short&gt;" in text
    assert "not everything is in sync" in text
    assert "<h2>Findings</h2>" not in text
    data = json.loads(json.dumps(report.to_json()))
    assert data["outcome"] == "valid"
    assert data["fault_count"] == 1
    assert [each["kind"] for each in data["passed_over"]] == ["wipe"]


def test_a_finding_is_shown() -> None:
    story = _story()
    story.logs[AT].pop()
    report = _report(story)
    assert report.outcome is Outcome.INVALID
    text = page(report)
    assert "1 x acknowledged write lost" in text
    assert "orders/0: w0/k 3" in text


def test_a_problem_outranks_a_valid_history() -> None:
    report = _report(_story(), "node 1 ended with exit code 70")
    assert report.verdict.outcome is Outcome.VALID
    assert report.outcome is Outcome.INVALID
    assert "node 1 ended with exit code 70" in page(report)
    assert "problem: node 1 ended with exit code 70" in report.lines()
