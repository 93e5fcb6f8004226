"""The console's ``changes.js``, in Python."""

from __future__ import annotations

from typing import Any


def changed(value: Any, change: dict[str, Any]) -> Any:
    """The value after a change."""
    if "to" in change:
        return change["to"]
    if "in" in change:
        kept = {name: each for name, each in value.items() if name not in change.get("out", ())}
        return kept | {name: changed(kept.get(name), each) for name, each in change["in"].items()}
    items = value[: change["size"]]
    items += [None] * (change["size"] - len(items))
    for index, each in change["at"].items():
        items[int(index)] = changed(items[int(index)], each)
    return items
