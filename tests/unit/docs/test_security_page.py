"""SECURITY.md names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def named_tests(text: str) -> set[str]:
    found: set[str] = set()
    for code in re.findall(r"`([^`]+)`", text):
        if braces := re.fullmatch(r"(.*)\{(.*)\}(.*)", code):
            before, choices, after = braces.groups()
            found |= {f"{before}{choice}{after}" for choice in choices.split(",")}
        else:
            found.add(code)
    return {each for each in found if each.startswith(("tests/", "test_"))}


def test_every_test_that_it_names_is_there() -> None:
    named = named_tests((ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    missing = [
        each
        for each in sorted(named)
        if not (ROOT / each).exists() and not list(ROOT.glob(f"tests/**/{each}"))
    ]
    assert not missing
