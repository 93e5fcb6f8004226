"""``consume --group`` waits for whom it writes to, while the group deals out its partitions."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from paceline.client import Client, ClientSettings, ConsumedBatch, OutOfRange, connect
from paceline.types import TopicPartition
from paceline_cluster.cli.consume_group import GroupReading, read_group
from paceline_cluster.cli.output import OutputFormat, Printer
from paceline_cluster.cli.topic_names import TopicNames
from tests.integration.client.test_groups import FLAGS, until
from tests.integration.node.nodes import lone_node

pytestmark = pytest.mark.timeout(120)

AT = TopicPartition("orders", 0)
RECORDS = [b"%d" % number for number in range(5)]


class Told(Printer):
    """Remembers what the person is told."""

    def __init__(self) -> None:
        super().__init__(OutputFormat.TABLE)
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


class SlowReading:
    """A call of the command: it is in the middle of writing until it is stopped."""

    def __init__(self, client: Client, count: int | None) -> None:
        self.told = Told()
        self.writes = trio.Event()
        self.ended = trio.Event()
        self._client = client
        self._count = count
        self._written = trio.Event()
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        reading = GroupReading(
            TopicNames(("orders",)), "g", OutOfRange.EARLIEST, 6.0, "kafka", self._count, self._show
        )
        with self._scope:
            await read_group(self._client, reading, self.told)
        self.ended.set()

    async def _show(self, batch: ConsumedBatch, most: int | None) -> int:
        self.writes.set()
        await self._written.wait()
        return most or len(batch.records())

    async def stop(self) -> None:
        """As Ctrl-C does; with a count, all of that is written."""
        if self._count is None:
            self._scope.cancel()
        else:
            self._written.set()
        await self.ended.wait()


@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize("count", [None, 2])
async def test_what_another_has_read_meanwhile_stays_read(
    tmp_path: Path, count: int | None, comes_back: bool
) -> None:
    """It ended with an error, and without its last commit; or, with its partition back, it took the
    group back to where it was."""
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native, settings=ClientSettings(client_id="b")) as client,
        connect(node.native, settings=ClientSettings(client_id="a")) as other,  # has its pick
        trio.open_nursery() as nursery,
    ):
        await other.admin.create_topic("orders", partitions=1, replication_factor=1)
        async with other.producer() as producer:
            await producer.send_many("orders", RECORDS)
        reading = SlowReading(client, count)
        nursery.start_soon(reading.run)
        await reading.writes.wait()
        async with other.consumer("orders", group="g") as second:
            assert [(await anext(second)).value for _ in RECORDS] == RECORDS
            await second.commit()
            if not comes_back:
                await reading.stop()
        if comes_back:
            await until(lambda: reading.told.said[2:] == [f"reads {AT}"])
            await reading.stop()
        committed = await other.admin.groups.offsets("g")
        assert {at: each.offset for at, each in committed.items()} == {AT: len(RECORDS)}


@pytest.mark.parametrize("count", [None, 2])
async def test_what_it_has_not_written_is_for_whoever_comes_next(
    tmp_path: Path, count: int | None
) -> None:
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("orders", partitions=1, replication_factor=1)
        async with client.producer() as producer:
            await producer.send_many("orders", RECORDS)
        reading = SlowReading(client, count)
        nursery.start_soon(reading.run)
        await reading.writes.wait()
        await reading.stop()
        async with client.consumer("orders", group="g") as following:
            assert (await anext(following)).offset == (count or 0)
