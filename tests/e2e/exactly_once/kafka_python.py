"""The copier with kafka-python.

Two faults of its producer (3.0.12) need another producer, with the same id:

- It keeps the offsets of an aborted transaction and sends them with the next.
- It forgets a request to a coordinator that refuses the connection (`await_ready` raises where its
  caller expects False), and whoever waits for the answer does so for ever. So nothing is waited for
  without a limit here, and what was in doubt then is unknown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import kafka
import trio
from kafka.errors import KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata, TopicPartition

from tests.e2e.exactly_once.copying import (
    SESSION_S,
    TRANSACTION_TIMEOUT_S,
    Adapter,
    Read,
    begin,
    copy,
)

_CLOSE_S = 5
_PATIENCE_S = 10.0


class Forgotten(Exception):
    """The producer has not answered."""


class Moves(kafka.ConsumerRebalanceListener):
    """Counts how often partitions came and went."""

    count = 0

    def on_partitions_assigned(self, assigned: object) -> None:
        self.count += 1

    def on_partitions_revoked(self, revoked: object) -> None:
        self.count += 1


class KafkaPython(Adapter):
    failures = (KafkaError, Forgotten)

    async def open(self) -> None:
        course = self.course
        self._moves = Moves()
        self._producer = self._new_producer()
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=course.servers,
            group_id=course.group,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_S * 1000,
            heartbeat_interval_ms=SESSION_S * 1000 // 3,
        )
        await _within(self._producer.init_transactions)
        self._consumer.subscribe([course.input], listener=self._moves)

    def _new_producer(self) -> kafka.KafkaProducer:
        return kafka.KafkaProducer(
            bootstrap_servers=self.course.servers,
            transactional_id=self.course.name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_S * 1000,
        )

    async def close(self) -> None:
        self._close_producer()
        try:
            self._consumer.close()
        except KafkaError as error:
            print("closing:", repr(error), file=sys.stderr, flush=True)

    def _close_producer(self) -> None:
        """With what it has forgotten it waits in vain."""
        try:
            self._producer.close(timeout=_CLOSE_S)
        except KafkaError as error:
            print("closing:", repr(error), file=sys.stderr, flush=True)

    async def take(self, most: int) -> list[Read]:
        moves = self._moves.count
        polled = self._consumer.poll(timeout_ms=1000, max_records=most)
        reads = [Read(each.partition, each.offset) for found in polled.values() for each in found]
        if moves == self._moves.count:
            self._member = self._consumer.group_metadata()
            return reads
        if reads:
            await self.rewind()
        return []

    async def rewind(self) -> dict[int, int]:
        offsets = {}
        for at in self._consumer.assignment():
            offset = self._consumer.committed(at) or 0
            self._consumer.seek(at, offset)
            offsets[at.partition] = offset
        return offsets

    async def begin(self) -> None:
        self._producer.begin_transaction()

    async def send(self, partition: int, value: bytes) -> None:
        self._producer.send(self.course.output, value, partition=partition)

    async def send_offsets(self, offsets: Mapping[int, int]) -> None:
        places = {
            TopicPartition(self.course.input, at): OffsetAndMetadata(to, "", -1)
            for at, to in offsets.items()
        }
        await _within(self._producer.send_offsets_to_transaction, places, self._member)

    async def flush(self) -> None:
        await _within(self._producer.flush)

    async def commit(self) -> None:
        await _within(self._producer.commit_transaction)

    async def abort(self) -> None:
        await _within(self._producer.abort_transaction)
        self._close_producer()
        self._producer = self._new_producer()
        await _within(self._producer.init_transactions)

    def may_abort(self, error: BaseException) -> bool:
        return not isinstance(error, ProducerFencedError | Forgotten)


async def _within(call: Callable[..., object], *arguments: object) -> None:
    """Have a producer do something, unless it takes too long. Raises Forgotten."""
    with trio.move_on_after(_PATIENCE_S) as scope:
        await trio.to_thread.run_sync(call, *arguments, abandon_on_cancel=True)
    if scope.cancelled_caught:
        raise Forgotten(f"{call.__name__} did not return within {_PATIENCE_S:.0f} s")


if __name__ == "__main__":
    course, journal = begin(sys.argv)
    trio.run(copy, KafkaPython(course), journal)
