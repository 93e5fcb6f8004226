"""What is said to the controller's listener: HTTP/2 frames made by hand, so that they need not obey
anything (RFC 9113 section 4.1)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from paceline.wire.pravega.controller import SERVICE, ScopeInfo

_DATA, HEADERS, _RST, _SETTINGS, _PING, _WINDOW, _CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4
_INITIAL_WINDOW = 4


def h2_frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + h2_frame(_SETTINGS, 0, 0)
LIES = (
    b"\xff\xff\xff\0\0\0\0\0\1",
    b"\0\x40\0\1\4\0\0\0\1" + b"x" * 100,
    h2_frame(HEADERS, 0, 1),
    b"\0",
)


def setting(number: int, value: int) -> bytes:
    """A SETTINGS frame of one setting."""
    return h2_frame(_SETTINGS, 0, 0, number.to_bytes(2, "big") + value.to_bytes(4, "big"))


NO_CALL = b"\x82\x86\x84\x41\1x"
"""A block of headers that is no call: a GET (RFC 7541 appendix A)."""
NO_WINDOW = setting(_INITIAL_WINDOW, 0)
PING = h2_frame(_PING, 0, 0, bytes(8))


def _header(name: bytes, value: bytes) -> bytes:
    """A literal that enters no table (RFC 7541 section 6.2.2)."""
    return b"\0" + _text(name) + _text(value)


def _text(value: bytes) -> bytes:
    if len(value) < 127:
        return bytes([len(value)]) + value
    rest, size = b"", len(value) - 127
    while size >= 128:
        rest += bytes([size & 127 | 128])
        size >>= 7
    return b"\x7f" + rest + bytes([size]) + value


def _block(name: str, *more: tuple[bytes, bytes]) -> bytes:
    fields = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", (SERVICE + name).encode()),
        (b":authority", b"x"),
        (b"content-type", b"application/grpc"),
        *more,
    )
    return b"".join(_header(*each) for each in fields)


def call(stream: int, name: str, message: bytes, *, packed: bool = False) -> bytes:
    """A whole call; ``packed`` says that its message is compressed."""
    body = bytes([packed]) + len(message).to_bytes(4, "big") + message
    opening = h2_frame(HEADERS, END_HEADERS, stream, _block(name))
    parts = [body[at : at + 16_000] for at in range(0, len(body), 16_000)]
    data = [h2_frame(_DATA, 0, stream, part) for part in parts[:-1]]
    return b"".join((opening, *data, h2_frame(_DATA, END_STREAM, stream, parts[-1])))


def _streams() -> Iterator[int]:
    return itertools.count(1, 2)


def cheap(rng: random.Random) -> Iterator[bytes]:
    for stream in _streams():
        name = rng.choice(("createScope", "checkScopeExists", "getURI", "nothing"))
        yield call(stream, name, ScopeInfo("prey").encode())


def costly(rng: random.Random) -> Iterator[bytes]:
    """Answers that no window is open for."""
    yield NO_WINDOW
    yield from cheap(rng)


def begun() -> bytes:
    opening = h2_frame(HEADERS, END_HEADERS, 1, _block("createScope"))
    return opening + h2_frame(_DATA, 0, 1, bytes(16_000)) * 3 + b"\0\x40\0\0\0\0\0\0\1"


def bombs(_: random.Random) -> Iterator[bytes]:
    """Each on a connection of its own."""
    yield b"".join(call(n, "createScope", b"\x0a\0" * 30_000) for n in range(1, 40, 2))
    yield call(1, "createScope", b"x" * 60_000, packed=True)
    yield PING * 100_000
    yield setting(_INITIAL_WINDOW, 1) * 50_000
    yield b"".join(
        h2_frame(HEADERS, END_HEADERS, n, _block("createScope"))
        + h2_frame(_RST, 0, n, bytes(3) + b"\x08")
        for n in range(1, 40_000, 2)
    )
    yield h2_frame(HEADERS, 0, 1, _block("createScope")) + (
        h2_frame(_CONTINUATION, 0, 1, _header(b"x", b"y" * 8_000)) * 1_000
    )
    yield h2_frame(HEADERS, 0, 1) + h2_frame(_CONTINUATION, 0, 1) * 100_000
    yield b"".join(
        h2_frame(HEADERS, END_HEADERS | END_STREAM, n, NO_CALL) for n in range(1, 120_000, 2)
    )
    yield h2_frame(_WINDOW, 0, 0, b"\0\0\0\1") * 100_000
    yield h2_frame(_DATA, 0, 1) * 100_000
    many = [(b"h%d" % number, b"v") for number in range(1_500)]
    yield b"".join(
        h2_frame(HEADERS, END_HEADERS, n, _block("createScope", *many)) for n in range(1, 200, 2)
    )
