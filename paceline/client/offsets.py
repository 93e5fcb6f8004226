"""Asking leaders for offsets (by time, first, last), also while a partition has no leader yet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import trio

from paceline.client.metadata import Leader, Metadata
from paceline.client.pool import ConnectionPool
from paceline.client.position import Position
from paceline.client.retry import Backoff
from paceline.errors import (
    OffsetNotAvailable,
    PacelineError,
    RemoteProtocolError,
    UnknownTopicOrPartition,
    error_for,
)
from paceline.types import NO_EPOCH, Isolation, LeaderEpoch, OffsetSpec, TopicPartition
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import ListOffsets, ListOffsetsReply, OffsetFound, OffsetQuery

MISSING_PARTITION_S = 10.0
"""How long a partition may be unknown to the nodes before it is taken not to exist."""

Found = dict[TopicPartition, OffsetFound]


class _Told(Found):
    """Answers, each told when it comes."""

    def __init__(self, landed: Callable[[TopicPartition, OffsetFound], None]) -> None:
        super().__init__()
        self._landed = landed

    def __setitem__(self, at: TopicPartition, found: OffsetFound) -> None:
        super().__setitem__(at, found)
        self._landed(at, found)


class Sought(NamedTuple):
    """A look-up that needs more than a number, see ``OffsetQuery``."""

    spec: OffsetSpec
    epoch: LeaderEpoch = NO_EPOCH
    after_offset: int = -1
    ahead_bytes: int = -1


Wanted = int | Sought
"""An OffsetSpec, a timestamp in ms, or a :class:`Sought`."""


class OffsetFinder:
    """Look-ups of offsets at the partitions' leaders."""

    def __init__(self, pool: ConnectionPool, metadata: Metadata, backoff: Backoff) -> None:
        self._pool = pool
        self._metadata = metadata
        self._backoff = backoff

    async def find(
        self,
        specs: Mapping[TopicPartition, Wanted],
        isolation: Isolation,
        *,
        timeout_s: float = math.inf,
        landed: Callable[[TopicPartition, OffsetFound], None] | None = None,
    ) -> Found:
        """Each partition's offset for its spec; ``landed`` is told of each when it comes.

        Tries on while leaders are missing or fresh, until ``timeout_s``; then raises the last
        failure. Errors that no retry can help are raised at once.
        """
        begin = trio.current_time()
        deadline = begin + timeout_s
        found: Found = {} if landed is None else _Told(landed)
        failures = 0
        while True:
            open_specs = {at: spec for at, spec in specs.items() if at not in found}
            error = await self._round(open_specs, isolation, found)
            if error is None:
                return {at: found[at] for at in specs}
            pause_s = self._backoff.pause_s(failures)
            now = trio.current_time()
            if not error.retriable or now + pause_s > deadline:
                raise error
            if isinstance(error, UnknownTopicOrPartition) and now - begin > MISSING_PARTITION_S:
                raise error
            failures += 1
            await trio.sleep(pause_s)

    async def resolve(
        self,
        positions: Mapping[TopicPartition, Position],
        isolation: Isolation,
        *,
        timeout_s: float = math.inf,
    ) -> dict[TopicPartition, int]:
        """The offset that each position means now. Raises as :meth:`find`; ``timeout_s`` is for
        all of it."""
        late_at = trio.current_time() + timeout_s
        offsets = {at: p.offset for at, p in positions.items() if p.offset is not None}
        rest = {at: p for at, p in positions.items() if p.offset is None}
        found = await self.find(
            {at: _spec(position) for at, position in rest.items()}, isolation, timeout_s=timeout_s
        )
        offsets |= {at: answer.offset for at, answer in found.items()}
        ends = [at for at, answer in found.items() if answer.offset < 0]
        offsets |= await self._offsets(ends, OffsetSpec.LATEST, isolation, late_at)
        tails = {at: p.tail_count for at, p in rest.items() if p.tail_count is not None}
        starts = await self._offsets(tails, OffsetSpec.EARLIEST, isolation, late_at)
        for at, count in tails.items():
            offsets[at] = max(starts[at], offsets[at] - count)
        return offsets

    async def _offsets(
        self,
        partitions: Iterable[TopicPartition],
        spec: OffsetSpec,
        isolation: Isolation,
        late_at: float,
    ) -> dict[TopicPartition, int]:
        timeout_s = late_at - trio.current_time()
        found = await self.find(dict.fromkeys(partitions, spec), isolation, timeout_s=timeout_s)
        return {at: answer.offset for at, answer in found.items()}

    async def _round(
        self, specs: Mapping[TopicPartition, Wanted], isolation: Isolation, found: Found
    ) -> PacelineError | None:
        """Ask each leader once; returns the gravest failure, None when all were found."""
        by_leader: dict[int, dict[TopicPartition, tuple[Wanted, Leader]]] = {}
        errors: list[PacelineError] = []
        for at, spec in specs.items():
            try:
                leader = await self._metadata.leader(at)
            except PacelineError as error:
                errors.append(error)
            else:
                by_leader.setdefault(leader.node, {})[at] = (spec, leader)
        async with trio.open_nursery() as nursery:
            for queries in by_leader.values():
                nursery.start_soon(self._ask, queries, isolation, found, errors)
        return min(errors, key=lambda error: error.retriable, default=None)

    async def _ask(
        self,
        queries: Mapping[TopicPartition, tuple[Wanted, Leader]],
        isolation: Isolation,
        found: Found,
        errors: list[PacelineError],
    ) -> None:
        leader = next(iter(queries.values()))[1]
        request = ListOffsets(
            isolation,
            tuple(_query(at, spec, each) for at, (spec, each) in queries.items()),
        )
        try:
            connection = await self._pool.to_node(leader.node)
            reply = await connection.call(NativeApi.LIST_OFFSETS, request, ListOffsetsReply)
            if len(reply.partitions) != len(queries):
                raise RemoteProtocolError("offsets of other partitions than asked for")
        except PacelineError as error:
            errors.append(error)
            for at, (_, each) in queries.items():
                self._metadata.view.doubt(at, each.epoch)
            return
        for (at, (_, each)), answer in zip(queries.items(), reply.partitions, strict=True):
            if answer.error == 0:
                found[at] = answer
                continue
            failure = error_for(answer.error, answer.message)
            errors.append(failure)
            learned = self._metadata.view.learn(at, answer.leader, answer.leader_epoch)
            if not learned and not isinstance(failure, OffsetNotAvailable):
                self._metadata.view.doubt(at, each.epoch)


def _query(at: TopicPartition, wanted: Wanted, leader: Leader) -> OffsetQuery:
    if not isinstance(wanted, Sought):
        return OffsetQuery(at.topic, at.partition, wanted, leader.epoch)
    return OffsetQuery(at.topic, at.partition, wanted.spec, leader.epoch, *wanted[1:])


def _spec(position: Position) -> int:
    if position.timestamp_ms is not None:
        return position.timestamp_ms
    return OffsetSpec.EARLIEST if position == Position.EARLIEST else OffsetSpec.LATEST
