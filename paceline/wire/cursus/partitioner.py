"""The broker's choice of a partition: FNV-1a, 64 bits, of the key's bytes (DESIGN 5).

Clients that choose themselves use 32 bits; both agree when the number of partitions is 1, 2, 4, 8,
16 or 32.
"""

from __future__ import annotations

_BASIS = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_MASK = 0xFFFFFFFFFFFFFFFF


def fnv1a_64(data: bytes) -> int:
    """The 64-bit FNV-1a hash, unsigned."""
    found = _BASIS
    for byte in data:
        found = (found ^ byte) * _PRIME & _MASK
    return found


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of ``key`` in a topic of ``partitions``."""
    return fnv1a_64(key) % partitions
