"""Writes the TOML of node configurations; reading is the standard library's."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence

Value = str | int | float | bool | Sequence[str]
Sections = Mapping[str, Mapping[str, Value]]
"""Section name -> values; the section "" holds the keys above all sections."""


def render(sections: Sections) -> str:
    """TOML text of one level of sections."""
    parts = []
    for section in sorted(sections, key=bool):  # keys without section must come first
        lines = [f"[{section}]"] if section else []
        lines += [f"{key} = {_value(value)}" for key, value in sections[section].items()]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        # JSON's string is TOML's basic string, but for DEL and for surrogate pairs.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return "[" + ", ".join(_value(item) for item in value) + "]"


def parse_value(text: str) -> Value:
    """What ``--set key=text`` means: a TOML number, boolean or list of strings, else the text."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    return text


def merged(sections: Sections, settings: Mapping[str, str]) -> dict[str, dict[str, Value]]:
    """Sections with dotted ``section.key`` settings laid over them; the last dot divides."""
    result = {section: dict(values) for section, values in sections.items()}
    for dotted, text in settings.items():
        section, _, key = dotted.rpartition(".")
        result.setdefault(section, {})[key] = parse_value(text)
    return result
