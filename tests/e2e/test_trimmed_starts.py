"""What deleted records have said outlives them, also on a replica that comes later.

A node is away, or has lost its replica, while the oldest records are deleted on the others; it
comes back and leads. A producer's batch that is sent again is known, a transaction that was open
goes on, a segment is as long and as sealed as it was, and an event stream's version never falls.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from uuid import UUID

import pytest
import trio

from paceline.wire.batch import build_batch
from paceline.wire.kafka import cluster as kafka_cluster
from paceline.wire.records import Record
from paceline.wire.segment import messages as m
from paceline.wire.segment.client import closed_block
from tests.e2e.cluster import Cluster, wait_until
from tests.integration.node.cursus_client import CursusClient
from tests.integration.node.test_kafka import one, produce
from tests.integration.node.test_kafka_transactions import ID, TOPIC, TransactionalClient
from tests.integration.segment.client import connect, leading

LATE = 2
VALUE = b"v" * 100
BEHIND, EMPTIED = "behind", "emptied"


@pytest.fixture
def eager_cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Deletes what may go almost at once, and has small segments."""
    return make_cluster("--set", "log.segment_bytes=1024", "--set", "log.retention_check_ms=100")


class Late:
    """A topic of one partition on three nodes, of which one is late."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic

    def isr(self) -> list[int]:
        members: list[int] = self.cluster.describe(self.topic)[0]["isr"]
        return members

    def goes(self) -> None:
        """From here on it gets nothing; node 0 leads."""
        wait_until("all in sync", lambda: len(self.isr()) == 3)
        self.lead(0)
        self.cluster.run("node", "kill", str(LATE))
        wait_until("it is gone", lambda: self.isr() == [0, 1] or self.isr() == [1, 0])

    def first_segment(self, node: int) -> int:
        segments = self.cluster.partition_dir(node, self.topic, 0).glob("*.log")
        return min(int(path.stem) for path in segments)

    def old_are_deleted(self) -> None:
        """The others have no file any more with what the late one lacks."""
        for node in (0, 1):
            wait_until(
                f"node {node} deletes files", lambda node=node: self.first_segment(node) > 20
            )

    def comes_and_leads(self, how: str) -> None:
        if how == EMPTIED:
            shutil.rmtree(self.cluster.partition_dir(LATE, self.topic, 0))
        self.cluster.run("node", "restart", str(LATE))
        wait_until("it is in sync", lambda: LATE in self.isr())
        assert self.first_segment(LATE) > 20, "it has the old records"
        self.lead(LATE)

    def lead(self, node: int) -> None:
        """Have a node lead, as soon as it may, and go on; the node knows of it, too."""
        words = ("role", "set", self.topic, "0", "leader", "--node", str(node))

        def leads() -> bool:
            self.cluster.run(*words, exit_code=None)
            partition = self.cluster.describe(self.topic)[0]
            return bool(partition["leader"] == node and not partition["error"])

        wait_until(f"node {node} leads", leads)


def _now() -> int:
    return int(time.time() * 1000)


async def _send(client: TransactionalClient, producer: int, sequence: int) -> tuple[int, int]:
    """A batch of an idempotent producer: error code and offset."""
    data = build_batch(
        [Record(-1, _now(), None, VALUE)],
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=sequence,
    )
    answer = one(await client.ask(produce(data), 9))
    return answer.error_code, answer.base_offset


@pytest.mark.slow
@pytest.mark.parametrize("how", [BEHIND, EMPTIED])
def test_batches_sent_again_are_known(eager_cluster: Cluster, how: str) -> None:
    eager_cluster.run("topic", "create", TOPIC, "--partitions", "1", "--replication-factor", "3")
    late = Late(eager_cluster, TOPIC)
    late.goes()
    first, producer = trio.run(_begin, eager_cluster)
    eager_cluster.run("topic", "trim", TOPIC, "--before", "55", "--yes")
    late.old_are_deleted()
    late.comes_and_leads(how)
    trio.run(_go_on, eager_cluster, first, producer)


async def _coordinator(cluster: Cluster) -> TransactionalClient:
    asked = kafka_cluster.FindCoordinatorRequest(key=ID, key_type=1)
    while True:
        async with TransactionalClient(cluster.address(0, "kafka")) as client:
            found = await client.ask(asked, 3)
        if found.error_code == 0:
            return TransactionalClient((found.host, found.port))
        await trio.sleep(0.05)


async def _begin(cluster: Cluster) -> tuple[int, tuple[int, int]]:
    """A producer and a transaction write once; then others, until that is long ago."""
    async with (
        TransactionalClient(cluster.address(0, "kafka")) as client,
        await _coordinator(cluster) as coordinator,
    ):
        error, first = await _send(client, 900, 0)
        assert error == 0
        error, who = await coordinator.init()
        assert error == 0
        assert await coordinator.add(who) == 0
        assert await client.write(who, VALUE) == 0
        for _ in range(60):
            assert (await _send(client, -1, -1))[0] == 0
        return first, who


async def _go_on(cluster: Cluster, first: int, who: tuple[int, int]) -> None:
    async with (
        TransactionalClient(cluster.address(LATE, "kafka")) as client,
        await _coordinator(cluster) as coordinator,
    ):
        error, end = await _send(client, -1, -1)
        assert error == 0
        # Stored long ago, and not again.
        assert await _send(client, 900, 0) == (0, first)
        assert await client.write(who, VALUE) == 0
        assert await _send(client, -1, -1) == (0, end + 1)
        assert await _send(client, 900, 1) == (0, end + 2)
        # The transaction is open: it hides what it writes, and ends with all of it.
        client.sequence = 1
        assert await client.write(who, VALUE) == 0
        assert await coordinator.end(who, commits=True) == 0
        with trio.fail_after(60):
            while True:
                error, last = await _send(client, -1, -1)
                assert error == 0
                if last > end + 4:  # behind the marker
                    break


@pytest.mark.parametrize("how", [EMPTIED, pytest.param(BEHIND, marks=pytest.mark.slow)])
def test_a_segment_stays_as_long_and_as_sealed(eager_cluster: Cluster, how: str) -> None:
    name = "logs/app/0"
    eager_cluster.run("segment", "create", name)
    late = Late(eager_cluster, "logs_app")
    late.goes()
    writer, level, length = trio.run(_write_and_seal, eager_cluster, name)
    late.old_are_deleted()
    late.comes_and_leads(how)
    trio.run(_ask_the_late_one, eager_cluster, name, writer, level, length)


async def _write_and_seal(cluster: Cluster, name: str) -> tuple[UUID, int, int]:
    """An old writer's Events and many of a busy one; then it is sealed and all is given up."""
    old, busy = UUID(int=1), UUID(int=2)
    addresses = [cluster.address(node, "segment") for node in (0, 1)]
    async with leading(addresses, name) as raw:
        await raw.set_up(old, name)
        level = await raw.append(old, 0, b"long ago")
        await raw.set_up(busy, name)
        end = 0
        for _ in range(40):
            end = await raw.append(busy, end, b"x" * 100)
        info = await raw.ask(m.GetStreamSegmentInfo(name), m.StreamSegmentInfo)
        await raw.ask(m.SealSegment(name), m.SegmentSealed)
        # Each is a batch of the log, so that it goes on to new files.
        for step in range(20, 0, -1):
            await raw.ask(m.TruncateSegment(name, info.length - step), m.SegmentTruncated)
        await raw.ask(m.TruncateSegment(name, info.length), m.SegmentTruncated)
        return old, level, info.length


async def _ask_the_late_one(
    cluster: Cluster, name: str, writer: UUID, level: int, length: int
) -> None:
    async with connect(cluster.address(LATE, "segment")) as raw:
        info = await raw.ask(m.GetStreamSegmentInfo(name), m.StreamSegmentInfo)
        assert (info.start_offset, info.length, info.is_sealed) == (length, length, True)
        assert await raw.set_up(writer, name) == level
        await raw.send(closed_block(writer, level, [b"too late"]))
        assert isinstance(await raw.reply(), m.SegmentIsSealed)


@pytest.mark.slow
@pytest.mark.parametrize("how", [BEHIND, EMPTIED])
def test_a_version_is_given_once(eager_cluster: Cluster, how: str) -> None:
    trio.run(_create_streams, eager_cluster)
    late = Late(eager_cluster, "t")
    late.goes()
    trio.run(_append_events, eager_cluster)
    eager_cluster.run("topic", "alter", "t", "--config", "retention.bytes=1024")
    late.old_are_deleted()
    late.comes_and_leads(how)
    trio.run(_append_more, eager_cluster)


async def _create_streams(cluster: Cluster) -> None:
    async with CursusClient(cluster.address(0, "cursus")) as client:
        await client.ok("CREATE topic=t partitions=1 event_sourcing=true")


async def _append_events(cluster: Cluster) -> None:
    async with CursusClient(cluster.address(0, "cursus")) as client:
        for version in range(1, 4):
            await client.ok(f"APPEND_STREAM topic=t key=old version={version} message=e{version}")
        await client.ok("SAVE_SNAPSHOT topic=t key=old version=2 message=s")
        for version in range(1, 41):
            await client.ok(f"APPEND_STREAM topic=t key=busy version={version} message={'x' * 99}")


async def _append_more(cluster: Cluster) -> None:
    async with CursusClient(cluster.address(LATE, "cursus")) as client:
        assert await client.say("STREAM_VERSION topic=t key=old") == "OK version=3"
        assert await client.say("STREAM_VERSION topic=t key=busy") == "OK version=40"
        again = await client.say("APPEND_STREAM topic=t key=old version=1 message=again")
        assert again == "ERROR: version_conflict current=3 expected=1"
        await client.ok("APPEND_STREAM topic=t key=old version=4 message=e4")
        assert await client.say("STREAM_VERSION topic=t key=old") == "OK version=4"
