"""Lines of a node's log as facts, for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import structlog

from paceline_cluster.log_lines import last_complaint, last_words, parsed

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


def test_what_a_log_says_last_that_is_no_mere_information(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    assert last_complaint(log) == ""
    calm = "2026-11-26T09:17:58Z [info     ] role changed     isr=[0]\n"
    log.write_text(calm)
    assert last_complaint(log) == ""
    grave = "2026-11-26T09:17:59Z [error    ] it follows nobody  known_commit=3\n"
    log.write_text(grave + 2 * calm + "Traceback\n")
    assert last_complaint(log) == "2026-11-26T09:17:59Z it follows nobody"
    log.write_text(grave + 3000 * calm)
    assert last_complaint(log) == ""


def test_a_complaint_is_told_with_its_reason(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    log.write_text("2026-11-26T09:17:59Z [error    ] it waits  path=x reason='no space left'\n")
    assert last_complaint(log) == "2026-11-26T09:17:59Z it waits: no space left"


def test_what_a_node_says_when_it_ends(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    grave = "2026-11-26T09:17:59Z [error    ] data directory failed  error='[Errno 5] EIO'\n"
    calm = "2026-11-26T09:17:58Z [info     ] role changed     isr=[0]\n"
    log.write_text(grave + calm + "paceline-node: refused:\n  its disk is an old copy\n")
    assert last_words(log) == "refused: its disk is an old copy"
    assert last_complaint(log).endswith("data directory failed: [Errno 5] EIO")
    log.write_text("paceline-node: of an earlier life\n" + grave + calm)
    assert last_words(log) == "2026-11-26T09:17:59Z data directory failed: [Errno 5] EIO"
    assert last_words(tmp_path / "none") == ""
