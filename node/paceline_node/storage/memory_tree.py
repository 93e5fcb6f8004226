"""Directories that know which of their entries would survive a power cut (sim/DESIGN 2).

Pure. Each directory lists its unsynced operations; a power cut keeps a random prefix of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import field
from typing import NamedTuple

from paceline.values import dataclass
from paceline_node.storage.memory_file import MemoryNode


class _Entry(NamedTuple):
    """``name`` now means ``node``; None: it is gone."""

    name: str
    node: MemoryNode | MemoryDirectory | None


@dataclass(slots=True, eq=False)
class MemoryDirectory:
    """Names in one directory: as the cache shows them, and as the medium has them."""

    entries: dict[str, MemoryNode | MemoryDirectory] = field(default_factory=dict)
    _durable: dict[str, MemoryNode | MemoryDirectory] = field(default_factory=dict)
    _pending: list[tuple[_Entry, ...]] = field(default_factory=list)

    def link(self, name: str, node: MemoryNode | MemoryDirectory) -> None:
        self._change((_Entry(name, node),))

    def unlink(self, name: str) -> None:
        self._change((_Entry(name, None),))

    def rename(self, old: str, new: str) -> None:
        """One operation: after a power cut either both names have changed or neither."""
        self._change((_Entry(old, None), _Entry(new, self.entries[old])))

    def lose(self, name: str) -> None:
        """The entry is gone, in the cache as on the medium; no sync is asked for it."""
        self.entries.pop(name, None)
        self._durable.pop(name, None)
        self._pending = [
            tuple(entry for entry in operation if entry.name != name) for operation in self._pending
        ]

    def walk(self, path: str = "") -> Iterator[tuple[str, MemoryNode]]:
        """All files here and below, by path."""
        for name, node in sorted(self.entries.items()):
            below = f"{path}/{name}" if path else name
            if isinstance(node, MemoryNode):
                yield below, node
            else:
                yield from node.walk(below)

    def pending(self) -> int:
        """Operations that a sync starting now has to write."""
        return len(self._pending)

    def synced(self, count: int) -> None:
        """A sync that began with ``count`` operations pending has succeeded."""
        for operation in self._pending[:count]:
            _apply(self._durable, operation)
        del self._pending[:count]

    def power_cut(self, rng: random.Random) -> None:
        """Keep the synced entries and a random prefix of the other operations, here and below."""
        self.synced(rng.randint(0, len(self._pending)) if self._pending else 0)
        self._pending.clear()
        self.entries = dict(self._durable)
        for _, node in sorted(self.entries.items()):
            node.power_cut(rng)

    def used_bytes(self) -> int:
        """Bytes in all files here and below."""
        return sum(
            len(node.content) if isinstance(node, MemoryNode) else node.used_bytes()
            for node in self.entries.values()
        )

    def _change(self, operation: tuple[_Entry, ...]) -> None:
        _apply(self.entries, operation)
        self._pending.append(operation)


def _apply(entries: dict[str, MemoryNode | MemoryDirectory], operation: tuple[_Entry, ...]) -> None:
    for name, node in operation:
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node
