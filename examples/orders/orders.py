"""Orders in a topic: a service that takes them, and a ledger that adds them up.

Neither knows that the broker is Paceline: this is kafka-python.
"""

from __future__ import annotations

import json
from collections import Counter
from types import TracebackType
from typing import Self

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

TOPIC = "orders"


class Orders:
    """Takes orders. One is placed when `place` returns: it is stored on several brokers then."""

    def __init__(self, bootstrap: list[str]) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=True
        )

    def place(self, order: str, customer: str, euro: int) -> int:
        """Store an order; returns its partition. Orders of a customer stay in their order."""
        value = json.dumps({"order": order, "euro": euro}).encode()
        sent = self._producer.send(TOPIC, key=customer.encode(), value=value)
        partition: int = sent.get(timeout=60).partition
        return partition

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._producer.close()


def ledger(bootstrap: list[str]) -> tuple[Counter[str], Counter[str]]:
    """All orders placed until now: how often each is there, and what each customer has to pay."""
    orders: Counter[str] = Counter()
    euro: Counter[str] = Counter()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    parts = [TopicPartition(TOPIC, number) for number in consumer.partitions_for_topic(TOPIC)]
    consumer.assign(parts)
    ends = consumer.end_offsets(parts)
    while any(consumer.position(part) < ends[part] for part in parts):
        for records in consumer.poll(timeout_ms=1000).values():
            for record in records:
                found = json.loads(record.value)
                orders[found["order"]] += 1
                euro[record.key.decode()] += found["euro"]
    consumer.close()
    return orders, euro
