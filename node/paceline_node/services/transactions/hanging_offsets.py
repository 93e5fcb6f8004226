"""Ending what is pending in a group of a transaction of which its coordinator knows nothing.

As ``hanging_transactions.py`` does for partitions. A group's coordinator asks the transactions'
about what was pending at its last look already, and drops what that does not know: nobody could
commit it any more, and whoever wants the group's stable offsets would be refused for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import structlog
import trio

from paceline.errors import PacelineError
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.pending_offsets import PendingOffsets
from paceline_node.groups.records import Pending, PendingKey
from paceline_node.services.transactions.transaction_rpc import TransactionRpc
from paceline_node.state_machines.topic import StateTopic
from paceline_node.transactions.hanging import OpenHere

_ASKED_AT_ONCE = 1000
_DROPPED_AT_ONCE = 250
_COMMIT_S = 5.0

_Noted = dict[PendingKey, Pending]


class _Open(NamedTuple):
    """What one producer has pending in a group of partition ``number``, since the last look."""

    number: int
    key: GroupKey
    producer_id: int
    noted: Sequence[tuple[PendingKey, Pending]]


class HangingOffsets:
    """``ended`` counts transactions whose offsets were dropped in a group here."""

    def __init__(self, groups: StateTopic[GroupEngine], rpc: TransactionRpc) -> None:
        self._groups = groups
        self._rpc = rpc
        self._seen: dict[tuple[GroupKey, int], _Noted] = {}
        self._log = structlog.get_logger(component="groups")
        self.ended = 0

    async def look(self) -> None:
        """Ask about what has been pending in the groups led here since the last look."""
        before, self._seen = self._seen, {}
        old: list[_Open] = []
        led = [(number, engine) for number, _, engine in self._groups.machines() if engine.leads]
        for number, engine in led:
            for key in list(engine.store.pending):
                await trio.lowlevel.checkpoint()
                old += self._note(number, engine, key, before)
        for at in range(0, len(old), _ASKED_AT_ONCE):
            try:
                await self._ask(old[at : at + _ASKED_AT_ONCE])
            except PacelineError as error:
                # Whoever coordinates is asked at the next look.
                self._log.debug("pending offsets not looked up", error=str(error))

    def _note(
        self,
        number: int,
        engine: GroupEngine,
        key: GroupKey,
        before: dict[tuple[GroupKey, int], _Noted],
    ) -> list[_Open]:
        """What the group has pending, for the next look; returned is what it had at the last."""
        pendings = engine.store.pending.get(key, PendingOffsets())
        old: list[_Open] = []
        for producer_id in pendings.producers():
            now = dict(pendings.of_producer(producer_id))
            was = before.get((key, producer_id), {})
            self._seen[key, producer_id] = now
            noted = [(name, each) for name, each in now.items() if was.get(name) is each]
            if noted:
                old.append(_Open(number, key, producer_id, noted))
        return old

    async def _ask(self, old: Sequence[_Open]) -> None:
        asked = [OpenHere(each.producer_id, each.key.name) for each in old]
        found = await self._rpc.find_hanging(asked)
        for each, hangs in zip(old, found.hanging, strict=True):
            if hangs:
                await self._drop(each)

    async def _drop(self, found: _Open) -> None:
        for at in range(0, len(found.noted), _DROPPED_AT_ONCE):
            piece = found.noted[at : at + _DROPPED_AT_ONCE]
            drop = partial(_drop_piece, found.key, piece)
            await self._groups.perform(found.number, found.key, drop, commit_s=_COMMIT_S)
        self.ended += 1
        self._log.warning(
            "dropped pending offsets of a transaction that its coordinator does not know",
            group=str(found.key),
            producer_id=found.producer_id,
            partitions=len(found.noted),
        )


def _drop_piece(
    key: GroupKey, piece: Sequence[tuple[PendingKey, Pending]], engine: GroupEngine
) -> None:
    engine.transactional.drop_hanging(key, piece)
