"""Offsets committed by transactions: pending until the transaction's coordinator settles them.

The first offset that a transaction commits here needs a :class:`Ticket`, taken before its
coordinator was asked (as the first write to a partition does, ``replication/transactions.py``):
settling voids it, so an answer that was overtaken leaves nothing pending for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.errors import InvalidTransactionState
from paceline_node.coordination.machine import Entry
from paceline_node.groups.context import GroupContext
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.offsets import Commit, OffsetBook
from paceline_node.groups.pending import PendingOffsets
from paceline_node.groups.records import Pending, PendingKey, pending_entry

_NONE = PendingOffsets()


class Ticket:
    """``is_valid`` until the producer's transaction is settled, or the leadership ends."""

    __slots__ = ("is_valid", "key", "producer_id")

    def __init__(self, key: GroupKey, producer_id: int) -> None:
        self.key = key
        self.producer_id = producer_id
        self.is_valid = True


class TransactionalOffsets:
    """Pending offsets of all groups of a partition. Who may commit is the families' business."""

    def __init__(self, context: GroupContext, offsets: OffsetBook) -> None:
        self._context = context
        self._offsets = offsets
        self._tickets: dict[Ticket, None] = {}

    def ticket(self, key: GroupKey, producer_id: int) -> Ticket:
        """Take one, before the coordinator is asked; mark it invalid when it is done with."""
        for given in [each for each in self._tickets if not each.is_valid]:
            self.drop(given)
        ticket = Ticket(key, producer_id)
        self._tickets[ticket] = None
        return ticket

    def drop(self, ticket: Ticket) -> None:
        """It is used, or not needed; idempotent."""
        ticket.is_valid = False
        self._tickets.pop(ticket, None)

    def stage(
        self,
        ticket: Ticket,
        producer_epoch: int,
        serial: int,
        commits: Sequence[Commit],
    ) -> None:
        """Note offsets that transaction ``serial`` of the ticket's producer will commit, the last
        of each partition; those of topics that are no more count for nothing. Raises
        InvalidTransactionState, and what writing raises."""
        if not ticket.is_valid:
            raise InvalidTransactionState(
                f"group {ticket.key}: the transaction was ended meanwhile, or the coordinator moved"
            )
        entries = []
        for each in commits:
            current = self._context.topics.current(each.topic)
            if current is None or each.topic_id not in (None, current):
                continue
            name = PendingKey(ticket.key, each.topic, each.partition, ticket.producer_id)
            pending = Pending(
                each.offset, each.leader_epoch, each.metadata, producer_epoch, serial, current
            )
            entries.append(pending_entry(name, pending))
        if entries:
            self._context.write(ticket.key, *entries)

    def settle(
        self,
        key: GroupKey,
        producer_id: int,
        serial: int,
        held: Sequence[Commit],
        *,
        commits: bool,
    ) -> None:
        """The producer's transaction ``serial`` ended: commit what is pending in it, or drop it;
        then commit ``held``, each unless the group is further already. What is both pending and
        held is committed as held. Idempotent. Raises what writing raises.

        What is still pending in an earlier one came after that had been settled, let in by a
        coordinator that did not know yet that it had lost its power: it is dropped, whatever
        became of that one."""
        for ticket in [each for each in self._tickets if each.producer_id == producer_id]:
            if ticket.key == key:
                self.drop(ticket)
        entries: list[Entry] = []
        held_at = {(each.topic, each.partition) for each in held}
        pendings = self._context.store.pending.get(key, _NONE).of_producer(producer_id)
        for name, pending in pendings.items():
            if pending.serial > serial:
                continue
            is_held = (name.topic, name.partition) in held_at
            if commits and pending.serial == serial and not is_held:
                entries += self._committed(key, name, pending)
            entries.append(pending_entry(name, None))
        for each in held:
            before = self._offsets.fetch(key, each.topic, each.partition)
            if commits and (before is None or before.offset < each.offset):
                entry = self._offsets.entry(key, each)
                entries += [] if entry is None else [entry]
        if entries:
            self._context.write(key, *entries)

    def _committed(self, key: GroupKey, name: PendingKey, pending: Pending) -> list[Entry]:
        """What a pending offset becomes: nothing if its topic is no more."""
        if not self._context.topics.holds(name.topic, pending.topic_id):
            return []
        commit = Commit(
            name.topic, name.partition, pending.offset, pending.leader_epoch, pending.metadata
        )
        entry = self._offsets.entry(key, commit)
        return [] if entry is None else [entry]

    def is_pending(
        self, key: GroupKey, topic: str, partition: int, *, beyond: int | None = None
    ) -> bool:
        """Whether an open transaction may yet commit an offset of the partition (spec kafka 3,
        ``require_stable``); with ``beyond`` one that is higher than that."""
        holds = self._context.topics.holds
        pendings = self._context.store.pending.get(key, _NONE).at(topic, partition)
        return any(
            holds(topic, each.topic_id) and (beyond is None or each.offset > beyond)
            for each in pendings
        )

    def resign(self) -> None:
        """This node leads no longer: whatever was asked meanwhile is void."""
        for ticket in list(self._tickets):
            self.drop(ticket)
