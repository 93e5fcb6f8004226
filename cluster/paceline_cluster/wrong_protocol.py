"""What speaks at an address where no node greets: named, so that a wrong port is told from a node
that is slow.

Two questions are asked, on connections of their own: one of HTTP and one of Kafka. Whoever speaks
neither answers one of them in its own way, or not at all. Nobody is asked who has greeted.
"""

from __future__ import annotations

import struct

import trio

from paceline.client.endpoint import Endpoint

ANSWER_S = 1.0
_MOST_BYTES = 256
_CORRELATION = 7
_HTTP = b"GET / HTTP/1.0\r\n\r\n"
_KAFKA = struct.pack(">ihhih", 10, 18, 0, _CORRELATION, -1)
"""ApiVersions, version 0, of a client without a name: every Kafka broker answers it."""
_HTTP2_SETTINGS = 4
_TLS_ALERT = b"\x15\x03"


async def protocol_at(address: str) -> str | None:
    """The protocol that whoever listens at ``host:port`` speaks; None where that is not to be
    known, or it is the native one. Cancel-safe; takes about two seconds at most."""
    endpoint = Endpoint.parse(address)
    if endpoint.path is not None or endpoint.tls is not None:
        return None  # a WebSocket, or TLS, has said what it speaks when it was refused
    return recognized(await _answer(endpoint, _HTTP), await _answer(endpoint, _KAFKA))


def recognized(to_http: bytes, to_kafka: bytes) -> str | None:
    """The protocol of which these are the answers to the two questions."""
    if to_http.startswith(b"HTTP/"):
        return "HTTP"
    if to_http.startswith(_TLS_ALERT):
        return "TLS (an address of it begins with tls://)"
    if to_http.startswith(b"V1|"):
        return "V1"
    if len(to_http) > 9 and to_http[3] == _HTTP2_SETTINGS and to_http[5:9] == bytes(4):
        return "HTTP/2, as a Pravega controller does"
    if b"unknown message type" in to_http:
        return "the segment protocol"
    if to_kafka[4:8] == struct.pack(">i", _CORRELATION):
        return "Kafka"
    if to_kafka[4:].startswith(b"ERROR: "):
        return "Cursus"
    return None


async def _answer(endpoint: Endpoint, question: bytes) -> bytes:
    """The first bytes that come back; none where nothing does."""
    with trio.move_on_after(ANSWER_S):
        try:
            async with await trio.open_tcp_stream(endpoint.host, endpoint.port) as stream:
                await stream.send_all(question)
                return bytes(await stream.receive_some(_MOST_BYTES))
        except (OSError, trio.BrokenResourceError):
            return b""
    return b""
