"""Transactions that are open in a log and that nobody will ever end. Pure.

An unclean election takes back what was committed: of ``__transactions``, so that the coordinator
has forgotten a transaction, or of a partition, so that it has lost its end marker. Readers of
committed records would stand before it for ever. So would a group before offsets that are pending.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from paceline.wire.peer.names import GroupName, PartitionName
from paceline_node.transactions.context import TransactionContext


class OpenHere(NamedTuple):
    """A producer's transaction that is open in a partition's log, or has offsets pending in a
    group."""

    producer_id: int
    where: PartitionName | GroupName


def find_hanging(context: TransactionContext, asked: Collection[OpenHere]) -> list[bool]:
    """Which of ``asked`` no transaction that is open or decided here has anything to do with.
    Raises what writing raises.

    Whoever leads no more, and has not heard of a transaction that was begun since, is not to
    answer: so it writes (:meth:`TransactionContext.write_known`). What is begun behind it has
    written nothing yet; whoever acts on the answer looks whether it has by then.
    """
    store = context.store
    wanted = {each.producer_id for each in asked}
    known: set[OpenHere] = set()
    for key in {key for number in wanted for key in store.of_producer.get(number, ())}:
        found = store.transactions[key]
        ids = {found.producer_id, found.next_producer_id, found.ended_producer_id} & wanted
        if ids:
            staged = {PartitionName(each.topic, each.partition) for each in store.staged_in(key)}
            offsets = {each.group for each in found.offsets}
            members: set[PartitionName | GroupName] = {*staged, *found.partitions}
            members.update(found.groups, offsets)
            known.update(OpenHere(number, where) for number in ids for where in members)
    context.write_known()
    return [each not in known for each in asked]
