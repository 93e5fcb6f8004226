"""Receiving frames without copying them more than once.

:class:`FrameReader` (``frame.py``) is fed with bytes; a :class:`FrameBuffer` instead offers memory
to receive into, as ``recv_into`` and ``readv`` want it. Small frames are cut out of one shared
buffer; a frame that is larger than what has arrived of it gets memory of its own, and the rest of
it is received straight into place. No I/O here: a driver asks for :meth:`FrameBuffer.targets`,
fills them in order and says how much came with :meth:`FrameBuffer.received`.
"""

from __future__ import annotations

from paceline.errors import RemoteProtocolError
from paceline.wire.frame import DEFAULT_MAX_FRAME_BYTES, LENGTH_BYTES, Frame, decode
from paceline.wire.frame_memory import RECEIVE_BYTES, memory_for, taken_bytes

FIRST_BUFFER_BYTES = 4 * 1024
"""Enough for greetings and heartbeats: most connections are idle."""
BUSY_BUFFER_BYTES = 64 * 1024
MAX_BUFFER_BYTES = 1024 * 1024
DIRECT_BYTES = 16 * 1024
"""A frame that still lacks this much is received into its own memory."""
_QUIET_RECEIVES = 256
_TLS_HANDSHAKE, _TLS_ALERT = 0x1603, 0x1503  # how TLS records of version 3.x begin


class FrameBuffer:
    """Cuts a byte stream into frames; linear in its input however it is split.

    The shared buffer grows (4 KiB, then 64 KiB to 1 MiB) when a receive fills it and halves after
    a long time of small receives. A frame of more than ``believed_bytes`` gets memory as it arrives
    (``frame_memory.py``): a length alone costs nothing. A length above
    ``max_frame_bytes`` raises RemoteProtocolError before anything is allocated; after that the
    buffer is of no further use.
    """

    def __init__(
        self,
        *,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        believed_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._believed_bytes = believed_bytes
        self._shared = bytearray(FIRST_BUFFER_BYTES)
        self._start = 0  # first byte of the shared buffer not yet cut out
        self._end = 0  # first byte not yet received
        self._large: memoryview | None = None  # a frame under way, without its length word
        self._filled = 0
        self._quiet = 0
        self.last_frame_bytes = 0
        """Size of the frame that was given out last."""

    def targets(self) -> list[memoryview]:
        """Memory for the next receive, in the order it is to be filled; never empty.

        Call it only after :meth:`next_frame` returned None; the views are valid until the next
        call of any method.
        """
        if self._large is not None:
            assert self._filled < len(self._large), "a finished frame was not taken"
            rest = self._large[self._filled :]
            if len(rest) > RECEIVE_BYTES:
                return [rest[:RECEIVE_BYTES]]
            # Room for what follows the large frame saves a receive of its own.
            return [rest, memoryview(self._shared)]
        self._make_room()
        return [memoryview(self._shared)[self._end :]]

    def received(self, count: int) -> None:
        """``count`` bytes were written to the targets, filling them in order."""
        if self._large is None:
            self._end += count
            self._adapt(count)
            return
        into_large = min(count, len(self._large) - self._filled)
        self._filled += into_large
        self._end = count - into_large

    def next_frame(self) -> Frame | None:
        """The next whole frame, or None until more is received. Raises RemoteProtocolError.

        The frame owns its memory; its payload is a writable view.
        """
        if self._large is not None:
            if self._filled < len(self._large):
                return None
            whole, self._large = self._large, None
            self.last_frame_bytes = len(whole)
            return decode(whole)
        available = self._end - self._start
        if available < LENGTH_BYTES:
            return None
        body = self._start + LENGTH_BYTES
        size = int.from_bytes(self._shared[self._start : body], "big")
        if size > self.max_frame_bytes:
            if size >> 16 == _TLS_HANDSHAKE:
                raise RemoteProtocolError("who connected speaks TLS, and this port does not")
            if size >> 16 == _TLS_ALERT:
                raise RemoteProtocolError("the port that was connected to speaks TLS")
            raise RemoteProtocolError(
                f"frame of {size} bytes exceeds the limit of {self.max_frame_bytes}"
            )
        present = available - LENGTH_BYTES
        if present >= size:
            self.last_frame_bytes = size
            self._start = body + size
            return decode(self._shared[body : self._start])
        if size - present >= DIRECT_BYTES:
            self._begin_large(body, size, present)
        return None

    @property
    def grown_bytes(self) -> int:
        """What the shared buffer has more than it began with."""
        return len(self._shared) - FIRST_BUFFER_BYTES

    @property
    def arriving_bytes(self) -> int:
        """Memory of a large frame that is not whole yet."""
        return 0 if self._large is None else taken_bytes(len(self._large), self._filled)

    @property
    def filled_bytes(self) -> int:
        """How much of a large frame that is not whole has come."""
        return 0 if self._large is None else self._filled

    @property
    def wanted_bytes(self) -> int:
        """Size of a large frame that is not whole yet."""
        return 0 if self._large is None else len(self._large)

    @property
    def is_between_frames(self) -> bool:
        """Whether no part of an unfinished frame has been received: an end of stream is clean."""
        return self._large is None and self._start == self._end

    def _begin_large(self, body: int, size: int, present: int) -> None:
        large = memory_for(size, believed_bytes=self._believed_bytes)
        with memoryview(self._shared) as view:
            large[:present] = view[body : body + present]
        self._large = large
        self._filled = present
        self._start = self._end = 0

    def _make_room(self) -> None:
        if self._start == self._end:
            self._start = self._end = 0
            return
        if len(self._shared) - self._end >= DIRECT_BYTES:
            return
        # The frame under way lacks less than DIRECT_BYTES: it is moved at most once, so that a
        # peer that sends byte by byte still costs linear time.
        rest = self._shared[self._start : self._end]
        self._start, self._end = 0, len(rest)
        needed = len(rest) + DIRECT_BYTES
        if needed > len(self._shared):
            self._shared = bytearray(max(2 * needed, BUSY_BUFFER_BYTES))
        self._shared[: self._end] = rest

    def _adapt(self, count: int) -> None:
        size = len(self._shared)
        if self._end == size and size < MAX_BUFFER_BYTES:
            # A new object, because views of the old one may still be exported.
            self._shared = self._shared + bytes(max(size, BUSY_BUFFER_BYTES - size))
            self._quiet = 0
        elif count > size // 8:
            self._quiet = 0
        elif size > FIRST_BUFFER_BYTES:
            self._quiet += 1
            if self._quiet >= _QUIET_RECEIVES and self._end <= size // 2:
                self._shared = self._shared[: size // 2]
                self._quiet = 0
