"""A consumer that a coordinator drives goes with its log-in and with its rights."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from paceline.wire.native.acls import AclFilter, AclOperation, AclResource
from tests.integration.node.consumer import ScriptedConsumer, registration
from tests.integration.node.machines import connect
from tests.integration.node.secured import acl
from tests.integration.node.test_kafka_login import PASSWORD, as_alice, in_clear_text, log_in

pytestmark = pytest.mark.virtual_time


async def answers_to_the_end(consumer: ScriptedConsumer) -> None:
    with trio.fail_after(60):
        while True:
            try:
                header, body = await consumer.asked()
            except AssertionError:  # the channel is closed
                return
            await consumer.answer(header, body)


async def test_a_channel_ends_with_the_log_in(tmp_path: Path) -> None:
    async with in_clear_text(tmp_path, **{"login.session_ms": "2000"}) as node:
        await trio.sleep(5)
        async with ScriptedConsumer(node.addresses["kafka"]) as consumer:
            await log_in(consumer)
            assert await consumer.register(registration("c", "t")) is not None
            began = trio.current_time()
            await answers_to_the_end(consumer)
            assert trio.current_time() - began < 3


async def test_a_channel_ends_with_the_rights_to_the_group(tmp_path: Path) -> None:
    async with in_clear_text(tmp_path) as node, connect(node.native, as_alice(tmp_path)) as admin:
        await admin.admin.users.create("carol", PASSWORD, iterations=4096)
        given = [
            acl("carol", AclOperation.READ, "t"),
            acl("carol", AclOperation.READ, "g", AclResource.GROUP),
        ]
        await admin.admin.acls.create(given)
        await trio.sleep(5)
        async with ScriptedConsumer(node.addresses["kafka"]) as consumer:
            await log_in(consumer, "carol")
            assert await consumer.register(registration("c", "t")) is not None
            await admin.admin.acls.delete(AclFilter(principal="carol"))
            began = trio.current_time()
            await answers_to_the_end(consumer)
            assert trio.current_time() - began < 20
