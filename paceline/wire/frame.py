"""The frame of the native and peer protocols: msgpack header, raw payload behind it.

::

    0        4               8              8+h                  4+n
    +--------+---------------+---------------+--------------------+
    | u32 n  | u32 h         | header        | payload            |
    | length | header length | msgpack array | raw bytes          |
    +--------+---------------+---------------+--------------------+

Big-endian. ``n`` counts everything after itself (4 + h + payload). The header is an array
``[kind, api, correlation, body]``: kind 0 request, 1 response, 2 error, 3 one-way; api is a number
of the protocol in use; correlation (u32) is chosen by the requester and echoed; body is the
positional array of a message (an error's body is ``[code, message]``). Record bytes travel in the
payload, never inside msgpack, so that they are not copied or re-encoded (DESIGN 6).
Over WebSocket each binary message carries exactly one frame.
"""

from __future__ import annotations

import enum
import struct
from typing import Any, NamedTuple

import msgpack

from paceline.errors import PacelineError, RemoteProtocolError, error_for
from paceline.wire.message import unpack_array

_LENGTHS = struct.Struct(">II")
_LENGTH = struct.Struct(">I")
LENGTH_BYTES = 4
MAX_HEADER_BYTES = 4 * 1024 * 1024
DEFAULT_MAX_FRAME_BYTES = 64 * 1024 * 1024


class Kind(enum.IntEnum):
    REQUEST = 0
    RESPONSE = 1
    ERROR = 2
    ONE_WAY = 3


class Frame(NamedTuple):
    """One decoded frame. ``payload`` is a view into the receive buffer's own copy of the frame."""

    kind: int
    api: int
    correlation: int
    body: list[Any]
    payload: memoryview

    def raise_for_error(self) -> None:
        """Raise the typed error that an ERROR frame carries; do nothing for other kinds."""
        if self.kind != Kind.ERROR:
            return
        if len(self.body) < 2 or type(self.body[0]) is not int or type(self.body[1]) is not str:
            raise RemoteProtocolError("error frame without [code, message]")
        raise error_for(self.body[0], self.body[1])


def encode_head(kind: int, api: int, correlation: int, body: list[Any], payload_size: int) -> bytes:
    """Everything of a frame before its payload; the caller sends the payload right behind it."""
    header: bytes = msgpack.packb((kind, api, correlation, body))
    return _LENGTHS.pack(4 + len(header) + payload_size, len(header)) + header


def encode_error(api: int, correlation: int, error: PacelineError) -> bytes:
    """A whole ERROR frame for ``error``."""
    return encode_head(Kind.ERROR, api, correlation, [int(error.code), str(error)], 0)


def decode(frame: bytes | bytearray | memoryview) -> Frame:
    """Decode one frame without its leading length word. Raises RemoteProtocolError."""
    view = memoryview(frame)
    if len(view) < 4:
        raise RemoteProtocolError(f"frame of {len(view)} bytes has no header length")
    (size,) = _LENGTH.unpack_from(view)
    if size > MAX_HEADER_BYTES or 4 + size > len(view):
        raise RemoteProtocolError(f"header of {size} bytes in a frame of {len(view)}")
    header = unpack_array(view[4 : 4 + size])
    if len(header) < 4:
        raise RemoteProtocolError(f"frame header has {len(header)} elements, expected 4")
    kind, api, correlation, body = header[:4]
    if type(kind) is not int or type(api) is not int or type(correlation) is not int:
        raise RemoteProtocolError("frame header: kind, api and correlation must be integers")
    if type(body) is not list:
        raise RemoteProtocolError("frame header: body must be an array")
    return Frame(kind, api, correlation, body, view[4 + size :])


class FrameReader:
    """Cuts a byte stream into frames: feed bytes in, take frames out; linear in its input.

    A length above ``max_frame_bytes`` raises RemoteProtocolError before anything is allocated.
    """

    def __init__(self, *, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._max = max_frame_bytes
        self._buffer = bytearray()
        self._position = 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add received bytes."""
        if self._position:
            # Frames handed out are copies, so the consumed head can go before more is added.
            del self._buffer[: self._position]
            self._position = 0
        self._buffer += data

    def next_frame(self) -> Frame | None:
        """The next whole frame, or None until more bytes are fed."""
        available = len(self._buffer) - self._position
        if available < LENGTH_BYTES:
            return None
        start = self._position + LENGTH_BYTES
        size = int.from_bytes(self._buffer[self._position : start], "big")
        if size > self._max:
            raise RemoteProtocolError(f"frame of {size} bytes exceeds the limit of {self._max}")
        if available - LENGTH_BYTES < size:
            return None
        with memoryview(self._buffer) as view:
            frame = bytes(view[start : start + size])
        self._position = start + size
        return decode(frame)
