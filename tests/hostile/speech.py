"""What is said to each listener: greetings, requests short and costly, frames that are never whole,
and little that says much. Bytes only; ``ways.py`` says them slowly, often, or not at all."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.hostile import (
    speech_coordinator,
    speech_http2,
    speech_kafka,
    speech_native,
    speech_segment,
    speech_text,
)

Talk = Callable[[random.Random], Iterator[bytes]]


def _nothing(_: random.Random) -> Iterator[bytes]:
    return iter(())


@dataclass(frozen=True)
class Speech:
    """What one protocol's connection may say. ``opening`` is answered before anything else is said,
    then comes ``hello``. ``cheap`` and ``costly`` never
    end: requests with short and with large answers. ``begun`` is all of a large message but its
    end; ``lies`` are beginnings that promise more than comes; ``bombs`` end: each is a request of
    much in little."""

    name: str
    listener: str
    cheap: Talk
    costly: Talk
    begun: Callable[[], bytes]
    lies: tuple[bytes, ...]
    opening: bytes = b""
    hello: bytes = b""
    bombs: Talk = _nothing


def _again(*parts: bytes) -> Talk:
    def talk(_: random.Random) -> Iterator[bytes]:
        return itertools.cycle(parts)

    return talk


SPEECHES = (
    Speech(
        "v1",
        "v1",
        speech_text.v1_cheap,
        _again(b"V1|1|CONSUME|bait 0 0\n"),
        lambda: b"V1|1|PRODUCE|prey k:" + b"x" * 900_000,
        (b"V1|1|PROD", b"V1|1|PRODUCE|prey k:", b"V1|" + b"9" * 60_000),
        bombs=speech_text.v1_bombs,
    ),
    Speech(
        "http",
        "http",
        _again(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        _again(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        lambda: b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 12_000,
        (b"GET /live HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"GET "),
    ),
    Speech(
        "cursus",
        "cursus",
        speech_text.cursus_cheap,
        speech_text.cursus_costly,
        lambda: (60 << 20).to_bytes(4, "big") + bytes(59 << 20),
        ((60 << 20).to_bytes(4, "big") + b"x", b"\xff\xff\xff\xff", b"\0\0"),
        bombs=speech_text.cursus_bombs,
    ),
    Speech(
        "kafka",
        "kafka",
        speech_kafka.cheap,
        speech_kafka.costly,
        lambda: (60 << 20).to_bytes(4, "big") + b"\0\0\0\7" + bytes(59 << 20),
        ((64 << 20).to_bytes(4, "big"), b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0"),
        bombs=speech_kafka.bombs,
    ),
    Speech(
        "coordinator",
        "kafka",
        speech_coordinator.cheap,
        speech_coordinator.costly,
        speech_coordinator.begun,
        speech_coordinator.LIES,
        bombs=speech_coordinator.bombs,
    ),
    Speech(
        "native",
        "native",
        speech_native.cheap,
        speech_native.costly,
        speech_native.begun,
        speech_native.LIES,
        hello=speech_native.HELLO_BYTES,
        bombs=speech_native.bombs,
    ),
    Speech(
        "websocket",
        "http",
        speech_native.over_websocket(speech_native.cheap),
        speech_native.over_websocket(speech_native.costly),
        speech_native.begun_in_pieces,
        (b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", b"\x02\x80\0\0\0\0" * 1000),
        opening=speech_native.UPGRADE,
        hello=speech_native.message(speech_native.HELLO_BYTES),
        bombs=speech_native.over_websocket(speech_native.bombs),
    ),
    Speech(
        "segment",
        "segment",
        speech_segment.cheap,
        speech_segment.costly,
        speech_segment.begun,
        speech_segment.LIES,
    ),
    Speech(
        "segment-pravega",
        "segment",
        speech_segment.pravega_cheap,
        speech_segment.pravega_costly,
        speech_segment.pravega_begun,
        speech_segment.PRAVEGA_LIES,
        hello=speech_segment.PRAVEGA_HELLO,
    ),
    Speech(
        "pravega",
        "pravega",
        speech_http2.cheap,
        speech_http2.costly,
        speech_http2.begun,
        speech_http2.LIES,
        hello=speech_http2.PREFACE,
        bombs=speech_http2.bombs,
    ),
    Speech(
        "peer",
        "peer",
        speech_native.cheap,
        speech_native.cheap,
        lambda: (64 << 20).to_bytes(4, "big") + bytes(60_000),
        speech_native.LIES,
    ),
)
