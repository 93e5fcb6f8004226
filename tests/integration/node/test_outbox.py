"""limits.outbox_bytes: a native client that asks for more than it reads is disconnected."""

from __future__ import annotations

import pytest

from paceline.types import Isolation
from paceline.wire.batch import build_batch
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import Fetch, FetchPartition
from paceline.wire.records import Record
from tests.integration.node.native import NativeConnection, request
from tests.integration.node.nodes import V1Client, lone_node

pytestmark = pytest.mark.virtual_time

MIB = 1024 * 1024
ALONE = {
    "topics.partitions": "1",
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
}
STORED = 4
ASKED = 10


@pytest.mark.parametrize(("limit", "ends"), [(16 * MIB, True), (64 * MIB, False)])
async def test_answers_that_pile_up(tmp_path, limit: int, ends: bool) -> None:
    async with lone_node(tmp_path, {**ALONE, "limits.outbox_bytes": str(limit)}) as node:
        async with V1Client(node.v1) as v1:
            await v1.ok("PRODUCE", "orders k:v")
        async with NativeConnection(node.addresses["native"]) as native:
            large = build_batch([Record(-1, 1_700_000_000_000, b"k", b"x" * (MIB - 200))])
            for _ in range(STORED):
                assert (await native.produce("orders", 0, bytes(large))).error == 0
            wanted = FetchPartition("orders", 0, 1, 32 * MIB)
            fetch = Fetch(0, 1, 32 * MIB, Isolation.READ_COMMITTED, (wanted,))
            # One segment, so that the node has them all before it can send an answer.
            await native.send(
                b"".join(
                    request(NativeApi.FETCH, fetch, correlation=100 + number)
                    for number in range(ASKED)
                )
            )
            answered = 0
            while answered < ASKED and await native.receive() is not None:
                answered += 1
            if ends:
                assert answered < ASKED
            else:
                assert answered == ASKED
        # The others are served on.
        async with NativeConnection(node.addresses["native"]) as other:
            assert (await other.status()).state == "running"
