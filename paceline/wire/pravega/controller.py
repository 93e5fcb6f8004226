"""Messages of the controller service (field numbers: its published proto3 file).

Only what is served has a class. Statuses are plain numbers here; what they mean differs from call
to call and is said where they are given out.
"""

from __future__ import annotations

from paceline.values import dataclass
from paceline.wire.pravega.protobuf import BOOL, DOUBLE, INT, STRING, ProtoMessage, many, message

SERVICE = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"


@dataclass(frozen=True, slots=True)
class Empty(ProtoMessage):
    """A message without fields, or of whose fields none matter."""


@dataclass(frozen=True, slots=True)
class ScopeInfo(ProtoMessage):
    FIELDS = ((1, STRING),)
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Token(ProtoMessage):
    """Where a listing goes on; also a delegation token."""

    FIELDS = ((1, STRING),)
    token: str = ""


@dataclass(frozen=True, slots=True)
class Status(ProtoMessage):
    """The answer of most calls; 0 is success."""

    FIELDS = ((1, INT),)
    status: int = 0


@dataclass(frozen=True, slots=True)
class Exists(ProtoMessage):
    FIELDS = ((1, BOOL),)
    exists: bool = False


@dataclass(frozen=True, slots=True)
class ScopesRequest(ProtoMessage):
    FIELDS = ((1, message(Token)),)
    token: Token = Token()


@dataclass(frozen=True, slots=True)
class ScopesResponse(ProtoMessage):
    FIELDS = ((1, many(STRING)), (2, message(Token)))
    scopes: tuple[str, ...] = ()
    token: Token | None = None


@dataclass(frozen=True, slots=True)
class StreamInfo(ProtoMessage):
    FIELDS = ((1, STRING), (2, STRING), (3, INT))
    scope: str = ""
    stream: str = ""
    access: int = 0


@dataclass(frozen=True, slots=True)
class StreamsRequest(ProtoMessage):
    FIELDS = ((1, message(ScopeInfo)), (2, message(Token)))
    scope: ScopeInfo = ScopeInfo()
    token: Token = Token()


@dataclass(frozen=True, slots=True)
class TaggedStreamsRequest(ProtoMessage):
    FIELDS = ((1, message(ScopeInfo)), (2, STRING), (3, message(Token)))
    scope: ScopeInfo = ScopeInfo()
    tag: str = ""
    token: Token = Token()


@dataclass(frozen=True, slots=True)
class StreamsResponse(ProtoMessage):
    """``status`` 2: there is no such scope."""

    FIELDS = ((1, many(message(StreamInfo))), (2, message(Token)), (3, INT))
    streams: tuple[StreamInfo, ...] = ()
    token: Token | None = None
    status: int = 0


@dataclass(frozen=True, slots=True)
class ScalingPolicy(ProtoMessage):
    FIELDS = ((1, INT), (2, INT), (3, INT), (4, INT))
    scale_type: int = 0
    target_rate: int = 0
    scale_factor: int = 0
    min_segments: int = 0


@dataclass(frozen=True, slots=True)
class RetentionPolicy(ProtoMessage):
    FIELDS = ((1, INT), (2, INT), (3, INT))
    retention_type: int = 0
    param: int = 0
    maximum: int = 0


@dataclass(frozen=True, slots=True)
class Tags(ProtoMessage):
    FIELDS = ((1, many(STRING)),)
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamConfig(ProtoMessage):
    """In answers every part is sent: real clients take them for granted."""

    FIELDS = (
        (1, message(StreamInfo)),
        (2, message(ScalingPolicy)),
        (3, message(RetentionPolicy)),
        (4, message(Tags)),
    )
    stream: StreamInfo | None = None
    scaling: ScalingPolicy | None = None
    retention: RetentionPolicy | None = None
    tags: Tags | None = None


@dataclass(frozen=True, slots=True)
class SegmentId(ProtoMessage):
    """``number``: epoch times 2^32 plus the segment's number."""

    FIELDS = ((1, message(StreamInfo)), (2, INT))
    stream: StreamInfo = StreamInfo()
    number: int = 0


@dataclass(frozen=True, slots=True)
class SegmentRange(ProtoMessage):
    """A segment takes the routing keys whose hash is in ``low`` to ``high``."""

    FIELDS = ((1, message(SegmentId)), (2, DOUBLE), (3, DOUBLE))
    segment: SegmentId | None = None
    low: float = 0.0
    high: float = 0.0


@dataclass(frozen=True, slots=True)
class SegmentRanges(ProtoMessage):
    FIELDS = ((1, many(message(SegmentRange))), (2, STRING))
    ranges: tuple[SegmentRange, ...] = ()
    token: str = ""


@dataclass(frozen=True, slots=True)
class GetSegmentsRequest(ProtoMessage):
    """``timestamp`` 0: where the stream begins now."""

    FIELDS = ((1, message(StreamInfo)), (2, INT))
    stream: StreamInfo = StreamInfo()
    timestamp: int = 0


@dataclass(frozen=True, slots=True)
class SegmentLocation(ProtoMessage):
    FIELDS = ((1, message(SegmentId)), (2, INT))
    segment: SegmentId | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class SegmentsAtTime(ProtoMessage):
    FIELDS = ((1, many(message(SegmentLocation))), (2, STRING))
    segments: tuple[SegmentLocation, ...] = ()
    token: str = ""


@dataclass(frozen=True, slots=True)
class Successors(ProtoMessage):
    """None, always: the number of a stream's segments is fixed, so a segment that ended has no
    successor, which clients take for the end of the stream."""

    FIELDS = ((2, STRING),)
    token: str = ""


@dataclass(frozen=True, slots=True)
class NodeUri(ProtoMessage):
    FIELDS = ((1, STRING), (2, INT))
    host: str = ""
    port: int = 0


@dataclass(frozen=True, slots=True)
class Servers(ProtoMessage):
    FIELDS = ((1, many(message(NodeUri))),)
    nodes: tuple[NodeUri, ...] = ()
