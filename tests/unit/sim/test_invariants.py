"""The simulator README's table of invariants: all 24, and every place that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| I(\d+) \|[^|]+\|([^|]+)\|$", re.MULTILINE)


def _table() -> dict[int, list[str]]:
    text = (ROOT / "cluster/paceline_cluster/sim/README.md").read_text(encoding="utf-8")
    return {int(row[1]): re.findall(r"`([^`]+)`", row[2]) for row in ROW.finditer(text)}


def test_every_invariant_is_held_somewhere() -> None:
    table = _table()
    assert sorted(table) == list(range(1, 25))
    assert all(table.values()), "an invariant that nothing holds"


def test_what_the_table_names_exists() -> None:
    for number, places in _table().items():
        for place in places:
            file, _, name = place.partition("::")
            code = (ROOT / file).read_text(encoding="utf-8")
            is_there = re.search(rf"def {name}\(|^    {name} = ", code, re.MULTILINE)
            assert is_there, f"I{number}: nothing called {name} in {file}"
