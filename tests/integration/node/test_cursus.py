"""One node over Cursus: sessions, topics and writing, by the bytes that clients see."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import cramjam
import pytest
import trio

from paceline.types import Acks, Compression
from paceline.wire.compression import compress
from paceline.wire.cursus.batch import CursusRecord, Dialect, encode_batch
from paceline.wire.cursus.compression import CompressorRegistry
from paceline.wire.cursus.frames import framed
from tests.integration.node.cursus_client import ONE, CursusClient, batch, numbered, payloads
from tests.integration.node.nodes import (
    RunningNode,
    V1Client,
    lone_node,
)
from tests.unit.wire_cursus.vectors import FRAMES

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with lone_node(tmp_path, ONE) as up:
        yield up


@pytest.fixture
async def client(node: RunningNode) -> AsyncIterator[CursusClient]:
    async with CursusClient(node.addresses["cursus"]) as connection:
        yield connection


def address(node: RunningNode) -> str:
    host, port = node.addresses["cursus"]
    return f"{host}:{port}"


# --- session --------------------------------------------------------------------------------------


async def test_session(client: CursusClient) -> None:
    info = await client.ok("PROTOCOL_INFO")
    assert info["protocol"] == "cursus"
    features = info["features"].split(",")
    assert features == sorted(features)
    assert await client.say("NEGOTIATE version=1 features=structured_errors_v1,time_travel") == (
        "OK protocol_version=1 enabled=structured_errors_v1 unsupported=time_travel"
    )
    assert await client.say("METADATA topic=none") == (
        "ERROR: topic_not_found class=not_found retryable=false topic=none"
    )
    assert await client.say("NEGOTIATE version=2") == (
        "ERROR: UNSUPPORTED_PROTOCOL_VERSION class=validation retryable=false"
        " requested=2 min=1 max=1"
    )
    assert await client.say("NEGOTIATE version=1 features=x require_features=true") == (
        "ERROR: UNSUPPORTED_FEATURE class=validation retryable=false features=x"
    )
    assert (await client.say("METADATA topic=none")).startswith("ERROR: topic_not_found class=")
    assert await client.say("NEGOTIATE version=1") == (
        "OK protocol_version=1 enabled= unsupported="
    )
    assert await client.say("METADATA topic=none") == "ERROR: topic_not_found topic=none"
    assert await client.say("AUTH principal=ann token=x") == "OK principal=ann authenticated=true"
    assert "CREATE" in (await client.ok("HELP"))["commands"].split(",")
    assert await client.say("NONSENSE") == 'ERROR: unknown_command command="NONSENSE"'
    assert await client.say("RAFT_APPLY") == (
        "ERROR: internal_command_unauthorized command=RAFT_APPLY"
    )
    assert await client.say("EXIT") == "OK"
    assert await client.receive() == b"EOF"


async def test_empty_frames_are_ignored_and_large_ones_end_the_connection(
    client: CursusClient,
) -> None:
    await client.stream.send_all(framed(b"") * 3 + FRAMES["T13"])
    assert await client.receive() == b"ERROR: topic_not_found topic=orders"
    await client.stream.send_all(bytes.fromhex("04000001"))
    assert await client.receive() == b"EOF"


# --- topics ---------------------------------------------------------------------------------------


async def test_topics(node: RunningNode, client: CursusClient) -> None:
    policy = "cleanup_policy=delete partitioner=hash_key auth_policy=open read_acl= write_acl="
    tail = f"{policy} retention_hours=0 retention_bytes=0"
    await client.stream.send_all(FRAMES["T1"])
    assert await client.receive() == f"OK topic=orders partitions=2 {tail}".encode()
    assert await client.say("CREATE orders 2") == f"OK topic=orders partitions=2 {tail}"
    grown = await client.create("topic=orders partitions=3 retention_hours=2 write_acl=a,b")
    assert (grown["partitions"], grown["retention_hours"], grown["write_acl"]) == ("3", "2", "a,b")
    assert await client.say("CREATE topic=orders partitions=1") == (
        'ERROR: create_topic_failed topic=orders reason="cannot decrease partition count for topic'
        " 'orders': 3 -> 1\""
    )
    assert await client.say("CREATE topic=again partitions=3") == (
        f"OK topic=again partitions=3 {tail}"
    )
    here = address(node)
    await client.stream.send_all(FRAMES["T2"])
    assert (
        (await client.receive())
        .decode()
        .startswith(
            f"OK topic=orders partitions=3 leaders={here},{here},{here} epochs=0,0,0 cleanup"
        )
    )
    assert await client.say("LIST") == "OK count=2 topics=again,orders"
    await client.stream.send_all(FRAMES["T13"])
    assert await client.receive() == b"OK topic=orders partitions=3"
    described = json.loads(await client.say("DESCRIBE topic=orders"))
    assert described["status"] == "OK"
    assert described["partitions"][2] == {
        "id": 2, "leader": here, "replicas": ["0"], "isr": ["0"], "leo": 0, "hwm": 0,
    }  # fmt: skip
    assert await client.say("DELETE again") == "OK topic=again deleted=true"
    assert await client.say("DELETE again") == "ERROR: topic_not_found topic=again"
    assert await client.say("LIST") == "OK count=1 topics=orders"


async def test_cluster(node: RunningNode, client: CursusClient) -> None:
    await client.create("t 1")
    listed = (await client.say("LIST_CLUSTER")).removeprefix("OK brokers=")
    [broker] = json.loads(listed)
    assert (broker["id"], broker["client_addr"], broker["status"]) == ("0", address(node), "active")
    status = json.loads((await client.say("CLUSTER_STATUS")).removeprefix("OK cluster="))
    assert (status["active_brokers"], status["leaderless_partitions"]) == (1, 0)
    assert status["partitions"][0]["key"] == "t-0"
    assert await client.say("ELECT_LEADER topic=t partition=0 broker=0") == (
        "OK topic=t partition=0 previous_leader=0 leader=0 leader_epoch=0 changed=false"
    )
    assert (await client.say("ELECT_LEADER topic=t partition=0 broker=7")).startswith(
        "ERROR: leader_election_rejected"
    )


async def test_access_rules_of_a_topic(client: CursusClient) -> None:
    await client.create("topic=t partitions=1 auth_policy=acl read_acl=* write_acl=ann")
    assert await client.say("PUBLISH topic=t partition=0 message=m") == (
        "ERROR: NOT_AUTHORIZED_FOR_TOPIC operation=write topic=t"
    )
    assert await client.say("CONSUME t 0 0") == (
        "ERROR: NOT_AUTHORIZED_FOR_TOPIC operation=read topic=t"
    )
    assert await client.say("LIST") == "OK count=0 topics="
    await client.ok("AUTH principal=bob token=x")
    assert await client.read("CONSUME t 0 0") == []
    assert (await client.say("PUBLISH topic=t partition=0 message=m")).startswith("ERROR: NOT_AUTH")
    assert await client.say("LIST_OFFSETS topic=t principal=ann auth_token=x") == (
        "OK topic=t partitions=1 offsets=P0:earliest=0:latest=0:leo=0:hwm=0"
    )
    assert (await client.acked(b"PUBLISH topic=t partition=0 message=m"))["status"] == "OK"


async def test_making_a_topic_again_leaves_its_rules(client: CursusClient) -> None:
    """A producer does so each time it starts, and says no more than the name."""
    rules = "auth_policy=acl read_acl=ann write_acl=ann,bob"
    kept = "cleanup_policy=compact partitioner=round_robin retention_hours=2 retention_bytes=4096"
    made = await client.create(f"topic=t partitions=1 {rules} {kept}")
    assert await client.create("topic=t partitions=1") == made
    assert await client.create("topic=t partitions=2") == {**made, "partitions": "2"}
    other = await client.create("topic=t partitions=2 retention_hours=3 write_acl=")
    assert other == {**made, "partitions": "2", "retention_hours": "3", "write_acl": ""}


# --- produce --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", Dialect)
async def test_each_dialect_in_each_compression(
    node: RunningNode, client: CursusClient, dialect: Dialect
) -> None:
    await client.create("t 1")
    sent = numbered(1, 3)
    for each in Compression:
        body = compress(each, encode_batch(batch("t", sent, dialect=dialect)))
        assert (await client.acked(body))["status"] == "OK"
    block = cramjam.snappy.compress_raw(encode_batch(batch("t", sent, dialect=dialect)))
    ack = await client.acked(bytes(block))
    assert ack == {
        "status": "OK", "last_offset": 17, "producer_epoch": 1, "producer_id": "p",
        "seq_start": 1, "seq_end": 3, "leader": address(node), "error": "",
    }  # fmt: skip
    read = await client.read("CONSUME topic=t partition=0 offset=0 member=m")
    assert payloads(read) == [b"1", b"2", b"3"] * 6
    assert [record.offset for record in read] == list(range(18))
    assert read[0] == sent[0]


async def test_every_field_comes_back_and_others_see_it(
    node: RunningNode, client: CursusClient
) -> None:
    await client.create("t 1")
    record = CursusRecord(0, 7, b"py-1", b"k1", 9, "héllo".encode(), b"Made", 2, 3, b'{"a":1}')
    await client.produce(batch("t", [record]))
    assert await client.read("CONSUME t 0 0") == [record]
    async with V1Client(node.v1) as v1:
        assert (await v1.ok("CONSUME", "t 0 0"))["messages"] == "0:héllo"
        await v1.ok("PRODUCE", "t k:from-v1")
    shown = (await client.read("CONSUME t 0 1"))[0]
    assert shown == CursusRecord(1, key=b"k", payload=b"from-v1")


async def test_refused_batches(client: CursusClient) -> None:
    await client.create("t 1")
    for body, answer in [
        (encode_batch(batch("none", numbered(1, 1))), "ERROR: topic_not_found topic=none"),
        (encode_batch(batch("t", numbered(1, 1), partition=9)),
         "ERROR: partition_not_found partition=9"),
        (encode_batch(batch("t", [])), "ERROR: empty_batch command=BATCH"),
        (FRAMES["T3"][4:].replace(b"\x011\x00", b"\x019\x00", 1), "ERROR: invalid_acks value=9"),
        (bytes.fromhex("ba7c"), "ERROR: batch_decode_failed"),
        (FRAMES["T3"][4:].replace(bytes.fromhex("0000000101"), bytes.fromhex("0001303101"), 1)
         .replace(b"\x00\x06orders", b"\x00\x01t"), "ERROR: partition_not_found partition=77873"),
        (b"\x1f\x8bnonsense", 'ERROR: decode_failed reason="decompress"'),
        (encode_batch(batch("__groups", numbered(1, 1))), "ERROR: invalid_topic_name"),
    ]:  # fmt: skip
        await client.send(body)
        assert (await client.receive()).decode().startswith(answer)


async def test_publish(node: RunningNode, client: CursusClient) -> None:
    await client.create("topic=t partitions=3")
    ack = await client.acked(b"PUBLISH topic=t key=order-123 producerId=p message= a=b ")
    assert (ack["status"], ack["last_offset"], ack["producer_id"]) == ("OK", 0, "p")
    assert payloads(await client.read("CONSUME t 0 0")) == [b" a=b "]  # FNV-1a 64 mod 3
    assert await client.say("PUBLISH topic=t acks=0 partition=1 message=m") == "OK"
    for _ in range(3):
        assert (await client.acked(b"PUBLISH topic=t message=turn"))["status"] == "OK"
    ends = (await client.ok("LIST_OFFSETS topic=t"))["offsets"]
    assert ends == (
        "P0:earliest=0:latest=2:leo=2:hwm=2,P1:earliest=0:latest=2:leo=2:hwm=2,"
        "P2:earliest=0:latest=1:leo=1:hwm=1"
    )
    assert await client.say("PUBLISH topic=t partition=9 message=m") == (
        "ERROR: partition_not_found partition=9"
    )


async def test_idempotent_in_a_window(client: CursusClient) -> None:
    await client.create("t 1")

    async def put(first: int, count: int, epoch: int = 1) -> dict[str, object]:
        sent = numbered(first, count, epoch=epoch)
        return await client.produce(batch("t", sent, idempotent=True, acks=Acks.ALL))

    assert (await put(1, 3))["last_offset"] == 2
    assert (await put(7, 2))["last_offset"] == 4  # overtaken: no gap error
    assert (await put(1, 3))["last_offset"] == 4  # all of it again: the log's end
    assert (await put(3, 5))["last_offset"] == 7  # only 4 to 6 are new
    stored = payloads(await client.read("CONSUME t 0 0"))
    assert stored == [b"1", b"2", b"3", b"7", b"8", b"4", b"5", b"6"]
    assert (await put(1, 1, epoch=2))["status"] == "OK"
    stale = await put(9, 1)
    assert (stale["status"], stale["error"]) == (
        "ERROR",
        "stale_producer_epoch producer=p current=2 got=1",
    )
    # Without the flag everything is stored.
    assert (await client.produce(batch("t", numbered(1, 3))))["last_offset"] == 11


async def test_idempotent_and_strict(client: CursusClient) -> None:
    await client.create("topic=t partitions=1 idempotent=true")

    async def put(first: int, count: int) -> str:
        ack = await client.produce(batch("t", numbered(first, count)))
        return str(ack["error"] or ack["last_offset"])

    assert await put(2, 1) == "idempotency_gap producer=p expected=1 got=2"
    assert await put(1, 3) == "2"
    assert await put(5, 1) == "idempotency_gap producer=p expected=4 got=5"
    assert await put(2, 3) == "3"
    assert await put(1, 4) == "3"


async def test_silent_producers_are_forgotten_by_a_record(tmp_path: Path) -> None:
    flags = {**ONE, "cursus.producer_ttl_ms": "3000", "cursus.producer_check_ms": "100"}
    async with (
        lone_node(tmp_path, flags) as node,
        CursusClient(node.addresses["cursus"]) as client,
    ):
        await client.create("topic=s partitions=1 idempotent=true")
        await client.produce(batch("s", numbered(1, 3)))
        sent, gap = 0, ""
        with trio.fail_after(60):
            while "idempotency_gap producer=p expected=1 got=4" not in gap:
                sent += 1
                busy = await client.produce(batch("s", numbered(sent, 1, producer="busy")))
                assert busy["status"] == "OK"
                await trio.sleep(0.05)
                if sent % 20 == 0:
                    partition = node.node.broker.replicas.table.get("s", 0)  # type: ignore[union-attr]
                    assert partition is not None
                    if len(partition.log.producers) == 1:
                        gap = (await client.produce(batch("s", numbered(4, 1))))["error"]
        told = await client.read("CONSUME s 0 0")
        assert payloads(told)[:3] == [b"1", b"2", b"3"]
        assert len(told) == 3 + sent


async def test_too_few_replicas_are_named(tmp_path: Path) -> None:
    """A lone node with the replication factor of a cluster refuses acks=all honestly."""
    async with (
        lone_node(tmp_path) as node,
        CursusClient(node.addresses["cursus"]) as client,
    ):
        await client.create("t 1")
        ack = await client.produce(batch("t", numbered(1, 1), acks=Acks.ALL))
        assert (ack["status"], ack["error"]) == ("ERROR", "not_enough_replicas isr=1 min=2")
        assert (await client.produce(batch("t", numbered(1, 1))))["last_offset"] == 0


@pytest.mark.slow
async def test_an_unread_flood_of_acks_0_does_not_stop_the_connection(
    client: CursusClient,
) -> None:
    await client.create("t 1")
    frame = framed(encode_batch(batch("t", numbered(1, 1), acks=Acks.NONE)))
    count = 10_000
    with trio.fail_after(60):
        for _ in range(count // 1000):
            await client.stream.send_all(frame * 1000)
        # What was not read is answered no more; what is asked now is.
        await client.send(b"LIST_OFFSETS topic=t")
        answers = 0
        while (answer := await client.receive()).startswith(b"{"):
            answers += 1
    assert f":leo={count}:".encode() in answer
    assert answers < count


async def test_a_frame_of_many_mebibytes(client: CursusClient) -> None:
    await client.create("t 1")
    sent = [CursusRecord(0, n, b"p", payload=bytes(500_000)) for n in range(1, 21)]
    ack = await client.produce(batch("t", sent, idempotent=True, acks=Acks.ALL))
    assert (ack["status"], ack["last_offset"]) == ("OK", 19)
    assert (await client.produce(batch("t", sent, idempotent=True)))["last_offset"] == 19
    offset = 0
    while offset < 20:
        read = await client.read(f"CONSUME t 0 {offset}")
        assert read[0].offset == offset
        offset = read[-1].offset + 1


class Reversed:
    name = "reversed"

    def compress(self, data: bytes) -> bytes:
        return data[::-1]

    def decompress(self, data: bytes) -> bytes:
        return data[::-1]


async def test_a_registered_compressor(tmp_path: Path) -> None:
    registry = CompressorRegistry([Reversed()])
    flags = {**ONE, "cursus.compressors": "reversed"}
    async with (
        lone_node(tmp_path, flags, compressors=registry) as node,
        CursusClient(node.addresses["cursus"]) as client,
    ):
        await client.create("t 1")
        body = encode_batch(batch("t", numbered(1, 2)))
        assert (await client.acked(body[::-1]))["last_offset"] == 1
        assert (await client.acked(body))["last_offset"] == 3
