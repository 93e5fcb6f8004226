"""Where decided transactions with staged records are stored and marked, kept for who comes next.

A partition knows staged records again only as long as it knows their producer: it forgets one that
is silent for long, or gives way to others, once its transaction has a marker there. Where another
partition has no leader, a transaction stays decided and not complete for any length of time. So
what is stored is written down for the next coordinator; seldom, for most transactions are complete
before the first pause is over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
import trio

from paceline.errors import PacelineError
from paceline.wire.peer.names import PartitionName
from paceline_node.transaction_names import ProducerIdentity, TransactionKey
from paceline_node.transactions.endings import Ending
from paceline_node.transactions.engine import TransactionEngine

_PAUSE_S = 1.0
"""Far below the time after which a partition forgets the producer of a marker (a minute, or
``log.producer_ttl_ms``)."""
Perform = Callable[[Callable[[TransactionEngine], None]], Awaitable[None]]


class MarkerProgress:
    """What is marked of the transactions that this node ends now: of each id one, by the identity
    that it has for itself."""

    def __init__(self) -> None:
        self._places: dict[TransactionKey, tuple[ProducerIdentity, set[PartitionName]]] = {}
        self._log = structlog.get_logger(component="transactions")

    def add(self, ending: Ending, where: PartitionName) -> None:
        """All that was staged for ``where``, if anything, and the marker are committed there."""
        if ending.staged:
            self._places[ending.key] = (ending.identity, {*self._of(ending), where})

    def _of(self, ending: Ending) -> set[PartitionName]:
        """Never those of the id's last transaction: who ends that may find the next one decided."""
        whose, places = self._places.get(ending.key, (None, set[PartitionName]()))
        return places if whose == ending.identity else set()

    def drop(self, key: TransactionKey) -> None:
        """``key`` is complete, or another node's to end."""
        self._places.pop(key, None)

    async def keep_noted(self, ending: Ending, perform: Perform) -> None:
        """Write down what has been marked since, once in a while, until cancelled."""
        staged = {PartitionName(each.topic, each.partition) for each in ending.staged}
        noted: set[PartitionName] = set()
        while len(noted) < len(staged):
            await trio.sleep(_PAUSE_S)
            new = staged & self._of(ending)
            if new <= noted:
                continue

            def note(engine: TransactionEngine, new: set[PartitionName] = new) -> None:
                engine.producers.note_marked(ending.key, ending.identity, new)

            try:
                await perform(note)
                noted = new
            except PacelineError as error:
                self._log.debug("not noted", transaction=str(ending.key), error=str(error))
