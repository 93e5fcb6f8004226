"""How a transaction ends: decided first, told to everybody concerned, then complete. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from paceline.wire.peer.names import GroupName, PartitionName
from paceline_node.state_machines.machine import Entry
from paceline_node.transaction_names import Family, ProducerIdentity, TransactionKey
from paceline_node.transactions.keys import LAST_EPOCH
from paceline_node.transactions.records import (
    KnownTopic,
    Staged,
    StagedOffset,
    State,
    Transaction,
    marked_entry,
    staged_entry,
    transaction_entry,
)
from paceline_node.transactions.store import TransactionStore

NOBODY = ProducerIdentity(-1, -1)

_REMEMBERED_MS = 30_000
"""Half of the time for which each partition surely knows the producer of a marker, if
``log.producer_ttl_ms`` is no shorter."""


class Ending(NamedTuple):
    """What is left to do for a prepared transaction, in this order: append ``staged`` (commits
    only), a marker to each of ``partitions``, then the groups' offsets. Partitions that are noted
    as marked are left out."""

    key: TransactionKey
    serial: int
    identity: ProducerIdentity
    commits: bool
    staged: tuple[Staged, ...]
    partitions: tuple[PartitionName, ...]
    groups: tuple[GroupName, ...]
    offsets: tuple[StagedOffset, ...]
    metadata_offset: int
    topics: tuple[KnownTopic, ...] = ()
    set_back: bool = False
    """It may have been told everywhere before, and others of the id after it: that is forgotten. A
    log that refuses it then knows better."""
    began_ms: int = -1
    decided_ms: int = 0

    def may_be_forgotten(self, wall_ms: int) -> bool:
        """Whether, at ``wall_ms`` by the cluster's clock (as ``decided_ms``), it may have been told
        in partitions that have forgotten its producer since. To be asked each time that one is
        told: a coordinator may try for longer than partitions remember (DESIGN 2.7)."""
        return self.set_back or wall_ms - self.decided_ms >= _REMEMBERED_MS

    @property
    def topic_ids(self) -> dict[str, UUID]:
        """Which topics are meant, where that is known."""
        return {each.name: each.topic_id for each in self.topics}


def prepared(
    found: Transaction,
    *,
    commits: bool,
    wall_ms: int,
    next_identity: ProducerIdentity = NOBODY,
    fences: bool = False,
    reason: str = "",
) -> Transaction:
    """``found``, which is ongoing, decided. With ``fences`` nobody who writes in it now can go on;
    else the next transaction's identity is ``next_identity``, or the same."""
    assert found.state is State.ONGOING, found
    identity = found.identity
    ended = NOBODY if fences else identity
    return replace(
        found,
        state=State.PREPARE_COMMIT if commits else State.PREPARE_ABORT,
        producer_epoch=identity.epoch + 1 if fences else identity.epoch,
        next_producer_id=next_identity.producer_id,
        next_producer_epoch=next_identity.epoch,
        ended_producer_id=ended.producer_id,
        ended_producer_epoch=ended.epoch,
        changed_ms=wall_ms,
        reason=reason,
    )


def completed(
    found: Transaction, wall_ms: int, *, overtaken: bool = False, dropped: int = 0
) -> Transaction:
    """``found``, which is prepared, told to everybody; of what was staged, so many records were
    ``dropped``. With ``overtaken`` the producer id has no
    epoch left: the logs, where an unclean election made this topic forget, know higher ones."""
    assert found.state.is_prepared, found
    identity = found.next_identity
    if overtaken and identity.producer_id == found.producer_id:
        identity = ProducerIdentity(identity.producer_id, LAST_EPOCH - 1)
    return replace(
        found,
        state=State.COMPLETE_COMMIT if found.commits else State.COMPLETE_ABORT,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        next_producer_id=-1,
        next_producer_epoch=-1,
        partitions=(),
        groups=(),
        offsets=(),
        topics=(),
        changed_ms=wall_ms,
        dropped=dropped,
    )


def completion(
    key: TransactionKey,
    found: Transaction,
    wall_ms: int,
    *,
    overtaken: bool = False,
    dropped: int = 0,
) -> Entry:
    """The record that makes a prepared transaction complete. A sink's task attempt is forgotten:
    nobody can use its name again. What is staged counts for nothing from here on, and is dropped
    behind it (:func:`dropped_staging`): before it, another coordinator would not know what it has
    to append."""
    is_sink = key.family is Family.SINK
    value = None if is_sink else completed(found, wall_ms, overtaken=overtaken, dropped=dropped)
    return transaction_entry(key, value)


def dropped_staging(store: TransactionStore, key: TransactionKey) -> Iterator[Entry]:
    """Forget everything that is staged under ``key``, and where it was stored."""
    for serial, number in sorted(store.staged.get(key, {})):
        yield staged_entry(key, serial, number, None)
    if key in store.marked:
        yield marked_entry(key, None)


def left_staging(store: TransactionStore) -> Iterator[TransactionKey]:
    """Ids with nothing but records of transactions that are over staged."""
    for key in [*store.staged, *(store.marked.keys() - store.staged.keys())]:
        found = store.transactions.get(key)
        if found is None or not (found.state is State.ONGOING or found.state.is_prepared):
            yield key


def decided_by_sink(store: TransactionStore, key: TransactionKey) -> bool | None:
    """Whether an open task attempt was committed by its sink's last commit, or aborted by it; None
    while it is undecided. The record of the sink decides; the attempts' own may come behind it."""
    found = store.transactions.get(key)
    sink = None if found is None else store.sinks.get(found.sink)
    if found is None or sink is None or found.state is not State.ONGOING:
        return None
    if found.batch > sink.last_batch:
        return None
    return found.batch == sink.last_batch and key.name in sink.last_transactions


def ending_of(store: TransactionStore, key: TransactionKey) -> Ending | None:
    """What is left to do for ``key``; None when it is not prepared."""
    found = store.transactions.get(key)
    if found is None or not found.state.is_prepared:
        return None
    staged = tuple(store.unstored_in(key)) if found.commits else ()
    partitions = {*found.partitions, *(PartitionName(s.topic, s.partition) for s in staged)}
    return Ending(
        key=key,
        serial=found.serial,
        identity=found.identity,
        commits=found.commits,
        staged=staged,
        partitions=tuple(sorted(partitions - store.marked_in(key))),
        groups=found.groups,
        offsets=found.offsets if found.commits else (),
        metadata_offset=found.metadata_offset,
        topics=found.topics,
        began_ms=found.began_ms,
        decided_ms=found.changed_ms,
    )
