"""Consumers driven by their coordinator, as the client library has them, against real nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
import trio.lowlevel

from paceline.client import (
    Client,
    CoordinatedConsumer,
    DrivenSettings,
    RebalanceListener,
    blocking,
    fetcher,
    shared_consumer,
)
from paceline.errors import (
    ConfigurationError,
    IllegalGeneration,
    InvalidSessionTimeout,
    NonEmptyGroup,
    PacelineError,
)
from paceline.types import TopicPartition
from paceline_node.services.groups.driven_rebalancing import Rebalancing
from paceline_node.services.groups.partition_bounds import BoundsService
from tests.integration.client.test_groups import produce, until, values
from tests.integration.node.machines import connect
from tests.integration.node.nodes import cluster, lone_node

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(120)]

QUICK = DrivenSettings(heartbeat_interval_ms=500)


class Told(RebalanceListener):
    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()
        self.calls: list[str] = []

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.owned |= set(partitions)
        self.calls.append("assigned")

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.owned -= set(partitions)
        self.calls.append("revoked")

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.owned -= set(partitions)
        self.calls.append("lost")


class Reader:
    """A consumer in a task of its own, and what it has seen."""

    def __init__(self, client: Client, driven: DrivenSettings = QUICK) -> None:
        self._client = client
        self._driven = driven
        self.seen: list[bytes | None] = []
        self.told = Told()
        self.consumer: CoordinatedConsumer | None = None
        self._stop = trio.CancelScope()
        self.ended = trio.Event()

    async def run(self) -> None:
        async with self._client.coordinated_consumer(
            "orders",
            group="g",
            driven=self._driven,
            auto_offset_reset="smallest",
            listener=self.told,
        ) as consumer:
            self.consumer = consumer
            with self._stop:
                async for record in consumer:
                    self.seen.append(record.value)
        self.ended.set()

    async def stop(self) -> None:
        self._stop.cancel()
        await self.ended.wait()


@pytest.mark.parametrize(
    "driven",
    [
        QUICK,
        DrivenSettings(heartbeat_interval_ms=500, version=0),
        DrivenSettings(heartbeat_interval_ms=500, layout=7, version=0),
    ],
)
async def test_two_share_and_one_takes_over(tmp_path: Path, driven: DrivenSettings) -> None:
    async with (
        lone_node(tmp_path) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("orders", partitions=4, replication_factor=1)
        one, two = Reader(client, driven), Reader(client, driven)
        nursery.start_soon(one.run)
        await until(lambda: len(one.told.owned) == 4)
        await produce(client, 0, 100)
        await until(lambda: set(one.seen) == values(0, 100))
        nursery.start_soon(two.run)
        await until(lambda: len(one.told.owned) == len(two.told.owned) == 2)
        assert one.told.calls == ["assigned", "revoked", "assigned"]
        await produce(client, 100, 100)
        await until(lambda: set(one.seen) | set(two.seen) >= values(0, 200))
        await one.stop()
        await until(lambda: len(two.told.owned) == 4)
        assert not set(one.seen) & set(two.seen) or driven.version == 0
        await two.stop()
        found = await client.admin.groups.offsets("g", family="coordinator")
        assert {str(at): offset.offset for at, offset in found.items()} == {
            f"orders/{number}": 50 for number in range(4)
        }


@pytest.mark.parametrize("layout", [7, 8])
async def test_version_0_reads_what_is_listed_for_its_group(tmp_path: Path, layout: int) -> None:
    async with (
        lone_node(tmp_path) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        groups = client.admin.groups
        for name in ("orders", "other"):
            await client.admin.create_topic(name, partitions=1, replication_factor=1)
        await groups.set_topics("g", ["orders"])
        driven = DrivenSettings(heartbeat_interval_ms=500, layout=layout, version=0)
        reader = Reader(client, driven)
        nursery.start_soon(reader.run)
        await until(lambda: reader.told.owned == {TopicPartition("orders", 0)})
        assert await groups.topics("g") == ("orders",)
        await groups.set_topics("g", [])
        await until(lambda: len(reader.told.owned) == 2)
        await reader.stop()
        assert await groups.topics("g") == ()


async def test_the_group_is_administered(tmp_path: Path) -> None:
    async with (
        lone_node(tmp_path) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("orders", partitions=2, replication_factor=1)
        reader = Reader(client)
        nursery.start_soon(reader.run)
        await until(lambda: len(reader.told.owned) == 2)
        [listing] = await client.admin.groups.list()
        assert (listing.family, listing.group, listing.state) == ("coordinator", "g", "Stable")
        described = await client.admin.groups.describe("g", family="coordinator")
        [member] = described.members
        assert reader.consumer is not None
        assert member.member_id == reader.consumer.consumer_id
        assert [(each.topic, each.partitions) for each in member.assigned] == [("orders", (0, 1))]
        with pytest.raises(NonEmptyGroup):
            await client.admin.groups.delete("g", family="coordinator")
        await reader.stop()
        await _deleted(client)
        assert await client.admin.groups.list() == []


async def _deleted(client: Client) -> None:
    with trio.fail_after(30):
        while True:
            try:
                await client.admin.groups.delete("g", family="coordinator")
            except NonEmptyGroup:
                await trio.sleep(0.05)
            else:
                return


@pytest.mark.parametrize("versioned", [True, False])
async def test_a_program_that_hangs_gives_its_partitions_to_others(
    tmp_path: Path, versioned: bool
) -> None:
    """It answered every ping, and kept them for ever."""
    hasty = DrivenSettings(
        heartbeat_interval_ms=200, version=int(versioned), max_poll_interval_s=1.0
    )
    told, hangs, goes_on = Told(), trio.Event(), trio.Event()
    seen: list[bytes | None] = []
    refused: list[PacelineError] = []

    async def hang(client: Client) -> None:
        async with client.coordinated_consumer(
            "orders", group="g", driven=hasty, auto_offset_reset="smallest", listener=told
        ) as consumer:
            async for record in consumer:
                seen.append(record.value)
                if not hangs.is_set():
                    hangs.set()
                    await goes_on.wait()
                    try:
                        await consumer.commit({TopicPartition("orders", record.partition): 1})
                    except PacelineError as error:
                        refused.append(error)

    async with (
        lone_node(tmp_path) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("orders", partitions=2, replication_factor=1)
        await produce(client, 0, 1, partitions=1)
        nursery.start_soon(hang, client)
        await hangs.wait()
        await until(lambda: told.calls[-1] == "lost")
        other = Reader(client, QUICK)
        nursery.start_soon(other.run)
        await until(lambda: len(other.told.owned) == 2 and len(other.seen) == 1)
        goes_on.set()
        await until(lambda: len(other.told.owned) == len(told.owned) == 1)
        assert refused, "nothing of what it had counts any more"
        assert other.seen == seen[:1]
        nursery.cancel_scope.cancel()


async def test_a_program_that_waits_for_records_does_not_hang(tmp_path: Path) -> None:
    hasty = DrivenSettings(heartbeat_interval_ms=200, max_poll_interval_s=0.5)
    async with (
        lone_node(tmp_path) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("orders", partitions=1, replication_factor=1)
        reader = Reader(client, hasty)
        nursery.start_soon(reader.run)
        await until(lambda: len(reader.told.owned) == 1)
        await trio.sleep(1.5)
        assert reader.told.calls == ["assigned"]
        nursery.cancel_scope.cancel()


async def test_commits_may_be_the_programs_own(tmp_path: Path) -> None:
    own = DrivenSettings(heartbeat_interval_ms=500, auto_commit=False)
    async with lone_node(tmp_path) as node, connect(node.native) as client:
        await client.admin.create_topic("orders", partitions=1, replication_factor=1)
        await produce(client, 0, 10, partitions=1)
        for begins in (0, 4):
            async with client.coordinated_consumer(
                "orders", group="g", driven=own, auto_offset_reset="smallest"
            ) as consumer:
                record = await anext(consumer)
                assert record.offset == begins
                with pytest.raises(IllegalGeneration):
                    await consumer.commit({TopicPartition("orders", 7): 1})
                at = TopicPartition("orders", 0)
                await consumer.commit({at: 4})
                assert await consumer.committed() == {at: 4}


async def test_what_is_refused_for_good_is_raised(tmp_path: Path) -> None:
    async with lone_node(tmp_path) as node, connect(node.native) as client:
        with pytest.raises(ConfigurationError):
            async with client.coordinated_consumer("t", group="g", auto_offset_reset="first"):
                pass
        with pytest.raises(ConfigurationError):
            DrivenSettings(layout=7, version=1)
        with pytest.raises(InvalidSessionTimeout):
            async with client.coordinated_consumer(
                "t", group="g", driven=DrivenSettings(heartbeat_interval_ms=1)
            ) as consumer:
                await anext(consumer)


async def test_another_coordinator_takes_over_and_nothing_is_lost(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as nodes, trio.open_nursery() as nursery:
        bootstrap = [node.native for node in nodes.up.values()]
        async with connect(bootstrap) as client:
            await client.admin.create_topic("orders", partitions=4, replication_factor=3)
            one, two = Reader(client), Reader(client)
            nursery.start_soon(one.run)
            nursery.start_soon(two.run)
            await until(lambda: len(one.told.owned) == len(two.told.owned) == 2)
            await produce(client, 0, 40)
            await until(lambda: set(one.seen) | set(two.seen) == values(0, 40))
            await trio.lowlevel.checkpoint()
            coordinator = await client.admin.groups.coordinator("g", family="coordinator")
            readers = (one, two)
            before = [reader.told.calls.count("assigned") for reader in readers]
            await nodes.crash(coordinator)
            await until(
                lambda: (
                    [each.told.calls.count("assigned") for each in readers] > before
                    and len(one.told.owned) == len(two.told.owned) == 2
                ),
                60,
            )
            await _produced(client)
            await until(lambda: set(one.seen) | set(two.seen) >= values(0, 80), 60)
            nursery.cancel_scope.cancel()


async def _produced(client: Client) -> None:
    with trio.fail_after(60):
        while True:
            try:
                await produce(client, 40, 40)
            except PacelineError:
                continue
            return


@pytest.mark.virtual_time(False)
async def test_the_blocking_one(tmp_path: Path) -> None:
    def read(bootstrap: str) -> tuple[list[bytes | None], dict[TopicPartition, int | None]]:
        with (
            blocking.connect(bootstrap) as client,
            client.coordinated_consumer(
                "orders", "g", driven=QUICK, auto_offset_reset="smallest"
            ) as consumer,
        ):
            seen = [next(consumer).value for _ in range(5)]
            consumer.commit()
            return seen, consumer.committed()

    async with lone_node(tmp_path) as node, connect(node.native) as client:
        await client.admin.create_topic("orders", partitions=1, replication_factor=1)
        await produce(client, 0, 10, partitions=1)
        with trio.fail_after(60):
            seen, committed = await trio.to_thread.run_sync(read, node.native)
    assert seen == [b"0", b"1", b"2", b"3", b"4"]
    assert committed == {TopicPartition("orders", 0): 5}


@pytest.mark.parametrize("reset", ["smallest", "largest"])
async def test_partitions_whose_beginning_nobody_can_tell_keep_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reset: str
) -> None:
    """The coordinator could not reach the leaders, and one of them is gone."""
    own = DrivenSettings(heartbeat_interval_ms=5000, auto_commit=False)
    monkeypatch.setattr(BoundsService, "find", _unknown)
    async with cluster(tmp_path, 3) as nodes:
        bootstrap = [node.native for node in nodes.up.values()]
        async with connect(bootstrap) as client:
            await client.admin.create_topic("orders", partitions=6, replication_factor=1)
            found = (await client.admin.describe_topic("orders")).partitions
            coordinator = await client.admin.groups.coordinator("g", family="coordinator")
            victim = next(each.leader for each in found if each.leader != coordinator)
            alive = {each.partition for each in found if each.leader != victim}
            await nodes.crash(int(victim))
            async with client.coordinated_consumer(
                "orders", group="g", driven=own, auto_offset_reset=reset
            ) as consumer:

                async def begun(partitions: set[int]) -> None:
                    await until(lambda: {at.partition for at in consumer.positions()} == partitions)

                await begun(alive)
                generation = consumer.generation
                assert len(consumer.assignment) == 6
                consumer.pause(*consumer.assignment)
                consumer.resume(*consumer.assignment)
                await consumer.commit()
                await nodes.restart(int(victim))
                await begun(set(range(6)))
                assert consumer.generation == generation
                kept = await client.admin.groups.offsets("g", family="coordinator")
                assert len(kept) == (6 if reset == "largest" else 0)


async def _unknown(*_: object, **__: object) -> dict[TopicPartition, object]:
    return {}


async def test_a_deleted_topic_keeps_no_other_from_being_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_consumer, "MISSING_PARTITION_S", 0.2)
    own = DrivenSettings(heartbeat_interval_ms=500, auto_commit=False)
    async with lone_node(tmp_path) as node, connect(node.native) as client:
        for topic in ("gone", "orders"):
            await client.admin.create_topic(topic, partitions=1, replication_factor=1)
            async with client.producer() as producer:
                await producer.send(topic, b"0", partition=0)
        async with client.coordinated_consumer(
            ["gone", "orders"], group="g", driven=own, auto_offset_reset="smallest"
        ) as consumer:
            for _ in range(2):
                await anext(consumer)
            at = TopicPartition("orders", 0)
            await client.admin.delete_topic("gone")
            await consumer.commit({TopicPartition("gone", 0): 1, at: 1})
            found = await client.admin.groups.offsets("g", family="coordinator")
            assert {at: each.offset for at, each in found.items()} == {at: 1}


async def test_a_deleted_topic_ends_no_reader_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader finds out before its coordinator does."""
    monkeypatch.setattr(fetcher, "MISSING_PARTITION_S", 0.2)
    monkeypatch.setattr(Rebalancing, "_watch_topics", _nobody_watches)
    async with (
        lone_node(tmp_path) as node,
        connect(node.native) as client,
        client.producer() as producer,
    ):
        for topic in ("gone", "orders"):
            await client.admin.create_topic(topic, partitions=1, replication_factor=1)
            await producer.send(topic, b"0", partition=0)
        async with client.coordinated_consumer(
            ["gone", "orders"], group="g", driven=QUICK, auto_offset_reset="smallest"
        ) as consumer:
            for _ in range(2):
                await anext(consumer)
            await client.admin.delete_topic("gone")
            with trio.move_on_after(2.0):  # longer than a partition may be missing
                await anext(consumer)
            await producer.send("orders", b"1", partition=0)
            with trio.fail_after(30):
                assert (await anext(consumer)).value == b"1"


async def _nobody_watches(_: object) -> None:
    await trio.sleep_forever()
