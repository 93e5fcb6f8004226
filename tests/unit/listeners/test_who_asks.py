"""Who asks the policy: services, and of the listeners only those that are listed here."""

from __future__ import annotations

import ast
from pathlib import Path

from paceline_node import listeners

ASKING = frozenset(
    {"admit_producer", "authorize", "inside", "permit", "permit_commit", "permit_replica"}
)
"""Calls that ask and leave it to whoever calls to act, or that need not ask."""
POLICY = "paceline_node.services.access"
STILL = {
    "cursus_reads",
    "modern_requests",
    "modern_tables",
    "v1_records",
    "v1_replicas",
}
"""Listeners that ask by themselves yet. Another one is a hole in the making: have the service ask,
and give a handle that alone can act."""


def asks(source: str) -> bool:
    """Whether a module calls what asks, or imports the policy."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ASKING:
                return True
        elif isinstance(node, ast.ImportFrom) and node.module == POLICY:
            return True
    return False


def test_no_other_listener_asks() -> None:
    directory = Path(listeners.__path__[0])
    found = {path.stem for path in directory.rglob("*.py") if asks(path.read_text())}
    assert found == STILL


def test_asking_is_seen() -> None:
    assert asks("def f(self):\n    self._groups.permit(1, 2, 3)")
    assert asks("from paceline_node.services.access import Access")
    assert not asks("group = self._groups.open(principal, operation, key)")
