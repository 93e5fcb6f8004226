"""What V1 clients are answered, and which of several faults they are told of."""

from __future__ import annotations

from tests.unit.listeners.world import check, world

_NO_RECORDS = (
    "ERR|BAD_REQUEST|topic sc_st is of kind segment: it takes no records, only what the "
    "protocol of its kind writes"
)
LINES = (
    ("PRODUCE", "orders k:v acks=all", "OK|partition=0 offset=2 hw=2"),
    ("PRODUCE", "orders k:v acks=1", "OK|partition=0 offset=3 hw=3"),
    ("PRODUCE", "orders k:v acks=0", "OK|partition=0 offset=4 hw=4"),
    ("PRODUCE", "secret k:v", "ERR|NOT_AUTHORIZED|anonymous may not produce topic secret"),
    ("PRODUCE", "secret/ k:v", "ERR|BAD_REQUEST|invalid topic"),
    ("PRODUCE", "secret k:v acks=5", "ERR|BAD_REQUEST|invalid ack mode; expected acks=0|1|all"),
    (
        "PRODUCE",
        "sc_st k:v",
        _NO_RECORDS,
    ),
    ("PRODUCE", "__groups k:v", "ERR|BAD_REQUEST|invalid topic"),
    ("PRODUCE", "a/b k:v", "ERR|BAD_REQUEST|invalid topic"),
    ("PRODUCE", "orders", "ERR|BAD_REQUEST|PRODUCE requires: <topic> <key>:<value> [acks=0|1|all]"),
    ("CONSUME", "orders 0 0", "OK|messages=0:v,1:v,2:v,3:v,4:v hw=4"),
    ("CONSUME", "orders 0 99", "OK|messages= hw=4"),
    ("CONSUME", "secret 9 -1", "ERR|BAD_REQUEST|invalid offset"),
    ("CONSUME", "orders 9 -1", "ERR|BAD_REQUEST|invalid offset"),
    ("CONSUME", "orders 9 0", "ERR|BAD_REQUEST|invalid partition"),
    ("CONSUME", "__groups 0 0", "ERR|BAD_REQUEST|invalid topic"),
    ("CONSUME", "sc_st 0 0", "OK|messages= hw=-1"),
    ("CONSUME", "a/b 0 0", "ERR|BAD_REQUEST|invalid topic"),
    ("JOIN", "secret nowhere c", "ERR|NOT_AUTHORIZED|anonymous may not join-group group secret"),
    ("JOIN", "team secret c", "ERR|NOT_AUTHORIZED|anonymous may not consume topic secret"),
    ("JOIN", "team secrets c", "ERR|NOT_AUTHORIZED|anonymous may not consume topic secrets"),
    ("JOIN", "team orders c", "OK|generation=2 assigned=[0]"),
    ("SYNC", "secret nowhere c 9", "ERR|NOT_AUTHORIZED|anonymous may not join-group group secret"),
    ("SYNC", "team orders c 9", "ERR|GENERATION_MISMATCH|stale generation"),
    (
        "HEARTBEAT",
        "secret nowhere c 9",
        "ERR|NOT_AUTHORIZED|anonymous may not join-group group secret",
    ),
    ("HEARTBEAT", "team orders nobody 1", "ERR|GENERATION_MISMATCH|stale generation"),
    (
        "COMMIT",
        "secret nowhere c 9 9 9",
        "ERR|NOT_AUTHORIZED|anonymous may not commit-offsets group secret",
    ),
    ("COMMIT", "team orders c 1 9 1", "ERR|GENERATION_MISMATCH|stale generation"),
    ("COMMIT", "team orders c 9 0 1", "ERR|GENERATION_MISMATCH|stale generation"),
    ("COMMIT", "team orders c 1 0 1", "ERR|GENERATION_MISMATCH|stale generation"),
    ("OFFSET", "secret nowhere 9", "ERR|NOT_AUTHORIZED|anonymous may not describe group secret"),
    ("OFFSET", "team orders 9", "OK|offset=0"),
    ("OFFSET", "team orders 0", "OK|offset=0"),
    ("LEAVE", "secret nowhere c 9", "ERR|NOT_AUTHORIZED|anonymous may not join-group group secret"),
    ("LEAVE", "team orders nobody 1", "ERR|GENERATION_MISMATCH|stale generation"),
    ("LEAVE", "team orders c 1", "ERR|GENERATION_MISMATCH|stale generation"),
)


async def test_answers(tmp_path, autojump_clock) -> None:
    async with world(tmp_path) as node:
        client = await node.v1()
        answers = [await client.say(command, args) for command, args, _ in LINES]
    check(answers, LINES)
