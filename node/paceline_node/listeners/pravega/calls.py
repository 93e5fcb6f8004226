"""The controller's calls, in terms of the services.

Statuses are numbers of each call's own answer; the tables here translate. What a stream can do is
``services/segments/pravega_streams.py``'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from paceline.errors import InvalidRequest, UnknownTopicOrPartition
from paceline.types import NodeId
from paceline.wire.pravega import controller as c
from paceline_node.listeners.pravega.listener import Procedure
from paceline_node.security.principals import Principal
from paceline_node.services.segments.pravega_stream_registry import (
    Stream,
    StreamConfig,
    StreamState,
)
from paceline_node.services.segments.pravega_streams import (
    StreamOutcome,
    StreamService,
    segment_place,
)
from paceline_node.services.segments.segment_leaders import SegmentLeaders
from paceline_node.services.topics.topic_service import TopicService

_LISTENER = "segment"
"""The kind whose advertised addresses these clients are told: there the segments are."""
_FAILURE = 1
_CREATE_SCOPE = {StreamOutcome.DONE: 0, StreamOutcome.EXISTS: 2, StreamOutcome.BAD_NAME: 3}
_DELETE_SCOPE = {StreamOutcome.DONE: 0, StreamOutcome.NO_SCOPE: 2, StreamOutcome.NOT_EMPTY: 3}
_CREATE_STREAM = {
    StreamOutcome.DONE: 0,
    StreamOutcome.EXISTS: 2,
    StreamOutcome.NO_SCOPE: 3,
    StreamOutcome.BAD_NAME: 4,
}
_UPDATE_STREAM = {StreamOutcome.DONE: 0, StreamOutcome.NO_STREAM: 2}
_DELETE_STREAM = {StreamOutcome.DONE: 0, StreamOutcome.NO_STREAM: 2, StreamOutcome.NOT_SEALED: 3}
_NO_SCOPE = 2
_NUMBER_MASK = 0xFFFFFFFF
_TOP_KEY = 1.0
"""Hashes of routing keys are below it."""


class PravegaCalls:
    """``leader_wait_s``: how long a question for a segment's place waits for a living leader."""

    def __init__(
        self,
        node_id: NodeId,
        streams: StreamService,
        leaders: SegmentLeaders,
        topics: TopicService,
        *,
        leader_wait_s: float,
    ) -> None:
        self._node_id = node_id
        self._streams = streams
        self._leaders = leaders
        self._topics = topics
        self._leader_wait_s = leader_wait_s

    def procedures(self) -> Mapping[str, Procedure]:
        """Every call that is served, by name."""
        return {
            "createScope": Procedure(c.ScopeInfo, self._create_scope),
            "deleteScope": Procedure(c.ScopeInfo, self._delete_scope),
            "checkScopeExists": Procedure(c.ScopeInfo, self._scope_exists),
            "listScopes": Procedure(c.ScopesRequest, self._list_scopes),
            "listStreamsInScope": Procedure(c.StreamsRequest, self._list_streams),
            "listStreamsInScopeForTag": Procedure(c.TaggedStreamsRequest, self._list_tagged),
            "createStream": Procedure(c.StreamConfig, self._create_stream),
            "updateStream": Procedure(c.StreamConfig, self._update_stream),
            "checkStreamExists": Procedure(c.StreamInfo, self._stream_exists),
            "getStreamConfiguration": Procedure(c.StreamInfo, self._configuration),
            "sealStream": Procedure(c.StreamInfo, self._seal_stream),
            "deleteStream": Procedure(c.StreamInfo, self._delete_stream),
            "getCurrentSegments": Procedure(c.StreamInfo, self._current_segments),
            "getSegments": Procedure(c.GetSegmentsRequest, self._segments),
            "getSegmentsImmediatelyFollowing": Procedure(c.SegmentId, self._successors),
            "getSegmentsImmediatlyFollowing": Procedure(c.SegmentId, self._successors),
            "getURI": Procedure(c.SegmentId, self._uri),
            "getControllerServerList": Procedure(c.Empty, self._servers),
            "getDelegationToken": Procedure(c.StreamInfo, self._delegation_token, c.Token),
        }

    # --- scopes -----------------------------------------------------------------------------------

    async def _create_scope(self, who: Principal, request: c.ScopeInfo) -> c.Status:
        verdict = await self._streams.create_scope(who, request.scope)
        return c.Status(_CREATE_SCOPE.get(verdict, _FAILURE))

    async def _delete_scope(self, who: Principal, request: c.ScopeInfo) -> c.Status:
        verdict = await self._streams.delete_scope(who, request.scope)
        return c.Status(_DELETE_SCOPE.get(verdict, _FAILURE))

    async def _scope_exists(self, who: Principal, request: c.ScopeInfo) -> c.Exists:
        return c.Exists(await self._streams.has_scope(who, request.scope))

    async def _list_scopes(self, who: Principal, request: c.ScopesRequest) -> c.ScopesResponse:
        names = await self._streams.list_scopes(who, request.token.token)
        after = names[-1] if names else request.token.token
        return c.ScopesResponse(tuple(names), c.Token(after))

    async def _list_streams(self, who: Principal, request: c.StreamsRequest) -> c.StreamsResponse:
        return await self._listing(who, request.scope.scope, request.token.token, None)

    async def _list_tagged(
        self, who: Principal, request: c.TaggedStreamsRequest
    ) -> c.StreamsResponse:
        return await self._listing(who, request.scope.scope, request.token.token, request.tag)

    async def _listing(
        self, who: Principal, scope: str, after: str, tag: str | None
    ) -> c.StreamsResponse:
        names = await self._streams.list_streams(who, scope, after, tag)
        if names is None:
            return c.StreamsResponse((), c.Token(after), _NO_SCOPE)
        found = tuple(c.StreamInfo(scope, name) for name in names)
        return c.StreamsResponse(found, c.Token(names[-1] if names else after))

    # --- streams ----------------------------------------------------------------------------------

    async def _create_stream(self, who: Principal, request: c.StreamConfig) -> c.Status:
        info = _info(request)
        verdict = await self._streams.create(who, info.scope, info.stream, _wanted(request))
        return c.Status(_CREATE_STREAM.get(verdict, _FAILURE))

    async def _update_stream(self, who: Principal, request: c.StreamConfig) -> c.Status:
        info = _info(request)
        verdict = await self._streams.update(who, info.scope, info.stream, _wanted(request))
        return c.Status(_UPDATE_STREAM.get(verdict, _FAILURE))

    async def _stream_exists(self, who: Principal, request: c.StreamInfo) -> c.Exists:
        return c.Exists(await self._streams.find(who, request.scope, request.stream) is not None)

    async def _configuration(self, who: Principal, request: c.StreamInfo) -> c.StreamConfig:
        kept = await self._streams.config(who, request.scope, request.stream)
        if kept is None:
            raise _no_stream(request)
        return c.StreamConfig(
            c.StreamInfo(request.scope, request.stream),
            c.ScalingPolicy(kept.scale_type, kept.target_rate, kept.scale_factor, kept.segments),
            c.RetentionPolicy(kept.retention_type, kept.retention_param, kept.retention_max),
            c.Tags(kept.tags),
        )

    async def _seal_stream(self, who: Principal, request: c.StreamInfo) -> c.Status:
        verdict = await self._streams.seal(who, request.scope, request.stream)
        return c.Status(_UPDATE_STREAM.get(verdict, _FAILURE))

    async def _delete_stream(self, who: Principal, request: c.StreamInfo) -> c.Status:
        verdict = await self._streams.delete(who, request.scope, request.stream)
        return c.Status(_DELETE_STREAM.get(verdict, _FAILURE))

    async def _stream(self, who: Principal, info: c.StreamInfo) -> Stream:
        found = await self._streams.find(who, info.scope, info.stream)
        if found is None:
            raise _no_stream(info)
        return found

    # --- segments ---------------------------------------------------------------------------------

    async def _current_segments(self, who: Principal, request: c.StreamInfo) -> c.SegmentRanges:
        found = await self._stream(who, request)
        if found.state is StreamState.SEALED:
            return c.SegmentRanges()
        bounds = [_TOP_KEY * each / found.segments for each in range(found.segments)]
        bounds.append(_TOP_KEY)
        return c.SegmentRanges(
            tuple(
                c.SegmentRange(_segment_id(request, number), low, high)
                for number, (low, high) in zip(found.numbers, pairwise(bounds), strict=True)
            )
        )

    async def _segments(self, who: Principal, request: c.GetSegmentsRequest) -> c.SegmentsAtTime:
        """Where a stream begins. Positions at other times are not known, so every time gets the
        beginning: nothing is left out."""
        info = request.stream
        found = await self._stream(who, info)
        heads = await self._streams.heads(who, info.scope, info.stream, found)
        return c.SegmentsAtTime(
            tuple(c.SegmentLocation(_segment_id(info, number), start) for number, start in heads)
        )

    async def _successors(self, who: Principal, request: c.SegmentId) -> c.Successors:
        await self._streams.find(who, request.stream.scope, request.stream.stream)
        return c.Successors()

    async def _uri(self, who: Principal, request: c.SegmentId) -> c.NodeUri:
        """Where to ask for a segment: the leader's segment listener, once that leader has answered
        that it is one; real clients try a dead address for ever. Tables are served by any node,
        and their clients never ask again: this one, which they depend on anyway."""
        info = request.stream
        place = segment_place(info.scope, info.stream, request.number & _NUMBER_MASK)
        node = self._node_id
        if place is not None:
            answer = await self._leaders.look(who, place, timeout_s=self._leader_wait_s)
            node = answer.leader
        return self._address(node)

    async def _servers(self, who: Principal, request: c.Empty) -> c.Servers:
        image = self._topics.overview(who)
        endpoints = [broker.endpoint("pravega") for broker in image.brokers.values()]
        return c.Servers(tuple(c.NodeUri(each.host, each.port) for each in endpoints if each))

    async def _delegation_token(self, who: Principal, request: c.StreamInfo) -> c.Token:
        await self._streams.find(who, request.scope, request.stream)  # or it is refused
        return c.Token()

    def _address(self, node: NodeId) -> c.NodeUri:
        broker = self._topics.image.brokers.get(node)
        endpoint = None if broker is None else broker.endpoint(_LISTENER)
        if endpoint is None:
            raise InvalidRequest(f"node {node} has no {_LISTENER} listener")
        return c.NodeUri(endpoint.host, endpoint.port)


def _no_stream(info: c.StreamInfo) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition(f"there is no stream {info.scope}/{info.stream}")


def _info(request: c.StreamConfig) -> c.StreamInfo:
    if request.stream is None:
        raise InvalidRequest("the configuration names no stream")
    return request.stream


def _wanted(request: c.StreamConfig) -> StreamConfig:
    scaling = request.scaling or c.ScalingPolicy()
    retention = request.retention or c.RetentionPolicy()
    return StreamConfig(
        scale_type=scaling.scale_type,
        target_rate=scaling.target_rate,
        scale_factor=scaling.scale_factor,
        segments=scaling.min_segments,
        retention_type=retention.retention_type,
        retention_param=retention.param,
        retention_max=retention.maximum,
        tags=(request.tags or c.Tags()).tags,
    )


def _segment_id(info: c.StreamInfo, number: int) -> c.SegmentId:
    return c.SegmentId(c.StreamInfo(info.scope, info.stream), number)
