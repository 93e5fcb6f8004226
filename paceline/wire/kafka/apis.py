"""Which requests there are, in which versions, and the frames around them.

    request   size i32 | key i16 | version i16 | correlation id i32 | client id str? | body
    response  size i32 | correlation id i32 | body

The client id is always a classic string. In flexible versions a tag section follows the header
of both; only the response of ApiVersions never has one, since who reads it knows no version yet.

The version ranges are a public contract: clients infer features from them (DESIGN 2).
"""

from __future__ import annotations

import struct
from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import NamedTuple

from paceline.errors import RemoteProtocolError, UnsupportedVersion
from paceline.wire.kafka import (
    acls,
    cluster,
    groups,
    offsets,
    quotas,
    reassignments,
    records,
    sasl,
    topics,
    transactions,
)
from paceline.wire.kafka.layout import Apart, Struct
from paceline.wire.kafka.reading import MAX_ITEMS, read_struct, skip_tags
from paceline.wire.kafka.writing import Parts, write_struct

API_VERSIONS = 18
_NEVER = 1 << 15
_HEADER = struct.Struct(">hhih")
_RESPONSE = struct.Struct(">ii")


class Api(NamedTuple):
    """One API: the versions served, the first flexible one, and its two messages."""

    key: int
    first: int
    last: int
    flexible: int
    request: type[Struct]
    response: type[Struct]

    def is_flexible(self, version: int) -> bool:
        """Whether this version uses the flexible encoding."""
        return version >= self.flexible

    def serves(self, version: int) -> bool:
        """Whether the version is in the advertised range."""
        return self.first <= version <= self.last


# fmt: off
_TABLE = (
    Api(0, 0, 9, 9, records.ProduceRequest, records.ProduceResponse),
    Api(1, 0, 12, 12, records.FetchRequest, records.FetchResponse),
    Api(2, 0, 7, 6, records.ListOffsetsRequest, records.ListOffsetsResponse),
    Api(3, 0, 12, 9, cluster.MetadataRequest, cluster.MetadataResponse),
    Api(8, 0, 8, 8, offsets.OffsetCommitRequest, offsets.OffsetCommitResponse),
    Api(9, 0, 8, 6, offsets.OffsetFetchRequest, offsets.OffsetFetchResponse),
    Api(10, 0, 4, 3, cluster.FindCoordinatorRequest, cluster.FindCoordinatorResponse),
    Api(11, 0, 7, 6, groups.JoinGroupRequest, groups.JoinGroupResponse),
    Api(12, 0, 4, 4, groups.HeartbeatRequest, groups.HeartbeatResponse),
    Api(13, 0, 4, 4, groups.LeaveGroupRequest, groups.LeaveGroupResponse),
    Api(14, 0, 5, 4, groups.SyncGroupRequest, groups.SyncGroupResponse),
    Api(15, 0, 5, 5, groups.DescribeGroupsRequest, groups.DescribeGroupsResponse),
    Api(16, 0, 4, 3, groups.ListGroupsRequest, groups.ListGroupsResponse),
    Api(17, 0, 1, _NEVER, sasl.SaslHandshakeRequest, sasl.SaslHandshakeResponse),
    Api(18, 0, 3, 3, cluster.ApiVersionsRequest, cluster.ApiVersionsResponse),
    Api(19, 2, 7, 5, topics.CreateTopicsRequest, topics.CreateTopicsResponse),
    Api(20, 1, 5, 4, topics.DeleteTopicsRequest, topics.DeleteTopicsResponse),
    Api(21, 0, 2, 2, records.DeleteRecordsRequest, records.DeleteRecordsResponse),
    Api(22, 0, 4, 2, transactions.InitProducerIdRequest, transactions.InitProducerIdResponse),
    Api(23, 2, 4, 4, records.OffsetForLeaderEpochRequest, records.OffsetForLeaderEpochResponse),
    Api(24, 0, 3, 3, transactions.AddPartitionsToTxnRequest,
        transactions.AddPartitionsToTxnResponse),
    Api(25, 0, 3, 3, transactions.AddOffsetsToTxnRequest, transactions.AddOffsetsToTxnResponse),
    Api(26, 0, 3, 3, transactions.EndTxnRequest, transactions.EndTxnResponse),
    Api(28, 0, 3, 3, transactions.TxnOffsetCommitRequest, transactions.TxnOffsetCommitResponse),
    Api(29, 0, 3, 2, acls.DescribeAclsRequest, acls.DescribeAclsResponse),
    Api(30, 0, 3, 2, acls.CreateAclsRequest, acls.CreateAclsResponse),
    Api(31, 0, 3, 2, acls.DeleteAclsRequest, acls.DeleteAclsResponse),
    Api(32, 1, 4, 4, topics.DescribeConfigsRequest, topics.DescribeConfigsResponse),
    Api(36, 0, 2, 2, sasl.SaslAuthenticateRequest, sasl.SaslAuthenticateResponse),
    Api(37, 0, 3, 2, topics.CreatePartitionsRequest, topics.CreatePartitionsResponse),
    Api(42, 0, 2, 2, groups.DeleteGroupsRequest, groups.DeleteGroupsResponse),
    Api(44, 0, 1, 1, topics.IncrementalAlterConfigsRequest,
        topics.IncrementalAlterConfigsResponse),
    Api(45, 0, 1, 0, reassignments.AlterPartitionReassignmentsRequest,
        reassignments.AlterPartitionReassignmentsResponse),
    Api(46, 0, 0, 0, reassignments.ListPartitionReassignmentsRequest,
        reassignments.ListPartitionReassignmentsResponse),
    Api(47, 0, 0, _NEVER, offsets.OffsetDeleteRequest, offsets.OffsetDeleteResponse),
    Api(48, 0, 1, 1, quotas.DescribeClientQuotasRequest, quotas.DescribeClientQuotasResponse),
    Api(49, 0, 1, 1, quotas.AlterClientQuotasRequest, quotas.AlterClientQuotasResponse),
    Api(50, 0, 0, 0, sasl.DescribeUserScramCredentialsRequest,
        sasl.DescribeUserScramCredentialsResponse),
    Api(51, 0, 0, 0, sasl.AlterUserScramCredentialsRequest,
        sasl.AlterUserScramCredentialsResponse),
    Api(60, 0, 1, 0, cluster.DescribeClusterRequest, cluster.DescribeClusterResponse),
)
# fmt: on

APIS: Mapping[int, Api] = MappingProxyType({api.key: api for api in _TABLE})


class RequestHeader(NamedTuple):
    """Of any request, known or not."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None


def key_of(frame: memoryview) -> int:
    """The key of a request frame of at least two bytes."""
    return int.from_bytes(frame[:2], "big", signed=True)


def read_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """The header of a request frame (without its size), and the position after the client id.

    Raises RemoteProtocolError. Where the request's version is flexible a tag section follows,
    which :func:`read_request` steps over.
    """
    try:
        key, version, correlation_id, size = _HEADER.unpack_from(frame)
    except struct.error:
        raise RemoteProtocolError(f"a request of {len(frame)} bytes has no header") from None
    start = _HEADER.size
    if size < 0:
        return RequestHeader(key, version, correlation_id, None), start
    end = start + size
    if end > len(frame):
        raise RemoteProtocolError(f"a client id of {size} bytes, {len(frame) - start} are left")
    client_id = str(frame[start:end], "utf-8", "replace")
    return RequestHeader(key, version, correlation_id, client_id), end


def require_api(header: RequestHeader) -> Api:
    """The API a request is of. Raises UnsupportedVersion for an unknown key or version."""
    api = APIS.get(header.key)
    if api is None:
        raise UnsupportedVersion(f"no API has the key {header.key}")
    if not api.serves(header.version):
        raise UnsupportedVersion(
            f"API {header.key} version {header.version}: served are {api.first} to {api.last}"
        )
    return api


def read_request(
    frame: memoryview, position: int, api: Api, version: int, *, at_most: int = MAX_ITEMS
) -> Struct:
    """The body of a request whose header ends at ``position``. Raises RemoteProtocolError, of which
    TooManyItems where it has more than ``at_most``.

    Bytes after it are not looked at, as brokers of this protocol never did: librdkafka 2.16 sends
    some after METADATA 12.
    """
    flexible = api.is_flexible(version)
    if flexible:
        position = _after_header_tags(frame, position)
    return read_struct(
        api.request, version, frame, position, flexible=flexible, may_go_on=True, at_most=at_most
    )


def read_response(frame: memoryview, position: int, api: Api, version: int) -> Struct:
    """The body of a response whose correlation id ends at ``position``. Raises
    RemoteProtocolError."""
    flexible = api.is_flexible(version)
    if flexible and api.key != API_VERSIONS:
        position = _after_header_tags(frame, position)
    return read_struct(api.response, version, frame, position, flexible=flexible)


def _after_header_tags(frame: memoryview, position: int) -> int:
    try:
        return skip_tags(frame, position)
    except IndexError:
        raise RemoteProtocolError("the header's tag section is cut short") from None


def request_frame(header: RequestHeader, request: Struct) -> bytearray:
    """A whole request, size included."""
    api = require_api(header)
    flexible = api.is_flexible(header.version)
    out = bytearray(4)
    client_id = (header.client_id or "").encode()
    size = -1 if header.client_id is None else len(client_id)
    out += _HEADER.pack(header.key, header.version, header.correlation_id, size)
    out += client_id
    if flexible:
        out.append(0)
    write_struct(out, request, header.version, flexible=flexible)
    return _sized(out)


def response_frame(api: Api, version: int, correlation_id: int, response: Struct) -> bytearray:
    """A whole response, size included; nothing of it may lie apart."""
    out = _response_start(api, version, correlation_id)
    write_struct(out, response, version, flexible=api.is_flexible(version))
    return _sized(out)


def response_parts(
    api: Api, version: int, correlation_id: int, response: Struct
) -> list[memoryview | Apart]:
    """A whole response of which records may lie apart, in the order in which it is sent."""
    out = Parts(_response_start(api, version, correlation_id))
    write_struct(out, response, version, flexible=api.is_flexible(version))
    out[:4] = (len(out) - 4 + sum(part.size for _, part in out.gaps)).to_bytes(4, "big")
    view = memoryview(out)
    parts: list[memoryview | Apart] = []
    start = 0
    for end, part in out.gaps:
        parts += [view[start:end], part]
        start = end
    parts.append(view[start:])
    return parts


def _response_start(api: Api, version: int, correlation_id: int) -> bytearray:
    out = bytearray(_RESPONSE.pack(0, correlation_id))
    if api.is_flexible(version) and api.key != API_VERSIONS:
        out.append(0)
    return out


def _sized(out: bytearray) -> bytearray:
    out[:4] = (len(out) - 4).to_bytes(4, "big")
    return out


def version_unknown_response(correlation_id: int) -> bytearray:
    """What any ApiVersions request beyond ours is told: error 35 in version 0, and our range."""
    api = APIS[API_VERSIONS]
    response = cluster.ApiVersionsResponse(
        error_code=UnsupportedVersion.code,
        api_keys=(
            cluster.ApiVersionsResponseApi(
                api_key=API_VERSIONS, min_version=api.first, max_version=api.last
            ),
        ),
    )
    return response_frame(api, 0, correlation_id, response)


def advertised(served: Container[int]) -> cluster.ApiVersionsResponse:
    """What ApiVersions answers where the APIs ``served`` are."""
    return cluster.ApiVersionsResponse(
        error_code=0,
        api_keys=tuple(
            cluster.ApiVersionsResponseApi(
                api_key=api.key, min_version=api.first, max_version=api.last
            )
            for api in _TABLE
            if api.key in served
        ),
    )
