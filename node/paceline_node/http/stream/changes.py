"""What has become different in a document of JSON, as text, some milliseconds of work at a time.

A change is one of

- ``{"to": VALUE}``: it is that now;
- ``{"in": {NAME: CHANGE, ...}, "out": [NAME, ...]}``: of an object, whose other members stayed;
- ``{"size": N, "at": {INDEX: CHANGE, ...}}``: of a list, which has N items now.

What reads it is ``console/static/changes.js``.
"""

from __future__ import annotations

import json
from typing import Any

from paceline_node.sliced_work import Work

SAME = ""
"""Nothing changed."""


def change(old: Any, new: Any) -> Work[str]:
    """From one to the other; :data:`SAME` where they are equal."""
    if isinstance(old, dict) and isinstance(new, dict):
        return (yield from _of_object(old, new))
    if isinstance(old, list) and isinstance(new, list):
        return (yield from _of_list(old, new))
    return SAME if old == new and type(old) is type(new) else to(new)


def to(value: Any) -> str:
    """That it is ``value`` now."""
    return f'{{"to":{json.dumps(value, separators=(",", ":"))}}}'


def _of_object(old: dict[str, Any], new: dict[str, Any]) -> Work[str]:
    yield 1
    parts = []
    for name, value in new.items():
        found = (yield from change(old[name], value)) if name in old else to(value)
        if found:
            parts.append(f"{json.dumps(name)}:{found}")
    gone = [name for name in old if name not in new]
    if not parts and not gone:
        return SAME
    out = f',"out":{json.dumps(gone)}' if gone else ""
    return f'{{"in":{{{",".join(parts)}}}{out}}}'


def _of_list(old: list[Any], new: list[Any]) -> Work[str]:
    parts = []
    for index, value in enumerate(new):
        yield 1
        if index >= len(old):
            parts.append(f'"{index}":{to(value)}')
        elif old[index] is not value:
            found = yield from change(old[index], value)
            if found:
                parts.append(f'"{index}":{found}')
    if not parts and len(old) == len(new):
        return SAME
    return f'{{"size":{len(new)},"at":{{{",".join(parts)}}}}}'
