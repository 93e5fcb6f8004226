"""Which partition a key belongs to: 32-bit FNV-1a over its bytes, modulo the count (DESIGN 4)."""

from __future__ import annotations

_OFFSET_BASIS = 2166136261
_PRIME = 16777619
_MASK = 0xFFFFFFFF


def fnv1a_32(data: bytes) -> int:
    """32-bit FNV-1a hash, 0..2**32-1."""
    value = _OFFSET_BASIS
    for byte in data:
        value = (value ^ byte) * _PRIME & _MASK
    return value


def partition_for(key: bytes, partition_count: int) -> int:
    """The partition of ``key`` among ``partition_count`` (at least 1)."""
    return fnv1a_32(key) % partition_count
