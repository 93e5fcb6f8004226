"""The frame of Cursus: a length and that many bytes.

::

    0        4                4+n
    +--------+----------------+
    | u32 n  | n bytes        |   big-endian; n counts what is behind it
    +--------+----------------+

A client may send up to 64 MiB. An empty frame from a client means nothing and gets no answer; to a
client it is a stream's keepalive and nothing else (DESIGN 1.1).
"""

from __future__ import annotations

from paceline.errors import RemoteProtocolError

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 64 * 1024 * 1024
KEEPALIVE = b"\x00\x00\x00\x00"

Buffer = bytes | bytearray | memoryview


class FrameReader:
    """Cuts a byte stream into frame bodies: feed bytes in, take bodies out; linear in its input.

    Holds at most the frame under way and what was fed since. A length above ``max_frame_bytes``,
    which may change between frames, raises RemoteProtocolError before anything is allocated; there
    is no way on from there.
    """

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()
        self._position = 0

    def feed(self, data: Buffer) -> None:
        """Add received bytes."""
        if self._position:
            del self._buffer[: self._position]
            self._position = 0
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """The next whole body, which may be empty, or None until more bytes are fed."""
        buffer = self._buffer
        start = self._position + LENGTH_BYTES
        if len(buffer) < start:
            return None
        end = start + int.from_bytes(buffer[self._position : start], "big")
        if end - start > self.max_frame_bytes:
            raise RemoteProtocolError(f"frame of {end - start} bytes, limit {self.max_frame_bytes}")
        if len(buffer) < end:
            return None
        with memoryview(buffer) as view:
            body = bytes(view[start:end])
        self._position = end
        return body

    @property
    def held_bytes(self) -> int:
        """What was fed and not taken, and memory that taken bodies have left."""
        return len(self._buffer)

    @property
    def wanted_bytes(self) -> int:
        """How many bytes the frame under way still lacks; 0 while its length is not known."""
        start = self._position + LENGTH_BYTES
        if len(self._buffer) < start:
            return 0
        size = int.from_bytes(self._buffer[self._position : start], "big")
        return max(0, start + size - len(self._buffer))

    @property
    def is_between_frames(self) -> bool:
        """Whether an end of the stream here cuts no frame."""
        return len(self._buffer) == self._position


def framed(body: Buffer) -> bytes:
    """``body`` with its length in front."""
    return b"".join((len(body).to_bytes(LENGTH_BYTES, "big"), body))
