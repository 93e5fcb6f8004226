"""The tables of tests/sim/README.md: all their rows, and that what they name exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from paceline_cluster.chaos.scenario import built_in

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"\| (\d+) \|(?:[^|]+\|){2}([^|]+)\|")


def _table() -> dict[int, list[str]]:
    text = (ROOT / "tests/sim/README.md").read_text(encoding="utf-8")
    return {int(row[1]): re.findall(r"`([^`]+)`", row[2]) for row in ROW.finditer(text)}


def _functions(path: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, kinds)}


def test_every_row_is_played_somewhere() -> None:
    table = _table()
    assert sorted(table) == list(range(1, 41))
    assert all(table.values()), "a row without a test"


def test_what_the_table_names_exists() -> None:
    scenarios = {f"chaos {scenario.name}" for scenario in built_in()}
    for row, places in _table().items():
        for place in places:
            file, found, name = place.partition("::")
            if not found:
                assert place in scenarios, f"row {row}: no scenario {place}"
            else:
                assert name in _functions(ROOT / file), f"row {row}: no test {place}"


def _rules() -> dict[int, list[list[str]]]:
    text = (ROOT / "tests/sim/README.md").read_text(encoding="utf-8")
    rows = re.finditer(r"\| P(\d+) \|[^|]+\|([^|]+)\|([^|]+)\|", text)
    return {int(row[1]): [re.findall(r"`([^`]+)`", row[at]) for at in (2, 3)] for row in rows}


def test_every_rule_is_held_and_its_absence_found() -> None:
    rules = _rules()
    assert sorted(rules) == list(range(1, 21))
    for number, (held, found) in rules.items():
        assert held, f"nothing holds rule {number}"
        assert found, f"nothing finds that rule {number} is gone"
        for place in (*held, *found):
            file, _, name = place.partition("::")
            assert name in _functions(ROOT / file), f"rule {number}: no {place}"
