"""Offsets committed by transactions: pending until the transaction's coordinator settles them.

The first offset that a transaction commits here needs a :class:`Ticket`, taken before its
coordinator was asked (as the first write to a partition does, ``replication/transaction_gate.py``):
settling voids it, so an answer that was overtaken leaves nothing pending for ever.

Settling goes in pieces, for what one transaction may have pending is more than fits in a batch. A
partition's offset is committed and is pending no more in the same piece: so whoever wants stable
offsets is told the new one, or to ask again, and never an old one beside a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.errors import InvalidTransactionState, NotCoordinator, TransactionTooLarge
from paceline.wire.message import Utf8
from paceline_node.groups.committed_offsets import Commit, OffsetBook
from paceline_node.groups.context import GroupContext
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.offset_shares import UNKNOWN
from paceline_node.groups.pending_offsets import PendingOffsets, size_of
from paceline_node.groups.records import Pending, PendingKey, pending_entry, places
from paceline_node.state_machines.machine import Entry

_NONE = PendingOffsets()
_PIECE_BYTES = 1024 * 1024
_PIECE_RECORDS = 250
"""More than this is not settled at one go: a group of many partitions must not hold the loop."""


class Ticket:
    """``is_valid`` until the producer's transaction is settled, or the leadership ends: then it
    ``is_lost``, and nothing is known against the transaction."""

    __slots__ = ("is_lost", "is_valid", "key", "producer_id")

    def __init__(self, key: GroupKey, producer_id: int) -> None:
        self.key = key
        self.producer_id = producer_id
        self.is_valid = True
        self.is_lost = False


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
        client: str = UNKNOWN,
    ) -> None:
        """Note offsets that transaction ``serial`` of the ticket's producer will commit, the last
        of each partition; those of topics that are no more count for nothing. Raises
        InvalidTransactionState, NotCoordinator (ask again), TransactionTooLarge and GroupFull (with
        nothing noted), and what writing raises."""
        if ticket.is_lost:
            raise NotCoordinator(f"group {ticket.key}: its coordinator moved meanwhile")
        if not ticket.is_valid:
            raise InvalidTransactionState(
                f"group {ticket.key}: the transaction was ended meanwhile"
            )
        staged: dict[PendingKey, Pending] = {}
        order = self._offsets.next_order
        for each in commits:
            current = self._context.topics.current(each.topic)
            if current is None or each.topic_id not in (None, current):
                continue
            name = PendingKey(ticket.key, each.topic, each.partition, ticket.producer_id)
            staged[name] = Pending(
                each.offset,
                each.leader_epoch,
                Utf8(each.metadata.encode()),
                producer_epoch,
                serial,
                current,
                order,
            )
        if staged:
            self._check_room(ticket, staged, client)
            self._context.write(ticket.key, *[pending_entry(*each) for each in staged.items()])
            self._offsets.shares.use(ticket.key, client)

    def _check_room(self, ticket: Ticket, staged: dict[PendingKey, Pending], client: str) -> None:
        """Raise TransactionTooLarge if ``staged`` would make too much pending in its transaction,
        GroupFull if in all."""
        limits = self._context.limits
        pendings = self._context.store.pending.get(ticket.key, _NONE)
        before = pendings.of_producer(ticket.producer_id)
        count, size = len(before), pendings.bytes_of(ticket.producer_id)
        taken = reserved = 0
        for name, pending in staged.items():
            known = before.get(name)
            count += known is None
            taken += places(pending.metadata) - (0 if known is None else places(known.metadata))
            reserved += self._reserved(name)
            size += size_of(name, pending) - (0 if known is None else size_of(name, known))
        if count > limits.pending_max:
            raise TransactionTooLarge(
                f"group {ticket.key}: {count} offsets in one transaction, at most "
                f"{limits.pending_max} (transactions.partitions_max)"
            )
        if size > limits.pending_bytes_max:
            raise TransactionTooLarge(
                f"group {ticket.key}: {size} bytes of offsets in one transaction, at most "
                f"{limits.pending_bytes_max}; their metadata must be shorter, or the transaction"
            )
        self._offsets.check_room(ticket.key, taken, client, reserved)

    def _reserved(self, name: PendingKey) -> int:
        """Places for a pending offset of ``name`` that need not be free: whatever is committed may
        be committed again, by one open transaction at a time."""
        store = self._context.store
        committed = store.offsets.get(name.group, {}).get((name.topic, name.partition))
        pendings = store.pending.get(name.group, _NONE)
        if committed is None or pendings.at(name.topic, name.partition):
            return 0
        return places(committed.metadata)

    def settle(
        self,
        key: GroupKey,
        producer_id: int,
        serial: int,
        held: Sequence[Commit],
        *,
        commits: bool,
    ) -> bool:
        """The producer's transaction ``serial`` ended: commit what is pending in it, but nothing
        that was sent before what is committed already, or drop it. What the transaction's
        coordinator has ``held`` besides never goes back either. Held alone it counts for nothing:
        it was settled before, or somebody deleted it. False: this was a piece of it, and there is
        more to settle. Idempotent. Raises what writing raises.

        What is still pending in an earlier one came after that had been settled, let in by a
        coordinator that did not know yet that it had lost leadership: it is dropped, whatever
        became of that one."""
        for ticket in [each for each in self._tickets if each.producer_id == producer_id]:
            if ticket.key == key:
                self.drop(ticket)
        piece: list[Entry] = []
        size = 0
        is_last = True
        for entries in self._settled(key, producer_id, serial, held, commits=commits):
            more = sum(len(each.key) + len(each.value or b"") for each in entries)
            if piece and (size + more > _PIECE_BYTES or len(piece) >= _PIECE_RECORDS):
                is_last = False
                break
            piece += entries
            size += more
        if piece:
            self._context.write(key, *piece)
        return is_last

    def _settled(
        self,
        key: GroupKey,
        producer_id: int,
        serial: int,
        held: Sequence[Commit],
        *,
        commits: bool,
    ) -> Iterator[list[Entry]]:
        """What is left to write for each partition, which belongs together."""
        forwards = {(each.topic, each.partition): each for each in held}
        pendings = self._context.store.pending.get(key, _NONE).of_producer(producer_id)
        for name, pending in pendings.items():
            if pending.serial > serial:
                continue
            entry: Entry | None = None
            if commits and pending.serial == serial and not self._is_overtaken(name, pending):
                holds = forwards.get((name.topic, name.partition))
                if holds is None:
                    entry = self._committed(key, name, pending)
                else:
                    entry = self._forward(key, holds)
            yield [*(() if entry is None else (entry,)), pending_entry(name, None)]

    def _is_overtaken(self, name: PendingKey, pending: Pending) -> bool:
        """Whether the offset that is committed was sent after this one: by a member of its own
        accord, by an operator, or in a transaction that ended before. What an older version wrote
        has no order, and is committed whenever it ends."""
        before = self._offsets.fetch(name.group, name.topic, name.partition)
        return before is not None and before.order > pending.order > 0

    def _forward(self, key: GroupKey, commit: Commit) -> Entry | None:
        """What a held offset becomes: nothing where the group is as far already."""
        before = self._offsets.fetch(key, commit.topic, commit.partition)
        if before is not None and before.offset >= commit.offset:
            return None
        return self._offsets.forward_entry(key, commit)

    def _committed(self, key: GroupKey, name: PendingKey, pending: Pending) -> Entry | None:
        """What a pending offset becomes: nothing if its topic is no more."""
        if not self._context.topics.holds(name.topic, pending.topic_id):
            return None
        commit = Commit(
            name.topic,
            name.partition,
            pending.offset,
            pending.leader_epoch,
            pending.metadata.decode(),
        )
        return self._offsets.entry(key, commit, pending.order)

    def drop_hanging(self, key: GroupKey, noted: Sequence[tuple[PendingKey, Pending]]) -> None:
        """Drop what was pending when the transaction's coordinator said that it does not know it,
        but nothing that was staged again since: that is of a transaction begun behind the answer.
        Raises what writing raises."""
        pendings = self._context.store.pending.get(key, _NONE)
        gone = [
            pending_entry(name, None)
            for name, pending in noted
            if pendings.of_producer(name.producer_id).get(name) is pending
        ]
        if gone:
            self._context.write(key, *gone)

    def is_pending(
        self, key: GroupKey, topic: str, partition: int, *, beyond: int | None = None
    ) -> bool:
        """Whether an open transaction may yet commit an offset of the partition (Kafka's
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
            ticket.is_lost = ticket.is_valid
            self.drop(ticket)
