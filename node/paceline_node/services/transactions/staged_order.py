"""In which order staged transactions are stored: that in which they were decided.

Their records reach the logs only after the decision, by tasks that meet other nodes at any time.
Who was told that a transaction is committed may commit the next one at once: its records must not
come first. So in each partition one transaction's records are stored when those of all that were
decided before it are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import trio

from paceline.types import LeaderEpoch
from paceline.wire.peer.names import PartitionName
from paceline_node.transaction_names import TransactionKey
from paceline_node.transactions.records import Transaction


@dataclass
class _Waiter:
    serial: int
    left: set[PartitionName]
    turn: trio.Event = field(default_factory=trio.Event)


class StagedOrder:
    """Who may store in which partition, while one node coordinates in one leader epoch."""

    def __init__(self) -> None:
        self._epoch = LeaderEpoch(-1)
        self._lines: dict[PartitionName, OrderedDict[TransactionKey, None]] = {}
        self._waiters: dict[TransactionKey, _Waiter] = {}

    def knows(self, key: TransactionKey, serial: int, epoch: LeaderEpoch) -> bool:
        """Whether this transaction was lined up in this epoch."""
        found = self._waiters.get(key)
        return epoch == self._epoch and found is not None and found.serial == serial

    def line_up(
        self,
        epoch: LeaderEpoch,
        decided: Iterable[TransactionKey],
        transactions: Mapping[TransactionKey, Transaction],
        places: Callable[[TransactionKey], Iterable[PartitionName]],
    ) -> None:
        """Put those that are new behind all others. ``decided`` names all that are decided and not
        complete, in the order of their decisions; ``places`` tells where one has records to store.
        In a new epoch all are new: who coordinated meanwhile may have decided others first."""
        if epoch != self._epoch:
            for key in list(self._waiters):
                self.drop(key)
            self._epoch = epoch
        for key in decided:
            serial = transactions[key].serial
            if self.knows(key, serial, epoch):
                continue
            self.drop(key)
            waiter = self._waiters[key] = _Waiter(serial, set(places(key)))
            for where in waiter.left:
                self._lines.setdefault(where, OrderedDict())[key] = None

    def may_store(self, key: TransactionKey, where: PartitionName) -> bool:
        """Whether all that was decided before ``key`` is stored in ``where``."""
        line = self._lines.get(where)
        return line is None or key not in line or next(iter(line)) == key

    def stored(self, key: TransactionKey, where: PartitionName) -> None:
        """``key`` has nothing to store in ``where`` any more: it is stored, or the partition is
        gone. It is the next one's turn."""
        waiter = self._waiters.get(key)
        if waiter is not None and where in waiter.left:
            waiter.left.remove(where)
            self._leave(key, where)

    def drop(self, key: TransactionKey) -> None:
        """``key`` is complete, or another node's to end."""
        waiter = self._waiters.pop(key, None)
        if waiter is not None:
            for where in waiter.left:
                self._leave(key, where)

    def _leave(self, key: TransactionKey, where: PartitionName) -> None:
        line = self._lines[where]
        del line[key]
        if line:
            self._waiters[next(iter(line))].turn.set()
        else:
            del self._lines[where]

    async def wait_turn(self, key: TransactionKey) -> None:
        """Wait until it has become the turn of ``key`` somewhere since this returned last. Who is
        not lined up waits for ever."""
        waiter = self._waiters.get(key)
        if waiter is None:
            await trio.sleep_forever()
        else:
            await waiter.turn.wait()
            waiter.turn = trio.Event()
