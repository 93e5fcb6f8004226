"""What a second storage tier keeps of a log, as clients read it (storage/DESIGN 11)."""

from __future__ import annotations

from pathlib import Path

import trio

from paceline.client import Client
from paceline.client.position import Position
from paceline.types import Isolation, OffsetSpec, TopicPartition
from tests.integration.node.machines import connect
from tests.integration.node.nodes import RunningNode, lone_node
from tests.integration.node.test_kafka import ONE, TOPIC
from tests.integration.node.test_kafka_compacted import CLIENTS, until
from tests.unit.storage.directory_tier import DirectoryTier

AT = TopicPartition(TOPIC, 0)
ROUNDS = 12


async def write(client: Client) -> list[tuple[int, bytes]]:
    """Every third transaction is aborted; what is left of all."""
    kept = []
    async with client.transactional_producer("writer") as producer:
        for number in range(ROUNDS):
            try:
                async with producer.transaction():
                    value = b"%d" % number + b"." * 300
                    metadata = await producer.send(TOPIC, value, partition=0)
                    if number % 3 == 1:
                        raise LookupError
            except LookupError:
                continue
            kept.append((metadata.offset, value))
    return kept


async def give_up(node: RunningNode, client: Client, directory: Path) -> DirectoryTier:
    """The node's disk keeps the newest segment alone."""
    partition = node.node.broker.replicas.table.get(TOPIC, 0)
    assert partition is not None
    log = partition.log
    await until(lambda: partition.last_stable_offset == log.log_end_offset)
    log.seal()
    await until(lambda: partition.high_watermark == log.log_end_offset)
    tier = DirectoryTier(log, directory)
    log.tiers.older = tier
    assert await client.admin.trim(AT, tier.end_offset) == tier.end_offset
    assert log.log_start_offset == tier.end_offset
    return tier


async def test_clients_read_on_from_one_tier_to_the_next(tmp_path: Path) -> None:
    configs = {"segment.bytes": "1024", "retention.ms": "-1"}
    async with lone_node(tmp_path, ONE) as node, connect(node.native) as client:
        await client.admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=configs)
        older = await write(client)
        tier = await give_up(node, client, tmp_path / "tier")
        expected = older + await write(client)
        found = (await client.admin.find_offsets({AT: OffsetSpec.EARLIEST}))[AT]
        assert found.offset == 0 < older[-1][0] < tier.end_offset
        async with client.consumer(
            AT, stop=Position.LATEST, isolation=Isolation.READ_COMMITTED
        ) as consumer:
            assert [(each.offset, each.value) async for each in consumer] == expected
        assert tier.reads > 0
        host, port = node.addresses["kafka"]
        for each in CLIENTS:
            for read, _ in await trio.to_thread.run_sync(each, f"{host}:{port}", "read_committed"):
                assert read == expected, each
