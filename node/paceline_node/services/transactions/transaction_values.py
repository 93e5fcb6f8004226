"""Transactions as listeners see them, and what they hand in to be staged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from paceline.wire.native.transactions import TransactionListing
from paceline.wire.peer.names import PartitionName
from paceline.wire.records import Record
from paceline_node.transaction_names import ProducerIdentity, TransactionKey
from paceline_node.transactions.inspection import Listed
from paceline_node.transactions.records import Header, Staged, StagedOffset, Transaction


class TransactionInfo(NamedTuple):
    """A transactional id, as operators see it, and its present or last transaction. ``open_s`` is
    how long that has been open, -1 without. ``staged`` counts its staged records, without those
    that turned out to be stored nowhere; ``sink``, ``batch`` and ``run`` say whose task attempt it
    is."""

    key: TransactionKey
    state: str
    identity: ProducerIdentity
    timeout_ms: int
    open_s: float
    partitions: Sequence[PartitionName]
    groups: Sequence[str]
    staged: int
    reason: str
    sink: str
    batch: int
    run: str


class StagedInfo(NamedTuple):
    """A transactional id as the client sees it whose records are staged, with its present or last
    transaction, the id's number ``serial``. ``commits``: how it ended, or is about to. ``staged``
    and ``offset_count`` count what is, or was, in it; ``dropped`` what of it was stored nowhere."""

    state: str
    wire_epoch: int
    serial: int
    commits: bool
    staged: int
    dropped: int
    offset_count: int
    offsets: Sequence[StagedOffset]


class RecordToStage(NamedTuple):
    """``sequence`` is the client's number for it, by which a repeated one is recognised; -1 where
    it has none."""

    partition: int
    sequence: int
    record: Record


class Initialised(NamedTuple):
    """``identity`` stands in batches. ``wire_epoch`` counts the id's INITs from 0, for protocols
    whose clients see an epoch of their own."""

    identity: ProducerIdentity
    wire_epoch: int


def info_of(found: Listed) -> TransactionInfo:
    """An id, as operators see it."""
    transaction = found.transaction
    return TransactionInfo(
        key=found.key,
        state=transaction.state.name.lower(),
        identity=transaction.identity,
        timeout_ms=transaction.timeout_ms,
        open_s=found.open_s,
        partitions=transaction.partitions,
        groups=[each.group for each in transaction.groups],
        staged=transaction.staged - transaction.dropped,
        reason=transaction.reason,
        sink=transaction.sink,
        batch=transaction.batch,
        run=transaction.run,
    )


def listing_of(found: TransactionInfo) -> TransactionListing:
    """An item of a list."""
    return TransactionListing(
        found.key.family.value,
        found.key.name,
        found.state,
        *found.identity,
        found.timeout_ms,
        int(found.open_s * 1000) if found.open_s >= 0 else -1,
        len(found.partitions),
    )


def staged_info(found: Transaction) -> StagedInfo:
    """An id, as its client sees it."""
    return StagedInfo(
        state=found.state.name.lower(),
        wire_epoch=found.wire_epoch,
        serial=found.serial,
        commits=found.commits,
        staged=found.staged,
        dropped=found.dropped,
        offset_count=found.offset_count,
        offsets=found.offsets,
    )


def staged_record(topic: str, told: RecordToStage, now_ms: int) -> Staged:
    """A record as it is kept until its transaction commits."""
    record = told.record
    headers = tuple([Header(name, value) for name, value in record.headers])
    return Staged(topic, told.partition, told.sequence, now_ms, record.key, record.value, headers)
