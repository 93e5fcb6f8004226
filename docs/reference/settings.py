"""The settings of a node: every leaf of the settings tree, by section."""

from __future__ import annotations

from itertools import groupby

from docs.reference.markdown import code, line, table, whole
from paceline_node.settings.fields import bounds_text
from paceline_node.settings.loader import Leaf, leaves
from paceline_node.settings.printing import toml
from paceline_node.settings.tree import Settings

_INTRO = """
Made from the node's settings tree: what `paceline node settings` prints, as tables.

A value comes, later ones winning, from the defaults, the TOML file, variables such as
`PACELINE_LOG__SEGMENT_BYTES` (for `log.segment_bytes`), and flags (`paceline node run --set
log.segment_bytes=1048576`). Times and sizes may have [units](units.md): `log.retention_ms = "7d"`,
`--set log.segment_bytes=64MiB`. `paceline up --set KEY=VALUE` writes it into the file of every node
that it makes, `paceline config set KEY=VALUE` into those of nodes that run.
Unknown keys and values out of bounds are errors, all of them named at once, and end
a node with exit code 78.

*local* is the default under `cluster.timing = "local"`, which `paceline up` uses: time-outs for a
whole cluster on one small machine. Settings marked *reloadable* are taken over by a running node
on SIGHUP; the others need a restart. A topic's own settings, where it has them, go before these:
[topic settings](topic-settings.md).
"""


def page() -> str:
    """The page."""
    sections = groupby(leaves(), key=lambda leaf: leaf.key.rpartition(".")[0])
    return whole("Settings", _INTRO, *(_section(name, list(inside)) for name, inside in sections))


def _section(name: str, inside: list[Leaf]) -> str:
    if not name:
        return table(_HEADS, map(_row, inside))
    about = type(getattr(Settings(), name)).__doc__ or ""
    return f"## {name}\n\n{line(about)}\n\n{table(_HEADS, map(_row, inside))}"


_HEADS = ("setting", "default", "allowed", "meaning")


def _row(leaf: Leaf) -> tuple[str, ...]:
    default = code(toml(leaf.default))
    if leaf.spec.local != leaf.default:
        default += f", local {code(toml(leaf.spec.local))}"
    meaning = line(leaf.spec.doc) + (" *reloadable*" if leaf.spec.reloadable else "")
    return code(leaf.key), default, line(bounds_text(leaf.kind, leaf.spec)), meaning
