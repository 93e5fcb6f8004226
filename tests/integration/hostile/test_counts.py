"""Each row of the table of counts is filled through each protocol, and the others go on."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from paceline.wire.batch import build_batch
from paceline.wire.pravega import controller as c
from paceline.wire.records import Record
from paceline.wire.segment import messages as seed
from paceline_node.settings import counts
from paceline_node.settings.counts import COUNTS, Count
from tests.hostile.fillers import MAKERS, TOPIC, Maker, make_scope
from tests.integration.node.cursus_client import CursusClient
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import HANG_S, RunningNode, V1Client, lone_node
from tests.integration.segment import client as segments
from tests.integration.segment.controller_client import ControllerClient

pytestmark = pytest.mark.virtual_time

ALONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
BOUND = 3
MORE = {counts.PARTITIONS: 40, counts.PARTITION_PRODUCERS: 4}
"""Bounds of which others are taken before: by topics of the node's own, by half for one client."""
SAID = {
    counts.PARTITIONS: ("PolicyViolation", "code 44"),
    counts.GROUPS: ("code 81",),
    counts.MEMBERS: ("code 81",),
    counts.OFFSETS: ("code 81",),
    counts.LISTED_GROUPS: ("PolicyViolation",),
    counts.IDS: ("TransactionTooLarge", "code 44"),
    counts.PARTITION_PRODUCERS: ("89", "code 19"),
    counts.CLIENT_PRODUCERS: ("89", "code 19"),
    counts.TABLES: ("answered None",),
    counts.TABLE_KEYS: ("answered None", "register of streams is full"),
    counts.APPENDERS: ("more than 3 appenders", "answered None"),
}
"""What clients are told whose protocol has no words for it."""
TRIES = 60
"""There are 16 partitions of groups, with three of them each."""
NOT_YET = ("not_available", "NOT_LEADER", "timeout", "code 14", "code 15", "code 16", "Loading")
ELSEWHERE = {
    counts.CONNECTIONS: "integration/hostile/test_places.py",
    counts.PEER_CONNECTIONS: "integration/peers/test_sockets.py",
    counts.UNPROVED: "integration/peers/test_sockets.py",
    counts.JOINING: "unit/raft/test_quorum.py",
    counts.REQUESTS: "integration/node/test_native_hostility.py",
    counts.READS: "integration/hostile/test_counts.py",
    counts.ACLS: "unit/controller/test_acls.py",
    counts.LISTED_BYTES: "unit/controller/test_group_topics.py",
    counts.LISTED_TOPICS: "unit/controller/test_group_topics.py",
    counts.OFFSET_METADATA: "unit/groups/test_offset_shares.py",
    counts.PATTERN_STREAMS: "unit/groups/test_driven_groups.py",
    counts.TRANSACTION_PARTITIONS: "unit/transactions/test_producers.py",
    counts.OPEN_PARTITIONS: "unit/transactions/test_id_shares.py",
    counts.TRANSACTION_GROUPS: "unit/transactions/test_producers.py",
    counts.TABLE_BYTES: "unit/keyvalue/test_machine.py",
    counts.USERS: "unit/controller/test_users.py",
    counts.USER_TOKENS: "unit/controller/test_users.py",
    counts.QUOTAS: "unit/controller/test_quotas.py",
    counts.STREAM_SEGMENTS: "integration/hostile/test_counts.py",
}
"""Rows whose tests need more than one node, or nothing of one."""


def test_every_row_has_a_test() -> None:
    assert set(MAKERS) | set(ELSEWHERE) == set(COUNTS)
    assert not set(MAKERS) & set(ELSEWHERE)
    tests = Path(__file__).parents[2]
    assert [each for each in ELSEWHERE.values() if not (tests / each).is_file()] == []


async def until_refused(node: RunningNode, make: Maker) -> str:
    """Make one after the other; how the first that was too many was refused."""
    for number in range(TRIES):
        refused = await make(node, number)
        with trio.fail_after(HANG_S):
            while any(word in refused for word in NOT_YET):
                await trio.sleep(0.05)
                refused = await make(node, number)
        if refused:
            return refused
    raise AssertionError(f"{TRIES} were made")


async def others_go_on(node: RunningNode, value: str) -> None:
    """Well-behaved clients of three protocols write and read."""
    async with V1Client(node.v1) as v1:
        written = await v1.ok("PRODUCE", f"{TOPIC} k:{value}")
        assert value in await v1.call("CONSUME", f"{TOPIC} 0 {written['offset']}")
    async with NativeConnection(node.addresses["native"]) as native:
        batch = build_batch([Record(value=value.encode())])
        assert (await native.produce(TOPIC, 0, batch)).error == 0
    async with CursusClient(node.addresses["cursus"]) as cursus:
        told = await cursus.say(f"PUBLISH topic={TOPIC} acks=1 message={value}")
        assert '"status":"OK"' in told, told


@pytest.mark.parametrize("count", MAKERS, ids=lambda count: count.key)
async def test_a_full_row_stops_nobody_else(count: Count, tmp_path: Path) -> None:
    flags = {**ALONE, count.key: str(MORE.get(count, BOUND))}
    async with lone_node(tmp_path, flags) as node:
        async with CursusClient(node.addresses["cursus"]) as cursus:
            await cursus.create(f"topic={TOPIC} partitions=1")
            await cursus.create("topic=numbered partitions=1 idempotent=true")
            await cursus.create("topic=events partitions=1 event_sourcing=true")
        for number, (protocol, make) in enumerate(MAKERS[count].items()):
            refused = await until_refused(node, make)
            assert count.key in refused or any(word in refused for word in SAID.get(count, ())), (
                f"{protocol}: {refused}"
            )
            await others_go_on(node, f"beside-{number}")


async def test_reads_beyond_the_bound_are_read_later(tmp_path: Path) -> None:
    flags = {**ALONE, counts.READS.key: str(BOUND), "segment.read_wait_ms": "20000"}
    async with (
        lone_node(tmp_path, flags) as node,
        segments.connect(node.addresses["segment"]) as raw,
        segments.connect(node.addresses["segment"]) as other,
    ):
        await raw.create("a/b/0")
        await raw.send(*[seed.ReadSegment("a/b/0", 0, 100)] * (BOUND + 1), seed.KeepAlive())
        with trio.move_on_after(0.3) as early:
            await raw.reply()
        assert early.cancelled_caught, "more reads than there may be are waited for"
        writer = segments.uuid4()
        await other.append(writer, await other.set_up(writer, "a/b/0"), b"now")
        replies = [await raw.reply() for _ in range(BOUND + 2)]
        assert sum(isinstance(each, seed.SegmentRead) for each in replies) == BOUND + 1
        assert seed.KeepAlive() in replies


async def test_full_tables_do_not_keep_streams_out(tmp_path: Path) -> None:
    """The first scope needs a table of the broker's own, and was said to be there already."""
    flags = {**ALONE, counts.TABLES.key: str(BOUND)}
    async with lone_node(tmp_path, flags) as node:
        [fill] = MAKERS[counts.TABLES].values()
        await until_refused(node, fill)
        assert await make_scope(node, 0) == ""


async def test_a_stream_has_only_so_many_segments(tmp_path: Path) -> None:
    most = counts.STREAM_SEGMENTS.bound
    async with (
        lone_node(tmp_path, ALONE) as node,
        ControllerClient(node.addresses["pravega"]) as client,
    ):
        assert await client.call("createScope", c.ScopeInfo("shop"), c.Status) == c.Status(0)
        wide = c.StreamConfig(c.StreamInfo("shop", "wide"), c.ScalingPolicy(0, 0, 0, most + 1))
        assert await client.call("createStream", wide, c.Status) != c.Status(0)
        small = c.StreamConfig(c.StreamInfo("shop", "small"), c.ScalingPolicy(0, 0, 0, 1))
        assert await client.call("createStream", small, c.Status) == c.Status(0)
