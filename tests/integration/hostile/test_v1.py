"""What strangers may have others send to the V1 listener."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.hostile import v1 as attacks
from tests.hostile.slices import nobody_holds_the_loop
from tests.integration.node.machines import open_stream
from tests.integration.node.nodes import HANG_S, V1Client, lone_node

ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
HTTP = b"V1|0|ERR|BAD_REQUEST|this port speaks V1 lines, not HTTP\n"


async def said_to(address: tuple[str, int], data: bytes) -> bytes:
    """All that comes back until the node closes."""
    with trio.fail_after(HANG_S):
        async with await open_stream(address) as stream:
            await stream.send_all(data)
            told = b""
            while more := await stream.receive_some():
                told += more
            return told


async def test_a_web_page_cannot_post_lines(tmp_path: Path) -> None:
    """A browser posts what a page says to any port, this machine's own too; the lines of the body
    were carried out, those for administrators as well."""
    async with lone_node(tmp_path, ONE) as node, V1Client(node.v1) as client:
        await client.ok("PRODUCE", "orders k:0")
        posted = attacks.posted_by_a_page(
            "V1|1|PRODUCE|orders k:evil",
            "V1|2|ADMIN_CREATE_TOPIC|evil 1",
            port=node.v1[1],
        )
        assert await said_to(node.v1, posted) == HTTP
        # The body in a second packet changes nothing.
        head, _, body = posted.partition(b"\r\n\r\n")
        with trio.fail_after(HANG_S):
            async with await open_stream(node.v1) as stream:
                await stream.send_all(head + b"\r\n\r\n")
                assert await stream.receive_some(len(HTTP)) == HTTP
                await stream.send_all(body)
                assert await stream.receive_some() == b""
        assert (await client.ok("PRODUCE", "orders k:1"))["offset"] == "1"
        assert "evil" not in str(await client.ok("ADMIN_GET_METADATA", ""))


@pytest.mark.parametrize("first", [b"\n", b"hello\n", b"V2|1|PRODUCE|orders k:v\n", b"a|b|c|d\n"])
async def test_after_a_line_of_another_protocol_nothing_is_read(
    tmp_path: Path, first: bytes
) -> None:
    async with lone_node(tmp_path, ONE) as node, V1Client(node.v1) as client:
        await client.ok("PRODUCE", "orders k:0")
        told = await said_to(node.v1, first + b"V1|1|PRODUCE|orders k:v\n")
        assert told.count(b"\n") == 1
        assert told.startswith(b"V1|0|ERR|BAD_REQUEST|")
        assert (await client.ok("PRODUCE", "orders k:1"))["offset"] == "1"


@pytest.mark.slow
async def test_long_lines_are_read_beside_the_loop(tmp_path: Path) -> None:
    """A MiB of words, or of escapes, took 0.1 s each."""
    flags = {**ONE, "v1.max_line_bytes": str(16 * 1024 * 1024)}
    escaped = b"V1|1|PRODUCE|orders k:" + b"%61" * 4_500_000 + b" enc=pct\n"
    words = b"V1|2|PRODUCE|" + b"orders k:v " * 1_300_000 + b"\n"
    async with lone_node(tmp_path, flags) as node, V1Client(node.v1) as client:
        await client.ok("PRODUCE", "orders k:0")
        with trio.fail_after(HANG_S), nobody_holds_the_loop():
            async with await open_stream(node.v1) as stream:
                for line, said in ((escaped, b"V1|1|"), (words, b"V1|2|ERR|")):
                    await stream.send_all(line)
                    answer = await stream.receive_some()
                    assert answer.startswith(said), answer
