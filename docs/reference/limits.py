"""How many there may be of what clients make a node keep."""

from __future__ import annotations

from docs.reference.markdown import code, line, table, whole
from paceline_node.settings import counts

_INTRO = """
Of what clients make a node keep, so many there may be: what `paceline limits` prints. Where a
[setting](settings.md) is named, it changes the bound. *One more* is what becomes of the first
beyond it, with the [error](errors.md) where there is one.
"""


def page() -> str:
    """The page."""
    rows = [
        (line(what), line(where), bound, code(key) if "." in key else key, line(more), line(room))
        for what, where, bound, key, more, room in counts.rows()
    ]
    return whole("Limits", _INTRO, table(counts.HEADS, rows))
