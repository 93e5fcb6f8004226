"""A dictionary whose content at a moment can be kept without copying it.

Pure. A partition may remember a million producers, and a snapshot of them is due in the middle of
an append. So the map is a row of small dictionaries (*shards*): :meth:`StateMap.freeze` hands out
the row as it is, in as many steps as there are shards, and from then on a shard is copied before it
is changed for the first time. A copy is of some thousand entries, which takes a fraction of a
millisecond; what nobody changes is never copied, and is shared by all frozen maps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar
from zlib import crc32

V = TypeVar("V")
Key = tuple[int, bytes]
"""Namespace and 16 bytes."""

SLICES = 256
"""Shards of a large map; also the slices of keys that one record of the log may name."""
SMALL = 1024
"""Entries up to which a map stays in one piece: thousands of partitions have no producer at all."""


def slice_of(key: Key) -> int:
    """Which of the ``SLICES`` a key belongs to: the same on every replica and in every version."""
    return crc32(key[1], key[0]) % SLICES


def expiry_key(number: int) -> bytes:
    """The producer key of a record that forgets producers of one slice of the keys only."""
    return bytes((1, number)) + bytes(14)


def expiry_slice(key: bytes) -> int | None:
    """Inverse of :func:`expiry_key`; None: the record is for all producers."""
    return key[1] if key[0] == 1 else None


class FrozenMap(Generic[V]):
    """What a map held at one moment; nobody changes it."""

    __slots__ = ("_count", "shards")

    def __init__(self, shards: tuple[dict[Key, V], ...] = ({},), count: int = 0) -> None:
        self.shards = shards
        self._count = count

    def __len__(self) -> int:
        return self._count

    def items(self) -> Iterator[tuple[Key, V]]:
        for shard in self.shards:
            yield from shard.items()


class StateMap(Generic[V]):
    """States by key."""

    __slots__ = ("_count", "_shards", "_shared")

    def __init__(self, frozen: FrozenMap[V] | None = None) -> None:
        """Empty, or what ``frozen`` holds."""
        frozen = frozen or FrozenMap()
        self._shards = list(frozen.shards)
        self._shared = bytearray(b"\x01") * len(self._shards)
        self._count = len(frozen)

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StateMap):
            return NotImplemented
        return len(self) == len(other) and all(other.get(k) == v for k, v in self.items())

    __hash__ = None  # type: ignore[assignment]  # mutable

    def _at(self, key: Key) -> int:
        return slice_of(key) if len(self._shards) > 1 else 0

    def get(self, key: Key) -> V | None:
        return self._shards[self._at(key)].get(key)

    def put(self, key: Key, value: V) -> None:
        shard = self._own(self._at(key))
        before = len(shard)
        shard[key] = value
        if len(shard) != before:
            self._count += 1
            if self._count > SMALL and len(self._shards) == 1:
                self._split()

    def remove(self, key: Key) -> None:
        """Forget a key; fine when it is not there."""
        at = self._at(key)
        if key in self._shards[at]:
            del self._own(at)[key]
            self._count -= 1

    def items(self) -> Iterator[tuple[Key, V]]:
        """All entries, in no order that means anything; not to be changed meanwhile."""
        for shard in self._shards:
            yield from shard.items()

    def items_of(self, number: int) -> Iterator[tuple[Key, V]]:
        """The entries of one of the ``SLICES``."""
        if len(self._shards) > 1:
            yield from self._shards[number].items()
            return
        for key, value in self._shards[0].items():
            if slice_of(key) == number:
                yield key, value

    @property
    def shard_count(self) -> int:
        return len(self._shards)

    def shard(self, number: int) -> Iterator[tuple[Key, V]]:
        """The entries of one shard."""
        yield from self._shards[number].items()

    def freeze(self) -> FrozenMap[V]:
        """What the map holds now, for as long as anybody wants it."""
        self._shared = bytearray(b"\x01") * len(self._shards)
        return FrozenMap(tuple(self._shards), self._count)

    def _own(self, at: int) -> dict[Key, V]:
        if self._shared[at]:
            self._shards[at] = dict(self._shards[at])
            self._shared[at] = 0
        return self._shards[at]

    def _split(self) -> None:
        (whole,) = self._shards
        self._shards = [{} for _ in range(SLICES)]
        self._shared = bytearray(SLICES)
        for key, value in whole.items():
            self._shards[slice_of(key)][key] = value
