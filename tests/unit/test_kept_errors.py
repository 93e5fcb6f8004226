"""Errors that something keeps (``paceline_node/bare_errors.py``)."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import paceline
import paceline_node

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _modules() -> Iterator[str]:
    for package in (paceline, paceline_node):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.startswith("paceline.spark") and "__main__" not in found.name:
                yield found.name


def test_no_error_is_made_once_for_all() -> None:
    """Each time that it is raised adds to its traceback, and to what stays in memory for ever."""
    kept = [
        f"{name}.{attribute}"
        for name in _modules()
        for attribute, value in vars(importlib.import_module(name)).items()
        if isinstance(value, BaseException)
    ]
    assert kept == []


# --- raising what a variable holds ----------------------------------------------------------------


def _held_and_raised(function: ast.AST) -> Iterator[int]:
    """Lines that raise what a variable of the function holds, and do not let go of it."""
    for inner in ast.iter_child_nodes(function):
        yield from _raises(inner, let_go=frozenset(), handled=frozenset())


def _raises(node: ast.AST, let_go: frozenset[str], handled: frozenset[str]) -> Iterator[int]:
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
        return
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name):
        name = node.exc.id
        if name not in let_go and name not in handled and not name[0].isupper():
            yield node.lineno
    if isinstance(node, ast.ExceptHandler) and node.name:
        handled |= {node.name}  # Python lets go of it
    if isinstance(node, ast.Try):
        for last in node.finalbody:
            if isinstance(last, ast.Delete):
                let_go |= {each.id for each in last.targets if isinstance(each, ast.Name)}
    for inner in ast.iter_child_nodes(node):
        yield from _raises(inner, let_go, handled)


def _functions(tree: ast.AST) -> Iterator[ast.AST]:
    return (each for each in ast.walk(tree) if isinstance(each, _FUNCTIONS))


def test_what_is_raised_is_not_held() -> None:
    """A traceback refers to the frame that raises, and so to what its variables hold: a cycle."""
    held = []
    root = Path(paceline_node.__path__[0])
    for path in root.rglob("*.py"):
        for function in _functions(ast.parse(path.read_text())):
            held += [f"{path.relative_to(root)}:{line}" for line in _held_and_raised(function)]
    assert [each for each in held if not each.startswith("app/process.py")] == []


def test_the_rule_tells_them_apart() -> None:
    text = """
def bad():
    raise error

def good(kind):
    try:
        raise error
    finally:
        del error
    try:
        pass
    except ValueError as other:
        raise other
    raise ValueError
"""
    found = [list(_held_and_raised(each)) for each in _functions(ast.parse(text))]
    assert found == [[3], []]
