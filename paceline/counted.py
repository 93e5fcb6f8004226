"""How many there are of something, as messages say it."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "") -> str:
    """``1 node``, ``2 nodes``; ``many`` where that is not ``one`` with an s behind it."""
    return f"1 {one}" if count == 1 else f"{count} {many or f'{one}s'}"
