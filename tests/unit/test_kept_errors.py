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


def _kept(function: ast.AST) -> Iterator[int]:
    """Lines that put an error away as it was caught."""
    for handler in ast.walk(function):
        if isinstance(handler, ast.ExceptHandler) and handler.name:
            for each in ast.walk(handler):
                match each:
                    case ast.Assign(value=ast.Name(id=name)) if name == handler.name:
                        yield each.lineno
                    case ast.Call(
                        func=ast.Attribute(attr="append" | "setdefault"),
                        args=[*_, ast.Name(id=name)],
                    ) if name == handler.name:
                        yield each.lineno


def test_what_is_kept_is_bare() -> None:
    kept = []
    root = Path(paceline_node.__path__[0])
    for path in root.rglob("*.py"):
        for line in _kept(ast.parse(path.read_text())):
            kept.append(f"{path.relative_to(root)}:{line}")
    assert kept == []


def test_the_rules_tell_them_apart() -> None:
    text = """
def bad():
    try:
        pass
    except ValueError as error:
        kept = error
        several[0] = error
        several.append(error)
        several.append(bare(error))
    raise kept

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
    functions = list(_functions(ast.parse(text)))
    assert [list(_held_and_raised(each)) for each in functions] == [[10], []]
    assert [list(_kept(each)) for each in functions] == [[6, 7, 8], []]
