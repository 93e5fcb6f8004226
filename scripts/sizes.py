"""Fails when a file or a function outgrew the house rules (500 lines, 60 lines), or a call hands
over so many values by their order alone that nobody sees which is which (more than 7).

Exceptions stand in ``ALLOWED`` with their own limit and the reason; an entry that is no longer
needed is an error too, so that the list can only shrink by itself.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("paceline", "node", "cluster", "docs", "examples", "scripts", "tests")
FILE_LINES = 500
FUNCTION_LINES = 60
POSITIONAL = 7
NAMED_ROOTS = ("paceline", "node", "cluster")
"""Where calls are looked at: what ships."""
ALIKE = frozenset({"agg", "pack", "select"})
"""Methods that take any number of values of one kind, or in an order written down beside them."""
SLACK = 1.1
"""The rules say "near": ten per cent over is tolerated, more is not."""

ALLOWED: dict[str, tuple[int, str]] = {
    "paceline/wire/records.py::_decode_loop": (
        100,
        "one flat loop with varints decoded in place: a call per varint halves the speed",
    ),
}
"""``path`` or ``path::qualified.function`` -> (its limit, why)."""

Sizes = Iterator[tuple[str, int, int]]
"""Name, lines, limit."""


def functions(tree: ast.AST, prefix: str) -> Sizes:
    """Every function below ``tree`` by qualified name, its length without the docstring."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}{node.name}"
            yield name, length(node), FUNCTION_LINES
            yield from functions(node, f"{name}.")
        else:
            yield from functions(node, prefix)


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function; its docstring does not count, so that explaining costs nothing."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def measure() -> Sizes:
    """Every file and function of the repository."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            text = path.read_text(encoding="utf-8")
            yield name, len(text.splitlines()), FILE_LINES
            for function, lines, limit in functions(ast.parse(text), ""):
                yield f"{name}::{function}", lines, limit


def crowded_calls() -> Iterator[str]:
    """Calls of too many positional arguments."""
    for folder in NAMED_ROOTS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call):
                    continue
                count = sum(not isinstance(each, ast.Starred) for each in node.args)
                called = ast.unparse(node.func)
                if count > POSITIONAL and called.rpartition(".")[2] not in ALIKE:
                    where = f"{path.relative_to(ROOT).as_posix()}:{node.lineno}"
                    yield f"{where}: {called} takes {count} values by order, name them"


def main() -> int:
    failures = list(crowded_calls())
    unused = dict(ALLOWED)
    for name, lines, normal in measure():
        limit = int(normal * SLACK)
        if name in ALLOWED and lines > limit:
            limit = ALLOWED[name][0]
            del unused[name]
        if lines > limit:
            failures.append(f"{name}: {lines} lines, at most {limit}")
    failures += [f"{name}: in ALLOWED, but no longer too long" for name in sorted(unused)]
    print("\n".join(failures) or "all files and functions within their limits")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
