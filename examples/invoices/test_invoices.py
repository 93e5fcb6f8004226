"""Each order has its invoice, once, though a broker dies between two runs of the pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from invoices import INVOICES, ORDERS, REFUSED, run, to_pay
from pyspark.sql import SparkSession

from paceline.spark.session import local_session
from paceline_cluster.testing import BlockingPaceline, running_cluster


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session("invoices", master="local[2]")
    yield session
    session.stop()


@pytest.fixture
def brokers(tmp_path) -> Iterator[BlockingPaceline]:
    # The fixture `paceline` would find what Spark leaves open: it talks to Java over sockets.
    with running_cluster(tmp_path) as cluster:
        yield cluster


def place(brokers, numbers: range) -> None:
    with brokers.connect() as client, client.producer() as producer:
        for number in numbers:
            customer = "ann" if number % 2 else "bob"
            order = {"order": f"o-{number}", "customer": customer, "euro": number}
            producer.send(ORDERS, json.dumps(order).encode(), key=customer.encode())


def test_every_order_gets_its_invoice_once(spark, brokers, tmp_path_factory):
    for topic in (ORDERS, INVOICES, REFUSED):
        brokers.create_topic(topic, partitions=2)
    checkpoints = tmp_path_factory.mktemp("checkpoints")
    bootstrap = ",".join(brokers.bootstrap)
    place(brokers, range(10))
    with brokers.connect() as client, client.producer() as producer:
        producer.send(ORDERS, b"three chairs, please")
    run(spark, bootstrap, checkpoints)

    brokers.kill(f"leader of {ORDERS}/0")
    place(brokers, range(10, 20))
    run(spark, bootstrap, checkpoints)
    found = [tuple(row) for row in to_pay(spark, bootstrap).collect()]
    assert found == [("ann", 10, sum(range(1, 20, 2))), ("bob", 10, sum(range(0, 20, 2)))]
    with brokers.connect() as client, client.consumer(REFUSED) as consumer:
        assert next(consumer).value == b"three chairs, please"
