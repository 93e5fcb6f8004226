"""Calls over HTTP/2: with h2's client side, whole and byte by byte, and with hostile peers."""

from __future__ import annotations

import itertools
import os
import random
import tracemalloc

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, ResponseReceived, StreamEnded, TrailersReceived
from h2.settings import SettingCodes

from paceline.wire.pravega.grpc import Call, GivenUp, GrpcConnection, GrpcLimits, GrpcStatus
from tests.hostile.speech_http2 import NO_CALL, PREFACE, h2_frame

PATH = "/service/call"


class Peer:
    """A client and the server that it talks to."""

    def __init__(self, limits: GrpcLimits | None = None, *, window: int = 65535) -> None:
        self.client = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.client.initiate_connection()
        if window != 65535:
            self.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.server = GrpcConnection(limits)
        self.calls: list[Call | GivenUp] = []
        self.events: list[Event] = []
        self.exchange()

    def exchange(self, step: int = 1 << 20) -> None:
        """Until both have said all they have to, ``step`` bytes at a time."""
        while True:
            out, back = self.client.data_to_send(), self.server.data_to_send()
            if not out and not back:
                return
            for at in range(0, len(out), step):
                self.calls += self.server.receive(out[at : at + step])
            self.events += self.client.receive_data(back)

    def call(self, body: bytes, *, path: str = PATH, end: bool = True, **headers: str) -> int:
        stream = self.client.get_next_available_stream_id()
        fields = {
            ":method": "POST", ":scheme": "http", ":path": path, ":authority": "x",
            "content-type": "application/grpc", **headers,
        }  # fmt: skip
        self.client.send_headers(stream, list(fields.items()))
        for at in range(0, len(body), 8192):
            self.client.send_data(stream, body[at : at + 8192])
            if len(body) > 8192:
                self.exchange()
        if end:
            self.client.end_stream(stream)
        return stream

    def body(self, stream: int) -> bytes:
        return b"".join(
            event.data or b""
            for event in self.events
            if isinstance(event, DataReceived) and event.stream_id == stream
        )

    def status(self, stream: int) -> str | None:
        """What the call's trailers say; None before they came."""
        for event in self.events:
            if isinstance(event, ResponseReceived | TrailersReceived):
                headers = dict(event.headers or ())
                if event.stream_id == stream and "grpc-status" in headers:
                    return str(headers["grpc-status"])
        return None


def framed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_a_call_and_its_answer(step: int) -> None:
    peer = Peer()
    stream = peer.call(framed(b"ask"))
    peer.exchange(step)
    assert peer.calls == [Call(stream, PATH, b"ask")]
    peer.server.answer(stream, b"answer")
    peer.exchange()
    assert peer.body(stream) == framed(b"answer")
    assert peer.status(stream) == "0"
    assert any(isinstance(event, StreamEnded) for event in peer.events)
    assert peer.server.open_calls == 0


def test_calls_side_by_side_answered_in_any_order() -> None:
    peer = Peer()
    first, second, third = (peer.call(framed(bytes((number,)))) for number in range(3))
    peer.exchange()
    peer.server.answer(third, b"3")
    peer.server.refuse(first, GrpcStatus.UNAVAILABLE, "node 1 ist weg: ü\n%")
    peer.server.answer(second, b"")
    peer.exchange()
    assert [peer.status(each) for each in (first, second, third)] == ["14", "0", "0"]
    assert (peer.body(second), peer.body(third)) == (framed(b""), framed(b"3"))


def test_an_answer_waits_for_the_clients_windows() -> None:
    peer = Peer(window=10)
    stream = peer.call(framed(b"ask"))
    peer.exchange()
    peer.server.answer(stream, bytes(1000))
    for _ in range(100):
        peer.exchange()
        assert peer.status(stream) is None
        peer.client.increment_flow_control_window(10, stream)
    peer.exchange()
    assert peer.body(stream) == framed(bytes(1000))
    assert peer.status(stream) == "0"


def test_requests_are_bounded() -> None:
    peer = Peer(GrpcLimits(calls=2, message_bytes=50_000))
    large = peer.call(framed(bytes(50_001)), end=False)
    peer.exchange()
    assert peer.status(large) == str(int(GrpcStatus.RESOURCE_EXHAUSTED))
    whole = peer.call(framed(bytes(50_000)))
    peer.exchange()
    assert [call.stream for call in peer.calls] == [whole]
    assert peer.client.remote_settings.max_concurrent_streams == 2


@pytest.mark.parametrize(
    "body",
    [b"", b"\0\0\0\0", framed(b"ask")[:-1], framed(b"ask") + b"x", b"\1" + framed(b"ask")[1:]],
)
def test_bodies_that_are_not_one_message(body: bytes) -> None:
    peer = Peer()
    stream = peer.call(body)
    peer.exchange()
    assert peer.calls == []
    assert peer.status(stream) == str(int(GrpcStatus.UNIMPLEMENTED))


def test_what_is_no_call() -> None:
    peer = Peer()
    peer.call(b"x", **{":method": "GET"})
    peer.call(b"x", **{"content-type": "text/html"})
    peer.exchange()
    statuses = [
        dict(event.headers or ())[":status"]
        for event in peer.events
        if isinstance(event, ResponseReceived)
    ]
    assert (peer.calls, statuses) == ([], ["415", "415"])


def test_headers_may_be_any_bytes() -> None:
    """h2 raises UnicodeDecodeError when it is to decode them. Found by the fuzzer."""
    client = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    client.initiate_connection()
    headers = [
        (b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"x"),
        (b":path", b"/\x85"), (b"content-type", b"application/grpc"),
    ]  # fmt: skip
    client.send_headers(1, headers)
    client.send_data(1, framed(b"ask"), end_stream=True)
    server = GrpcConnection()
    assert server.receive(client.data_to_send()) == [Call(1, "/\x85", b"ask")]


def test_a_call_that_its_client_gives_up() -> None:
    peer = Peer()
    stream = peer.call(framed(b"ask"))
    peer.exchange()
    peer.client.reset_stream(stream)
    peer.exchange()
    assert peer.calls == [Call(stream, PATH, b"ask"), GivenUp(stream)]
    peer.server.answer(stream, b"late")
    peer.server.refuse(stream, GrpcStatus.INTERNAL, "late")
    assert peer.server.data_to_send() == b""


def test_streams_that_have_ended_take_no_memory() -> None:
    """A connection grew by 115 bytes for each, to 7 MiB, charged to nobody."""
    server = GrpcConnection()
    server.receive(PREFACE)
    streams = itertools.count(1, 2)

    def empty_requests(count: int) -> None:
        for stream in itertools.islice(streams, count):
            server.receive(h2_frame(1, 5, stream, NO_CALL))
            server.data_to_send()

    empty_requests(600)
    tracemalloc.start()
    try:
        empty_requests(2400)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not server.is_over
    assert grown < 64 * 1024


def test_a_client_that_only_gives_up_is_sent_away() -> None:
    peer = Peer()
    for _ in range(201):
        peer.client.reset_stream(peer.call(framed(b"ask")))
        peer.exchange()
    assert peer.server.is_over
    assert peer.server.receive(b"more") == []


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(100),
        b"\xff" * 100,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 99,
    ],
)
def test_noise_ends_the_connection(noise: bytes) -> None:
    server = GrpcConnection()
    server.data_to_send()
    assert server.receive(noise) == []
    assert server.is_over


def test_mangled_conversations_end_well() -> None:
    """Quick by default; ``PACELINE_EXAMPLES`` makes it long. Never an exception, and no more
    streams than allowed."""
    for run in range(int(os.environ.get("PACELINE_EXAMPLES", "400"))):
        rng = random.Random(run)
        peer = Peer(GrpcLimits(calls=5, message_bytes=100))
        for _ in range(rng.randint(1, 5)):
            peer.call(framed(rng.randbytes(rng.randrange(120))), end=rng.random() < 0.8)
        said = bytearray(peer.client.data_to_send())
        for _ in range(rng.choice((1, 2, 5))):
            said[rng.randrange(len(said))] = rng.randrange(256)
        for step in peer.server.receive(bytes(said)):
            if isinstance(step, Call):
                peer.server.answer(step.stream, rng.randbytes(50))
        assert peer.server.open_calls <= 5
        peer.server.data_to_send()
