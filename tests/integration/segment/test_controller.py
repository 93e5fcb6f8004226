"""The controller's calls on a real node: inside TLS, and where a policy refuses."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trio

from paceline.wire.pravega import controller as c
from paceline.wire.pravega.grpc import GrpcStatus
from paceline.wire.pravega.protobuf import ProtoMessage
from paceline.wire.segment.messages import KeepAlive, encode
from paceline_node.security.principals import Operation
from tests.integration.node.certificates import Certificates
from tests.integration.node.nodes import lone_node
from tests.integration.node.test_authorization import ALONE, Guard
from tests.integration.segment.controller_client import CallRefused, ControllerClient

STREAM = c.StreamInfo("shop", "orders")
SCOPE = c.ScopeInfo("shop")
CONFIG = c.StreamConfig(STREAM, c.ScalingPolicy(0, 0, 0, 2))
SEGMENT = c.SegmentId(STREAM, 1)

CALLS: dict[str, tuple[ProtoMessage, Operation]] = {
    "createScope": (c.ScopeInfo("new"), Operation.CREATE),
    "deleteScope": (SCOPE, Operation.DELETE),
    "checkScopeExists": (SCOPE, Operation.DESCRIBE),
    "listScopes": (c.ScopesRequest(), Operation.DESCRIBE),
    "listStreamsInScope": (c.StreamsRequest(SCOPE), Operation.DESCRIBE),
    "listStreamsInScopeForTag": (c.TaggedStreamsRequest(SCOPE, "x"), Operation.DESCRIBE),
    "createStream": (c.StreamConfig(c.StreamInfo("shop", "new")), Operation.CREATE),
    "updateStream": (CONFIG, Operation.ALTER),
    "checkStreamExists": (STREAM, Operation.DESCRIBE),
    "getStreamConfiguration": (STREAM, Operation.DESCRIBE_CONFIGS),
    "sealStream": (STREAM, Operation.ALTER),
    "deleteStream": (STREAM, Operation.DELETE),
    "getCurrentSegments": (STREAM, Operation.DESCRIBE),
    "getSegments": (c.GetSegmentsRequest(STREAM), Operation.DESCRIBE),
    "getSegmentsImmediatelyFollowing": (SEGMENT, Operation.DESCRIBE),
    "getSegmentsImmediatlyFollowing": (SEGMENT, Operation.DESCRIBE),
    "getURI": (SEGMENT, Operation.DESCRIBE),
    "getControllerServerList": (c.Empty(), Operation.DESCRIBE),
}
"""Every call but the one for tokens, which tells nothing."""


async def made(client: ControllerClient) -> None:
    assert await client.call("createScope", SCOPE, c.Status) == c.Status(0)
    assert await client.call("createStream", CONFIG, c.Status) == c.Status(0)


async def state(client: ControllerClient) -> tuple[ProtoMessage, ...]:
    return (
        await client.call("listScopes", c.ScopesRequest(), c.ScopesResponse),
        await client.call("listStreamsInScope", c.StreamsRequest(SCOPE), c.StreamsResponse),
        await client.call("getCurrentSegments", STREAM, c.SegmentRanges),
        await client.call("getStreamConfiguration", STREAM, c.StreamConfig),
    )


async def test_inside_tls(tmp_path: Path) -> None:
    """gRPC clients go away unless HTTP/2 was agreed on in the handshake. Whoever encrypts calls
    encrypts segments too."""
    certificates = Certificates(tmp_path)
    context = ssl.create_default_context(cafile=certificates.authority)
    context.set_alpn_protocols(["h2"])
    flags = {**ALONE, **certificates.settings}
    async with (
        lone_node(tmp_path, flags, tls=("pravega", "segment")) as node,
        ControllerClient(node.addresses["pravega"], context) as client,
    ):
        assert client.protocol == "h2"
        await made(client)
        ranges = await client.call("getCurrentSegments", STREAM, c.SegmentRanges)
        assert [(each.low, each.high) for each in ranges.ranges] == [(0.0, 0.5), (0.5, 1.0)]
        plain = await trio.open_tcp_stream(*node.addresses["segment"])
        async with trio.SSLStream(
            plain, context, server_hostname="localhost", https_compatible=True
        ) as segments:
            await segments.send_all(encode(KeepAlive(b"x")))
            assert await segments.receive_some() == encode(KeepAlive(b"x"))


async def test_what_a_policy_refuses(tmp_path: Path) -> None:
    guard = Guard()
    async with (
        lone_node(tmp_path, ALONE, policy=guard) as node,
        ControllerClient(node.addresses["pravega"]) as client,
    ):
        await made(client)
        before = await state(client)
        with guard.shut():
            for name, (request, operation) in CALLS.items():
                with pytest.raises(CallRefused) as caught:
                    await client.call(name, request, c.Status)
                assert caught.value.status == GrpcStatus.PERMISSION_DENIED, name
                assert [asked for asked, _ in guard.refused] == [operation], name
                guard.refused.clear()
            with pytest.raises(CallRefused):
                await client.call("getDelegationToken", STREAM, c.Token)
        assert await client.call("getDelegationToken", STREAM, c.Token) == c.Token()
        assert await state(client) == before
        assert await client.call("checkStreamExists", c.StreamInfo("shop", "new"), c.Exists) == (
            c.Exists(False)
        )
