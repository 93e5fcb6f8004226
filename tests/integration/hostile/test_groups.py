"""What members of groups may make a node write, over real sockets."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import trio

from paceline.errors import ErrorCode
from paceline.wire.kafka import groups
from tests.integration.hostile.test_memory import ONE
from tests.integration.node.kafka_client import KafkaClient, coordinated
from tests.integration.node.machines import data_dir
from tests.integration.node.nodes import HANG_S, RunningNode, lone_node

MEMBERS = 40
SAYS = bytes(50_000)


def join(number: int, member_id: str = "") -> groups.JoinGroupRequest:
    """Of a static member that says much of itself."""
    return groups.JoinGroupRequest(
        group_id="crowd",
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        member_id=member_id,
        group_instance_id=f"i{number}",
        protocol_type="consumer",
        protocols=(groups.JoinGroupRequestProtocol(name="range", metadata=SAYS),),
    )


async def form(node: RunningNode) -> None:
    """A group of all members, who then go away without a word."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(KafkaClient(node.addresses["kafka"]))
            for _ in range(MEMBERS)
        ]
        generations: set[int] = set()

        async def take_part(number: int, client: KafkaClient) -> None:
            told = await client.ask(join(number), 5)
            while told.error_code or told.generation_id not in generations:
                assert told.error_code in (0, ErrorCode.REBALANCE_IN_PROGRESS), told.error_code
                if not told.error_code and len(told.members) in (0, MEMBERS):
                    if told.members:
                        generations.add(told.generation_id)
                    sync = groups.SyncGroupRequest(
                        group_id="crowd",
                        generation_id=told.generation_id,
                        member_id=told.member_id,
                        group_instance_id=f"i{number}",
                        assignments=tuple(
                            groups.SyncGroupRequestAssignment(member_id=each.member_id)
                            for each in told.members
                        ),
                    )
                    if not (await client.ask(sync, 3)).error_code:
                        return
                told = await client.ask(join(number, told.member_id), 5)

        async with trio.open_nursery() as nursery:
            for number, client in enumerate(clients):
                nursery.start_soon(take_part, number, client)


def written(directory: Path) -> int:
    """Bytes of all logs of groups."""
    logs = data_dir(directory, 0).glob("topics/__groups-*/*.log")
    return sum(each.stat().st_size for each in logs)


async def test_members_that_come_back_write_themselves_and_nobody_else(tmp_path: Path) -> None:
    """40 of them wrote the whole group each, 146 MiB on every node."""
    async with lone_node(tmp_path, ONE) as node:
        await coordinated(node.addresses["kafka"], "crowd")
        with trio.fail_after(2 * HANG_S):
            await form(node)
        before = written(tmp_path)
        assert before > MEMBERS * len(SAYS), "the group was not stored"
        for number in range(MEMBERS):
            async with KafkaClient(node.addresses["kafka"]) as client:
                told = await client.ask(join(number), 5)
                assert told.error_code == 0
        assert written(tmp_path) - before < 2 * MEMBERS * len(SAYS)
