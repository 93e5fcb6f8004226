"""The published Cursus clients for Go and Java, unmodified, against three nodes and a kill.

Run by ``scripts/interop-cursus``; the one for Python is in tests/e2e/test_cursus_client.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, wait_until
from tests.e2e.conftest import clusters
from tests.e2e.cursus import ask, brokers, elect, fields, log_end, payloads
from tests.interop.cursus import driver as drivers
from tests.interop.cursus.driver import Driver, NotHere

pytestmark = pytest.mark.timeout(600)

TOPIC = "orders"
COUNT = 2000
KILL_BEHIND = 400


@pytest.fixture(scope="module", params=["go", "java"])
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Driver:
    build: Callable[[Path], Driver] = getattr(drivers, request.param)
    try:
        return build(tmp_path_factory.mktemp(request.param))
    except NotHere as reason:
        pytest.skip(str(reason))


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    for make in clusters(request, tmp_path):
        yield make("--nodes", "3")


@pytest.mark.parametrize("mode", ["streaming", "polling"])
def test_a_leader_is_killed_under_a_producer_and_a_group(
    driver: Driver, cluster: Cluster, mode: str
) -> None:
    """acks=-1, idempotent. The leader of both partitions dies by SIGKILL: what was written is
    acknowledged and read, and nothing lies in the log twice."""
    addresses = brokers(cluster)
    ask(addresses[0], f"CREATE topic={TOPIC} partitions=2")
    metadata = f"METADATA topic={TOPIC}"
    wait_until("leaders", lambda: all(fields(ask(addresses[0], metadata))["leaders"].split(",")))
    consumer = driver.start("consume", ",".join(addresses), TOPIC, "g", mode)
    producer = driver.start("produce", ",".join(addresses), TOPIC, "-1", str(COUNT))
    try:
        wait_until("writing", lambda: producer.acked > 0)
        # Clients stay with the leaders that they found first: another node leads from now on.
        chosen = set(fields(ask(addresses[0], metadata))["leaders"].split(","))
        victim = next(node for node in range(3) if addresses[node] not in chosen)
        for partition in range(2):
            elect(addresses[0], TOPIC, partition, victim)
        wait_until("more is written", lambda: producer.acked > KILL_BEHIND)
        before = producer.acked
        cluster.run("node", "kill", str(victim))
        producer.finish()
        assert before < COUNT, "the kill came after everything was acknowledged"
        wait_until("all is read", lambda: len(consumer.got) == COUNT)
        left = [address for node, address in enumerate(addresses) if node != victim]
        assert log_end(left[0], TOPIC) == COUNT
        assert set(consumer.got) == {f"m-{number}" for number in range(COUNT)}
    finally:
        consumer.close()
        producer.close()


def test_transactions_are_read_whole_or_not_at_all(driver: Driver, cluster: Cluster) -> None:
    """Every third is aborted; the others are in both partitions, once and in order, and readers of
    uncommitted records see no more than that."""
    addresses = brokers(cluster)
    ask(addresses[0], "CREATE topic=ledger partitions=2")
    writer = driver.start("transact", ",".join(addresses), "ledger", "bookkeeper", "30")
    try:
        writer.finish()
    finally:
        writer.close()
    committed = [number for number in range(30) if number % 3 != 2]
    assert sum(line.startswith("aborted ") for line in writer.said) == 10
    assert {line for line in writer.said if line.startswith("committed ")} == {
        f"committed {number}" for number in committed
    }
    for partition in range(2):
        reader = [f"t-{number}-{partition}" for number in committed]
        assert payloads(cluster, "ledger", partition, len(reader)) == reader
