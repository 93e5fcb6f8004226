"""Frames of the coordinator protocol in both of its layouts.

    layout 8  request   size i32 | type i16 | version i16 | correlation id i32 | client str | body
              response  size i32 | correlation id i32 | version i16 | error i16 | body
    layout 7  request   size i32 | type i16 | body
              response  size i32 | error i16 | body

              Consult  Register  Ping  Stop  Start
    layout 8     1000      1001  1002  1003   1004
    layout 7     1100      1101  1102  1103   1104

All numbers big-endian; str is i16 length and UTF-8; a frame must be consumed exactly. Layout 7
names partitions by strings: decimal digits, of which a leading ``<broker>-`` is ignored. Where an
error is told the body is left out, except Consult's. Rules: DESIGN 1.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, NamedTuple

from paceline.errors import RemoteProtocolError, UnsupportedVersion
from paceline.values import dataclass
from paceline.wire.coordinator.messages import (
    Assigned,
    ConsultRequest,
    ConsultResponse,
    PingRequest,
    Position,
    PositionsResponse,
    RegisterRequest,
    RegisterResponse,
    StartRequest,
    StopRequest,
)
from paceline.wire.kafka.layout import I64, Str, Struct, short_count
from paceline.wire.kafka.reading import read_struct
from paceline.wire.kafka.writing import write_struct

LAST_VERSION = 1
_TYPE_8 = 1000
_TYPE_7 = 1100
_TYPE = struct.Struct(">h")
_HEADER_8 = struct.Struct(">hhih")
_RESPONSE_8 = struct.Struct(">ihh")
_LAST_PARTITION = (1 << 31) - 1


class Ask(enum.IntEnum):
    """The requests, as they are counted within each layout's types."""

    CONSULT = 0
    REGISTER = 1
    PING = 2
    STOP = 3
    START = 4


@dataclass(frozen=True, slots=True)
class Header:
    """Of a request. Layout 7 knows neither versions (it is 0) nor correlation and client ids."""

    ask: Ask
    is_layout_7: bool = False
    version: int = 0
    correlation_id: int = 0
    client_id: str | None = None


class Response(NamedTuple):
    """An answer; ``body`` is None where there is none."""

    correlation_id: int
    error: int
    body: Struct | None


_REQUESTS: Mapping[Ask, type[Struct]] = MappingProxyType(
    {
        Ask.CONSULT: ConsultRequest,
        Ask.REGISTER: RegisterRequest,
        Ask.PING: PingRequest,
        Ask.STOP: StopRequest,
        Ask.START: StartRequest,
    }
)
_RESPONSES: Mapping[Ask, type[Struct]] = MappingProxyType(
    {
        Ask.CONSULT: ConsultResponse,
        Ask.REGISTER: RegisterResponse,
        Ask.PING: PositionsResponse,
        Ask.STOP: PositionsResponse,
    }
)


def ask_of(request_type: int) -> tuple[Ask, bool] | None:
    """Which request a type is, and whether in layout 7; None for those of other protocols."""
    for first, is_layout_7 in ((_TYPE_8, False), (_TYPE_7, True)):
        if first <= request_type < first + len(Ask):
            return Ask(request_type - first), is_layout_7
    return None


def read_header(frame: memoryview) -> tuple[Header, int]:
    """The header of a request frame (without its size) and where the body starts. Raises
    RemoteProtocolError."""
    try:
        found = ask_of(_TYPE.unpack_from(frame)[0])
        if found is None:
            raise RemoteProtocolError("not a request of the coordinator protocol")
        ask, is_layout_7 = found
        if is_layout_7:
            return Header(ask, is_layout_7=True), _TYPE.size
        _, version, correlation_id, size = _HEADER_8.unpack_from(frame)
    except struct.error:
        raise RemoteProtocolError(f"a request of {len(frame)} bytes has no header") from None
    end = _HEADER_8.size + max(size, 0)
    if end > len(frame):
        raise RemoteProtocolError(f"a client id of {size} bytes goes beyond the frame")
    client_id = None
    if size >= 0:
        client_id = str(frame[_HEADER_8.size : end], "utf-8", "replace")
    return Header(ask, False, version, correlation_id, client_id), end


def read_request(header: Header, frame: memoryview, start: int) -> Struct:
    """The body of a request. Raises UnsupportedVersion and RemoteProtocolError."""
    if not 0 <= header.version <= LAST_VERSION:
        raise UnsupportedVersion(f"version {header.version}: served are 0 to {LAST_VERSION}")
    if header.is_layout_7 and header.ask is Ask.START:
        bare = read_struct(_BareStart, 0, frame, start, flexible=False)
        return StartRequest(
            partitions=tuple(
                Assigned(topic=part.topic, partition=_number(part.partition), offset=part.offset)
                for part in bare.partitions
            )
        )
    body = read_struct(_REQUESTS[header.ask], header.version, frame, start, flexible=False)
    if isinstance(body, RegisterRequest):
        _check(body)
    return body


def request_frame(header: Header, body: Struct) -> bytearray:
    """A whole request, size included."""
    out = bytearray(4)
    if header.is_layout_7:
        out += _TYPE.pack(_TYPE_7 + header.ask)
        body = _bare(body)
    else:
        client_id = (header.client_id or "").encode()
        size = -1 if header.client_id is None else len(client_id)
        number = _TYPE_8 + header.ask
        out += _HEADER_8.pack(number, header.version, header.correlation_id, size)
        out += client_id
    write_struct(out, body, header.version, flexible=False)
    return _sized(out)


def response_frame(header: Header, error: int, body: Struct | None) -> bytearray:
    """A whole response to the request with ``header``, size included."""
    out = bytearray(4)
    if header.is_layout_7:
        out += _TYPE.pack(error)
        body = None if body is None else _bare(body)
    else:
        version = header.version if 0 <= header.version <= LAST_VERSION else LAST_VERSION
        out += _RESPONSE_8.pack(header.correlation_id, version, error)
    if body is not None:
        write_struct(out, body, header.version, flexible=False)
    return _sized(out)


def read_response(header: Header, frame: memoryview) -> Response:
    """The answer to the request with ``header``. Raises RemoteProtocolError."""
    try:
        if header.is_layout_7:
            start = _TYPE.size
            correlation_id, error = 0, _TYPE.unpack_from(frame)[0]
        else:
            start = _RESPONSE_8.size
            correlation_id, _, error = _RESPONSE_8.unpack_from(frame)
    except struct.error:
        raise RemoteProtocolError(f"a response of {len(frame)} bytes has no header") from None
    # A version 0 consumer that does not commit by itself answers Ping and Stop with nothing.
    is_bare = len(frame) == start and (error != 0 or header.version == 0)
    if is_bare or header.ask is Ask.START:
        if len(frame) != start:
            raise RemoteProtocolError(f"{len(frame) - start} bytes follow the message")
        return Response(correlation_id, error, None)
    return Response(correlation_id, error, _response_body(header, frame, start))


def _response_body(header: Header, frame: memoryview, start: int) -> Struct:
    cls = _RESPONSES[header.ask]
    if not (header.is_layout_7 and cls is PositionsResponse):
        return read_struct(cls, header.version, frame, start, flexible=False)
    bare = read_struct(_BarePositions, 0, frame, start, flexible=False)
    return PositionsResponse(
        positions=tuple(
            Position(topic=part.topic, partition=_number(part.partition), offset=part.offset)
            for part in bare.partitions
        )
    )


def _check(request: RegisterRequest) -> None:
    if request.auto_commit not in (0, 1):
        raise RemoteProtocolError(f"auto_commit is {request.auto_commit}, expected 0 or 1")
    if request.auto_offset_rest not in ("smallest", "largest"):
        raise RemoteProtocolError(
            f"auto_offset_rest is {request.auto_offset_rest!r}, expected smallest or largest"
        )
    if request.pattern_kind not in (0, 1, 2):
        raise RemoteProtocolError(f"pattern_kind is {request.pattern_kind}, expected 0, 1 or 2")
    if request.pattern_kind and len(request.topic_count) != 1:
        raise RemoteProtocolError("a topic pattern must be the only entry")


def _sized(out: bytearray) -> bytearray:
    out[:4] = (len(out) - 4).to_bytes(4, "big")
    return out


# --- layout 7: partitions named by strings ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _BarePartition(Struct):
    topic: Str
    partition: Str
    offset: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class _BareStart(Struct):
    partitions: Annotated[tuple[_BarePartition, ...], short_count()] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _BarePositions(Struct):
    partitions: Annotated[tuple[_BarePartition, ...], short_count()] = ()


def _bare(body: Struct) -> Struct:
    if isinstance(body, StartRequest):
        return _BareStart(partitions=tuple(map(_bare_partition, body.partitions)))
    if isinstance(body, PositionsResponse):
        return _BarePositions(partitions=tuple(map(_bare_partition, body.positions)))
    return body


def _bare_partition(part: Assigned | Position) -> _BarePartition:
    return _BarePartition(topic=part.topic, partition=str(part.partition), offset=part.offset)


def _number(name: str) -> int:
    """The partition that a layout 7 name means; brokers of its time wrote ``<broker>-<number>``."""
    digits = name.rpartition("-")[2]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        raise RemoteProtocolError(f"{name!r} names no partition")
    number = int(digits)
    if number > _LAST_PARTITION:
        raise RemoteProtocolError(f"{name!r} names no partition")
    return number
