"""The copier with librdkafka (confluent-kafka)."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import confluent_kafka
import trio
from confluent_kafka import TopicPartition

from tests.e2e.exactly_once.copying import (
    CALL_S,
    SESSION_S,
    TRANSACTION_TIMEOUT_S,
    Adapter,
    Read,
    begin,
    copy,
)


class RdKafka(Adapter):
    failures = (confluent_kafka.KafkaException,)

    async def open(self) -> None:
        course = self.course
        servers = {"bootstrap.servers": ",".join(course.servers)}
        self._moves = 0
        self._producer = confluent_kafka.Producer(
            {
                **servers,
                "transactional.id": course.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_S * 1000,
            }
        )
        self._consumer = confluent_kafka.Consumer(
            {
                **servers,
                "group.id": course.group,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_S * 1000,
            }
        )
        self._producer.init_transactions(CALL_S)
        self._consumer.subscribe(
            [course.input], on_assign=self._moved, on_revoke=self._moved, on_lost=self._moved
        )

    def _moved(self, _consumer: object, _partitions: object) -> None:
        self._moves += 1

    async def close(self) -> None:
        self._consumer.close()
        del self._producer

    async def take(self, most: int) -> list[Read]:
        moves = self._moves
        reads = []
        for message in self._consumer.consume(most, 1.0):
            if message.error() is not None:
                raise confluent_kafka.KafkaException(message.error())
            reads.append(Read(message.partition(), message.offset()))
        if moves == self._moves:
            self._member = self._consumer.consumer_group_metadata()
            return reads
        if reads:
            await self.rewind()
        return []

    async def rewind(self) -> dict[int, int]:
        assigned = self._consumer.assignment()
        if not assigned:
            return {}
        committed = self._consumer.committed(assigned, CALL_S)
        offsets = {each.partition: max(0, each.offset) for each in committed}
        for partition, offset in offsets.items():
            self._consumer.seek(TopicPartition(self.course.input, partition, offset))
        return offsets

    async def begin(self) -> None:
        self._producer.begin_transaction()

    async def send(self, partition: int, value: bytes) -> None:
        self._producer.produce(self.course.output, value, partition=partition)
        self._producer.poll(0)

    async def send_offsets(self, offsets: Mapping[int, int]) -> None:
        places = [TopicPartition(self.course.input, at, to) for at, to in offsets.items()]
        self._producer.send_offsets_to_transaction(places, self._member, CALL_S)

    async def flush(self) -> None:
        self._producer.flush(CALL_S)

    async def commit(self) -> None:
        self._producer.commit_transaction(CALL_S)

    async def abort(self) -> None:
        self._producer.abort_transaction(CALL_S)

    def may_abort(self, error: BaseException) -> bool:
        return bool(error.args[0].txn_requires_abort())

    def may_repeat(self, error: BaseException) -> bool:
        return bool(error.args[0].retriable())


if __name__ == "__main__":
    course, journal = begin(sys.argv)
    trio.run(copy, RdKafka(course), journal)
