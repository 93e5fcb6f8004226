"""What strangers may send to the segment listener, and the others go on."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from pathlib import Path
from types import FrameType

import pytest
import trio

from paceline.wire.segment import messages as m
from paceline.wire.segment import pravega_messages as w
from paceline.wire.segment.framing import encode
from tests.hostile.slices import nobody_holds_the_loop
from tests.hostile.speech_segment import PRAVEGA_HELLO
from tests.integration.hostile.test_memory import connect
from tests.integration.hostile.test_slow import active
from tests.integration.node.machines import open_stream
from tests.integration.node.nodes import HANG_S, lone_node
from tests.integration.segment import client as segments

ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
TIMES = 100_000


@pytest.mark.parametrize("dialect", ["seed", pytest.param("pravega", marks=pytest.mark.slow)])
async def test_a_flood_of_the_smallest_messages(tmp_path: Path, dialect: str) -> None:
    """All that one read brought was done in one step: 32,000 messages, in 0.19 to 0.55 s."""
    hello, small = encode(m.Hello(0, 0)), encode(m.KeepAlive(b""))
    if dialect == "pravega":
        hello, small = PRAVEGA_HELLO, encode(w.KeepAlive())
    async with lone_node(tmp_path, ONE) as node:
        stream = await open_stream(node.addresses["segment"])
        async with stream, trio.open_nursery() as nursery:
            with nobody_holds_the_loop(0.1), trio.fail_after(HANG_S):
                nursery.start_soon(stream.send_all, hello + small * TIMES)
                left = len(small) * TIMES
                while left > 0:
                    left -= len(await stream.receive_some())


IDLE = 400


class Lines:
    """Counts lines that run in code of segment connections."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Lines:
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> object:
        return self._line if "listeners/segment" in frame.f_code.co_filename else None

    def _line(self, _frame: FrameType, event: str, _argument: object) -> object:
        self.count += event == "line"
        return self._line


async def test_idle_connections_make_nobodys_appends_slower(tmp_path: Path) -> None:
    """4,000 of them made each append three times as much work: all were summed up for it."""
    async with (
        lone_node(tmp_path, ONE) as node,
        segments.connect(node.addresses["segment"]) as raw,
        AsyncExitStack() as stack,
    ):
        await raw.create("a/b/0")
        writer = segments.uuid4()
        at = await raw.set_up(writer, "a/b/0")

        async def cost() -> int:
            nonlocal at
            with Lines() as lines:
                for _ in range(30):
                    at = await raw.append(writer, at, b"x" * 100)
            return lines.count

        await cost()  # whatever is done once
        alone = await cost()
        for _ in range(IDLE):
            stream = await connect(stack, node.addresses["segment"])
            await stream.send_all(encode(m.Hello(0, 0)))
            assert await stream.receive_some()
        with trio.fail_after(HANG_S):
            while await active(node, "segment") <= IDLE:  # noqa: ASYNC110  of another task, by HTTP
                await trio.sleep(0.02)
        beside = await cost()
        assert alone > 30
        assert beside < 2 * alone + IDLE, (alone, beside)
