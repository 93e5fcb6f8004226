"""What is said of an address where something else than a native listener takes connections."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable

import pytest
import trio

from paceline_cluster.cli.find_cluster import ClusterRef
from paceline_cluster.cli.session import client_of
from paceline_cluster.errors import OtherProtocol
from paceline_cluster.wrong_protocol import protocol_at, recognized

KAFKA = struct.pack(">iih", 6, 7, 35)
SETTINGS = bytes.fromhex("00002a0400000000000001000010000002")
REFUSED_TYPE = b"\x00\x00\x00\x2f\x00\x00unknown message type 10"


@pytest.mark.parametrize(
    ("to_http", "to_kafka", "protocol"),
    [
        (b"HTTP/1.1 421 Misdirected Request\r\n", b"", "HTTP"),
        (b"V1|0|ERR|BAD_REQUEST|this port speaks V1 lines, not HTTP\n", b"", "V1"),
        (b"\x15\x03\x01\x00\x02\x02F", b"", "TLS (an address of it begins with tls://)"),
        (SETTINGS, SETTINGS, "HTTP/2, as a Pravega controller does"),
        (REFUSED_TYPE, REFUSED_TYPE, "the segment protocol"),
        (b"", KAFKA, "Kafka"),
        (b"", b"\x00\x00\x00\x32ERROR: decode_failed", "Cursus"),
        (b"", b"", None),
        (b"SSH-2.0-OpenSSH_9.2\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", None),
    ],
)
def test_protocols_are_known_by_their_answers(
    to_http: bytes, to_kafka: bytes, protocol: str | None
) -> None:
    assert recognized(to_http, to_kafka) == protocol


Handler = Callable[[trio.SocketStream], Awaitable[None]]


async def serve(nursery: trio.Nursery, handler: Handler) -> str:
    listeners = await nursery.start(trio.serve_tcp, handler, 0)
    return f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"


async def kafka(stream: trio.SocketStream) -> None:
    """Answers ApiVersions as a broker does, and ends whatever else comes."""
    question = await stream.receive_some(1024)
    if question[4:6] == b"\x00\x12":
        await stream.send_all(KAFKA)
    await stream.aclose()


async def deaf(_stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def test_a_broker_of_kafka_is_named_at_once() -> None:
    """Its port was tried a hundred times in 30 s, and then was "no native listener"."""
    async with trio.open_nursery() as nursery:
        address = await serve(nursery, kafka)
        with (
            trio.fail_after(20),
            pytest.raises(OtherProtocol, match=f"{address} speaks Kafka, not"),
        ):
            async with client_of(ClusterRef(None, (address,))):
                pytest.fail("nobody greeted")
        nursery.cancel_scope.cancel()


async def test_a_node_that_is_slow_to_greet_is_not_taken_for_something_else() -> None:
    async with trio.open_nursery() as nursery:
        address = await serve(nursery, deaf)
        assert await protocol_at(address) is None
        nursery.cancel_scope.cancel()
