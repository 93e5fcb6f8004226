"""The copier with aiokafka.

It names only the group when it sends offsets, not the member, so it cannot be fenced by a
generation: the copier takes its partitions by itself instead of having the group assign them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping

import aiokafka
from aiokafka.errors import KafkaError, ProducerFenced
from aiokafka.structs import TopicPartition

from tests.e2e.exactly_once.copying import (
    CALL_S,
    TRANSACTION_TIMEOUT_S,
    Adapter,
    Read,
    begin,
    copy,
)


class AioKafka(Adapter):
    failures = (KafkaError, AssertionError, TimeoutError)
    """An assertion is how its producer says that it is past aborting."""

    async def open(self) -> None:
        course = self.course
        self._producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=course.servers,
            transactional_id=course.name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_S * 1000,
        )
        self._consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=course.servers,
            group_id=course.group,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
        )
        await self._producer.start()
        await self._consumer.start()
        self._consumer.assign(
            [
                TopicPartition(course.input, each)
                for each in range(course.member, len(course.ends), course.members)
            ]
        )

    async def close(self) -> None:
        for each in (self._producer, self._consumer):
            try:
                await asyncio.wait_for(each.stop(), CALL_S)
            except self.failures as error:
                print("closing:", repr(error), file=sys.stderr, flush=True)

    async def take(self, most: int) -> list[Read]:
        polled = await self._consumer.getmany(timeout_ms=1000, max_records=most)
        return [Read(each.partition, each.offset) for found in polled.values() for each in found]

    async def rewind(self) -> dict[int, int]:
        offsets = {}
        for at in self._consumer.assignment():
            offset = await self._consumer.committed(at) or 0
            self._consumer.seek(at, offset)
            offsets[at.partition] = offset
        return offsets

    async def begin(self) -> None:
        await self._producer.begin_transaction()

    async def send(self, partition: int, value: bytes) -> None:
        await self._producer.send(self.course.output, value, partition=partition)

    async def send_offsets(self, offsets: Mapping[int, int]) -> None:
        by_partition = {TopicPartition(self.course.input, at): to for at, to in offsets.items()}
        await self._producer.send_offsets_to_transaction(by_partition, self.course.group)

    async def flush(self) -> None:
        await self._producer.flush()

    async def commit(self) -> None:
        await self._producer.commit_transaction()

    async def abort(self) -> None:
        await self._producer.abort_transaction()

    def may_abort(self, error: BaseException) -> bool:
        return not isinstance(error, ProducerFenced)


if __name__ == "__main__":
    course, journal = begin(sys.argv)
    asyncio.run(copy(AioKafka(course), journal))
