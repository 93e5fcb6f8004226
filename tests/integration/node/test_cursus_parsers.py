"""What the clients' parsers depend on (wire/cursus/DESIGN 4), row by row: every reply of a real
node, as each client reads it. Python's rules are its own code; those of Java and Go are written
down here.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cursus.protocol import decoder as python

from paceline.types import Acks
from paceline.wire.cursus.batch import encode_batch
from tests.integration.node.cursus_client import ONE, CursusClient, batch, numbered
from tests.integration.node.nodes import RunningNode, lone_node

pytestmark = pytest.mark.virtual_time

GO_REJOINS = {"GEN_MISMATCH", "NOT_OWNER", "member_not_found", "group_not_found"}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with lone_node(tmp_path, ONE) as up:
        yield up


@pytest.fixture
async def client(node: RunningNode) -> AsyncIterator[CursusClient]:
    async with CursusClient(node.addresses["cursus"]) as connection:
        await connection.create("topic=t partitions=3")
        yield connection


def go_fields(reply: str) -> dict[str, str]:
    """Every word behind OK is k=v, and no key comes twice."""
    words = reply.split(" ")
    assert words[0] == "OK", reply
    fields = dict(word.partition("=")[::2] for word in words[1:])
    assert all("=" in word for word in words[1:]), reply
    assert len(fields) == len(words) - 1, reply
    return fields


def go_error(reply: str) -> tuple[str, dict[str, str]]:
    """The code, and fields whose values may be quoted."""
    found = re.fullmatch(r"ERROR: (\S+)((?: [\w.]+=(?:\"[^\"]*\"|\S*))*)", reply)
    assert found, reply
    fields = re.findall(r" ([\w.]+)=(\"[^\"]*\"|\S*)", found[2])
    return found[1], dict(fields)


async def test_join_sync_and_what_makes_a_member_join_again(client: CursusClient) -> None:
    join = await client.say("JOIN_GROUP topic=t group=g member=a")
    java = re.fullmatch(r"OK generation=(\d+) member=(\S+) assignments=\[([\d ]*)\]", join)
    assert java, join
    assert python.decode_ok_fields(join)["generation"] == java[1] == "1"
    member = java[2]
    line = f"topic=t group=g member={member}"
    sync = await client.say(f"SYNC_GROUP {line} generation=1")
    assert re.search(r"\[([\d ]*)\]", sync)
    assert sync.split()[0] == "OK"
    for said in (
        f"HEARTBEAT {line} generation=1",
        f"COMMIT_OFFSET {line} generation=1 partition=0 offset=1",
        f"BATCH_COMMIT {line} generation=1 P0:2,P1:3",
    ):
        go_fields(await client.say(said))
    refused = {
        f"HEARTBEAT {line} generation=9": "GEN_MISMATCH",
        f"COMMIT_OFFSET {line} generation=9 partition=0 offset=5": "GEN_MISMATCH",
        "HEARTBEAT topic=t group=g member=none generation=1": "member_not_found",
        "HEARTBEAT topic=t group=none member=a generation=1": "group_not_found",
        f"COMMIT_OFFSET {line} generation=1 partition=7 offset=5": "NOT_OWNER",
    }
    for said, code in refused.items():
        answer = await client.say(said)
        assert go_error(answer)[0] == code, answer
        assert code in GO_REJOINS
        assert answer.split()[1] == code  # Python: word 2 exactly
        assert python.is_coordinator_failure(answer)
    stale = await client.say(f"HEARTBEAT {line} generation=9")
    assert "REBALANCE_REQUIRED" in stale  # Java
    back = await client.say(f"COMMIT_OFFSET {line} generation=1 partition=0 offset=1")
    assert python.is_offset_regression(back), back
    fetched = await client.say("FETCH_OFFSET topic=t group=g partition=0")
    assert go_fields(fetched) == {"offset": "2"}
    assert python.decode_offset_response(fetched) == 2
    found = await client.say("FIND_COORDINATOR group=g")
    assert {"host", "port"} <= go_fields(found).keys()
    assert {"host", "port"} <= python.decode_ok_fields(found).keys()


async def test_topics_and_offsets(client: CursusClient) -> None:
    go_fields(await client.say("CREATE topic=u partitions=2"))
    metadata = go_fields(await client.say("METADATA topic=t"))
    leaders = metadata["leaders"].split(",")
    assert len(leaders) == 3
    assert all(len(each.split(":")) == 2 for each in leaders), "Java splits on every colon"
    await client.produce(batch("t", numbered(1, 4), acks=Acks.ALL))
    listed = go_fields(await client.say("LIST_OFFSETS topic=t"))
    entries = listed["offsets"].split(",")
    assert entries[0].split(":") == ["P0", "earliest=0", "latest=4", "leo=4", "hwm=4"]
    assert [len(each.split(":")) for each in entries] == [5, 5, 5]
    assert re.search(r"partitions=(\d+)", await client.say("LIST topic=t"))


async def test_acknowledgements(client: CursusClient) -> None:
    fields = (
        *("status", "last_offset", "producer_epoch", "producer_id"),
        *("seq_start", "seq_end", "leader", "error"),
    )
    for acks in (Acks.LEADER, Acks.ALL, Acks.NONE):
        await client.send(encode_batch(batch("t", numbered(1, 2), acks=acks, idempotent=True)))
        answer = (await client.receive()).decode()
        assert tuple(json.loads(answer)) == fields
        assert re.search(r'"status":"OK"', answer), answer  # Java searches the text
        assert re.search(r'"last_offset":\d', answer), answer
        assert python.decode_ack(answer.encode()).status == "OK"
    await client.produce(batch("t", numbered(3, 1, epoch=5), idempotent=True))
    await client.send(encode_batch(batch("t", numbered(4, 1, epoch=4), idempotent=True)))
    fenced = (await client.receive()).decode()
    assert python.is_stale_producer_epoch(python.decode_ack(fenced.encode()).error or "")
    assert "stale_producer_epoch" in fenced
    assert '"' not in json.loads(fenced)["error"]
    await client.send(encode_batch(batch("none", numbered(1, 1))))
    assert go_error((await client.receive()).decode()) == ("topic_not_found", {"topic": "none"})


async def test_data_and_control_frames(node: RunningNode, client: CursusClient) -> None:
    await client.produce(batch("t", numbered(1, 3)))
    await client.send(b"CONSUME topic=t partition=0 offset=0 member=m")
    data = await client.receive()
    messages, topic, partition = python.decode_batch(data)
    assert ([each.offset for each in messages], topic, partition) == ([0, 1, 2], "t", 0)
    assert not data.startswith((b"ERROR", b"STREAM_CONTROL"))
    async with CursusClient(node.addresses["cursus"]) as other:
        await client.send(b"STREAM topic=t partition=0 group=g member=m generation=1 offset=3")
        assert await client.receive() == b""  # the keepalive of a reader that has all
        await other.send(b"STREAM topic=t partition=0 group=g member=m generation=2 offset=3")
        while not (frame := await client.receive()):
            pass
    assert python.is_stream_control_frame(frame)
    control = python.decode_stream_control(frame)
    assert (control.reason, control.offset) == ("replaced", 3)


async def test_event_streams(client: CursusClient) -> None:
    await client.create("topic=e partitions=1 event_sourcing=true")
    appended = await client.say("APPEND_STREAM topic=e key=k version=1 message=one")
    assert go_fields(appended) == {"version": "1", "offset": "0", "partition": "0"}
    assert python.decode_version_response(await client.say("STREAM_VERSION topic=e key=k")) == 1
    assert python.decode_snapshot_response(await client.say("READ_SNAPSHOT topic=e key=k")) is None
    conflict = await client.say("APPEND_STREAM topic=e key=k version=1 message=one")
    assert go_error(conflict)[0] == "version_conflict"


async def test_transactions(client: CursusClient) -> None:
    session = go_fields(await client.say("INIT_PRODUCER_ID transactional_id=x"))
    assert session.keys() == {"transactional_id", "producerId", "epoch"}
    who = " ".join(f"{name}={value}" for name, value in session.items())
    go_fields(await client.say(f"BEGIN_TXN {who}"))
    go_fields(await client.say(f"TXN_PUBLISH {who} topic=t seqNum=1 message=m"))
    for said in ("TXN_STATUS transactional_id=x", f"END_TXN {who} result=commit"):
        told = go_fields(await client.say(said))
        assert told["state"] in ("open", "committed")
        assert (int(told["messages"]), int(told["offsets"])) == (1, 0)
    found = go_fields(await client.say("FIND_COORDINATOR transactional_id=x"))
    assert {"host", "port"} <= found.keys()
    fenced = await client.say(f"BEGIN_TXN {who}".replace("epoch=0", "epoch=7"))
    code, fields = go_error(fenced)
    assert (code, fields["transactional_id"]) == ("producer_fenced", "x")
    assert (fields["current_epoch"], fields["requested_epoch"]) == ("0", "7")


async def test_errors_have_their_class_only_where_it_was_negotiated(client: CursusClient) -> None:
    plain = await client.say("METADATA topic=none")
    assert go_error(plain) == ("topic_not_found", {"topic": "none"})
    assert python.decode_error_fields(plain) == {"topic": "none"}
    negotiated = go_fields(
        await client.say("NEGOTIATE version=1 features=structured_errors_v1,later_v9")
    )
    assert negotiated == {
        "protocol_version": "1",
        "enabled": "structured_errors_v1",
        "unsupported": "later_v9",
    }
    assert go_error(await client.say("METADATA topic=none")) == (
        "topic_not_found",
        {"class": "not_found", "retryable": "false", "topic": "none"},
    )
