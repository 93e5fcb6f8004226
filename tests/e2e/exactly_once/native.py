"""The copier with Paceline's own client."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

import trio

from paceline.client import (
    ClientSettings,
    GroupSettings,
    Position,
    RebalanceListener,
    TransactionalSettings,
    connect,
)
from paceline.errors import ConnectionLost, PacelineError, RequestTimedOut
from paceline.types import TopicPartition
from tests.e2e.exactly_once.copying import (
    CALL_S,
    SESSION_S,
    TRANSACTION_TIMEOUT_S,
    Adapter,
    Read,
    begin,
    copy,
)


class Moves(RebalanceListener):
    """Counts how often partitions came and went."""

    count = 0

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.count += 1

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.count += 1

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.count += 1


class Native(Adapter):
    failures = (PacelineError,)

    async def open(self) -> None:
        course = self.course
        self._moves = Moves()
        self._open = await AsyncExitStack().__aenter__()
        client = await self._open.enter_async_context(
            connect(course.servers, ClientSettings(operation_timeout_s=CALL_S))
        )
        settings = TransactionalSettings(transaction_timeout_s=TRANSACTION_TIMEOUT_S)
        self._producer = await self._open.enter_async_context(
            client.transactional_producer(course.name, settings)
        )
        self._consumer = await self._open.enter_async_context(
            client.consumer(
                course.input,
                group=course.group,
                membership=GroupSettings(auto_commit_s=None, session_timeout_s=SESSION_S),
                listener=self._moves,
            )
        )

    async def close(self) -> None:
        try:
            await self._open.aclose()
        except PacelineError as error:
            print("closing:", repr(error), file=sys.stderr, flush=True)

    async def take(self, most: int) -> list[Read]:
        reads: list[Read] = []
        moves = self._moves.count
        with trio.move_on_after(1.0):
            while len(reads) < most:
                record = await self._consumer.__anext__()
                if moves != self._moves.count:
                    moves = self._moves.count
                    reads.clear()  # what was read before may be another's by now
                reads.append(Read(record.partition, record.offset))
        self._member = self._consumer.member
        return reads if moves == self._moves.count else []

    async def rewind(self) -> dict[int, int]:
        assigned = self._consumer.assignment
        committed = await self._consumer.committed(assigned)
        for at in assigned:
            await self._consumer.seek(at, Position.at(committed.get(at) or 0))
        return {at.partition: offset or 0 for at, offset in committed.items()}

    async def begin(self) -> None:
        await self._producer.begin()

    async def send(self, partition: int, value: bytes) -> None:
        await self._producer.submit(self.course.output, value, partition=partition)

    async def send_offsets(self, offsets: Mapping[int, int]) -> None:
        by_partition = {TopicPartition(self.course.input, at): to for at, to in offsets.items()}
        await self._producer.send_offsets(by_partition, self._member)

    async def flush(self) -> None:
        await self._producer.flush()

    async def commit(self) -> None:
        await self._producer.commit()

    async def abort(self) -> None:
        await self._producer.abort()

    def may_abort(self, error: BaseException) -> bool:
        return self._producer.in_transaction

    def may_repeat(self, error: BaseException) -> bool:
        return isinstance(error, RequestTimedOut | ConnectionLost)


if __name__ == "__main__":
    course, journal = begin(sys.argv)
    trio.run(copy, Native(course), journal)
