"""Which transaction the client behind one connection means (transactions/DESIGN 1.3)."""

from __future__ import annotations

from typing import NamedTuple

from paceline.errors import ProducerFenced
from paceline_node.transaction_names import TransactionKey
from paceline_node.transactions.records import Transaction

_IDS_MAX = 16
"""Of one connection; of more, those that it used longest ago are as never acted in."""


class ConnectionTransactions:
    """The transaction of each id that one connection has begun, or acted in first: what arrives on
    it later is of no other one, until it begins the next. Told as things are decided, not when
    they are committed, so that a BEGIN that is asked again is known again."""

    def __init__(self) -> None:
        self._last: dict[TransactionKey, _Which] = {}

    def act(self, key: TransactionKey, found: Transaction) -> None:
        """The connection acts in ``found``, which is open. Raises ProducerFenced where it has acted
        in another one under the same wire epoch: this one was begun elsewhere since."""
        last = self._last.get(key)
        if last is not None and last.wire_epoch == found.wire_epoch and last != _which(found):
            raise ProducerFenced(
                f"{key}: another connection has begun a transaction since this one's "
                f"(number {last.serial}, now {found.serial}): begin, or initialise, anew"
            )
        self.begin(key, found)

    def begin(self, key: TransactionKey, found: Transaction) -> None:
        """The connection has begun ``found``."""
        self._last.pop(key, None)
        self._last[key] = _which(found)
        if len(self._last) > _IDS_MAX:
            del self._last[next(iter(self._last))]


class _Which(NamedTuple):
    """A transaction of an id. When it began counts: one whose beginning was lost with its
    coordinator is followed by another of the same number."""

    wire_epoch: int
    serial: int
    began_ms: int


def _which(found: Transaction) -> _Which:
    return _Which(found.wire_epoch, found.serial, found.began_ms)
