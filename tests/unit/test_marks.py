"""How the tests of a file are marked is said once: of two such lines the first said nothing."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
MARKS = re.compile(r"^pytestmark\b", re.MULTILINE)


def _assigned(text: str) -> int:
    """How often ``pytestmark`` is given a value for a whole file."""
    return sum(
        isinstance(each, ast.Assign)
        and any(isinstance(to, ast.Name) and to.id == "pytestmark" for to in each.targets)
        for each in ast.parse(text).body
    )


def test_no_file_says_twice_how_its_tests_are_marked() -> None:
    twice = []
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text()
        if len(MARKS.findall(text)) > 1 and _assigned(text) > 1:
            twice.append(str(path.relative_to(TESTS)))
    assert not twice
