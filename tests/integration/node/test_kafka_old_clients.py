"""librdkafka as it spoke to brokers of 0.8 and 0.9: message sets, no question for versions."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest
import trio

from tests.integration.node.nodes import lone_node

COUNT = 200
ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
TOPIC = "old"
WAIT_S = 60


def produce_and_consume(address: str, version: str) -> set[bytes]:
    """Values of its own that it reads back."""
    common = {
        "bootstrap.servers": address,
        "api.version.request": False,
        "broker.version.fallback": version,
        "log_level": 0,
    }
    producer = confluent_kafka.Producer({**common, "request.required.acks": -1})
    failed: list[object] = []
    for number in range(COUNT):
        producer.produce(
            TOPIC, b"v%d" % number, on_delivery=lambda error, _: error and failed.append(error)
        )
    assert producer.flush(WAIT_S) == 0
    assert not failed
    consumer = confluent_kafka.Consumer({**common, "group.id": "g", "enable.auto.commit": False})
    try:
        found = consumer.list_topics(TOPIC, timeout=WAIT_S).topics[TOPIC].partitions
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, number, 0) for number in found])
        values: set[bytes] = set()
        while len(values) < COUNT:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"{len(values)} values after {WAIT_S} s"
            assert message.error() is None
            values.add(message.value())
    finally:
        consumer.close()
    return values


@pytest.mark.parametrize("version", ["0.8.0", "0.8.2", "0.9.0"])
async def test_clients_of_old_brokers_produce_and_consume(tmp_path: Path, version: str) -> None:
    async with lone_node(tmp_path, ONE) as node:
        host, port = node.addresses["kafka"]
        with trio.fail_after(3 * WAIT_S):
            values = await trio.to_thread.run_sync(
                produce_and_consume, f"{host}:{port}", version, abandon_on_cancel=True
            )
    assert values == {b"v%d" % number for number in range(COUNT)}
