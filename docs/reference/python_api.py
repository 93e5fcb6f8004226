"""The Python API: every public name of the modules that programs import."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
from collections.abc import Iterator
from types import ModuleType

from docs.reference.markdown import code, line, prose, table, whole
from docs.reference.source import attribute_texts, own_text
from paceline import Position

MODULES = (
    "paceline",
    "paceline.client",
    "paceline.client.blocking",
    "paceline.spark",
    "paceline_cluster.testing",
)
_INTRO = """
Made from the code: signatures and docstrings of what these modules export. Everything else is
internal and may change without notice. All errors are in [Errors](errors.md).
"""


def modules() -> Iterator[tuple[ModuleType, list[str]]]:
    """Each module, and the names that it is the first to show."""
    seen: set[int] = set()
    for name in MODULES:
        module = importlib.import_module(name)
        new = [each for each in module.__all__ if id(getattr(module, each)) not in seen]
        seen.update(id(getattr(module, each)) for each in new)
        yield module, new


def page() -> str:
    """The page."""
    parts = []
    for module, names in modules():
        about = prose(inspect.cleandoc(module.__doc__ or "").split("\n\n")[0])
        parts += [f"## {module.__name__}", about]
        parts += [_section(module, name) for name in names]
    return whole("Python API", _INTRO, *parts)


def members(kind: type) -> Iterator[tuple[str, object]]:
    """Public methods and properties, inherited ones too, in the order of the source."""
    found: dict[str, object] = {}
    for each in reversed(kind.__mro__[:-1]):
        for name, value in vars(each).items():
            if not name.startswith("_") and (
                callable(value) or isinstance(value, property | classmethod | staticmethod)
            ):
                found[name] = value
    yield from found.items()


def _section(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    title = f"### {module.__name__}.{name}"
    if isinstance(value, type):
        return "\n\n".join([title, *_class(value)])
    if callable(value):
        return "\n\n".join([title, _signature(name, value), _text(value)])
    return f"{title}\n\n{code(repr(value))}"


def _class(kind: type) -> Iterator[str]:
    yield prose(own_text(kind))
    if issubclass(kind, enum.Enum):
        yield ", ".join(code(member.name) for member in kind)
        return
    if dataclasses.is_dataclass(kind):
        yield _fields(kind)
    if issubclass(kind, BaseException):
        return
    for name, value in members(kind):
        yield "\n\n".join(_member(name, value))


def _fields(kind: type) -> str:
    texts = attribute_texts(kind)
    rows = []
    for field in dataclasses.fields(kind):
        if field.init and not field.name.startswith("_"):
            default = "" if field.default is dataclasses.MISSING else code(_shown(field.default))
            rows.append((code(field.name), code(str(field.type)), default))
            if field.name in texts:
                rows[-1] = (rows[-1][0], rows[-1][1], f"{default} {line(texts[field.name])}")
    return table(("field", "type", "default"), rows) if rows else ""


def _shown(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    named = {Position.EARLIEST: "Position.EARLIEST", Position.LATEST: "Position.LATEST"}
    return named.get(value, repr(value)) if isinstance(value, Position) else repr(value)


def _member(name: str, value: object) -> Iterator[str]:
    if isinstance(value, property):
        yield f"{code(name)} (property)"
        yield _text(value)
        return
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    yield _signature(name, function)
    yield _text(function)


class _Bare:
    """A text that a signature shows as it is."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _signature(name: str, function: object) -> str:
    assert callable(function)
    shown = inspect.signature(function)
    kept = [_bare(each) for each in shown.parameters.values() if each.name not in ("self", "cls")]
    result = shown.return_annotation
    if isinstance(result, str):
        result = _Bare(result)
    text = f"{name}{shown.replace(parameters=kept, return_annotation=result)}"
    is_awaited = inspect.iscoroutinefunction(function)
    return f"```python\n{'await ' if is_awaited else ''}{text}\n```"


def _bare(parameter: inspect.Parameter) -> inspect.Parameter:
    changed = parameter
    if isinstance(parameter.annotation, str):
        changed = changed.replace(annotation=_Bare(parameter.annotation))
    if isinstance(parameter.default, enum.Enum | Position):
        changed = changed.replace(default=_Bare(_shown(parameter.default)))
    return changed


def _text(value: object) -> str:
    return prose(inspect.cleandoc(getattr(value, "__doc__", None) or ""))
