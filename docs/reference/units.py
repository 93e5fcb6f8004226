"""Times and sizes, as everything that takes them reads them."""

from __future__ import annotations

from collections.abc import Mapping

from docs.reference.markdown import code, table, whole
from paceline.units import SIZES, TIMES

_INTRO = """
Made from the table by which they are read. A number may have one of these units behind it, with a
space between them or without, in large letters or small ones: `7d`, `1.5 h`, `10GiB`, `512kb`.
The cluster keeps whole milliseconds and bytes, and shows those.
"""
_PLACES = (
    ("options of commands such as `--timeout` (*SECONDS*)", "seconds"),
    ("`--from`, `--until` and the like: so long ago (`-2h`)", "is a number of records"),
    (
        "`--config` of `paceline topic create` and `alter` ([topic settings](topic-settings.md))",
        "what the name says: `retention.ms`, `retention.bytes`",
    ),
    (
        '[settings](settings.md) of a node: in its file (as text: `"7d"`), a variable, or `--set`',
        "what the name says: `log.retention_ms`, `log.segment_bytes`",
    ),
    ("options of `format('paceline')` and of `paceline pipeline`", "milliseconds, bytes"),
)


def page() -> str:
    """The page."""
    return whole(
        "Times and sizes",
        _INTRO,
        table(("where", "a number without a unit"), _PLACES),
        "## Times",
        table(("unit", "milliseconds"), _rows(TIMES)),
        "## Sizes",
        table(("unit", "bytes"), _rows({_written(unit): factor for unit, factor in SIZES.items()})),
    )


def _rows(units: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(code(unit), f"{factor:,}") for unit, factor in units.items()]


def _written(unit: str) -> str:
    """A size's, as it is usual: ``KiB``, ``MB``."""
    return unit[0].upper() + unit[1:].replace("b", "B")
