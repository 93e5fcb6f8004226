"""What large Events of the Pravega dialect hold, in pieces, before they are merged (DESIGN 8.5).

Nobody waits for room, as nothing but their own writers, who would have to be read, can make any. So
no address may take more than it leaves to others: somebody who merges nothing has half, two of them
have a third each, and whoever comes then finds as much as each of them holds.
"""

from __future__ import annotations

from paceline_node.client_memory import Holding, Portion


class TransientBudget:
    """Bytes of all transient segments of a node; at most ``limit_bytes``."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._by_address: dict[str, int] = {}
        self.used_bytes = 0

    def take(self, address: str, size: int) -> bool:
        """Whether there was room for ``size`` more."""
        held = self._by_address.get(address, 0) + size
        if held > self._limit_bytes - self.used_bytes - size:
            return False
        self._by_address[address] = held
        self.used_bytes += size
        return True

    def give_back(self, address: str, size: int) -> None:
        self.used_bytes -= size
        held = self._by_address.get(address, 0) - size
        if held > 0:
            self._by_address[address] = held
        else:
            self._by_address.pop(address, None)


class TransientPart:
    """What one connection holds of it, which its client's memory is charged for as well."""

    def __init__(self, budget: TransientBudget, memory: Holding) -> None:
        self._budget = budget
        self._address = memory.address
        self._held = Portion(memory)

    def take(self, size: int) -> bool:
        """Whether there was room for ``size`` more."""
        if not self._budget.take(self._address, size):
            return False
        self._held.set(self._held.held_bytes + size)
        return True

    def give_back(self, size: int) -> None:
        self._budget.give_back(self._address, size)
        self._held.give(size)
