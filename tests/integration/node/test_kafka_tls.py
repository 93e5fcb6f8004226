"""Kafka clients as they are published, over TLS."""

from __future__ import annotations

from functools import partial

import confluent_kafka
import kafka
import trio

from tests.integration.node.certificates import Certificates
from tests.integration.node.kafka_client import HANG_S
from tests.integration.node.nodes import lone_node
from tests.integration.node.test_kafka import ONE

COUNT = 500


def rdkafka_writes(address: str, authority: str) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "security.protocol": "ssl",
            "ssl.ca.location": authority,
            "enable.idempotence": True,
        }
    )
    refused: list[object] = []
    for number in range(COUNT):
        producer.produce(
            "t",
            value=b"%d" % number,
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
    assert producer.flush(HANG_S) == 0
    assert refused == []


def kafka_python_reads(address: str, authority: str) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        "t",
        bootstrap_servers=address,
        security_protocol="SSL",
        ssl_cafile=authority,
        group_id="g",
        auto_offset_reset="earliest",
        consumer_timeout_ms=HANG_S * 1000,
    )
    read = [next(consumer).value for _ in range(COUNT)]
    consumer.close()
    return read


async def test_clients_over_tls(tmp_path) -> None:
    certificates = Certificates(tmp_path)
    flags = {**ONE, **certificates.settings}
    async with lone_node(tmp_path, flags, tls=("kafka",)) as node:
        host, port = node.addresses["kafka"]
        at = (f"{host}:{port}", certificates.authority)
        await trio.to_thread.run_sync(partial(rdkafka_writes, *at))
        read = await trio.to_thread.run_sync(partial(kafka_python_reads, *at))
        assert read == [b"%d" % number for number in range(COUNT)]
