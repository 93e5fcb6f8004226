"""What Cursus clients are answered, and which of several faults they are told of."""

from __future__ import annotations

import errno
import json

import trio

from paceline.types import Acks
from paceline.wire.cursus.batch import (
    MAGIC,
    CursusBatch,
    CursusRecord,
    Dialect,
    encode_batch,
    parse_batch,
)
from tests.unit.listeners.lone import lone_node
from tests.unit.listeners.world import check, world

_ONE = CursusRecord(sequence=1, producer_id=b"p", epoch=1, payload=b"v")
_NAMELESS = CursusRecord(sequence=1, producer_id=b"\xff", epoch=1, payload=b"v")

BATCHES = (
    # topic, partition, acks, idempotent, records
    ("orders", 0, Acks.ALL, False, (_ONE,), "OK 2"),
    ("orders", -1, Acks.LEADER, True, (_ONE,), "OK 3"),
    ("orders", 0, Acks.NONE, True, (_ONE,), "OK 0"),
    ("secret", 9, Acks.ALL, False, (), "ERROR: empty_batch command=BATCH"),
    ("secret", 9, Acks.ALL, False, (_NAMELESS,), "ERROR: batch_decode_failed"),
    (
        "secret",
        9,
        Acks.ALL,
        False,
        (_ONE,),
        "ERROR: NOT_AUTHORIZED_FOR_TOPIC operation=write topic=secret",
    ),
    ("a/b", 9, Acks.ALL, False, (_ONE,), 'ERROR: invalid_topic_name topic="a/b"'),
    ("__groups", 99, Acks.ALL, False, (_ONE,), 'ERROR: invalid_topic_name topic="__groups"'),
    ("sc_st", 9, Acks.ALL, False, (_ONE,), "ERROR: unsupported_topic_policy"),
    ("nowhere", 9, Acks.ALL, False, (_ONE,), "ERROR: topic_not_found topic=nowhere"),
    ("nowhere", -1, Acks.ALL, False, (_ONE,), "ERROR: topic_not_found topic=nowhere"),
    ("orders", 9, Acks.ALL, False, (_ONE,), "ERROR: partition_not_found partition=9"),
    (
        "orders",
        0,
        Acks.ALL,
        True,
        (_ONE._replace(epoch=0, sequence=9),),
        "ERROR 0 stale_producer_epoch producer=p current=1 got=0",
    ),
)

_TXN = "transactional_id=tx producerId=txn-x epoch=0"
COMMANDS = (
    ("PUBLISH topic=orders acks=1 producerId=q message=v", "OK 2"),
    (
        "PUBLISH topic=secret acks=1 producerId=q message=v",
        "ERROR: NOT_AUTHORIZED_FOR_TOPIC operation=write topic=secret",
    ),
    ("CONSUME topic=orders partition=0 offset=0 batch=1", "1 records"),
    (
        "CONSUME topic=secret partition=9 offset=9",
        "ERROR: NOT_AUTHORIZED_FOR_TOPIC operation=read topic=secret",
    ),
    ("CONSUME topic=nowhere partition=9 offset=9", "ERROR: topic_not_found topic=nowhere"),
    ("CONSUME topic=orders partition=9 offset=9", "ERROR: partition_not_found partition=9"),
    ("CONSUME topic=orders partition=0 offset=99", "0 records"),
    ("CONSUME topic=__groups partition=0 offset=0", 'ERROR: invalid_topic_name topic="__groups"'),
    ("CONSUME topic=sc_st partition=0 offset=0", "0 records"),
    (
        "CONSUME topic=nowhere partition=0 offset=0 group=secret",
        "ERROR: NOT_AUTHORIZED_FOR_OPERATION command=CONSUME permission=group",
    ),
    (
        "CONSUME topic=secret partition=0 offset=0 group=secret",
        "ERROR: NOT_AUTHORIZED_FOR_TOPIC operation=read topic=secret",
    ),
    (
        "STREAM topic=secret partition=9 offset=9 group=secret",
        "ERROR: NOT_AUTHORIZED_FOR_TOPIC operation=read topic=secret",
    ),
    (
        "JOIN_GROUP topic=secret group=secret member=m",
        "ERROR: NOT_AUTHORIZED_FOR_OPERATION command=JOIN_GROUP permission=group",
    ),
    ("JOIN_GROUP topic=nowhere group=team member=m", "ERROR: topic_not_found topic=nowhere"),
    ("JOIN_GROUP topic=orders group=team member=m", "OK"),
    (
        "SYNC_GROUP topic=nowhere group=secret member=m generation=9",
        "ERROR: NOT_AUTHORIZED_FOR_OPERATION command=SYNC_GROUP permission=group",
    ),
    (
        "SYNC_GROUP topic=orders group=team member=nobody generation=1",
        "ERROR: member_not_found member=nobody group=team",
    ),
    (
        "HEARTBEAT topic=nowhere group=secret member=m generation=9",
        "ERROR: NOT_AUTHORIZED_FOR_OPERATION command=HEARTBEAT permission=group",
    ),
    (
        "HEARTBEAT topic=orders group=team member=nobody generation=1",
        "ERROR: member_not_found member=nobody group=team",
    ),
    (
        "COMMIT_OFFSET topic=nowhere partition=9 group=secret offset=9 member=m generation=9",
        "ERROR: NOT_AUTHORIZED_FOR_OPERATION command=COMMIT_OFFSET permission=group",
    ),
    (
        "COMMIT_OFFSET topic=orders partition=0 group=team offset=1 member=nobody generation=1",
        "ERROR: member_not_found member=nobody group=team",
    ),
    (
        "FETCH_OFFSET topic=nowhere partition=9 group=secret",
        "ERROR: NOT_AUTHORIZED_FOR_OPERATION command=FETCH_OFFSET permission=group",
    ),
    ("FETCH_OFFSET topic=orders partition=0 group=team", "OK"),
    (
        "GROUP_STATUS group=secret topic=nowhere",
        "ERROR: NOT_AUTHORIZED_FOR_OPERATION command=GROUP_STATUS permission=group",
    ),
    ("GROUP_STATUS group=none topic=orders", "ERROR: group_not_found group=none"),
    (
        "LEAVE_GROUP topic=nowhere group=secret member=m",
        "ERROR: NOT_AUTHORIZED_FOR_OPERATION command=LEAVE_GROUP permission=group",
    ),
    (
        "LEAVE_GROUP topic=orders group=team member=nobody",
        "ERROR: member_not_found member=nobody group=team",
    ),
    (
        "FIND_COORDINATOR group=secret",
        "ERROR: NOT_AUTHORIZED_FOR_OPERATION command=FIND_COORDINATOR permission=group",
    ),
    (
        "FIND_COORDINATOR transactional_id=secret",
        "ERROR: NOT_AUTHORIZED_FOR_OPERATION command=FIND_COORDINATOR permission=group",
    ),
    (
        "INIT_PRODUCER_ID transactional_id=secret",
        "ERROR: NOT_AUTHORIZED_FOR_OPERATION command=INIT_PRODUCER_ID permission=transaction",
    ),
    ("INIT_PRODUCER_ID transactional_id=tx", "OK"),
    (
        f"TXN_PUBLISH {_TXN} topic=secret seqNum=1 message=v",
        "ERROR: NOT_AUTHORIZED_FOR_TOPIC operation=write topic=secret",
    ),
    (
        f"TXN_PUBLISH {_TXN} topic=nowhere seqNum=1 message=v",
        "ERROR: topic_not_found topic=nowhere",
    ),
    (
        f"TXN_PUBLISH {_TXN} topic=orders seqNum=1 message=v",
        "ERROR: producer_fenced transactional_id=tx current_epoch=0 requested_epoch=0",
    ),
)


def told(answer: bytes) -> str:
    """An answer in short: how many records, what became of a batch, or the refusal without its
    reason."""
    if answer.startswith(MAGIC):
        return f"{len(parse_batch(answer).records)} records"
    if answer.startswith(b"{"):
        ack = json.loads(answer)
        return f"{ack['status']} {ack['last_offset']} {ack['error']}".rstrip()
    text = answer.decode()
    return "OK" if text.startswith("OK") else text.partition(" reason=")[0]


async def test_batches(tmp_path, autojump_clock) -> None:
    async with world(tmp_path) as node:
        client = await node.cursus()
        answers = []
        for topic, partition, acks, idempotent, records, _ in BATCHES:
            batch = CursusBatch(Dialect.REAL, topic, partition, acks, idempotent, list(records))
            answers.append(told(await client.ask(encode_batch(batch))))
    check(answers, BATCHES)


async def test_commands(tmp_path, autojump_clock) -> None:
    async with world(tmp_path) as node:
        client = await node.cursus()
        answers = [told(await client.ask(line.encode())) for line, _ in COMMANDS]
    check(answers, COMMANDS)


async def test_a_node_that_cannot_lead_yet_sends_no_reader_to_itself(
    tmp_path, autojump_clock
) -> None:
    """It is to lead, and had no room for the log: it named itself as the leader to go to."""
    async with lone_node(tmp_path, {"cursus.leader_wait_ms": "100"}) as node:
        node.disk.fail_next("create", code=errno.ENOSPC, path="topics/new-0")
        client = await node.cursus()
        assert (await client.say("CREATE topic=new partitions=1")).startswith("OK ")
        for line in ("CONSUME topic=new partition=0 offset=0", "STREAM topic=new partition=0"):
            answer = await client.say(line)
            assert answer == "ERROR: leader_not_available topic=new partition=0"
        await trio.sleep(5)  # it tries again by itself
        answer = await client.ask(b"CONSUME topic=new partition=0 offset=0")
        assert told(answer) == "0 records"
