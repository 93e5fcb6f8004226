"""What strangers may send to the segment listener, and the others go on."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from paceline.wire.segment import messages as m
from paceline.wire.segment import modern as w
from paceline.wire.segment.framing import encode
from tests.hostile.slices import nobody_holds_the_loop
from tests.hostile.speech_segment import MODERN_HELLO
from tests.integration.node.nodes import HANG_S, lone_node

ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
TIMES = 100_000


@pytest.mark.parametrize("dialect", ["seed", "modern"])
async def test_a_flood_of_the_smallest_messages(tmp_path: Path, dialect: str) -> None:
    """All that one read brought was done in one step: 32,000 messages, in 0.19 to 0.55 s."""
    hello, small = encode(m.Hello(0, 0)), encode(m.KeepAlive(b""))
    if dialect == "modern":
        hello, small = MODERN_HELLO, encode(w.KeepAlive())
    async with lone_node(tmp_path, ONE) as node:
        stream = await trio.open_tcp_stream(*node.addresses["segment"])
        async with stream, trio.open_nursery() as nursery:
            with nobody_holds_the_loop(0.1), trio.fail_after(HANG_S):
                nursery.start_soon(stream.send_all, hello + small * TIMES)
                left = len(small) * TIMES
                while left > 0:
                    left -= len(await stream.receive_some())
