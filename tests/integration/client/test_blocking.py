"""The blocking client over real sockets, against scripted brokers in another thread."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import trio

from paceline.client import (
    ClientSettings,
    Endpoint,
    OutOfRange,
    Position,
    ProducerSettings,
    blocking,
)
from paceline.errors import (
    Closed,
    ConnectionLost,
    ErrorCode,
    OffsetOutOfRange,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from paceline.types import TopicPartition
from paceline.wire.native.api import NativeApi
from tests.unit.client.broker import Cluster

ORDERS = TopicPartition("orders", 0)
HANG_S = 60.0
"""Nothing here takes this long; it bounds a hang."""


class Brokers:
    """Scripted brokers on loopback ports, in a thread of their own."""

    def __init__(self) -> None:
        self.cluster: Cluster
        self._token: trio.lowlevel.TrioToken
        self._stop = trio.Event()
        ready = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._main, ready))
        self._thread.start()
        assert ready.wait(HANG_S)

    async def _main(self, ready: threading.Event) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self.cluster = Cluster(nursery, 2)
            for node in self.cluster.nodes:
                await self.cluster.listen(node)
            self.cluster.create("orders", 2)
            ready.set()
            await self._stop.wait()
            nursery.cancel_scope.cancel()

    @property
    def bootstrap(self) -> list[Endpoint]:
        return [Endpoint(*node.address) for node in self.cluster.nodes.values()]

    def stop(self) -> None:
        trio.from_thread.run_sync(self._stop.set, trio_token=self._token)
        self._thread.join(10)
        assert not self._thread.is_alive()


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    brokers = Brokers()
    yield brokers
    brokers.stop()


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    gc.collect()
    left = [each for each in threading.enumerate() if each.name == "paceline-client"]
    for each in left:
        each.join(5)
    assert not [each for each in left if each.is_alive()]


def test_write_and_read_back(brokers: Brokers) -> None:
    with blocking.connect(brokers.bootstrap) as client:
        with client.producer(ProducerSettings(linger_s=0.001)) as producer:
            first = producer.send("orders", b"one", partition=0)
            assert (first.partition, first.offset) == (0, 0)
            deliveries = [producer.submit("orders", b"%d" % n, partition=0) for n in range(100)]
            assert [each.wait().offset for each in deliveries] == list(range(1, 101))
            batches = producer.send_many("orders", [b"x" * 100] * 5000)
            assert sum(batch.record_count for batch in batches) == 5000
        with client.consumer("orders", stop=Position.LATEST) as consumer:
            records = list(consumer)
        assert len(records) == 5101
        assert [r.value for r in records if r.partition == 0][:2] == [b"one", b"0"]
        assert [topic.name for topic in client.admin.list_topics()] == ["orders"]


def test_large_batches_cross_real_sockets_whole(brokers: Brokers) -> None:
    with blocking.connect(brokers.bootstrap) as client:
        values = [bytes([n]) * 700_000 for n in range(12)]
        with client.producer() as producer:
            producer.send_many("orders", values, partition=1)
        with client.consumer("orders", stop=Position.LATEST) as consumer:
            assert [record.value for record in consumer] == values


@pytest.mark.parametrize("first", [1, 3, 9])
def test_no_record_comes_twice_where_records_and_batches_are_mixed(
    brokers: Brokers, first: int
) -> None:
    with blocking.connect(brokers.bootstrap) as client, client.producer() as producer:
        producer.send_many("orders", [b"%d" % n for n in range(10)], partition=0)
        with client.consumer(ORDERS) as consumer:
            taken = [next(consumer).offset for _ in range(first)]
            rest = consumer.next_batch()
            assert rest is not None
            taken += [record.offset for record in rest.consumed()]
            assert consumer.position(ORDERS) == 10
            producer.send_many("orders", [b"%d" % n for n in range(10, 14)], partition=0)
            taken += [next(consumer).offset for _ in range(4)]
            assert taken == list(range(14))
            assert consumer.position(ORDERS) == 14


def test_positions_seek_and_pause(brokers: Brokers) -> None:
    with blocking.connect(brokers.bootstrap) as client:
        with client.producer() as producer:
            producer.send_many("orders", [b"%d" % n for n in range(50)], partition=0)
        with client.consumer(ORDERS) as consumer:
            assert [next(consumer).offset for _ in range(3)] == [0, 1, 2]
            assert consumer.position(ORDERS) == 3
            consumer.seek(ORDERS, Position.at(40))
            assert next(consumer).offset == 40
            consumer.pause(ORDERS)
            with pytest.raises(TimeoutError):
                consumer.next_batch(timeout_s=0.05)
            consumer.resume(ORDERS)
            assert next(consumer).offset == 41
            assert consumer.end_offsets() == {ORDERS: 50}
            consumer.unassign([ORDERS])
            assert consumer.assignment == []


def test_errors_arrive_as_themselves(brokers: Brokers) -> None:
    with blocking.connect(brokers.bootstrap) as client:
        with pytest.raises(UnknownTopicOrPartition), client.producer() as producer:
            producer.send("nowhere", b"")
        with (
            pytest.raises(OffsetOutOfRange),
            client.consumer(ORDERS, start=Position.at(7), out_of_range=OutOfRange.FAIL) as consumer,
        ):
            next(consumer)


def test_closing_a_producer_raises_what_nobody_awaited(brokers: Brokers) -> None:
    with blocking.connect(brokers.bootstrap) as client:
        producer = client.producer()
        brokers.cluster.fault(NativeApi.PRODUCE, error=ErrorCode.POLICY_VIOLATION)
        producer.submit("orders", b"x")
        with pytest.raises(PolicyViolation):
            producer.close()
        producer.close()


def test_nobody_there() -> None:
    settings = ClientSettings(operation_timeout_s=0.2)
    with pytest.raises(ConnectionLost):
        blocking.connect("127.0.0.1:1", settings)


def test_closing_flushes_what_is_open_and_ends_the_thread(brokers: Brokers) -> None:
    client = blocking.connect(brokers.bootstrap)
    producer = client.producer(ProducerSettings(linger_s=60))
    producer.submit("orders", b"kept", partition=0)
    client.close()
    client.close()
    assert brokers.cluster.topics["orders"][0].values() == [b"kept"]
    with pytest.raises(Closed):
        producer.send("orders", b"late")
    with pytest.raises(Closed):
        client.admin.list_topics()


def test_an_error_in_the_block_abandons_what_is_open(brokers: Brokers) -> None:
    with (  # noqa: PT012 - the block's end is what is tested
        pytest.raises(KeyError),
        blocking.connect(brokers.bootstrap) as client,
    ):
        producer = client.producer(ProducerSettings(linger_s=60))
        producer.submit("orders", b"dropped")
        raise KeyError
    assert all(log.values() == [] for log in brokers.cluster.topics["orders"])


def test_many_threads_share_one_client(brokers: Brokers) -> None:
    with blocking.connect(brokers.bootstrap) as client, client.producer() as producer:

        def work(number: int) -> None:
            for turn in range(20):
                producer.send("orders", b"%d-%d" % (number, turn), partition=0)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        values = brokers.cluster.topics["orders"][0].values()
        for number in range(8):
            own = [value for value in values if value and value.startswith(b"%d-" % number)]
            assert own == [b"%d-%d" % (number, turn) for turn in range(20)]


def test_a_forgotten_client_does_not_keep_the_interpreter(brokers: Brokers) -> None:
    host, port = brokers.cluster.nodes[0].address
    program = (
        "from paceline.client import blocking\n"
        f"client = blocking.connect('{host}:{port}')\n"
        "producer = client.producer()\n"
        "producer.send('orders', b'x', partition=0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=HANG_S, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert brokers.cluster.topics["orders"][0].values() == [b"x"]
