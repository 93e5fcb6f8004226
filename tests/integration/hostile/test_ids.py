"""What clients give names to, and what is remembered of it: bounded, and nobody is shut out."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from paceline.errors import ErrorCode, InvalidRequest
from paceline.types import NodeId
from paceline.wire.native.admin import Done, RegisterExternal
from paceline.wire.native.api import NativeApi
from paceline.wire.native.transactions import AttemptBegun, BeginAttempt
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import HANG_S, V1Client, lone_node
from tests.integration.node.test_kafka_transactions import TransactionalClient

pytestmark = pytest.mark.virtual_time

ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}


async def test_ids_that_nobody_uses_do_not_shut_others_out(tmp_path: Path) -> None:
    """100,000 from one connection, in 83 s, closed a cluster to new ones for seven days."""
    flags = {**ONE, "transactions.ids_max": "20", "transactions.unused_ids_kept_ms": "100"}
    async with (
        lone_node(tmp_path, flags) as node,
        TransactionalClient(node.addresses["kafka"]) as greedy,
        TransactionalClient(node.addresses["kafka"]) as other,
    ):
        code, _ = await greedy.init(name="greedy-0")
        number = 0
        while code == ErrorCode.NONE and number < 20:
            number += 1
            code, _ = await greedy.init(name=f"greedy-{number}")
        with trio.fail_after(HANG_S):
            while (await other.init(name="mine"))[0] != ErrorCode.NONE:  # noqa: ASYNC110  of the node's time
                await trio.sleep(0.05)


@pytest.mark.parametrize("name", ["sink", "query", "run"])
async def test_names_of_a_task_attempt_are_bounded(tmp_path: Path, name: str) -> None:
    """They are kept with the sink: 3 MB of them each were."""
    names = {"sink": "s", "query": "q", "run": "r", name: "x" * 3_000_000}
    async with (
        lone_node(tmp_path, ONE) as node,
        NativeConnection(node.addresses["native"]) as client,
        TransactionalClient(node.addresses["kafka"]) as kafka,
    ):
        await kafka.init()  # once there is a coordinator
        body = BeginAttempt(**names, batch=0, partition=0, attempt=0, timeout_ms=60_000)
        with pytest.raises(InvalidRequest, match=name if name != "sink" else "sink|id"):
            await client.call(NativeApi.BEGIN_ATTEMPT, body, AttemptBegun)


async def test_hosts_of_external_brokers_are_bounded(tmp_path: Path) -> None:
    """They are kept with the metadata: 3 MB of them each made a snapshot of 180 MB, for ever."""
    async with (
        lone_node(tmp_path, ONE) as node,
        NativeConnection(node.addresses["native"]) as native,
        V1Client(node.v1) as v1,
    ):
        for number, size in enumerate((300, 3_000_000)):
            body = RegisterExternal(NodeId(100 + number), "h" * size, 1, 1)
            with pytest.raises(InvalidRequest, match="host has"):
                await native.call(NativeApi.REGISTER_EXTERNAL, body, Done)
        refused = await v1.call("ADMIN_REGISTER_BROKER", f"102 {'h' * 300} 1")
        assert refused.startswith("ERR|BAD_REQUEST|"), refused
        shown = await v1.call("ADMIN_GET_METADATA", "")
        assert "hhh" not in shown
        assert (await v1.call("ADMIN_REGISTER_BROKER", "103 elsewhere.example 1")).startswith("OK")
