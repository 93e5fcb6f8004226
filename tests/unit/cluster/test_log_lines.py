"""Lines of a node's log as facts, for programs."""

from __future__ import annotations

import json

import pytest
import structlog

from paceline_cluster.cli.log_lines import parsed

FIELDS = {
    "partition": "__groups/2",
    "isr": [0, 1],
    "listeners": {"v1": "127.0.0.1:9092"},
    "why": "it's 'a = b', \\ or [so",
    "late_s": 0.739,
    "leader": -1,
    "empty": "",
    "none": None,
    "ok": True,
}


@pytest.mark.parametrize(
    "event", ["role changed", "a very long event that is wider than its place"]
)
def test_what_nodes_print_for_people_is_taken_apart(event: str) -> None:
    render = structlog.dev.ConsoleRenderer(colors=False)
    entry = {"timestamp": "2026-11-26T09:17:58.426059Z", "level": "warning", "event": event}
    line = render(None, "warning", {**entry, **FIELDS})
    assert isinstance(line, str)
    assert parsed(line) == {
        "time": entry["timestamp"],
        "level": "warning",
        "event": event,
        "fields": FIELDS,
    }
    assert parsed(render(None, "info", dict(entry)))["fields"] == {}


def test_json_is_taken_as_it_is() -> None:
    line = json.dumps({"node": 0, "event": "serving", "level": "info", "timestamp": "t"})
    assert parsed(line) == {
        "time": "t",
        "level": "info",
        "event": "serving",
        "fields": {"node": 0},
    }


@pytest.mark.parametrize("line", ["Traceback (most recent call last):", "", "{half", "[x] y"])
def test_what_is_no_line_of_a_node_stays_whole(line: str) -> None:
    assert parsed(line) == {"line": line}
