"""Every mistake of ``mistakes.py`` on a cluster that runs: its exit code and what is said of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.mistakes import MISTAKES

TABLE = "PACELINE_MISTAKES"
"""Names a file for the table of what was said before and now (``scripts/show-mistakes``)."""
LONG = 600
"""Characters of an answer that the table shows."""
HANG_S = 1800.0
"""Bounds a hang of fifty commands; on a quiet machine they take seconds."""


@pytest.mark.slow
@pytest.mark.timeout(HANG_S)
def test_every_mistake_is_told_with_its_cause(shared_cluster: Cluster, tmp_path: Path) -> None:
    shared_cluster.run("topic", "create", "orders", "--partitions", "3")
    shared_cluster.run("topic", "create", "one", "--partitions", "1")
    shared_cluster.run("produce", "one", stdin=b"a\nb\nc\n")
    (tmp_path / "file").write_text("a line\n")
    listeners = shared_cluster.state()["nodes"][0]["listeners"]
    names = {"dir": str(shared_cluster.dir), "tmp": str(tmp_path), **listeners}
    rows = ["| typed | before | exit code | now |", "|---|---|---|---|"]
    wrong = []
    for mistake in MISTAKES:
        words = [named(word, names) for word in mistake.words.split()]
        result = shared_cluster.run(*words, stdin=mistake.stdin, exit_code=None)
        said = (result.stderr or result.stdout).decode(errors="replace")
        expected = [named(text, names) for text in mistake.says]
        if result.returncode != mistake.exit_code or not all(text in said for text in expected):
            wrong.append(f"paceline {mistake.words}: exit code {result.returncode}\n{said[-1500:]}")
        shown = said if len(said) < LONG else f"{said[:LONG]} ..."
        cells = (f"`paceline {mistake.words}`", mistake.before, str(result.returncode), shown)
        rows.append(f"| {' | '.join(map(cell, cells))} |")
    if TABLE in os.environ:
        text = "\n".join(rows)
        for name in ("dir", "tmp"):
            text = text.replace(names[name], name.upper())
        Path(os.environ[TABLE]).write_text(f"{text}\n", encoding="utf-8")
    if wrong:
        pytest.fail("\n".join(wrong))


def named(text: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def cell(text: str) -> str:
    return text.strip().replace("|", "\\|").replace("\n", "<br>")
