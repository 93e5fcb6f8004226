"""``consume --group --exit-at-end``: what the group has not read yet of what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.client import ConsumedBatch, OutOfRange, connect
from paceline.types import TopicPartition
from paceline_cluster.cli.consume_group import PROTOCOLS, GroupReading, read_group
from paceline_cluster.cli.output import OutputFormat, Printer
from paceline_cluster.cli.topic_names import TopicNames
from paceline_cluster.errors import Exit
from paceline_cluster.testing import BlockingPaceline
from tests.integration.cli.test_interrupting import HANG_S, started
from tests.integration.client.test_groups import FLAGS
from tests.integration.node.nodes import lone_node

pytestmark = [pytest.mark.paceline(nodes=1), pytest.mark.timeout(HANG_S)]
AT = TopicPartition("orders", 0)


def _write(paceline: BlockingPaceline, *values: bytes) -> None:
    with paceline.connect() as client, client.producer() as producer:
        for number, value in enumerate(values):
            producer.send("orders", value, partition=number % 2)


def _read(paceline: BlockingPaceline, *words: str) -> list[bytes]:
    [address] = paceline.addresses("native")
    command = ("consume", "orders", "--group", "g", "--exit-at-end", "--bootstrap", address)
    with started(*command, *words) as consumer:
        out, said = consumer.communicate(timeout=HANG_S)
    assert consumer.returncode == Exit.OK, said.decode()
    return sorted(out.split())


@pytest.mark.parametrize(
    "protocol",
    [pytest.param(each, marks=[] if each == "kafka" else [pytest.mark.slow]) for each in PROTOCOLS],
)
def test_what_is_there_is_read_and_committed_once(
    paceline: BlockingPaceline, protocol: str
) -> None:
    """It was refused, and --count needs somebody who knows how many there are."""
    paceline.create_topic("orders", partitions=2)
    words = ("--protocol", protocol)
    assert _read(paceline, *words) == []
    _write(paceline, b"a", b"b", b"c")
    assert _read(paceline, *words) == [b"a", b"b", b"c"]
    assert _read(paceline, *words) == []
    _write(paceline, b"d")
    assert _read(paceline, *words, "--count", "5") == [b"d"]


def test_what_lies_hidden_at_the_end_keeps_nobody(paceline: BlockingPaceline) -> None:
    """The end lies behind the record that ends a transaction, which nobody is handed."""
    paceline.create_topic("orders", partitions=2)
    with paceline.connect() as client, client.transactional_producer("t") as producer:
        with producer.transaction():
            producer.send("orders", b"a", partition=0)
        producer.begin()
        producer.send("orders", b"aborted", partition=1)
        producer.abort()
    assert _read(paceline) == [b"a"]
    assert _read(paceline) == []


class _Silent(Printer):
    def __init__(self) -> None:
        super().__init__(OutputFormat.TABLE)

    def say(self, sentence: str) -> None:
        pass


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_what_comes_later_is_for_the_next_one(tmp_path: Path, protocol: str) -> None:
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        client.producer() as producer,
    ):
        await client.admin.create_topic("orders", partitions=1, replication_factor=1)
        await producer.send_many("orders", [b"0", b"1", b"2"])
        seen: list[bytes | None] = []

        async def show(batch: ConsumedBatch, most: int | None) -> int:
            shown = [record.value for record in batch.records()[:most]]
            seen.extend(shown)
            for _ in range(3):
                await producer.send("orders", b"later")
            return len(shown)

        reading = GroupReading(
            TopicNames(("orders",)),
            "g",
            OutOfRange.EARLIEST,
            session_timeout_s=6.0,
            protocol=protocol,
            count=None,
            show=show,
            to_end=True,
        )
        await read_group(client, reading, _Silent())
        assert seen == [b"0", b"1", b"2"]
        committed = await client.admin.groups.offsets("g", family=protocol)
        assert {at: each.offset for at, each in committed.items()} == {AT: 3}
