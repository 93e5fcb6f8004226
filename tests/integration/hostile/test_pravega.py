"""What strangers may send to the listener of Pravega's controller, and the others go on."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from paceline.wire.pravega import controller as c
from paceline_node.listeners.pravega import listener
from tests.hostile import speech_http2 as speech
from tests.hostile.slices import nobody_holds_the_loop
from tests.integration.hostile.test_charges import given_back, most_charged
from tests.integration.hostile.test_memory import ONE, connect
from tests.integration.node.nodes import HANG_S, RunningNode, lone_node
from tests.integration.segment.controller_client import ControllerClient

__all__ = ["most_charged"]
MESSAGE_BYTES = 64_000
REPEATED = {
    "streams": ("createStream", b"\x0a\0"),
    "policies": ("createStream", b"\x12\2\x08\0"),
    "unknown": ("checkScopeExists", b"\x28\0"),
    "scopes": ("checkScopeExists", b"\x0a\0"),
    "tags": ("updateStream", b"\x22\xfd\xf3\x03" + b"\x0a\x01a" * 21_332),
}
"""A call, and what its message is full of: a field of its own, one in another, one of none."""


def full(piece: bytes) -> bytes:
    """A message of as many such pieces as it may have."""
    return piece * (MESSAGE_BYTES // len(piece))


async def others_go_on(node: RunningNode) -> None:
    async with ControllerClient(node.addresses["pravega"]) as client:
        assert await client.call("checkScopeExists", c.ScopeInfo("none"), c.Exists) == c.Exists()


@pytest.mark.parametrize("kind", REPEATED)
async def test_messages_full_of_the_same_field(tmp_path: Path, kind: str) -> None:
    """Fields that are repeated were added to a copy of those before, a second a call; later they
    were all read although one counts, and a call of 64 KB kept the loop for 0.3 s."""
    name, piece = REPEATED[kind]
    said = speech.PREFACE + speech.call(1, name, full(piece))
    async with lone_node(tmp_path, ONE) as node, AsyncExitStack() as stack:
        await others_go_on(node)
        streams = [await connect(stack, node.addresses["pravega"]) for _ in range(5)]
        with nobody_holds_the_loop(0.1), trio.fail_after(HANG_S):
            for stream in streams:
                await stream.send_all(said)
            for stream in streams:
                await answered(stream)
        await others_go_on(node)


async def answered(stream: trio.SocketStream) -> None:
    """Return once call 1 is answered, whatever with."""
    data = b""
    while True:
        while len(data) < 9 or len(data) < 9 + int.from_bytes(data[:3], "big"):
            more = await stream.receive_some()
            assert more, "the node closed the connection"
            data += more
        if data[3:9] == bytes([speech.HEADERS, speech.END_STREAM | speech.END_HEADERS, 0, 0, 0, 1]):
            return
        data = data[9 + int.from_bytes(data[:3], "big") :]


@pytest.mark.parametrize("pings", [False, True])
async def test_answers_that_no_window_is_open_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most_charged: dict[str, int],
    pings: bool,
) -> None:
    """Windows of 0 held 97 MiB for an hour, and for as long as pings came."""
    monkeypatch.setattr(listener, "_STALL_S", 1.0)
    calls = b"".join(
        speech.call(number, "listStreamsInScope", c.StreamsRequest(c.ScopeInfo("shop")).encode())
        for number in range(1, 100, 2)
    )
    async with lone_node(tmp_path, ONE) as node, AsyncExitStack() as stack:
        async with ControllerClient(node.addresses["pravega"]) as client:
            await client.call("createScope", c.ScopeInfo("shop"), c.Status)
            for number in range(4):
                made = c.StreamConfig(
                    c.StreamInfo("shop", "x" * 200 + str(number)), c.ScalingPolicy(0, 0, 0, 1)
                )
                assert await client.call("createStream", made, c.Status) == c.Status()
        await given_back(node.addresses["http"])
        streams = [await connect(stack, node.addresses["pravega"]) for _ in range(5)]
        async with trio.open_nursery() as nursery:
            for stream in streams:
                await stream.send_all(speech.PREFACE + speech.NO_WINDOW + calls)
                if pings:
                    nursery.start_soon(ping, stream)
            await others_go_on(node)
            with trio.fail_after(HANG_S):
                for stream in streams:
                    await read_to_its_end(stream)
            assert most_charged["pravega"] >= 50 * 4 * 200, "no answer waited for a window"
            await given_back(node.addresses["http"])
            await others_go_on(node)
            nursery.cancel_scope.cancel("judged")


async def ping(stream: trio.SocketStream) -> None:
    """As a connection that is alive."""
    try:
        while True:
            await stream.send_all(speech.PING)
            await trio.sleep(0.1)
    except trio.BrokenResourceError:
        return


async def read_to_its_end(stream: trio.SocketStream) -> None:
    try:
        while await stream.receive_some():
            pass
    except trio.BrokenResourceError:
        return
