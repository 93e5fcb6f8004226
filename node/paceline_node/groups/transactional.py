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
from paceline_node.groups.offsets import Commit
from paceline_node.groups.records import Offset, Pending, PendingKey, offset_entry, pending_entry


class Ticket:
    """``is_valid`` until the producer's transaction is settled, or the leadership ends."""

    __slots__ = ("is_valid", "key", "producer_id")

    def __init__(self, key: GroupKey, producer_id: int) -> None:
        self.key = key
        self.producer_id = producer_id
        self.is_valid = True


class TransactionalOffsets:
    """Pending offsets of all groups of a partition. Who may commit is the families' business."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
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
        of each partition. Raises InvalidTransactionState, and what writing raises."""
        if not ticket.is_valid:
            raise InvalidTransactionState(
                f"group {ticket.key}: the transaction was ended meanwhile, or the coordinator moved"
            )
        if commits:
            self._context.write(
                ticket.key,
                *(
                    pending_entry(
                        PendingKey(ticket.key, each.topic, each.partition, ticket.producer_id),
                        Pending(
                            each.offset,
                            each.leader_epoch,
                            each.metadata,
                            producer_epoch,
                            serial,
                        ),
                    )
                    for each in commits
                ),
            )

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
        then commit ``held``, each unless the group is further already. Idempotent. Raises what
        writing raises.

        What is still pending in an earlier one came after that had been settled, let in by a
        coordinator that did not know yet that it had lost its power: it is dropped, whatever
        became of that one."""
        for ticket in [each for each in self._tickets if each.producer_id == producer_id]:
            if ticket.key == key:
                self.drop(ticket)
        now_ms = self._context.wall_ms()
        entries: list[Entry] = []
        for name, pending in self._context.store.pending.get(key, {}).items():
            if name.producer_id != producer_id or pending.serial > serial:
                continue
            if commits and pending.serial == serial:
                offset = Offset(pending.offset, pending.leader_epoch, pending.metadata, now_ms)
                entries.append(offset_entry(key, name.topic, name.partition, offset))
            entries.append(pending_entry(name, None))
        known = self._context.store.offsets.get(key, {})
        for each in held:
            before = known.get((each.topic, each.partition))
            if commits and (before is None or before.offset < each.offset):
                offset = Offset(each.offset, each.leader_epoch, each.metadata, now_ms)
                entries.append(offset_entry(key, each.topic, each.partition, offset))
        if entries:
            self._context.write(key, *entries)

    def is_pending(self, key: GroupKey, topic: str, partition: int) -> bool:
        """Whether an open transaction may yet commit an offset of the partition (spec kafka 3,
        ``require_stable``)."""
        return any(
            (each.topic, each.partition) == (topic, partition)
            for each in self._context.store.pending.get(key, {})
        )

    def resign(self) -> None:
        """This node leads no longer: whatever was asked meanwhile is void."""
        for ticket in list(self._tickets):
            self.drop(ticket)
