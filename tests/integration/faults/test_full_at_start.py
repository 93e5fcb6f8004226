"""A node that starts on a full disk waits for room (storage/DESIGN 2.2), and sends clients away
meanwhile: it took their connections and said nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from paceline.errors import ConnectionLost, NotLeader
from paceline_cluster.node_calls import ask_status
from tests.integration.faults.faulty import faulty_cluster
from tests.integration.faults.test_failed_writes import make_room
from tests.integration.faults.writing import create, writing
from tests.integration.node.nodes import HANG_S, LOOPBACK, Cluster
from tests.integration.node.test_metrics import get

pytestmark = pytest.mark.timeout(120)

SAID = {
    "v1": b"V1|1|CONSUME|t 0 0\n",
    "cursus": b"\0\0\0\x04LIST",
    "kafka": b"\0\0\0\x10\0\x12\0\0\0\0\0\1\0\6client",
    "segment": b"\0\0\0\0",
    "pravega": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


async def is_sent_away(nodes: Cluster, number: int, kind: str) -> bool:
    """Whether a connection is ended without a word."""
    with trio.fail_after(HANG_S):
        stream = await trio.open_tcp_stream(LOOPBACK, nodes.ports(number)[kind])
        async with stream:
            try:
                await stream.send_all(SAID[kind])
                return await stream.receive_some() == b""
            except trio.BrokenResourceError:
                return True


async def test_who_comes_to_a_node_that_waits_for_room_is_sent_away(tmp_path: Path) -> None:
    async with faulty_cluster(tmp_path) as nodes, trio.open_nursery() as nursery:
        await create(nodes, "t")
        await nodes.crash(2)
        nodes.full_from_the_start.add(2)
        nursery.start_soon(nodes.start, 2)

        async def told() -> bool:
            try:
                await ask_status(f"{LOOPBACK}:{nodes.ports(2)['native']}")
            except NotLeader as error:
                return "node 2 is starting; waiting for room on the disk" in str(error)
            except ConnectionLost:  # its ports are not bound yet, or it is patient still
                return False
            return False

        await nodes.wait_for("it says what it waits for", told)
        http = (LOOPBACK, nodes.ports(2)["http"])
        for kind in SAID:
            assert await is_sent_away(nodes, 2, kind), kind
        assert (await get(http, "/live"))[0] == 200
        status, _, body = await get(http, "/ready")
        assert status == 503
        told = json.loads(body)
        waits_for = ["node 2 is starting", "waiting for room on the disk: No space left on device"]
        assert (told["ready"], told["failed"]) == (False, waits_for)
        assert [(each["name"], each["reason"]) for each in told["checks"]] == [
            ("state", reason) for reason in waits_for
        ]
        make_room(nodes, 2)
        await nodes.in_sync("t", 0, 0, 1, 2)
        await nodes.wait_for("it serves", lambda: _serves(nodes))
        async with writing(nodes, "t", via=2) as writer:
            await writer.more()


async def _serves(nodes: Cluster) -> bool:
    return 2 in nodes.up
