"""Clients that open producers without end, and others that write in the same partition."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import confluent_kafka
import trio

from paceline.client import Position
from paceline.errors import ErrorCode
from paceline.types import Acks
from paceline.wire.batch import build_batch
from paceline.wire.records import Record
from tests.integration.node.cursus_client import CursusClient, payloads
from tests.integration.node.machines import connect
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import HANG_S, RunningNode, lone_node
from tests.integration.node.test_kafka_transactions import TransactionalClient
from tests.integration.node.test_metrics import scrape

_BOUND = 40
_SHARE = _BOUND // 2
FLAGS = {
    "topics.partitions": "1",
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
    "limits.partition_producers": str(_BOUND),
}
_TOPIC = "orders"
_CONSUME = f"CONSUME topic={_TOPIC} partition=0 offset=0"
_FIRST_ID = 2**40
"""Numbers of producers that the node gives nobody."""


def first_batch(producer: int, sequence: int = 0) -> bytearray:
    return build_batch(
        [Record(value=b"stranger", timestamp_ms=1)],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
    )


async def open_many(node: RunningNode, source: str, first: int, count: int) -> list[int]:
    """Open ``count`` producers from an address; the errors."""
    async with NativeConnection(node.addresses["native"], source=source) as stranger:
        return [
            (await stranger.produce(_TOPIC, 0, first_batch(first + each), acks=Acks.ALL)).error
            for each in range(count)
        ]


async def with_confluent(address: tuple[str, int], count: int, prefix: str) -> None:
    """Another idempotent client, of Kafka's kind: it comes while the partition is full."""
    host, port = address

    def work() -> None:
        errors: list[object] = []
        client = confluent_kafka.Producer(
            {"bootstrap.servers": f"{host}:{port}", "enable.idempotence": True, "linger.ms": 0}
        )
        for number in range(count):
            client.produce(
                _TOPIC,
                f"{prefix}{number}".encode(),
                partition=0,
                on_delivery=lambda error, _: errors.append(error),
            )
            client.poll(0)
        assert client.flush(HANG_S) == 0
        assert errors == [None] * count

    await trio.to_thread.run_sync(work)


async def values(node: RunningNode) -> list[bytes]:
    """All values of the partition."""
    async with (
        connect(node.native) as client,
        client.consumer(_TOPIC, stop=Position.LATEST) as consumer,
    ):
        return [record.value or b"" async for record in consumer]


async def test_who_opens_very_many_harms_nobody_else(tmp_path: Path) -> None:
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        client.producer() as honest,
    ):
        await honest.send(_TOPIC, b"honest 0", partition=0)
        errors: dict[str, list[int]] = {}

        async def attack(source: str, first: int) -> None:
            errors[source] = await open_many(node, source, first, 3 * _SHARE)

        with trio.fail_after(HANG_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(attack, "127.0.0.2", _FIRST_ID)
                nursery.start_soon(attack, "127.0.0.3", 2 * _FIRST_ID)
                for number in range(1, 60):
                    await honest.send(_TOPIC, b"honest %d" % number, partition=0)
            # Each had its share, and not of what was the other's; then it was told to come later.
            for told in errors.values():
                assert set(told) == {0, ErrorCode.THROTTLED}
                assert told.count(0) <= _SHARE
            metrics = await scrape(node.addresses["http"])
            assert metrics.one("producers") <= _BOUND
            assert metrics.one("producers_refused_total") > 0
            # One that was not there before finds room at once, where the partition is full.
            await open_many(node, "127.0.0.4", 3 * _FIRST_ID, 2)
            await with_confluent(node.addresses["kafka"], 50, "other ")
            for number in range(60, 80):
                await honest.send(_TOPIC, b"honest %d" % number, partition=0)
            metrics = await scrape(node.addresses["http"])
            assert metrics.one("producers_evicted_total") > 0
            assert metrics.one("producers") <= _BOUND
            found = await values(node)
    assert [each for each in found if each.startswith(b"honest")] == [
        b"honest %d" % number for number in range(80)
    ]
    assert [each for each in found if each.startswith(b"other")] == [
        b"other %d" % number for number in range(50)
    ]
    assert Counter(found)[b"stranger"] == sum(told.count(0) for told in errors.values()) + 2


async def test_what_is_decided_waits_for_nobody_who_wrote_nothing(tmp_path: Path) -> None:
    """Aborted transactions of nothing made their producers known, more than one client may have;
    a decided transaction's records were refused until those had been silent for a minute."""
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        CursusClient(node.addresses["cursus"]) as cursus,
        TransactionalClient(node.addresses["kafka"]) as kafka,
    ):
        await client.admin.create_topic(_TOPIC, partitions=1, replication_factor=1)
        for number in range(_SHARE + 2):
            kafka.name = f"kafka {number}"
            who = await _begun(kafka)
            assert await kafka.end(who, commits=False) == 0
        made = await cursus.ok("INIT_PRODUCER_ID transactional_id=x")
        who_x = f"transactional_id=x producerId={made['producerId']} epoch={made['epoch']}"
        await cursus.ok(f"BEGIN_TXN {who_x}")
        await cursus.ok(f"TXN_PUBLISH {who_x} topic={_TOPIC} partition=0 seqNum=1 message=decided")
        with trio.fail_after(HANG_S):
            while True:
                if (await cursus.say(f"END_TXN {who_x} result=commit")).startswith("OK"):
                    break
                await trio.sleep(0.05)
        assert payloads(await cursus.read(_CONSUME)) == [b"decided"]
        metrics = await scrape(node.addresses["http"])
        assert metrics.one("producers_refused_total") == 0


async def _begun(kafka: TransactionalClient) -> tuple[int, int]:
    """The producer of the client's id, which has added the partition and written nothing; asked
    again while nobody leads."""
    with trio.fail_after(HANG_S):
        while True:
            error, who = await kafka.init()
            if error == 0 and await kafka.add(who) == 0:
                return who
            await trio.sleep(0.05)
