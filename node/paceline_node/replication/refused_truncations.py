"""When a follower refuses to be cut to what its leader has, and when a leader waits for others.

Pure. A leader that was elected cleanly, and whose disk tells the truth, never asks anybody to cut
what is committed. But after everybody went down the controller only knows who *was* complete, and a
disk may be as it had been some time ago. So logs are compared, and here, where it costs nothing: a
follower that would be cut learns how far both logs reach.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from paceline.errors import ErrorCode
from paceline.types import LeaderEpoch, NodeId
from paceline.wire.peer.replica import FetchedPartition, FetchPartition
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.controller.partition_change import RECOVERY_UNCONFIRMED
from paceline_node.replication.follower import FetchOutcome, truncation_point
from paceline_node.storage.epochs import EpochCache

PATIENCE_S = 4.0
"""How long after its start a process that leads by what it was waits for another complete replica:
as long as a failover takes."""


class ComparedLog(Protocol):
    """What is compared of a log (``replica_log.py``)."""

    @property
    def epochs(self) -> EpochCache: ...
    @property
    def log_end_offset(self) -> int: ...
    def is_proven(self) -> bool: ...


def counts_as_complete(me: NodeId, registration: PartitionRegistration | None) -> bool:
    """Whether the metadata says that ``me`` has all that is committed. An unclean election ends
    that for all but the elected one, so that they may be cut to what it has."""
    if registration is None or me in registration.damaged:
        return False
    return me in registration.isr or me in registration.elr


def unconfirmed_epochs(registration: PartitionRegistration) -> Collection[LeaderEpoch]:
    """The epochs in which nothing was committed, while the present term is one of them; else none:
    then its leader is right. Records of these make no log the longer one: whoever was elected
    first, whatever its disk had lost, could write such for clients that wait for it alone."""
    if registration.recovery != RECOVERY_UNCONFIRMED:
        return frozenset()
    told = [term.leader_epoch for term in registration.unconfirmed]
    return frozenset((*told, registration.leader_epoch))


def fork(
    registration: PartitionRegistration, epochs: EpochCache, log_end: int, answer: FetchedPartition
) -> int:
    """Where a log with these epochs is to be cut by a diverging answer. What it has of unconfirmed
    terms at its end goes first: only then can the leader tell whose log is longer."""
    point = truncation_point(epochs, log_end, answer.diverging_epoch, answer.diverging_end_offset)
    void = unconfirmed_epochs(registration)
    if epochs.last_epoch not in void:
        return point
    counted = epochs.newest_outside(void, log_end)
    return point if counted is None else max(point, counted.end)


def judge(
    me: NodeId,
    registration: PartitionRegistration | None,
    log: ComparedLog,
    high_watermark: int,
    answer: FetchedPartition,
) -> FetchOutcome | None:
    """LACKING or LONGER if nothing here is to be cut, whatever the leader says; else None. What a
    log withholds makes it no longer: it was told to nobody, or is rot."""
    if registration is None:
        return None
    if counts_as_complete(me, registration) and _lacks_committed(
        log.epochs, log.log_end_offset, high_watermark, answer
    ):
        return FetchOutcome.LACKING
    may_lead = me not in registration.damaged and me not in registration.marks
    is_open = registration.recovery == RECOVERY_UNCONFIRMED
    if not (is_open and may_lead and answer.follower_is_longer and log.is_proven()):
        return None
    is_believed = counts_as_complete(me, registration) or _is_surely_longer(
        log.epochs, log.log_end_offset, high_watermark, answer
    )
    return FetchOutcome.LONGER if is_believed else None


def _is_surely_longer(
    epochs: EpochCache, log_end: int, high_watermark: int, answer: FetchedPartition
) -> bool:
    """Whether nothing committed is in the leader's log alone: all of that log is here, too, or what
    took its place here was committed, so that the leader's disk lies (DESIGN 5.2).

    A newer epoch alone says nothing. Leaders commit what others wrote before them without a record
    of their own, so the term in which the leader's records were committed may be newer than this
    one, in which nothing was.
    """
    point = truncation_point(epochs, log_end, answer.diverging_epoch, answer.diverging_end_offset)
    return point >= answer.diverging_end_offset or point < high_watermark


def _lacks_committed(
    epochs: EpochCache, log_end: int, high_watermark: int, answer: FetchedPartition
) -> bool:
    """Whether the leader's log ends, or forks from this one, below what any leader has called
    committed."""
    if answer.error not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
        return False
    if answer.log_end_offset < high_watermark:
        return True
    if answer.error != ErrorCode.NONE or answer.diverging_epoch < 0:
        return False
    point = truncation_point(epochs, log_end, answer.diverging_epoch, answer.diverging_end_offset)
    return point < high_watermark


def is_longer(
    registration: PartitionRegistration, log: ComparedLog, position: FetchPartition
) -> bool:
    """Whether the follower at ``position`` has a longer log than its leader, whose is ``log``: by
    the last epoch, or in one epoch by the end. Unconfirmed terms do not count, the leader's present
    one among them."""
    void = unconfirmed_epochs(registration)
    if not void or position.last_fetched_epoch in void:
        return False
    mine = log.epochs.newest_outside(void, log.log_end_offset)
    if mine is None:
        return log.epochs.first_start == 0  # there was nothing; else all of it has expired
    return (position.last_fetched_epoch, position.fetch_offset) > mine


def awaits_others(
    registration: PartitionRegistration,
    node: NodeId,
    *,
    ran_s: float,
    longer_s: float,
    patience_s: float,
) -> bool:
    """Whether ``node`` must not join the ISR yet, for with it the leader could commit something.

    Others count as complete, and it does not: the leader, whose process runs for ``ran_s``, is to
    be compared with one of them first. Or a longer log was heard of ``longer_s`` ago (infinite:
    never): who has it is about to lead, unless the word of that is lost and it is gone for good.
    """
    if registration.recovery != RECOVERY_UNCONFIRMED:
        return False
    if longer_s < patience_s:
        return True
    return node not in registration.elr and bool(registration.elr) and ran_s < patience_s
