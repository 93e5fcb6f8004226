"""All ways of ``scripts/attack`` at once, with few connections each: nobody fails by a bug."""

from __future__ import annotations

import random
from pathlib import Path

import trio
from structlog.testing import capture_logs

from tests.hostile.speech import SPEECHES
from tests.hostile.ways import WAYS, Aim
from tests.integration.node.nodes import HANG_S, V1Client, lone_node

SMALL = {
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
    "limits.client_memory_bytes": str(256 * 1024 * 1024),
}
LEFT_OUT = {"bombs", "never-whole"}
"""They have tests of their own, and much to send."""
SECONDS = 1.5


async def test_strangers_of_all_kinds_at_once(tmp_path: Path) -> None:
    async with lone_node(tmp_path, SMALL) as node, V1Client(node.v1) as client:
        await client.ok("PRODUCE", "bait k:0")
        with capture_logs() as logged:
            with trio.move_on_after(SECONDS):
                async with trio.open_nursery() as nursery:
                    for speech in SPEECHES:
                        rng = random.Random(speech.name)
                        addresses = (node.addresses[speech.listener],)
                        aim = Aim(speech, addresses, "127.0.0.2", rng, share=0.01)
                        for name, way in WAYS.items():
                            if name not in LEFT_OUT:
                                nursery.start_soon(way, aim)
            with trio.fail_after(HANG_S):
                await client.ok("PRODUCE", "bait k:1")
        assert [each for each in logged if "exc_info" in each] == []
