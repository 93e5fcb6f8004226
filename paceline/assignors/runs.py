"""Partitions in runs: what every kind of range assignment does."""

from __future__ import annotations

from collections.abc import Iterator


def runs(count: int, readers: int) -> Iterator[range]:
    """Numbers below ``count`` in runs, one for each reader in turn, the first ones longer by one
    where it does not divide evenly."""
    share, more = divmod(count, readers) if readers else (0, 0)
    start = 0
    for at in range(readers):
        end = start + share + (at < more)
        yield range(start, end)
        start = end
