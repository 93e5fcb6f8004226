"""Staged transactions: records and offsets are kept here, and reach a log only at commit.

For protocols whose readers take uncommitted records (DESIGN 1.2): an abort must leave nothing. The
client is known by ``wire_epoch``, which counts its INITs; every transaction is appended under an
identity of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

from paceline.errors import (
    ConcurrentTransactions,
    InvalidTransactionState,
    ProducerFenced,
    TransactionNotFound,
    TransactionTooLarge,
)
from paceline_node.detailed_errors import SequenceReused
from paceline_node.transaction_names import TransactionKey
from paceline_node.transactions.context import TransactionContext
from paceline_node.transactions.keys import LAST_EPOCH
from paceline_node.transactions.producers import (
    SET_BACK,
    Ended,
    ProducerTransactions,
    begun,
    known_topics,
)
from paceline_node.transactions.records import (
    KnownTopic,
    Staged,
    StagedOffset,
    State,
    Transaction,
    staged_entry,
    transaction_entry,
)


class Acted(Protocol):
    """What a client's connection has acted in before (DESIGN 1.3)."""

    def act(self, key: TransactionKey, found: Transaction) -> None:
        """It acts in ``found``, which is open. Raises ProducerFenced where it means another one."""

    def begin(self, key: TransactionKey, found: Transaction) -> None:
        """It has begun ``found``."""


class StagedTransactions:
    """Commands of clients whose records are staged. INIT is :meth:`ProducerTransactions.init`.

    ``acted``: what the client's connection has acted in before; where another
    transaction is open by now, all raise ProducerFenced."""

    def __init__(self, context: TransactionContext, producers: ProducerTransactions) -> None:
        self._context = context
        self._producers = producers

    def begin(
        self,
        key: TransactionKey,
        wire_epoch: int,
        *,
        spare: int | None = None,
        acted: Acted | None = None,
    ) -> Transaction | None:
        """Open a transaction; one that is open already stays. ``spare`` as in
        :class:`ProducerTransactions`, for time-outs may have used up the epochs. Raises
        TransactionNotFound, ProducerFenced, ConcurrentTransactions."""
        found = self.identified(key, wire_epoch, acted)
        if found.state.is_prepared:
            raise ConcurrentTransactions(f"{key}: the transaction before is still being ended")
        if found.state is not State.ONGOING:
            if found.producer_epoch >= LAST_EPOCH:
                if spare is None:
                    return None
                found = replace(found, producer_id=spare, producer_epoch=0)
            found = begun(found, self._context.wall_ms())
            self._context.put(key, found)
            if acted is not None:
                acted.begin(key, found)
        return found

    def stage(
        self,
        key: TransactionKey,
        wire_epoch: int,
        records: Sequence[Staged],
        metadata_offset: int = 0,
        topics: Sequence[KnownTopic] = (),
        *,
        chosen: Collection[int] = (),
        acted: Acted | None = None,
    ) -> Transaction:
        """Add records to the open transaction; those that are staged already, under the same
        sequence, are passed over. Metadata of that offset show their partitions, in these
        ``topics``; those of the records at the places ``chosen`` were not named by the client, so
        may be others when it repeats them. Raises InvalidTransactionState, TransactionTooLarge,
        SequenceReused too."""
        found = self._open(key, wire_epoch, acted)
        known = known_topics(topics, found.topics)
        if anew := [each.name for each in topics if each not in known]:
            raise InvalidTransactionState(
                f"{key}: {anew[0]} was deleted and made anew, and what the transaction has staged "
                "for it went with it: abort it"
            )
        new = self._not_staged(key, found.serial, records, chosen)
        if not new:
            return found
        self._check_room(key, sum(each.size_bytes for each in new))
        entries = [
            staged_entry(key, found.serial, found.staged + number, record)
            for number, record in enumerate(new)
        ]
        grown = replace(
            found,
            staged=found.staged + len(new),
            metadata_offset=max(found.metadata_offset, metadata_offset),
            topics=known,
        )
        self._context.write(transaction_entry(key, grown), *entries)
        return grown

    def stage_offsets(
        self,
        key: TransactionKey,
        wire_epoch: int,
        offsets: Sequence[StagedOffset],
        *,
        acted: Acted | None = None,
    ) -> Transaction:
        """Commit ``offsets`` with the transaction, the last of each partition. Raises as
        :meth:`stage`."""
        found = self._open(key, wire_epoch, acted)
        merged = {(each.group, each.topic, each.partition): each for each in found.offsets}
        merged.update({(each.group, each.topic, each.partition): each for each in offsets})
        if len(merged) > self._context.limits.partitions_max:
            raise TransactionTooLarge(f"{key}: {len(merged)} offsets in one transaction")
        grown = replace(
            found,
            offsets=tuple(merged[name] for name in sorted(merged)),
            offset_count=len(merged),
        )
        self._context.put(key, grown)
        return grown

    def end(
        self,
        key: TransactionKey,
        wire_epoch: int,
        *,
        commits: bool,
        pending: Transaction | None = None,
        spare: int | None = None,
        acted: Acted | None = None,
    ) -> Ended | None:
        """As :meth:`ProducerTransactions.end`; repeated with the same result: the same answer.
        An end without a transaction is InvalidTransactionState.

        ``pending``: the transaction whose offsets are pending in their group. One that is to commit
        others is ConcurrentTransactions: between its decision and the group's hearing of it, who
        takes a partition over would begin at the offset of before, and do again what is committed.
        """
        found = self.identified(key, wire_epoch, acted)
        if found.state is State.ONGOING:
            if commits and found.offsets and not _is_same(found, pending):
                raise ConcurrentTransactions(f"{key}: its offsets are not pending in their group")
            return self._producers.end(
                key, found.identity, commits=commits, bumps=True, spare=spare
            )
        if found.state is State.EMPTY or found.commits != commits:
            raise InvalidTransactionState(f"{key}: the transaction is {found.state.name}")
        self._context.write_known()  # it may mean a later one, under the same identity
        return Ended(found.next_identity, not found.state.is_prepared)

    def known(self, key: TransactionKey) -> Transaction:
        """The id. Raises TransactionNotFound, too, where it was set back: how its last transaction
        ended is not known."""
        found = self._context.find(key)
        if found is None:
            raise TransactionNotFound(f"{key}: not known")
        if self._context.was_set_back(found):
            raise TransactionNotFound(f"{key}: {SET_BACK}, initialise the producer anew")
        return found

    def identified(
        self, key: TransactionKey, wire_epoch: int, acted: Acted | None = None
    ) -> Transaction:
        """The id, if its client is the newest, and means the transaction that is open, if one is.
        Raises TransactionNotFound, ProducerFenced."""
        found = self.known(key)
        if found.wire_epoch != wire_epoch:
            raise ProducerFenced(f"{key}: epoch {wire_epoch}, the newest is {found.wire_epoch}")
        if acted is not None and found.state is State.ONGOING:
            acted.act(key, found)
        return found

    def _not_staged(
        self,
        key: TransactionKey,
        serial: int,
        records: Sequence[Staged],
        chosen: Collection[int],
    ) -> list[Staged]:
        """Those that the transaction does not have yet, each once. Raises SequenceReused."""
        new: list[Staged] = []
        by_sequence: dict[int, Staged] = {}
        reused: list[int] = []
        for place, record in enumerate(records):
            before = None
            if record.sequence >= 0:
                before = by_sequence.get(record.sequence) or self._context.store.staged_as(
                    key, serial, record.sequence
                )
                by_sequence.setdefault(record.sequence, record)
            if before is None:
                new.append(record)
            elif not _repeats(record, before, elsewhere=place in chosen):
                reused.append(place)
        if reused:
            numbers = sorted({records[place].sequence for place in reused})
            raise SequenceReused(
                f"{key}: the transaction has other records of the numbers {numbers}", reused
            )
        return new

    def _open(self, key: TransactionKey, wire_epoch: int, acted: Acted | None) -> Transaction:
        found = self.identified(key, wire_epoch, acted)
        if found.state is not State.ONGOING:
            raise InvalidTransactionState(f"{key}: the transaction is {found.state.name}")
        return found

    def _check_room(self, key: TransactionKey, size: int) -> None:
        limits, store = self._context.limits, self._context.store
        if store.staged_bytes.get(key, 0) + size > limits.staged_bytes_max:
            raise TransactionTooLarge(
                f"{key}: more than {limits.staged_bytes_max} bytes staged "
                "(transactions.staged_bytes_max)"
            )
        if store.total_staged_bytes + size > limits.staged_total_bytes_max:
            raise TransactionTooLarge(
                f"{limits.staged_total_bytes_max} bytes are staged already "
                "(transactions.staged_total_bytes_max)"
            )


def _repeats(record: Staged, before: Staged, *, elsewhere: bool) -> bool:
    """Whether the client says ``before`` again, whenever that is; for another partition, too, if
    it named none."""
    partition = before.partition if elsewhere else record.partition
    again = replace(record, timestamp_ms=before.timestamp_ms, partition=partition)
    return again == before


def _is_same(found: Transaction, pending: Transaction | None) -> bool:
    """Whether ``found`` is that transaction, with no other offsets sent to it since."""
    if pending is None:
        return False
    return (found.serial, found.offsets) == (pending.serial, pending.offsets)
