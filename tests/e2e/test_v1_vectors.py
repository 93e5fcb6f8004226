"""The line vectors of V1 against a real node: 3 partitions, RF 3, min ISR 2."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.v1 import V1Client, V1Error, fields

SEED_SETTINGS = (
    *("--nodes", "1"),
    *("--set", "topics.partitions=3"),
    *("--set", "topics.replication_factor=3"),
    *("--set", "topics.min_insync_replicas=2"),
)

BAD_FORMAT = "V1|0|ERR|BAD_REQUEST|expected format V1|<correlation_id>|<command>|<args>"

# (request, reply); N stands for any number. Sent in this order, each over its own connection.
STATEFUL = [
    ("V1|42|PRODUCE|orders user1:created", "V1|42|OK|partition=2 offset=0 hw=0"),
    (
        "V1|43|PRODUCE|orders user1:paid acks=all",
        "V1|43|ERR|REPLICATION_TIMEOUT|acks=all timeout",
    ),
    ("V1|44|PRODUCE|orders user2:a:b|c=d acks=0", "V1|44|OK|partition=2 offset=2 hw=2"),
    ("V1|45|CONSUME|orders 2 0", "V1|45|OK|messages=0:created,1:paid,2:a:b|c=d hw=2"),
    ("V1|46|CONSUME|orders 2 2", "V1|46|OK|messages=2:a:b|c=d hw=2"),
    ("V1|47|CONSUME|orders 2 3", "V1|47|OK|messages= hw=2"),
    ("V1|48|CONSUME|orders 0 0", "V1|48|OK|messages= hw=-1"),
    ("V1|49|CONSUME|orders 3 0", "V1|49|ERR|BAD_REQUEST|invalid partition"),
    ("V1|50|PRODUCE|orders user1", "V1|50|ERR|BAD_REQUEST|message must be key:value"),
    (
        "V1|51|PRODUCE|orders user1:x acks=2",
        "V1|51|ERR|BAD_REQUEST|invalid ack mode; expected acks=0|1|all",
    ),
    (
        "V1|52|PRODUCE|orders",
        "V1|52|ERR|BAD_REQUEST|PRODUCE requires: <topic> <key>:<value> [acks=0|1|all]",
    ),
    (
        "V1|53|REPLICA_FETCH|orders 2 1 2",
        "V1|53|OK|replica=1 acked_offset=2 hw=2 isr=[0 1] under_replicated=false",
    ),
    ("V1|54|REPLICA_FETCH|orders 2 0 2", "V1|54|ERR|BAD_REQUEST|invalid replica id"),
    ("V1|55|REPLICA_FETCH|orders 2 x 2", "V1|55|ERR|BAD_REQUEST|invalid replica_id"),
    ("V1|56|JOIN|analytics orders consumer-a", "V1|56|OK|generation=2 assigned=[0 1 2]"),
    ("V1|57|JOIN|analytics orders consumer-b assignor=range", "V1|57|OK|generation=4 assigned=[2]"),
    ("V1|58|SYNC|analytics orders consumer-a 2", "V1|58|ERR|GENERATION_MISMATCH|stale generation"),
    ("V1|59|SYNC|analytics orders consumer-a 4", "V1|59|OK|generation=4 assigned=[0 1]"),
    (
        "V1|60|JOIN|analytics orders consumer-c assignor=sticky",
        "V1|60|ERR|BAD_REQUEST|invalid assignor; expected assignor=round_robin|range",
    ),
    ("V1|61|HEARTBEAT|analytics orders consumer-b 4", "V1|61|OK|heartbeat=ok"),
    ("V1|62|COMMIT|analytics orders consumer-b 4 2 3", "V1|62|OK|committed=true"),
    (
        "V1|63|COMMIT|analytics orders consumer-a 4 2 3",
        "V1|63|ERR|GENERATION_MISMATCH|partition not assigned to member",
    ),
    ("V1|64|OFFSET|analytics orders 2", "V1|64|OK|offset=3"),
    ("V1|65|OFFSET|nobody orders 2", "V1|65|OK|offset=0"),
    ("V1|66|LEAVE|analytics orders consumer-b 4", "V1|66|OK|left=true"),
    (
        "V1|67|HEARTBEAT|analytics orders consumer-b 5",
        "V1|67|ERR|GENERATION_MISMATCH|unknown member",
    ),
    (
        "V1|68|SET_PARTITION_ROLE|orders 2 follower",
        "V1|68|OK|topic=orders partition=2 role=follower hw=2",
    ),
    (
        "V1|69|PRODUCE|orders user1:late",
        "V1|69|ERR|NOT_LEADER|partition leader unavailable on this broker",
    ),
    ("V1|70|REPLICA_FETCH|orders 2 1 2", "V1|70|ERR|BAD_REQUEST|partition is not leader"),
    (
        "V1|71|SET_PARTITION_ROLE|orders 2 leader",
        "V1|71|OK|topic=orders partition=2 role=leader hw=2",
    ),
    (
        "V1|72|ADMIN_CREATE_TOPIC|payments 2 2",
        "V1|72|OK|topic=payments partitions=2 replication_factor=2 term=N index=N",
    ),
    ("V1|73|ADMIN_GET_METADATA|", "V1|73|OK|topics=[orders payments] brokers=[0] fenced=[]"),
    (
        "V1|74|BROKER_FETCH|orders 2 1 0 2",
        "V1|74|OK|topic=orders partition=2 follower=1 hw=2 records=0:created,1:paid",
    ),
    (
        "V1|75|BROKER_REPLICA_ACK|orders 2 1 2",
        (
            "V1|75|OK|topic=orders partition=2 follower=1 acked_offset=2 hw=2 isr=[0 1] "
            "under_replicated=false"
        ),
    ),
    (
        "V1|76|ADMIN_REGISTER_BROKER|1 127.0.0.1 9093",
        "V1|76|OK|broker_id=1 host=127.0.0.1 port=9093 term=N index=N",
    ),
    (
        "V1|77|ADMIN_BROKER_HEARTBEAT|1",
        "V1|77|OK|broker_id=1 heartbeat=ok term=N index=N",
    ),
    ("V1|78|ADMIN_BROKER_HEARTBEAT|9", "V1|78|ERR|BAD_REQUEST|broker not found: 9"),
    (
        "V1|79|ADMIN_SET_PARTITION_LEADER|payments 0 0 0,1",
        "V1|79|OK|topic=payments partition=0 leader=0 isr=[0 1] term=N index=N",
    ),
    ("V1|80|ADMIN_FENCE_BROKER|1", "V1|80|OK|broker_id=1 fenced=true term=N index=N"),
    ("V1|81|ADMIN_GET_METADATA|", "V1|81|OK|topics=[orders payments] brokers=[0 1] fenced=[1]"),
    ("V1|82|ADMIN_ELECT_TOPIC_LEADERS|payments", "V1|82|OK|topic=payments elected_changes=0"),
    ("V1|83|ADMIN_RECONCILE_BROKER_HEALTH|60000", "V1|83|OK|reconciled=1"),
]

ENVELOPE = [
    ("", BAD_FORMAT),
    ("V1|42|PRODUCE", BAD_FORMAT),
    ("V2|42|PRODUCE|orders key:value", "V1|0|ERR|BAD_REQUEST|unsupported version"),
    ("V1||PRODUCE|orders key:value", "V1|0|ERR|BAD_REQUEST|correlation id required"),
    ("V1|42||orders key:value", "V1|0|ERR|BAD_REQUEST|command required"),
    ("V1|99|PING|", "V1|99|ERR|UNKNOWN_COMMAND|unsupported command"),
    ("V1|2|CONSUME|orders 2 1_0", "V1|2|ERR|BAD_REQUEST|invalid offset"),
    (
        "V1|3|PRODUCE|orders k:a b acks=1",
        "V1|3|ERR|BAD_REQUEST|PRODUCE requires: <topic> <key>:<value> [acks=0|1|all]",
    ),
    (
        "V1|4|PRODUCE|orders k:a b",
        "V1|4|ERR|BAD_REQUEST|invalid ack mode; expected acks=0|1|all",
    ),
    (
        "V1|5|PRODUCE|orders k:a,b",
        "V1|5|ERR|BAD_REQUEST|value cannot be carried in plain form; use enc=pct",
    ),
    ("V1|6|PRODUCE|pct k:a%2Cb%20c enc=pct", "V1|6|OK|partition=0 offset=0 hw=0"),
    ("V1|7|CONSUME|pct 0 0 enc=pct", "V1|7|OK|messages=0:a%2Cb%20c hw=0 enc=pct"),
    ("V1|8|CONSUME|pct 0 0", "V1|8|ERR|UNREPRESENTABLE|offset=0; use enc=pct"),
    (" V1 | 7 | offset | g  t   0 \r", "V1|7|OK|offset=0"),
]


def _pattern(reply: str) -> str:
    return re.escape(reply).replace("=N", r"=\d+")


@pytest.fixture(scope="module")
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, int]]:
    """A single node as the protocol's page describes it."""
    from tests.e2e.conftest import clusters

    makers = clusters(request, tmp_path_factory.mktemp("seed"))
    yield next(makers)(*SEED_SETTINGS).address(0, "v1")
    next(makers, None)


def _ask(address: tuple[str, int], request: str) -> str:
    with V1Client(address) as client:
        return client.send_line(request)


def test_vectors_in_order(address: tuple[str, int]) -> None:
    wrong = [
        (request, expected, reply)
        for request, expected in STATEFUL
        if not re.fullmatch(_pattern(expected), reply := _ask(address, request))
    ]
    assert not wrong


@pytest.mark.parametrize(("request_line", "expected"), ENVELOPE)
def test_envelope(address: tuple[str, int], request_line: str, expected: str) -> None:
    assert _ask(address, request_line) == expected


def test_replica_fetch_satisfies_a_lone_node(make_cluster: Callable[..., Cluster]) -> None:
    """I5: the original's own test of simulated replicas."""
    cluster = make_cluster(*SEED_SETTINGS)
    with V1Client(cluster.address(0, "v1")) as writer, V1Client(cluster.address(0, "v1")) as other:
        with pytest.raises(V1Error, match="REPLICATION_TIMEOUT"):
            writer.call("PRODUCE", "t k:a acks=all")
        assert fields(writer.call("PRODUCE", "t k:b acks=1"))["offset"] == "1"
        partition = fields(writer.call("PRODUCE", "t k:c acks=1"))["partition"]
        reply = fields(other.call("REPLICA_FETCH", f"t {partition} 1 2"))
        assert (reply["replica"], reply["acked_offset"]) == ("1", "2")
        assert fields(writer.call("PRODUCE", "t k:d acks=1"))["offset"] == "3"


def test_no_client_can_forge_an_acknowledgement(make_cluster: Callable[..., Cluster]) -> None:
    """I1, I4: followers down, REPLICA_FETCH for both of them claims a million."""
    cluster = make_cluster()
    cluster.run("topic", "create", "t", "--partitions", "1")
    leader = cluster.describe("t")[0]["leader"]
    with V1Client(cluster.address(leader, "v1")) as writer:
        assert writer.produce("t", b"k", b"first") == (0, 0)
        for node in {0, 1, 2} - {leader}:
            cluster.run("node", "suspend", str(node))
        with V1Client(cluster.address(leader, "v1")) as forger:
            for slot in (1, 2):
                try:
                    reply = fields(forger.call("REPLICA_FETCH", f"t 0 {slot} 1000000"))
                except V1Error:
                    continue  # without a quorum the leader may have stepped back already
                assert int(reply["acked_offset"]) <= 0, reply
        with pytest.raises(V1Error, match="REPLICATION_TIMEOUT"):
            writer.produce("t", b"k", b"second")
    for node in {0, 1, 2} - {leader}:
        cluster.run("node", "resume", str(node))
    cluster.run("health", "--exit-when-healthy")
    with V1Client(cluster.address(leader, "v1")) as reader:
        assert reader.consume_all("t", 0)[0] == (0, b"k", b"first")
