"""Transactions, and group commits of sinks. README.md shows tables and who is asked what.

A transactional id's producer is made with INIT_PRODUCER (``data.py``); it then writes with
PRODUCE under that id: partitions become part of the transaction by being written to. Each
END_TRANSACTION answers the identity to go on with, whose epoch is a new one, so whatever is still
under way under the old one can do nothing any more. All requests here but
FIND_TRANSACTION_COORDINATOR and COMMIT_TRANSACTION_OFFSETS go to the transaction coordinator.

A sink (transactions/DESIGN 5) opens one transaction per task attempt, under names that the
coordinator makes, and commits any number of them at once.
"""

from __future__ import annotations

from paceline.values import dataclass
from paceline.wire.message import Message
from paceline.wire.native.groups import OffsetToCommit

KAFKA = "kafka"
SINK = "sink"

# --- producers -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindTransactionCoordinator(Message):
    """Which node coordinates the transactions of ``name``, a transactional id or a sink. Answered
    by any node from its metadata with CoordinatorFound; COORDINATOR_NOT_AVAILABLE when nobody does.
    """

    name: str


@dataclass(frozen=True, slots=True)
class EndTransaction(Message):
    """Commit or abort. The answer means that it is decided and durable, whatever fails then; it
    comes when readers everywhere can see it, but no later than ``wait_ms`` after the decision.

    Repeated with the same result it is answered the same. PRODUCER_FENCED (90): somebody else has
    taken over, or the coordinator has aborted the transaction, for it was open for too long.
    INVALID_TXN_STATE (48): it ended otherwise.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commits: bool
    wait_ms: int = 5000


@dataclass(frozen=True, slots=True)
class TransactionEnded(Message):
    """The identity for the next transaction. Not ``complete``: readers will see it later."""

    producer_id: int
    producer_epoch: int
    complete: bool


@dataclass(frozen=True, slots=True)
class CommitTransactionOffsets(Message):
    """Commit a group's offsets with the transaction; the group becomes part of it. To the group's
    coordinator, which judges ``generation``, ``member_id`` and ``instance_id`` as of
    COMMIT_OFFSETS. Answered with OffsetResults; readers of offsets see the old ones until the
    transaction commits, and those that ask for stable ones wait."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group: str
    generation: int
    member_id: str
    offsets: tuple[OffsetToCommit, ...]
    instance_id: str | None = None


# --- operators -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListTransactions(Message):
    """All transactional ids that the caller may see, in one of ``states`` (lower case, empty: any):
    empty, ongoing, prepare_commit, prepare_abort, complete_commit, complete_abort."""

    states: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TransactionListing(Message):
    """``open_ms``: how long its transaction has been open, -1 without one."""

    family: str
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    open_ms: int
    partition_count: int


@dataclass(frozen=True, slots=True)
class TransactionsListed(Message):
    transactions: tuple[TransactionListing, ...]


@dataclass(frozen=True, slots=True)
class DescribeTransaction(Message):
    transactional_id: str
    family: str = KAFKA


@dataclass(frozen=True, slots=True)
class TransactionPartition(Message):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class TransactionDescription(Message):
    """``partitions`` and ``groups`` are those of the open transaction. ``staged``: records held by
    the coordinator, or that the last transaction held, without those that were stored nowhere.
    ``reason``: why the coordinator ended the last one by itself. ``sink``,
    ``batch``, ``run``: whose task attempt this is."""

    listing: TransactionListing
    partitions: tuple[TransactionPartition, ...]
    groups: tuple[str, ...]
    staged: int
    reason: str
    sink: str = ""
    batch: int = -1
    run: str = ""


@dataclass(frozen=True, slots=True)
class AbortTransaction(Message):
    """For operators: abort an open transaction and fence its producer. INVALID_TXN_STATE when none
    is open. Answered as :class:`EndTransaction`, with the producer's new epoch."""

    transactional_id: str
    family: str = KAFKA
    wait_ms: int = 5000


# --- sinks ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BeginAttempt(Message):
    """Open a transaction for a task attempt. ``query`` is empty for a write that is no streaming
    query's; ``partition`` and ``attempt`` are for people to read.

    ALREADY_COMMITTED (10030): the batch is committed, write nothing. SINK_FENCED (10031): a later
    run has taken over. SINK_CONFLICT (10032): another query's batches lie under this sink, or a
    later one of this query, or one of this number that was planned at another time. A run not seen
    before takes the sink over, and what the former one has open is aborted.
    ``planned_ms`` is when the batch was planned first, -1 where nobody knows: SINK_FORGOTTEN
    (10034) where the sink is not known and may have been forgotten since.
    """

    sink: str
    query: str
    run: str
    batch: int
    partition: int
    attempt: int
    timeout_ms: int
    planned_ms: int = -1


@dataclass(frozen=True, slots=True)
class AttemptBegun(Message):
    """Produce under ``transaction`` with family ``sink``, sequences of each partition from 0."""

    transaction: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class TouchBatch(Message):
    """Renew the time-out of everything the batch has open. SINK_FENCED as above."""

    sink: str
    run: str
    batch: int


@dataclass(frozen=True, slots=True)
class BatchTouched(Message):
    open_count: int


@dataclass(frozen=True, slots=True)
class CommitGroup(Message):
    """Commit these transactions of a batch, all or none, by one record; whatever else the sink has
    open up to that batch is aborted by the same record. Answered when that is durable, at most
    ``wait_ms`` later when readers everywhere can see it.

    ALREADY_COMMITTED: so also a repeated one; what is open is aborted. INVALID_TXN_STATE: one of
    them is not open, nothing has changed. May be repeated after any unknown outcome.
    """

    sink: str
    run: str
    batch: int
    transactions: tuple[str, ...]
    wait_ms: int = 5000


@dataclass(frozen=True, slots=True)
class GroupCommitted(Message):
    complete: bool


@dataclass(frozen=True, slots=True)
class AbortGroup(Message):
    """Abort those of ``transactions`` that are open, and with a ``run`` all that it has open in the
    batch; never refused."""

    sink: str
    batch: int
    transactions: tuple[str, ...]
    run: str = ""


@dataclass(frozen=True, slots=True)
class GroupAborted(Message):
    """What was open is being aborted."""


@dataclass(frozen=True, slots=True)
class SinkState(Message):
    sink: str


@dataclass(frozen=True, slots=True)
class SinkDescription(Message):
    """``last_batch`` -1: the sink has committed nothing, or is not ``known``."""

    known: bool
    query: str
    run: str
    last_batch: int
