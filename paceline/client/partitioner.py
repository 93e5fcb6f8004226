"""Which partition a record goes to.

Keys: 32-bit FNV-1a modulo the partition count, the same rule as the V1 protocol's clients
(DESIGN 1.4), so that all protocols put a key in one place. Null keys: see :class:`StickyChoice`.
"""

from __future__ import annotations

from collections.abc import Callable

_OFFSET_BASIS = 2166136261
_PRIME = 16777619
_MASK = 0xFFFFFFFF


def fnv1a(key: bytes | bytearray | memoryview) -> int:
    """32-bit FNV-1a hash."""
    value = _OFFSET_BASIS
    for byte in bytes(key):
        value = (value ^ byte) * _PRIME & _MASK
    return value


class KeyHashes(dict[bytes, int]):
    """Hashes by key, remembered while there are not too many: keys usually come again."""

    def __init__(self, limit: int = 65536) -> None:
        super().__init__()
        self._limit = limit

    def __missing__(self, key: bytes) -> int:
        value = fnv1a(key)
        if len(self) >= self._limit:
            self.clear()
        self[key] = value
        return value


class StickyChoice:
    """Partition of records without a key: stays until a batch is full or gone, then the next.

    Whole batches go to one partition, so that small records travel in large batches, and the
    partitions take turns. Partitions for which ``is_usable`` is False are passed over while any
    other is usable.
    """

    def __init__(self, first: int, is_usable: Callable[[int], bool]) -> None:
        self._current = first
        self._is_usable = is_usable

    def current(self, count: int) -> int:
        """The partition in use, of ``count``."""
        return self._current % count

    def first(self, count: int) -> int:
        """The first partition to use, of ``count``."""
        self._current %= count
        return self._current if self._is_usable(self._current) else self.advance(count)

    def advance(self, count: int) -> int:
        """Move on to the next partition, of ``count``."""
        for step in range(1, count + 1):
            candidate = (self._current + step) % count
            if self._is_usable(candidate):
                self._current = candidate
                return candidate
        self._current = (self._current + 1) % count
        return self._current
