"""Offsets by time or name, and where epochs ended: one way for all protocols.

Query by query: who may see the topic's offsets, whether this node leads the partition, in the epoch
that the client means, then the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import trio

from paceline.errors import PacelineError
from paceline.types import NO_EPOCH, Isolation, LeaderEpoch, OffsetSpec
from paceline_node.loop_turns import Turns
from paceline_node.replication import offset_lookups
from paceline_node.replication.offset_lookups import FoundOffset, TimesNotKnown
from paceline_node.replication.partition import Partition
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.partitions.partition_access import PartitionAccess, Refused
from paceline_node.sliced_work import Work, at_once

__all__ = ["Ends", "FoundOffset", "OffsetService", "Outcome", "Query"]

_ASKED_EVERY_S = 0.05
_TIMES_ASKED = 100
"""How long a lookup waits for a time index, in rounds."""


class Query(NamedTuple):
    """``spec``: a time in ms, or an :class:`OffsetSpec`, of which EPOCH_END is about ``epoch`` and
    AHEAD about ``ahead_bytes`` from ``after_offset`` on. ``current_leader_epoch``: as the client
    thinks, -1 unchecked."""

    topic: str
    partition: int
    spec: int
    current_leader_epoch: LeaderEpoch = NO_EPOCH
    epoch: LeaderEpoch = NO_EPOCH
    after_offset: int = -1
    ahead_bytes: int = -1


class Ends(NamedTuple):
    """Where a partition begins and ends: ``stable`` for readers of committed records."""

    start: int
    stable: int
    high_watermark: int
    log_end: int


Outcome = FoundOffset | Refused


class OffsetService:
    """Looks into the logs of the partitions that this node leads."""

    def __init__(self, records: PartitionAccess, turns: Turns) -> None:
        self._records = records
        self._turns = turns

    def find(
        self, principal: Principal, queries: Sequence[Query], isolation: Isolation
    ) -> list[Outcome] | None:
        """What became of each query, in order; None while a time index is made anew, which
        :meth:`find_in_turns` waits for."""
        outcomes, is_known = at_once(self._finding(principal, queries, isolation))
        return outcomes if is_known else None

    async def find_in_turns(
        self, principal: Principal, queries: Sequence[Query], isolation: Isolation
    ) -> list[Outcome]:
        """As :meth:`find`, for many queries, taking turns with others' work. Some clients do not
        ask again, so a time index that is made anew is waited for, a few seconds long."""
        for _ in range(_TIMES_ASKED):
            outcomes, is_known = await self._turns.run(self._finding(principal, queries, isolation))
            if is_known:
                break
            await trio.sleep(_ASKED_EVERY_S)
        return outcomes

    def _finding(
        self, principal: Principal, queries: Sequence[Query], isolation: Isolation
    ) -> Work[tuple[list[Outcome], bool]]:
        outcomes: list[Outcome] = []
        is_known = True
        permitted = None
        for query in queries:
            yield 1
            try:
                if query.topic != permitted:
                    self._records.permit(principal, Operation.DESCRIBE, query.topic)
                    permitted = query.topic
                outcomes.append(_look_up(self._leader(query), query, isolation))
            except PacelineError as error:
                is_known = is_known and not isinstance(error, TimesNotKnown)
                outcomes.append(self._records.refusal(error, query.topic, query.partition))
        return outcomes, is_known

    def _leader(self, query: Query) -> Partition:
        return self._records.leader(
            query.topic, query.partition, current_leader_epoch=query.current_leader_epoch
        )

    def ends(self, principal: Principal, topic: str, number: int) -> Ends:
        """Where a partition that this node leads begins and ends. Raises as a query is refused;
        OffsetNotAvailable while a new leader may not say yet what is committed."""
        self._records.permit(principal, Operation.DESCRIBE, topic)
        partition = self._records.leader(topic, number)
        stable = offset_lookups.find_offset(
            partition, OffsetSpec.LATEST, Isolation.READ_COMMITTED
        ).offset
        return Ends(
            partition.log_start_offset, stable, partition.high_watermark, partition.log_end_offset
        )

    def segment_starts(self, principal: Principal, query: Query) -> list[int]:
        """Where the partition's segments begin, oldest first. Raises as a query is refused."""
        self._records.permit(principal, Operation.DESCRIBE, query.topic)
        log = self._leader(query).log
        return [max(each.base_offset, log.log_start_offset) for each in log.segments]

    def end_of_epoch(self, principal: Principal, query: Query) -> tuple[LeaderEpoch, int] | None:
        """Where ``query.epoch``, or the last one below it, ended in the log, as (epoch found, end);
        None for an epoch that has not begun. Raises as a query is refused."""
        self._records.permit(principal, Operation.DESCRIBE, query.topic)
        partition = self._leader(query)
        partition.check_serving()
        log = partition.log
        end = log.epochs.end_offset_for(query.epoch, log.log_end_offset)
        return None if end is None else (end.epoch, end.end)


def _look_up(partition: Partition, query: Query, isolation: Isolation) -> FoundOffset:
    if query.spec == OffsetSpec.EPOCH_END:
        return offset_lookups.epoch_end(partition, query.epoch)
    if query.spec == OffsetSpec.AHEAD:
        return offset_lookups.ahead(partition, query.after_offset, query.ahead_bytes)
    return offset_lookups.find_offset(partition, query.spec, isolation)
