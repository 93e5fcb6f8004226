"""Native FETCH and LIST_OFFSETS: messages to neutral values and back.

The answer's payload is ranges of segment files, sent by the kernel where the connection allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from paceline.wire.frame import Frame
from paceline.wire.native.data import (
    AbortedTransaction,
    Fetch,
    FetchedPartition,
    FetchPartition,
    FetchReply,
    ListOffsets,
    ListOffsetsReply,
    OffsetFound,
    OffsetQuery,
)
from paceline_node.net.transport import FilePart
from paceline_node.security.principals import Principal
from paceline_node.services.partitions.partition_access import Refused
from paceline_node.services.records import fetch
from paceline_node.services.records.fetch import FetchService, ParkedFetch, aborted_in
from paceline_node.services.records.list_offsets import OffsetService
from paceline_node.services.records.list_offsets import Outcome as OffsetsOutcome
from paceline_node.services.records.list_offsets import Query as OffsetsQuery

Fetched = tuple[FetchReply, list[FilePart]]
"""A reply, and its payload."""
Answer = Callable[[FetchReply, list[FilePart]], None]


class FetchHandler:
    """Reads for native clients."""

    def __init__(self, service: FetchService, offset_service: OffsetService) -> None:
        self._service = service
        self._offsets = offset_service

    def handle(self, frame: Frame, principal: Principal, answer: Answer) -> ParkedFetch | None:
        """Answer now, or return the fetch as parked; see :meth:`FetchService.fetch`."""
        request = Fetch.unpack(frame.body)
        told = partial(_answer, request.partitions, answer)
        return self._service.fetch(_wish(request, principal), told)

    async def fetch_in_turns(self, request: Fetch, principal: Principal) -> Fetched:
        """See :meth:`FetchService.fetch_in_turns`."""
        outcomes = await self._service.fetch_in_turns(_wish(request, principal))
        return _fetched(request.partitions, outcomes)

    def list_offsets(self, request: ListOffsets, principal: Principal) -> ListOffsetsReply | None:
        """See :meth:`OffsetService.find`."""
        found = self._offsets.find(principal, _queries(request), request.isolation)
        return None if found is None else _found(request.partitions, found)

    async def list_offsets_in_turns(
        self, request: ListOffsets, principal: Principal
    ) -> ListOffsetsReply:
        """See :meth:`OffsetService.find_in_turns`."""
        queries = _queries(request)
        found = await self._offsets.find_in_turns(principal, queries, request.isolation)
        return _found(request.partitions, found)


# --- fetch ----------------------------------------------------------------------------------------


def _wish(request: Fetch, principal: Principal) -> fetch.Wish:
    return fetch.Wish(
        principal,
        [
            fetch.Wanted(
                each.topic,
                each.partition,
                each.offset,
                each.max_bytes,
                each.current_leader_epoch,
                each.topic_id,
            )
            for each in request.partitions
        ],
        request.isolation,
        request.min_bytes,
        request.max_bytes,
        request.max_wait_ms / 1000,
        request.own_replica,
    )


def _answer(
    asked: Sequence[FetchPartition], answer: Answer, outcomes: Sequence[fetch.Outcome]
) -> None:
    answer(*_fetched(asked, outcomes))


def _fetched(asked: Sequence[FetchPartition], outcomes: Sequence[fetch.Outcome]) -> Fetched:
    results, parts = [], []
    for at, outcome in zip(asked, outcomes, strict=True):
        if isinstance(outcome, Refused):
            results.append(_refused(at, outcome))
            continue
        found = outcome.slice
        if found is not None:
            parts.append(FilePart(found.file, found.position, found.size))
        results.append(
            FetchedPartition(
                topic=at.topic,
                partition=at.partition,
                error=0,
                message="",
                leader_epoch=outcome.leader_epoch,
                high_watermark=outcome.high_watermark,
                last_stable_offset=outcome.last_stable_offset,
                log_start_offset=outcome.log_start_offset,
                records_bytes=0 if found is None else found.size,
                aborted=_aborted(outcome) if outcome.aborted else (),
                next_offset=-1 if found is None else found.next_offset,
            )
        )
    return FetchReply(tuple(results)), parts


def _aborted(read: fetch.ReadResult) -> tuple[AbortedTransaction, ...]:
    return tuple([AbortedTransaction(producer, first) for first, producer in aborted_in(read)])


def _refused(at: FetchPartition, refused: Refused) -> FetchedPartition:
    return FetchedPartition(
        topic=at.topic,
        partition=at.partition,
        error=int(refused.error.code),
        message=str(refused.error),
        leader_epoch=refused.leader_epoch,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        records_bytes=0,
        leader=refused.leader,
    )


# --- offsets --------------------------------------------------------------------------------------


def _queries(request: ListOffsets) -> list[OffsetsQuery]:
    return [
        OffsetsQuery(
            each.topic,
            each.partition,
            each.spec,
            each.current_leader_epoch,
            each.epoch,
            each.after_offset,
            each.ahead_bytes,
        )
        for each in request.partitions
    ]


def _found(asked: Sequence[OffsetQuery], outcomes: Sequence[OffsetsOutcome]) -> ListOffsetsReply:
    return ListOffsetsReply(
        tuple([_told(at, outcome) for at, outcome in zip(asked, outcomes, strict=True)])
    )


def _told(at: OffsetQuery, outcome: OffsetsOutcome) -> OffsetFound:
    if isinstance(outcome, Refused):
        return OffsetFound(
            topic=at.topic,
            partition=at.partition,
            error=int(outcome.error.code),
            message=str(outcome.error),
            offset=-1,
            timestamp_ms=-1,
            leader_epoch=outcome.leader_epoch,
            leader=outcome.leader,
        )
    return OffsetFound(
        at.topic,
        at.partition,
        0,
        "",
        outcome.offset,
        outcome.timestamp_ms,
        outcome.leader_epoch,
    )
