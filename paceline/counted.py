"""How many there are of something, as messages say it."""

from __future__ import annotations

from collections.abc import Sequence

_SHOWN = 5


def counted(count: int, one: str, many: str = "") -> str:
    """``1 node``, ``2 nodes``; ``many`` where that is not ``one`` with an s behind it."""
    return f"1 {one}" if count == 1 else f"{count} {many or f'{one}s'}"


def first_of(told: Sequence[str], between: str = "; ") -> str:
    """Those that a message has room for, and how many more there are."""
    rest = len(told) - _SHOWN
    return between.join([*told[:_SHOWN], *([f"and {rest} more"] if rest > 0 else [])])
