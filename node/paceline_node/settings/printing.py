"""The settings as a TOML file with their documentation; reading it back gives the same settings."""

from __future__ import annotations

import enum
import json
import textwrap

from paceline_node.settings.fields import bounds_text
from paceline_node.settings.loader import Leaf, leaves
from paceline_node.settings.tree import Settings


def print_config(settings: Settings | None = None) -> str:
    """TOML text of ``settings`` (the defaults when None): every key with its meaning, bounds,
    default and whether it may change while the node runs."""
    shown = settings or Settings()
    lines: list[str] = []
    section = ""
    for leaf in leaves():
        part, dot, name = leaf.key.partition(".")
        if dot and part != section:
            section = part
            lines += [f"[{part}]", *_comment(_doc(type(getattr(shown, part)))), ""]
        holder = getattr(shown, part) if dot else shown
        value = getattr(holder, name if dot else part)
        lines += [*_comment(_about(leaf)), f"{name if dot else part} = {toml(value)}", ""]
    return "\n".join(lines)


def toml(value: object) -> str:
    """A setting's value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    if isinstance(value, enum.Enum):
        return toml(value.value)
    # JSON's escapes are a subset of TOML's basic strings.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _about(leaf: Leaf) -> str:
    facts = []
    bounds = bounds_text(leaf.kind, leaf.spec)
    if bounds:
        facts.append(bounds)
    default = toml(leaf.default)
    if default != '""' and default != "[]":
        facts.append(f"default {default}")
    if leaf.spec.local != leaf.default:
        facts.append(f"local {toml(leaf.spec.local)}")
    if leaf.spec.reloadable:
        facts.append("reloadable")
    return leaf.spec.doc + (f" ({'; '.join(facts)})" if facts else "")


def _doc(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split())


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 96, initial_indent="# ", subsequent_indent="# ")
