"""``paceline chaos``: a whole run on real processes, its report, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from docs.reference.outputs import OUTPUTS
from docs.reference.shapes import mismatches
from tests.e2e.cluster import HANG_S, PACELINE, require_documented

SEED = os.environ.get("PACELINE_SEED", "1")


def _chaos(*words: str, exit_code: int = 0) -> Any:
    result = subprocess.run(
        [*PACELINE, "chaos", *words, "--output", "json"],
        capture_output=True,
        timeout=2 * HANG_S,
        check=False,
    )
    assert result.returncode == exit_code, f"seed {SEED}\n{result.stderr.decode()[-6000:]}"
    require_documented(["chaos", *words, "--output", "json"], result)
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of the quick scenario."""
    folder = tmp_path_factory.mktemp("chaos") / "report"
    _chaos("run", "--scenario", "quick", "--seed", SEED, "--report", str(folder))
    return folder


def test_faults_on_processes_break_no_promise(report: Path) -> None:
    data = json.loads((report / "report.json").read_text())
    assert not list(mismatches(OUTPUTS["chaos run"], data))
    assert data["outcome"] == "valid"
    assert data["problems"] == []
    counts = data["verdict"]["counts"]
    assert counts["acknowledged"] > 500
    assert counts["read"] > 500
    assert [fault["kind"] for fault in data["faults"]] == ["kill", "isolate", "wipe"]
    assert data["faults"][0]["takeover_s"] is not None
    assert data["verified_logs"] >= 18, "three replicas of six partitions"
    page = (report / "report.html").read_text()
    assert "<svg" in page
    assert "http" not in page, "the page needs nothing from elsewhere"
    assert not (report / "cluster").exists()
    assert {path.name for path in report.glob("node-*.log")} == {
        f"node-{number}.log" for number in range(3)
    }


def test_a_history_is_judged_again_and_a_loss_in_it_is_found(report: Path, tmp_path: Path) -> None:
    history = report / "history.jsonl"
    assert _chaos("check", str(history))["outcome"] == "valid"
    lines = history.read_text().splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines) if '"final_read"' in line and '"orders' in line)
    broken = tmp_path / "broken.jsonl"
    broken.write_text("".join([*lines[:last], *lines[last + 1 :]]))
    data = _chaos("check", str(broken), exit_code=1)
    assert data["finding_counts"]["lost"] > 0


def test_nothing_is_left_running(report: Path) -> None:
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes()
        except OSError:
            continue
        assert str(report).encode() not in words


def test_a_bad_scenario_is_refused_before_anything_starts(tmp_path: Path) -> None:
    scenario = tmp_path / "bad.toml"
    scenario.write_text('[[fault]]\nkind = "explode"\ntarget = "any"\n')
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "paceline_cluster.cli.main",
            "chaos",
            "run",
            "--file",
            str(scenario),
            "--report",
            str(tmp_path / "report"),
        ],
        capture_output=True,
        timeout=HANG_S,
        check=False,
    )
    assert result.returncode == 78
    assert b"fault 1, kind: 'explode'" in result.stderr
    assert not (tmp_path / "report").exists()
