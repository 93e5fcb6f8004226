"""What strangers have named and written, as ``paceline`` shows it on a terminal."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from paceline.wire.kafka import groups, offsets, transactions
from tests.integration.hostile.test_memory import ONE
from tests.integration.node.kafka_client import NO_COORDINATOR, KafkaClient, coordinated
from tests.integration.node.nodes import HANG_S, RunningNode, lone_node
from tests.integration.node.test_coordinator import make_topic, produce_values

TITLE = "\x1b]0;owned\x07\u009b2J"
"""Sets the title of many terminals' windows, and clears the screen."""
OBEYED = (b"\x1b]", b"\x07", b"\xc2\x9b")
SHOWN = {
    "groups": ("group", "list"),
    "group": ("group", "describe", f"g{TITLE}"),
    "member": ("group", "describe", "crowd"),
    "transactions": ("transaction", "list"),
    "records": ("consume", "orders", "--exit-at-end"),
}


async def name_all(node: RunningNode, stranger: KafkaClient) -> None:
    """A group, a member's client id, a transactional id and a record with what a terminal obeys."""
    await make_topic(stranger, "orders", 1)
    await produce_values(stranger, "orders", 0, [f"v{TITLE}".encode()])
    part = offsets.OffsetCommitRequestTopicPartition(partition_index=0, committed_offset=0)
    topic = offsets.OffsetCommitRequestTopic(name="orders", partitions=(part,))
    commit = offsets.OffsetCommitRequest(group_id=f"g{TITLE}", topics=(topic,))
    begun = transactions.InitProducerIdRequest(
        transactional_id=f"t{TITLE}", transaction_timeout_ms=60_000
    )
    with trio.fail_after(HANG_S):
        while (await stranger.ask(commit, 8)).topics[0].partitions[0].error_code in NO_COORDINATOR:  # noqa: ASYNC110
            await trio.sleep(0.05)
        while (await stranger.ask(begun, 4)).error_code in NO_COORDINATOR:  # noqa: ASYNC110
            await trio.sleep(0.05)
    join = groups.JoinGroupRequest(
        group_id="crowd",
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=(groups.JoinGroupRequestProtocol(name="range", metadata=b"x"),),
    )
    assert (await stranger.ask(join, 3)).error_code == 0


async def shown(node: RunningNode, directory: Path, *words: str) -> bytes:
    """What the command writes to a terminal, from a process of its own."""
    master, terminal = os.openpty()
    env = {**os.environ, "XDG_CONFIG_HOME": str(directory), "XDG_DATA_HOME": str(directory)}
    command = [sys.executable, "-m", "paceline_cluster.cli.main", *words]
    process = await trio.lowlevel.open_process(
        [*command, "--bootstrap", node.native], stdin=terminal, stdout=terminal, stderr=terminal,
        env=env,
    )  # fmt: skip
    os.close(terminal)
    told = bytearray()

    def read() -> None:
        with suppress(OSError):  # EIO: nobody writes to it any more
            while data := os.read(master, 65536):
                told.extend(data)

    try:
        with trio.fail_after(2 * HANG_S):
            await trio.to_thread.run_sync(read, abandon_on_cancel=True)
            assert await process.wait() == 0, told
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    os.close(master)
    return bytes(told)


@pytest.mark.slow
async def test_a_terminal_is_not_sent_what_it_would_obey(tmp_path: Path) -> None:
    """Names of groups, client ids, transactional ids and records reached it as they were."""
    async with lone_node(tmp_path, ONE) as node:
        await coordinated(node.addresses["kafka"], "crowd")
        async with KafkaClient(node.addresses["kafka"], f"c{TITLE}") as stranger:
            await name_all(node, stranger)
            for what, words in SHOWN.items():
                told = await shown(node, tmp_path, *words)
                assert b"]0;owned" in told, (what, told)
                assert not [each for each in OBEYED if each in told], (what, told)
            told = await shown(node, tmp_path, "consume", "orders", "--exit-at-end", "--raw")
            assert TITLE.encode() in told
