"""/metrics of real nodes over HTTP: what was done is what is shown."""

from __future__ import annotations

import time
from collections.abc import Mapping

import h11
import trio
from prometheus_client.parser import text_string_to_metric_families

from paceline.types import Acks, Isolation
from paceline.wire.batch import build_batch
from paceline.wire.native.admin import CreateTopic, DeleteTopic, Done, TopicCreated
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import (
    Fetch,
    FetchPartition,
    FetchReply,
    ListOffsets,
    ListOffsetsReply,
    OffsetQuery,
)
from paceline.wire.records import Record
from tests.integration.node.machines import open_stream
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import HANG_S, Address, Cluster, V1Client, cluster, lone_node

ALONE = {
    "topics.partitions": "1",
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
}


class Scrape:
    """One answer of /metrics."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def find(self, name: str, /, **labels: str) -> list[float]:
        """Values of all series of that name with at least these labels."""
        return [
            sample.value
            for sample in self._samples
            if sample.name == f"paceline_{name}" and labels.items() <= sample.labels.items()
        ]

    def one(self, name: str, /, **labels: str) -> float:
        found = self.find(name, **labels)
        assert len(found) == 1, f"{name}{labels}: {found}"
        return found[0]

    def total(self, name: str, /, **labels: str) -> float:
        return sum(self.find(name, **labels))


async def get(address: Address, path: str) -> tuple[int, Mapping[bytes, bytes], bytes]:
    """One GET over a connection of its own."""
    connection = h11.Connection(h11.CLIENT)
    async with await open_stream(address) as stream:
        asked = connection.send(
            h11.Request(method="GET", target=path, headers=[("Host", "localhost")])
        )
        await stream.send_all((asked or b"") + (connection.send(h11.EndOfMessage()) or b""))
        status, headers, body = 0, {}, b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await stream.receive_some())
            elif isinstance(event, h11.Response):
                status, headers = event.status_code, dict(event.headers)
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                return status, headers, body


async def scrape(address: Address) -> Scrape:
    status, headers, body = await get(address, "/metrics")
    assert status == 200
    assert headers[b"content-type"].startswith(b"text/plain")
    return Scrape(body.decode())


def batch_of(count: int) -> bytearray:
    return build_batch([Record(-1, 1_700_000_000_000, b"k", b"value") for _ in range(count)])


async def shown_as_committed(
    nodes: Cluster, number: int, topic: str, partition: int, end: int
) -> None:
    """Wait until a node's own replica knows everything below ``end`` to be committed. Followers
    learn it after those who wait for it, and the listeners would ask the leader."""

    async def known() -> bool:
        found = await scrape(nodes.up[number].addresses["http"])
        place = {"topic": topic, "partition": str(partition)}
        return found.one("partition_high_watermark", **place) == end

    await nodes.wait_for(f"node {number} knows {topic}/{partition} to be committed", known)


async def fetch(connection: NativeConnection, topic: str, offset: int) -> FetchReply:
    wanted = FetchPartition(topic, 0, offset, 1 << 20)
    body = Fetch(0, 1, 1 << 20, Isolation.READ_COMMITTED, (wanted,))
    return await connection.call(NativeApi.FETCH, body, FetchReply)


async def test_traffic_of_a_lone_node(tmp_path) -> None:
    async with (
        lone_node(tmp_path, ALONE) as node,
        NativeConnection(node.addresses["native"]) as native,
        V1Client(node.v1) as v1,
    ):
        await native.call(NativeApi.CREATE_TOPIC, CreateTopic("other", 1, 1), TopicCreated)
        await v1.ok("PRODUCE", "orders k:first acks=all")  # makes the topic, waits for its leader
        batch = batch_of(7)
        assert (await native.produce("orders", 0, batch)).error == 0
        assert (await native.produce("orders", 0, batch_of(3), acks=Acks.LEADER)).error == 0
        assert (await native.produce("nowhere", 0, batch_of(1))).error != 0
        [read] = (await fetch(native, "orders", 0)).partitions
        assert read.next_offset == 11
        [beyond] = (await fetch(native, "orders", 99)).partitions
        assert beyond.error != 0
        await native.call(
            NativeApi.LIST_OFFSETS,
            ListOffsets(Isolation.READ_COMMITTED, (OffsetQuery("orders", 0, -1),)),
            ListOffsetsReply,
        )
        await v1.ok("CONSUME", "orders 0 9")
        assert "BAD_REQUEST" in await v1.call("PRODUCE", "orders")
        assert "UNKNOWN_COMMAND" in await v1.call("SELECT", "1")
        assert "UNKNOWN_COMMAND" in await v1.call("DROP", "1")

        seen = await scrape(node.addresses["http"])

        def requests(protocol: str, api: str, code: str) -> float:
            return seen.one("requests_total", protocol=protocol, api=api, code=code)

        assert requests("native", "produce", "none") == 2
        assert requests("native", "produce", "unknown_topic_or_partition") == 1
        assert requests("native", "fetch", "none") == 1
        assert requests("native", "fetch", "offset_out_of_range") == 1
        assert requests("native", "list_offsets", "none") == 1
        assert requests("native", "create_topic", "none") == 1
        assert requests("native", "hello", "none") == 1
        assert requests("v1", "produce", "none") == 1
        assert requests("v1", "produce", "bad_request") == 1
        assert requests("v1", "consume", "none") == 1
        assert requests("v1", "unknown", "unknown_command") == 2
        assert seen.one("request_duration_seconds_count", protocol="native", api="produce") == 3
        assert seen.one("request_duration_seconds_sum", protocol="native", api="produce") > 0

        assert seen.one("records_appended_total", topic="orders") == 11
        assert seen.one("appended_bytes_total", topic="orders") > len(batch)
        # All by fetch, the last two again by CONSUME.
        assert seen.one("records_fetched_total", topic="orders") == 13
        assert seen.one("fetched_bytes_total", topic="orders") > read.records_bytes

        for protocol, count in {"native": 1, "v1": 1, "http": 1, "peer": 0}.items():
            assert seen.one("connections_active", protocol=protocol) == count
        assert seen.one("fsync_duration_seconds_count") >= 3
        assert seen.one("fsync_group_records_sum") >= 11  # and those of the group engine
        assert seen.one("partition_high_watermark", topic="orders", partition="0") == 11
        assert seen.one("partition_is_leader", topic="orders", partition="0") == 1
        assert seen.one("log_bytes", topic="orders", partition="0") > len(batch)
        for name in ("ready", "controller_is_leader"):
            assert seen.one(name) == 1
        assert seen.one("controller_term") >= 1
        assert seen.one("disk_free_bytes") > 0
        assert seen.one("loop_lag_seconds") >= 0
        await _nothing_waits(node.addresses["http"])


async def _nothing_waits(address: Address) -> None:
    """Until nothing is under way any more: the group engine writes its first records by itself."""
    names = ("flusher_logs", "waiting_produces", "controller_requests", "native_outbox_bytes")
    with trio.fail_after(HANG_S):
        while any([(await scrape(address)).one("channel_depth", name=name) for name in names]):  # noqa: ASYNC110  of another task, by HTTP
            await trio.sleep(0.02)


async def test_a_deleted_topic_leaves_no_series(tmp_path) -> None:
    async with (
        lone_node(tmp_path, ALONE) as node,
        NativeConnection(node.addresses["native"]) as native,
        V1Client(node.v1) as v1,
    ):
        await v1.ok("PRODUCE", "brief k:v")
        assert 'topic="brief"' in (await scrape(node.addresses["http"])).text
        await native.call(NativeApi.DELETE_TOPIC, DeleteTopic("brief"), Done)
        assert "brief" not in (await scrape(node.addresses["http"])).text


async def test_series_of_single_partitions_can_be_left_out(tmp_path) -> None:
    flags = {**ALONE, "metrics.per_partition": "false"}
    async with lone_node(tmp_path, flags) as node, V1Client(node.v1) as v1:
        await v1.ok("PRODUCE", "orders k:v")
        seen = await scrape(node.addresses["http"])
        assert not seen.find("partition_high_watermark")
        assert seen.one("records_appended_total", topic="orders") == 1
        assert seen.one("leaderless_partitions") == 0


async def test_steps_are_measured_by_what_they_take_of_the_processor_on_request(tmp_path) -> None:
    async with lone_node(tmp_path, {**ALONE, "metrics.slice_clock": "cpu"}) as node:
        await trio.lowlevel.checkpoint()
        time.sleep(0.5)  # noqa: ASYNC251  # the loop stands still, not the processor
        await trio.lowlevel.checkpoint()
        seen = await scrape(node.addresses["http"])
        steps = seen.find("loop_longest_slice_seconds")
        assert all(seconds < 0.5 for seconds in steps)


async def test_a_death_shows_on_the_nodes_that_remain(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        async with nodes.v1(0) as v1:
            await v1.ok("ADMIN_CREATE_TOPIC", "orders 1 3")
            await v1.ok("PRODUCE", "orders k:v acks=all")
        await nodes.in_sync("orders", 0, 0, 1, 2)
        before = {n: await scrape(up.addresses["http"]) for n, up in nodes.up.items()}
        assert sum(seen.one("controller_is_leader") for seen in before.values()) == 1
        assert (
            sum(seen.total("partition_is_leader", topic="orders") for seen in before.values()) == 1
        )
        assert all(1 in seen.find("peer_link_up") for seen in before.values())
        victim = await nodes.leader("orders", 0)
        await nodes.crash(victim)
        rest = [number for number in (0, 1, 2) if number != victim]
        info = await nodes.in_sync("orders", 0, *rest)
        after = {n: await scrape(nodes.up[n].addresses["http"]) for n in rest}
        leader = after[info.leader]
        assert leader.one("isr_changes_total", change="shrink") >= 1
        assert leader.one("partition_in_sync_replicas", topic="orders") == 2
        assert leader.total("under_replicated_partitions") >= 1
        # A new controller counts from its own start, an old one has elected before.
        elected = sum(
            seen.total("leader_elections_total", reason="fenced") for seen in after.values()
        )
        fenced = sum(seen.total("brokers_fenced_total") for seen in after.values())
        assert elected >= 1
        assert fenced >= 1
        for number in rest:
            address = nodes.up[number].addresses["http"]

            async def noticed(address: Address = address) -> bool:
                return 1 not in (await scrape(address)).find("peer_link_up", peer=str(victim))

            await nodes.wait_for(f"node {number} shows its links to {victim} as down", noticed)
