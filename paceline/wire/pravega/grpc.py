"""gRPC calls over HTTP/2, the server's side: bytes in, calls out; answers in, bytes out.

Sans-I/O, around h2's state machine (extra ``segment``). Cleartext with prior knowledge, one message
each way::

    HEADERS   :method POST, :path /package.Service/Call, content-type application/grpc
    DATA      00 (not compressed) | u32 size | message                                  END_STREAM

    HEADERS   :status 200, content-type application/grpc
    DATA      00 | u32 size | message
    HEADERS   grpc-status 0 [grpc-message]                                              END_STREAM

Hostile peers: h2 checks frames, headers and windows; a message is refused on its size before it is
kept; streams at a time are bounded; a connection whose client gives up more calls than it lets
finish is ended. What cannot be sent yet, for lack of window, waits here: at most one answer per
open stream. Source: github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
"""

from __future__ import annotations

import enum
from contextlib import suppress
from urllib.parse import quote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import H2Error, StreamClosedError
from h2.settings import SettingCodes, Settings

from paceline.values import dataclass

_PREFIX_BYTES = 5
_PREFACE_BYTES = 24
_FRAME_HEAD_BYTES = 9
_MAX_TEXT = 500
_MAX_GIVEN_UP = 200


class GrpcStatus(enum.IntEnum):
    """How a call ended; the numbers are gRPC's."""

    OK = 0
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """Of one connection: calls at a time, bytes of a request."""

    calls: int = 100
    message_bytes: int = 64 * 1024


@dataclass(frozen=True, slots=True)
class Call:
    """A whole request; answer it by its ``stream``. ``authorization`` is its metadata's."""

    stream: int
    path: str
    message: bytes
    authorization: str = ""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The client waits no longer for the answer."""

    stream: int


class _FrameLengths:
    """Follows the frames in received bytes. h2 checks a frame's length only once all of it is
    there, so that 16 MiB of one could be kept."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._left = _PREFACE_BYTES
        self._head = b""

    def allow(self, data: bytes) -> bool:
        """Whether no frame that begins in ``data`` is longer than allowed."""
        at = 0
        while at < len(data):
            skipped = min(self._left, len(data) - at)
            self._left -= skipped
            at += skipped
            taken = data[at : at + _FRAME_HEAD_BYTES - len(self._head)]
            self._head += taken
            at += len(taken)
            if len(self._head) == _FRAME_HEAD_BYTES:
                self._left = int.from_bytes(self._head[:3], "big")
                self._head = b""
                if self._left > self._max_bytes:
                    return False
        return True


class _Http2(H2Connection):
    """h2 remembers how each stream ended, for frames that were under way: 65,536 of them, 7 MiB a
    connection for a MiB of empty requests. Late frames come within the calls of a moment."""

    MAX_CLOSED_STREAMS = 256

    def forget(self) -> None:
        """Let go of the methods that it keeps of itself: else all that the connection holds would
        stay in a cycle."""
        self._frame_dispatch_table.clear()


class _Stream:
    """A call that is being received, or whose answer is being sent."""

    __slots__ = ("answer", "authorization", "path", "received")

    def __init__(self, path: str, authorization: str) -> None:
        self.path = path
        self.authorization = authorization
        self.received = bytearray()
        self.answer: memoryview | None = None


class GrpcConnection:
    """One connection's state."""

    def __init__(self, limits: GrpcLimits | None = None) -> None:
        self._limits = limits or GrpcLimits()
        self._h2 = _Http2(H2Configuration(client_side=False, header_encoding=None))
        self._h2.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: self._limits.calls,
                SettingCodes.MAX_HEADER_LIST_SIZE: 16 * 1024,
            },
        )
        self._h2.initiate_connection()
        self._lengths = _FrameLengths(self._h2.max_inbound_frame_size)
        self._streams: dict[int, _Stream] = {}
        self._finished = 0
        self._given_up = 0
        self._is_wider = False  # a window has opened since waiting answers were looked at
        self.is_over = False
        """Nothing more is taken in: send what there is to send, and close."""
        self.sent_bytes = 0
        """Of answers, since the connection began."""

    @property
    def held_bytes(self) -> int:
        """Of requests that are not whole, and of answers that no window is open for."""
        received = sum(len(call.received) for call in self._streams.values())
        return received + self.waiting_bytes

    @property
    def waiting_bytes(self) -> int:
        """Of answers that no window is open for."""
        return sum(len(call.answer) for call in self._streams.values() if call.answer is not None)

    @property
    def open_calls(self) -> int:
        """Calls received in part or in whole, and not answered in whole."""
        return len(self._streams)

    def data_to_send(self) -> bytes:
        """Bytes for the connection, each once."""
        return self._h2.data_to_send()

    def receive(self, data: bytes) -> list[Call | GivenUp]:
        """What the received bytes ask for. Never raises: a violation sets :attr:`is_over`."""
        if self.is_over:
            return []
        found: list[Call | GivenUp] = []
        if not self._lengths.allow(data):
            self.is_over = True
            self._h2.close_connection(ErrorCodes.FRAME_SIZE_ERROR)
            return found
        try:
            self._is_wider = False
            for event in self._h2.receive_data(data):
                self._handle(event, found)
            if self._is_wider:
                self._send_what_fits()
        except H2Error:
            self.is_over = True  # h2 has written the reason for the other side
        return found

    def close(self) -> None:
        """Take no more calls."""
        if not self.is_over:
            self.is_over = True
            self._h2.close_connection()

    def forget(self) -> None:
        """The connection has ended: nothing is called any more."""
        self.is_over = True
        self._streams.clear()
        self._h2.forget()

    # --- receiving --------------------------------------------------------------------------------

    def _handle(self, event: Event, found: list[Call | GivenUp]) -> None:
        match event:
            case RequestReceived():
                self._begin(event)
            case DataReceived():
                self._take(event)
            case StreamEnded() if event.stream_id in self._streams:
                self._end(event.stream_id, found)
            case StreamReset() if event.stream_id in self._streams:
                del self._streams[event.stream_id]
                found.append(GivenUp(event.stream_id))
                self._given_up += 1
                if self._given_up > _MAX_GIVEN_UP + self._finished:
                    self.is_over = True
                    self._h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            case WindowUpdated() | RemoteSettingsChanged():
                self._is_wider = True

    def _begin(self, event: RequestReceived) -> None:
        stream = event.stream_id
        assert stream is not None
        headers = {_text(name): _text(value) for name, value in event.headers or ()}
        kind = headers.get("content-type", "")
        self._streams[stream] = _Stream(headers.get(":path", ""), headers.get("authorization", ""))
        if headers.get(":method") != "POST" or not kind.startswith("application/grpc"):
            self._h2.send_headers(stream, [(":status", "415")], end_stream=True)
            self._drop(stream)

    def _take(self, event: DataReceived) -> None:
        stream = event.stream_id
        assert stream is not None
        self._h2.acknowledge_received_data(event.flow_controlled_length or 0, stream)
        call = self._streams.get(stream)
        if call is None or call.answer is not None:
            return
        call.received += event.data or b""
        if len(call.received) > _PREFIX_BYTES + self._limits.message_bytes:
            text = f"a request of more than {self._limits.message_bytes} bytes"
            self.refuse(stream, GrpcStatus.RESOURCE_EXHAUSTED, text)
            self._drop(stream)

    def _end(self, stream: int, found: list[Call | GivenUp]) -> None:
        call = self._streams[stream]
        body = bytes(call.received)
        call.received = bytearray()
        size = int.from_bytes(body[1:_PREFIX_BYTES], "big")
        if len(body) < _PREFIX_BYTES or body[0] != 0 or size != len(body) - _PREFIX_BYTES:
            text = "expected one message, not compressed"
            self.refuse(stream, GrpcStatus.UNIMPLEMENTED, text)
            return
        found.append(Call(stream, call.path, body[_PREFIX_BYTES:], call.authorization))

    def _drop(self, stream: int) -> None:
        """Answered before the client has said all: it need not go on."""
        self._streams.pop(stream, None)
        with suppress(StreamClosedError):  # it has said all already
            self._h2.reset_stream(stream, ErrorCodes.NO_ERROR)

    # --- answering --------------------------------------------------------------------------------

    def answer(self, stream: int, message: bytes) -> None:
        """Answer a call; no effect when its client is gone."""
        call = self._streams.get(stream)
        if call is None or self.is_over:
            return
        headers = [(":status", "200"), ("content-type", "application/grpc")]
        self._h2.send_headers(stream, headers)
        call.answer = memoryview(b"\0" + len(message).to_bytes(4, "big") + message)
        self._send(stream, call)

    def refuse(self, stream: int, status: GrpcStatus, text: str) -> None:
        """End a call without an answer; no effect when its client is gone."""
        if self._streams.pop(stream, None) is None or self.is_over:
            return
        self._finished += 1
        headers = [
            (":status", "200"),
            ("content-type", "application/grpc"),
            ("grpc-status", str(int(status))),
            ("grpc-message", quote(text[:_MAX_TEXT], safe=" !#$&'()*+,/:;=?@[]")),
        ]
        self._h2.send_headers(stream, headers, end_stream=True)

    def _send_what_fits(self) -> None:
        """Send as much of waiting answers as the client's windows take."""
        for stream, call in list(self._streams.items()):
            self._send(stream, call)

    def _send(self, stream: int, call: _Stream) -> None:
        """Send as much of one waiting answer as the client's windows take."""
        while call.answer is not None and not self.is_over:
            window = self._h2.local_flow_control_window(stream)
            size = min(window, self._h2.max_outbound_frame_size, len(call.answer))
            if size <= 0:
                break
            self._h2.send_data(stream, bytes(call.answer[:size]))
            call.answer = call.answer[size:]
            self.sent_bytes += size
            if not call.answer:
                self._h2.send_headers(stream, [("grpc-status", "0")], end_stream=True)
                del self._streams[stream]
                self._finished += 1
                break


def _text(value: bytes | str) -> str:
    """A header's name or value; any bytes are one."""
    return value if isinstance(value, str) else value.decode("latin-1")
