"""Errors that something keeps (``paceline_node/bare_errors.py``)."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import paceline
import paceline_node

ROOT = Path(__file__).parents[2]
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
    if isinstance(node, ast.Raise):
        for name in _named(node.exc):
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


def _named(value: ast.expr | None) -> Iterator[str]:
    """Names of what a value may be."""
    match value:
        case ast.Name(id=name):
            yield name
        case ast.BoolOp(values=several):
            for each in several:
                yield from _named(each)
        case ast.IfExp(body=one, orelse=other):
            yield from _named(one)
            yield from _named(other)


def _files() -> Iterator[Path]:
    """What a node consists of."""
    for part in ("paceline/wire", "node/paceline_node"):
        yield from (ROOT / part).rglob("*.py")


def _functions(tree: ast.AST) -> Iterator[ast.AST]:
    return (each for each in ast.walk(tree) if isinstance(each, _FUNCTIONS))


def test_what_is_raised_is_not_held() -> None:
    """A traceback refers to the frame that raises, and so to what its variables hold: a cycle."""
    held = []
    for path in _files():
        for function in _functions(ast.parse(path.read_text())):
            held += [f"{path.relative_to(ROOT)}:{line}" for line in _held_and_raised(function)]
    assert [each for each in held if "app/process.py:" not in each] == []


def _kept(function: ast.AST) -> Iterator[int]:
    """Lines that put an error away as it was caught."""
    for handler in ast.walk(function):
        if isinstance(handler, ast.ExceptHandler) and handler.name:
            for each in ast.walk(handler):
                match each:
                    case ast.Assign(value=value) if handler.name in _named(value):
                        yield each.lineno
                    case ast.Call(
                        func=ast.Attribute(attr="append" | "setdefault"),
                        args=[*_, ast.Name(id=name)],
                    ) if name == handler.name:
                        yield each.lineno


def test_what_is_kept_is_bare() -> None:
    kept = []
    for path in _files():
        for line in _kept(ast.parse(path.read_text())):
            kept.append(f"{path.relative_to(ROOT)}:{line}")
    assert kept == []


def test_the_rules_tell_them_apart() -> None:
    text = """
def bad():
    try:
        pass
    except ValueError as error:
        kept = kept or error
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
