"""Shapes of JSON documents, and whether a value is of one.

A shape is a word (a kind of value, or ``null``; ``?`` behind those that may be null), a list of
one shape, an object, an object of the one key ``*`` (any names), or a tuple of alternatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Shape = str | list[Any] | dict[str, Any] | tuple[Any, ...]


def _is(*kinds: type) -> Callable[[object], bool]:
    return lambda value: type(value) in kinds


def _is_bytes(value: object) -> bool:
    if isinstance(value, dict):
        return list(value) == ["base64"] and isinstance(value["base64"], str)
    return isinstance(value, str)


_WORDS: Mapping[str, Callable[[object], bool]] = {
    "text": _is(str),
    "integer": _is(int),
    "number": _is(int, float),
    "flag": _is(bool),
    "bytes": _is_bytes,
    "null": lambda value: value is None,
    "anything": lambda value: True,
}


def mismatches(shape: Shape, value: object, at: str = "it") -> Iterator[str]:
    """A sentence for each place where ``value`` is not of that shape."""
    if isinstance(shape, tuple):
        tried = [list(mismatches(each, value, at)) for each in shape]
        if all(tried):
            yield min(tried, key=len)[0]
    elif isinstance(shape, str):
        allowed = _WORDS[shape.removesuffix("?")]
        if not (allowed(value) or (value is None and shape.endswith("?"))):
            yield f"{at}: expected {shape}, found {value!r}"
    elif isinstance(shape, list) and isinstance(value, list):
        for number, item in enumerate(value):
            yield from mismatches(shape[0], item, f"{at}[{number}]")
    elif isinstance(shape, dict) and isinstance(value, dict):
        yield from _unlike(shape, value, at)
    else:
        wanted = "a list" if isinstance(shape, list) else "an object"
        yield f"{at}: expected {wanted}, found {value!r}"


def _unlike(shape: dict[str, Any], value: dict[str, object], at: str) -> Iterator[str]:
    if list(shape) == ["*"]:
        for name, item in value.items():
            yield from mismatches(shape["*"], item, f"{at}.{name}")
        return
    for name in sorted(shape.keys() ^ value.keys()):
        yield f"{at}.{name}: {'missing' if name in shape else 'not in the shape'}"
    for name in sorted(shape.keys() & value.keys()):
        yield from mismatches(shape[name], value[name], f"{at}.{name}")
