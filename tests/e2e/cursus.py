"""Asking a real cluster in Cursus's words."""

from __future__ import annotations

from cursus.connection.sync_conn import SyncConnection
from cursus.protocol.decoder import decode_batch
from cursus.protocol.encoder import encode_message

from tests.e2e.cluster import Cluster, wait_until


def brokers(cluster: Cluster, *nodes: int) -> list[str]:
    """The Cursus addresses of some nodes, of three by default."""
    return ["{}:{}".format(*cluster.address(node, "cursus")) for node in nodes or (0, 1, 2)]


def ask(address: str, line: str) -> str:
    """One command as the client sends it."""
    connection = SyncConnection(address)
    connection.connect()
    try:
        connection.write_frame(encode_message("", line))
        answer: str = connection.read_frame().decode()
        return answer
    finally:
        connection.close()


def fields(answer: str) -> dict[str, str]:
    """What a command that succeeded says."""
    assert answer.startswith("OK"), answer
    return dict(word.partition("=")[::2] for word in answer.split()[1:])


def elect(address: str, topic: str, partition: int, node: int) -> None:
    """Make a node lead, as soon as it may."""

    def moved() -> bool:
        line = f"ELECT_LEADER topic={topic} partition={partition} broker={node}"
        return ask(address, line).startswith("OK")

    wait_until(f"node {node} leads {topic}/{partition}", moved)


def log_end(address: str, topic: str) -> int:
    """Records in all partitions."""
    answer = fields(ask(address, f"LIST_OFFSETS topic={topic}"))["offsets"]
    return sum(int(each.partition("leo=")[2].partition(":")[0]) for each in answer.split(","))


def payloads(cluster: Cluster, topic: str, partition: int, count: int) -> list[str]:
    """What a reader of uncommitted records finds from the start on, once so many are there."""
    leaders = fields(ask(brokers(cluster)[0], f"METADATA topic={topic}"))["leaders"].split(",")
    connection = SyncConnection(leaders[partition])
    connection.connect()
    found: list[str] = []

    def read() -> bool:
        place = f"topic={topic} partition={partition} offset=0 isolation=read_uncommitted"
        connection.write_frame(encode_message("", f"CONSUME {place} member=m"))
        messages, _, _ = decode_batch(connection.read_frame())
        found[:] = [each.payload for each in messages]
        return len(found) >= count

    try:
        wait_until(f"{count} records of {topic}/{partition}", read)
    finally:
        connection.close()
    return found
