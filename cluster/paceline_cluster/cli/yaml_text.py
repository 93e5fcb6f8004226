"""A result as YAML in block style: what JSON can say, for those who read it.

Written here, since only this half of YAML is needed: JSON's scalars are YAML's, and a library would
be one more that every broker installs. A test reads it back with one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*\Z")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""Plain words that some readers of YAML take for something else than text."""
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def to_yaml(data: Any) -> str:
    """One document, without markers, ending in a line end."""
    return "".join(f"{line}\n" for line in _lines(data))


def _lines(data: Any) -> Iterator[str]:
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from _entry(f"{_scalar(str(key))}:", value)
    elif isinstance(data, list | tuple) and data:
        for value in data:
            first, *others = _lines(value)
            yield f"- {first}"
            yield from (f"  {line}" for line in others)
    else:
        yield _scalar(data)


def _entry(head: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict | list | tuple) and value:
        yield head
        yield from (f"  {line}" for line in _lines(value))
    else:
        yield f"{head} {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, tuple):
        value = list(value)
    if isinstance(value, float):
        return _float(value)
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.match(value) and value.lower() not in _WORDS:
        return value
    return _UNPRINTABLE.sub(_escape, json.dumps(value, ensure_ascii=False))


def _float(value: float) -> str:
    """Some readers of YAML take a number for text whose mantissa has no dot, such as 1e-05."""
    mantissa, exponent, digits = json.dumps(value).partition("e")
    return mantissa + (".0" if exponent and "." not in mantissa else "") + exponent + digits


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
