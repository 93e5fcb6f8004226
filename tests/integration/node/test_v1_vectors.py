"""The line vectors of V1 against one node, each over its own connection, in their order."""

from __future__ import annotations

import re

import pytest

from tests.integration.node.nodes import V1Client, lone_node

pytestmark = pytest.mark.virtual_time

VECTORS = """
V1|42|PRODUCE|orders user1:created                        -> V1|42|OK|partition=2 offset=0 hw=0
V1|43|PRODUCE|orders user1:paid acks=all                  -> V1|43|ERR|REPLICATION_TIMEOUT|acks=all timeout
V1|44|PRODUCE|orders user2:a:b|c=d acks=0                 -> V1|44|OK|partition=2 offset=2 hw=2
V1|45|CONSUME|orders 2 0                                  -> V1|45|OK|messages=0:created,1:paid,2:a:b|c=d hw=2
V1|46|CONSUME|orders 2 2                                  -> V1|46|OK|messages=2:a:b|c=d hw=2
V1|47|CONSUME|orders 2 3                                  -> V1|47|OK|messages= hw=2
V1|48|CONSUME|orders 0 0                                  -> V1|48|OK|messages= hw=-1
V1|49|CONSUME|orders 3 0                                  -> V1|49|ERR|BAD_REQUEST|invalid partition
V1|50|PRODUCE|orders user1                                -> V1|50|ERR|BAD_REQUEST|message must be key:value
V1|51|PRODUCE|orders user1:x acks=2                       -> V1|51|ERR|BAD_REQUEST|invalid ack mode; expected acks=0|1|all
V1|52|PRODUCE|orders                                      -> V1|52|ERR|BAD_REQUEST|PRODUCE requires: <topic> <key>:<value> [acks=0|1|all]
V1|53|REPLICA_FETCH|orders 2 1 2                          -> V1|53|OK|replica=1 acked_offset=2 hw=2 isr=[0 1] under_replicated=false
V1|54|REPLICA_FETCH|orders 2 0 2                          -> V1|54|ERR|BAD_REQUEST|invalid replica id
V1|55|REPLICA_FETCH|orders 2 x 2                          -> V1|55|ERR|BAD_REQUEST|invalid replica_id
V1|56|JOIN|analytics orders consumer-a                    -> V1|56|OK|generation=2 assigned=[0 1 2]
V1|57|JOIN|analytics orders consumer-b assignor=range     -> V1|57|OK|generation=4 assigned=[2]
V1|58|SYNC|analytics orders consumer-a 2                  -> V1|58|ERR|GENERATION_MISMATCH|stale generation
V1|59|SYNC|analytics orders consumer-a 4                  -> V1|59|OK|generation=4 assigned=[0 1]
V1|60|JOIN|analytics orders consumer-c assignor=sticky    -> V1|60|ERR|BAD_REQUEST|invalid assignor; expected assignor=round_robin|range
V1|61|HEARTBEAT|analytics orders consumer-b 4             -> V1|61|OK|heartbeat=ok
V1|62|COMMIT|analytics orders consumer-b 4 2 3            -> V1|62|OK|committed=true
V1|63|COMMIT|analytics orders consumer-a 4 2 3            -> V1|63|ERR|GENERATION_MISMATCH|partition not assigned to member
V1|64|OFFSET|analytics orders 2                           -> V1|64|OK|offset=3
V1|65|OFFSET|nobody orders 2                              -> V1|65|OK|offset=0
V1|66|LEAVE|analytics orders consumer-b 4                 -> V1|66|OK|left=true
V1|67|HEARTBEAT|analytics orders consumer-b 5             -> V1|67|ERR|GENERATION_MISMATCH|unknown member
V1|68|SET_PARTITION_ROLE|orders 2 follower                -> V1|68|OK|topic=orders partition=2 role=follower hw=2
V1|69|PRODUCE|orders user1:late                           -> V1|69|ERR|NOT_LEADER|partition leader unavailable on this broker
V1|70|REPLICA_FETCH|orders 2 1 2                          -> V1|70|ERR|BAD_REQUEST|partition is not leader
V1|71|SET_PARTITION_ROLE|orders 2 leader                  -> V1|71|OK|topic=orders partition=2 role=leader hw=2
V1|72|ADMIN_CREATE_TOPIC|payments 2 2                     -> V1|72|OK|topic=payments partitions=2 replication_factor=2 term=# index=#
V1|73|ADMIN_GET_METADATA|                                 -> V1|73|OK|topics=[orders payments] brokers=[0] fenced=[]
V1|74|BROKER_FETCH|orders 2 1 0 2                         -> V1|74|OK|topic=orders partition=2 follower=1 hw=2 records=0:created,1:paid
V1|75|BROKER_REPLICA_ACK|orders 2 1 2                     -> V1|75|OK|topic=orders partition=2 follower=1 acked_offset=2 hw=2 isr=[0 1] under_replicated=false
V1|76|ADMIN_REGISTER_BROKER|1 127.0.0.1 9093              -> V1|76|OK|broker_id=1 host=127.0.0.1 port=9093 term=# index=#
V1|77|ADMIN_BROKER_HEARTBEAT|1                            -> V1|77|OK|broker_id=1 heartbeat=ok term=# index=#
V1|78|ADMIN_BROKER_HEARTBEAT|9                            -> V1|78|ERR|BAD_REQUEST|broker not found: 9
V1|79|ADMIN_SET_PARTITION_LEADER|payments 0 0 0,1         -> V1|79|OK|topic=payments partition=0 leader=0 isr=[0 1] term=# index=#
V1|80|ADMIN_FENCE_BROKER|1                                -> V1|80|OK|broker_id=1 fenced=true term=# index=#
V1|81|ADMIN_GET_METADATA|                                 -> V1|81|OK|topics=[orders payments] brokers=[0 1] fenced=[1]
V1|82|ADMIN_ELECT_TOPIC_LEADERS|payments                  -> V1|82|OK|topic=payments elected_changes=0
V1|83|ADMIN_RECONCILE_BROKER_HEALTH|60000                 -> V1|83|OK|reconciled=1
"""  # noqa: E501

ENVELOPE = (
    (b"\n", "V1|0|ERR|BAD_REQUEST|expected format V1|<correlation_id>|<command>|<args>"),
    (
        b"V1|42|PRODUCE\n",
        "V1|0|ERR|BAD_REQUEST|expected format V1|<correlation_id>|<command>|<args>",
    ),
    (b"V2|42|PRODUCE|orders key:value\n", "V1|0|ERR|BAD_REQUEST|unsupported version"),
    (b"V1||PRODUCE|orders key:value\n", "V1|0|ERR|BAD_REQUEST|correlation id required"),
    (b"V1|42||orders key:value\n", "V1|0|ERR|BAD_REQUEST|command required"),
    (b"V1|99|PING|\n", "V1|99|ERR|UNKNOWN_COMMAND|unsupported command"),
    (b"V1|2|CONSUME|orders 2 1_0\n", "V1|2|ERR|BAD_REQUEST|invalid offset"),
    (
        b"V1|3|PRODUCE|orders k:a b acks=1\n",
        "V1|3|ERR|BAD_REQUEST|PRODUCE requires: <topic> <key>:<value> [acks=0|1|all]",
    ),
    (
        b"V1|4|PRODUCE|orders k:a b\n",
        "V1|4|ERR|BAD_REQUEST|invalid ack mode; expected acks=0|1|all",
    ),
    (
        b"V1|5|PRODUCE|orders k:a,b\n",
        "V1|5|ERR|BAD_REQUEST|value cannot be carried in plain form; use enc=pct",
    ),
    (b" V1 | 7 | offset | g  t   0 \r\n", "V1|7|OK|offset=0"),
    (b"V1|1|OFFSET|g t 0", "V1|1|OK|offset=0"),
)


def vectors() -> list[tuple[str, str]]:
    pairs = []
    for line in VECTORS.strip().splitlines():
        request, _, reply = line.partition("->")
        pairs.append((request.rstrip(), reply.strip()))
    return pairs


async def test_line_vectors_in_their_order(tmp_path) -> None:
    async with lone_node(tmp_path, {"v1.ack_timeout_ms": "100"}) as node:
        for request, expected in vectors():
            reply = await V1Client.ask_once(node.v1, request.encode() + b"\n")
            pattern = re.escape(expected).replace(r"\#", "[0-9]+").replace("#", "[0-9]+")
            assert re.fullmatch(pattern, reply), (
                f"{request}\n  got      {reply}\n  expected {expected}"
            )


async def test_envelope_vectors(tmp_path) -> None:
    async with lone_node(tmp_path) as node:
        for line, expected in ENVELOPE:
            assert await V1Client.ask_once(node.v1, line) == expected


async def test_percent_encoded_values(tmp_path) -> None:
    async with lone_node(tmp_path) as node, V1Client(node.v1) as client:
        stored = await client.ask("V1|6|PRODUCE|orders k:a%2Cb%20c enc=pct")
        assert stored == "V1|6|OK|partition=0 offset=0 hw=0"
        shown = await client.ask("V1|7|CONSUME|orders 0 0 enc=pct")
        assert shown == "V1|7|OK|messages=0:a%2Cb%20c hw=0 enc=pct"
        keyed = await client.ask("V1|9|CONSUME|orders 0 0 enc=pct keys=1")
        assert keyed == "V1|9|OK|messages=0:k:a%2Cb%20c hw=0 enc=pct"
        plain = await client.ask("V1|8|CONSUME|orders 0 0")
        assert plain == "V1|8|ERR|UNREPRESENTABLE|offset=0; use enc=pct"


async def test_an_unterminated_line_is_answered_at_the_end_of_the_stream(tmp_path) -> None:
    async with lone_node(tmp_path) as node:
        reply = await V1Client.ask_once(node.v1, b"V1|1|CONSUME|orders 0 0")
        assert reply == "V1|1|OK|messages= hw=-1"


async def test_a_line_that_is_too_long_is_answered_and_ends_the_connection(tmp_path) -> None:
    async with lone_node(tmp_path, {"v1.max_line_bytes": "65535"}) as node:
        async with V1Client(node.v1) as client:
            await client.send(b"V1|1|PRODUCE|orders k:" + b"x" * 70_000 + b"\n")
            reply = await client.read_line()
            assert reply == "V1|0|ERR|BAD_REQUEST|request line too long"
            assert await client.read_line() is None
        again = await V1Client.ask_once(node.v1, b"V1|2|CONSUME|orders 0 0\n")
        assert again == "V1|2|OK|messages= hw=-1"


@pytest.mark.parametrize("policy", ["deny"])
async def test_admin_commands_can_be_switched_off(tmp_path, policy: str) -> None:
    async with lone_node(tmp_path, {"v1.admin_commands": policy}) as node:
        reply = await V1Client.ask_once(node.v1, b"V1|1|ADMIN_CREATE_TOPIC|t 1 1\n")
        assert reply == "V1|1|ERR|NOT_AUTHORIZED|admin commands disabled"
        role = await V1Client.ask_once(node.v1, b"V1|2|SET_PARTITION_ROLE|t 0 leader\n")
        assert role == "V1|2|ERR|NOT_AUTHORIZED|admin commands disabled"
