"""What only the source says: the texts that stand behind names."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from types import ModuleType


def attribute_texts(owner: type | ModuleType) -> dict[str, str]:
    """Name -> the string behind its assignment, in the body of a class or module."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    body = tree.body
    if isinstance(owner, type):
        [definition] = body
        assert isinstance(definition, ast.ClassDef)
        body = definition.body
    texts = {}
    for statement, behind in pairwise(body):
        name = _assigned(statement)
        if name and isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant):
            texts[name] = inspect.cleandoc(str(behind.value.value))
    return texts


def own_text(kind: type) -> str:
    """The docstring of the class itself, "" where it has none."""
    return inspect.cleandoc(kind.__dict__.get("__doc__") or "")


def _assigned(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id
    return None
