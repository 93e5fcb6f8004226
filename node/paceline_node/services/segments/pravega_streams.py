"""Scopes and streams of the Pravega segment dialect: made, listed, sealed, removed.

Their register is an internal table (``pravega_stream_registry.py``); a stream's segments are those
of the cluster's metadata. Every step may be taken again, so a request that was cut off in the
middle is finished by the next one of its kind::

    DELETED, or nothing --create--> MAKING --segments made--> ACTIVE --segments sealed--> SEALED --+
        ^                                                                                          |
        +------------------------------------ segments deleted ------------------------------------+

Numbers of segments are not used again under one name: a reader that comes back with the positions
of a deleted stream learns that its segments are gone, and does not go on inside another stream.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from paceline.errors import (
    InvalidPartitions,
    NotLeader,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from paceline.wire.peer.tables import ABSENT
from paceline.wire.segment.names import MAX_SEGMENT_NUMBER, SegmentPlace, place_of
from paceline_node.env import Env
from paceline_node.security.principals import (
    Operation,
    Principal,
    Resource,
    ResourceKind,
)
from paceline_node.services.authorization.authorizer import Authorizer
from paceline_node.services.segments.keyvalue_tables import TableService
from paceline_node.services.segments.pravega_stream_registry import (
    Found,
    Stream,
    StreamConfig,
    StreamRegistry,
    StreamState,
)
from paceline_node.services.segments.segment_leaders import SegmentLeaders
from paceline_node.services.segments.segment_service import SegmentService
from paceline_node.settings.counts import STREAM_SEGMENTS

_TRIES = 20
_NAME = re.compile(r"[A-Za-z0-9.-]{1,248}\Z")


class StreamOutcome(enum.Enum):
    """What became of a request; what is not DONE changed nothing."""

    DONE = "done"
    EXISTS = "exists"
    NO_SCOPE = "no scope"
    NO_STREAM = "no stream"
    BAD_NAME = "bad name"
    NOT_EMPTY = "not empty"
    NOT_SEALED = "not sealed"
    REFUSED = "refused"


def segment_place(scope: str, stream: str, number: int) -> SegmentPlace | None:
    """Where a stream's segment lies; None where the names cannot be a stream's."""
    place = place_of(f"{scope}/{stream}/{number}")
    return place if place is not None and place.topic == f"{scope}_{stream}" else None


class StreamService:
    """``timeout_s``: how long one request may take. Methods raise AuthorizationFailed, NotLeader
    with nothing done, and errors of unknown outcome, after which they may be called again."""

    def __init__(
        self,
        env: Env,
        access: Authorizer,
        tables: TableService,
        segments: SegmentService,
        leaders: SegmentLeaders,
        *,
        timeout_s: float,
    ) -> None:
        self._env = env
        self._access = access
        self._register = StreamRegistry(tables, timeout_s=timeout_s)
        self._segments = segments
        self._leaders = leaders
        self._timeout_s = timeout_s

    # --- scopes -----------------------------------------------------------------------------------

    async def create_scope(self, principal: Principal, scope: str) -> StreamOutcome:
        """Make a scope."""
        self._permit(principal, Operation.CREATE, scope)
        if not _NAME.match(scope):
            return StreamOutcome.BAD_NAME
        return (
            StreamOutcome.DONE if await self._register.create_scope(scope) else StreamOutcome.EXISTS
        )

    async def delete_scope(self, principal: Principal, scope: str) -> StreamOutcome:
        """Remove a scope without streams."""
        self._permit(principal, Operation.DELETE, scope)
        for _ in range(_TRIES):
            version = await self._register.scope_version(scope)
            if version == ABSENT:
                return StreamOutcome.NO_SCOPE
            if not await self._is_empty(scope):
                return StreamOutcome.NOT_EMPTY
            if await self._register.remove_scope(scope, version):
                return StreamOutcome.DONE
        raise _Contended(scope)

    async def has_scope(self, principal: Principal, scope: str) -> bool:
        """Whether there is such a scope."""
        self._permit(principal, Operation.DESCRIBE, scope)
        return await self._register.scope_version(scope) != ABSENT

    async def list_scopes(self, principal: Principal, after: str) -> list[str]:
        """Names of scopes behind ``after``, in order, some at a time; none at the end."""
        self._permit(principal, Operation.DESCRIBE, "")
        return await self._register.scopes(after)

    # --- streams ----------------------------------------------------------------------------------

    async def create(
        self, principal: Principal, scope: str, stream: str, config: StreamConfig
    ) -> StreamOutcome:
        """Make a stream with ``config.segments`` segments. Raises InvalidPartitions when its name's
        numbers are used up, too."""
        self._permit(principal, Operation.CREATE, f"{scope}_{stream}")
        place = segment_place(scope, stream, 0)
        if place is None:
            return StreamOutcome.BAD_NAME
        if not 1 <= config.segments <= STREAM_SEGMENTS.bound:
            return StreamOutcome.REFUSED
        for _ in range(_TRIES):
            found = await self._register.find(scope, stream)
            if found.stream.state is StreamState.MAKING:
                if await self._make(principal, scope, stream, found):
                    return StreamOutcome.DONE
                continue
            if found.stream.state is not StreamState.DELETED:
                return StreamOutcome.EXISTS
            scope_version = await self._register.scope_version(scope)
            if scope_version == ABSENT:
                return StreamOutcome.NO_SCOPE
            first = self._begins_at(place, found.stream.first, config.segments)
            entry = Stream(StreamState.MAKING, config.segments, config, first)
            await self._register.begin(scope, stream, found, entry, scope_version)
        raise _Contended(f"{scope}/{stream}")

    async def update(
        self, principal: Principal, scope: str, stream: str, config: StreamConfig
    ) -> StreamOutcome:
        """Change what is kept of a stream; the number of its segments stays."""
        self._permit(principal, Operation.ALTER, f"{scope}_{stream}")
        for _ in range(_TRIES):
            found = await self._register.find(scope, stream)
            if not _is_made(found.stream):
                return StreamOutcome.NO_STREAM
            entry = replace(found.stream, config=config)
            if await self._register.put(scope, stream, found, entry):
                return StreamOutcome.DONE
        raise _Contended(f"{scope}/{stream}")

    async def seal(self, principal: Principal, scope: str, stream: str) -> StreamOutcome:
        """End all segments of a stream; no effect when they have ended. One that was deleted alone
        has."""
        self._permit(principal, Operation.ALTER, f"{scope}_{stream}")
        for _ in range(_TRIES):
            found = await self._register.find(scope, stream)
            if not _is_made(found.stream):
                return StreamOutcome.NO_STREAM
            if found.stream.state is StreamState.SEALED:
                return StreamOutcome.DONE
            await self._seal_segments(principal, scope, stream, found.stream)
            sealed = replace(found.stream, state=StreamState.SEALED)
            if await self._register.put(scope, stream, found, sealed):
                return StreamOutcome.DONE
        raise _Contended(f"{scope}/{stream}")

    async def delete(self, principal: Principal, scope: str, stream: str) -> StreamOutcome:
        """Remove a sealed stream with all that is in it."""
        self._permit(principal, Operation.DELETE, f"{scope}_{stream}")
        for _ in range(_TRIES):
            found = await self._register.find(scope, stream)
            if found.stream.state is StreamState.DELETED:
                return StreamOutcome.NO_STREAM
            if found.stream.state is StreamState.ACTIVE:
                return StreamOutcome.NOT_SEALED
            await self._delete_segments(principal, _places(scope, stream, found.stream))
            if await self._register.put(scope, stream, found, _gone(found.stream)):
                return StreamOutcome.DONE
        raise _Contended(f"{scope}/{stream}")

    async def forget(self, topic: str) -> None:
        """Let the stream, if any, whose segments ``topic`` holds be no more, sealed or not; they
        are the caller's to delete, who has asked whether that may be (DESIGN 7.6)."""
        scope, _, stream = topic.partition("_")
        if segment_place(scope, stream, 0) is None or not self._register.is_there:
            return
        for _ in range(_TRIES):
            found = await self._register.find(scope, stream)
            if found.stream.state is StreamState.DELETED:
                return
            if await self._register.put(scope, stream, found, _gone(found.stream)):
                return
        raise _Contended(f"{scope}/{stream}")

    async def find(self, principal: Principal, scope: str, stream: str) -> Stream | None:
        """A stream that was made; None when there is none."""
        self._permit(principal, Operation.DESCRIBE, f"{scope}_{stream}")
        found = await self._register.find(scope, stream)
        return found.stream if _is_made(found.stream) else None

    async def config(self, principal: Principal, scope: str, stream: str) -> StreamConfig | None:
        """What was set for a stream that was made; None when there is none."""
        self._permit(principal, Operation.DESCRIBE_CONFIGS, f"{scope}_{stream}")
        found = await self._register.find(scope, stream)
        return found.stream.config if _is_made(found.stream) else None

    async def list_streams(
        self, principal: Principal, scope: str, after: str, tag: str | None = None
    ) -> Sequence[str] | None:
        """Names of a scope's streams behind ``after``, in order, some at a time; none at the end.
        With ``tag``, those that have it. None when there is no such scope."""
        self._permit(principal, Operation.DESCRIBE, scope)
        if await self._register.scope_version(scope) == ABSENT:
            return None
        while page := await self._register.streams(scope, after):
            made = [(name, entry) for name, entry in page if _is_made(entry)]
            if found := [name for name, entry in made if tag is None or tag in entry.config.tags]:
                return found
            after = page[-1][0]
        return []

    async def heads(
        self, principal: Principal, scope: str, name: str, stream: Stream
    ) -> list[tuple[int, int]]:
        """(number, first readable position) of every segment."""
        places = _places(scope, name, stream)
        looks = [
            await self._leaders.look(principal, place, timeout_s=self._timeout_s)
            for place in places
        ]
        return [(place.partition, each.start) for place, each in zip(places, looks, strict=True)]

    # --- parts ------------------------------------------------------------------------------------

    def _permit(self, principal: Principal, operation: Operation, name: str) -> None:
        self._access.resource(principal, operation, Resource(ResourceKind.TOPIC, name))

    def _begins_at(self, place: SegmentPlace, first: int, count: int) -> int:
        """Where ``count`` numbers begin, at ``first`` or above: above all that the topic has or
        had, where one was used before, by a stream of that name or by a segment that was deleted
        alone. Of any other name, what a client of the seed dialect has made becomes the stream's.
        Raises InvalidPartitions when there are no more."""
        if first or self._segments.has_retired(place):
            first = max(first, self._segments.highest_number(place) + 1)
        if first + count > MAX_SEGMENT_NUMBER + 1:
            raise InvalidPartitions(
                f"{place.topic}: {count} numbers from {first} on, at most {MAX_SEGMENT_NUMBER}; "
                "numbers are not used again under one name: choose another name"
            )
        return first

    async def _make(self, principal: Principal, scope: str, stream: str, found: Found) -> bool:
        """Make the segments of a stream that has begun; whether it is made. Otherwise it has other
        numbers now: one of them was used before, which this node had not heard of."""
        made: list[SegmentPlace] = []
        try:
            for place in _places(scope, stream, found.stream):
                # It exists by an earlier try, or by a client of the seed dialect.
                with suppress(TopicAlreadyExists):
                    await self._segments.create(principal, place, timeout_s=self._timeout_s)
                    made.append(place)
        except InvalidPartitions:
            entry, count = found.stream, found.stream.segments
            first = self._begins_at(place, entry.numbers.stop, count)
            await self._delete_segments(principal, made)
            await self._register.put(scope, stream, found, replace(entry, first=first))
            return False
        active = replace(found.stream, state=StreamState.ACTIVE)
        return await self._register.put(scope, stream, found, active)

    async def _seal_segments(
        self, principal: Principal, scope: str, name: str, stream: Stream
    ) -> None:
        for place in _places(scope, name, stream):
            with suppress(UnknownTopicOrPartition):
                await self._leaders.seal(principal, place, timeout_s=self._timeout_s)
                continue
            if not await self._segments.is_gone(place):
                raise NotLeader(f"{place.name}: it was made elsewhere just now; ask again")
            if self._segments.highest_number(place) < 0:
                return  # it went with its topic, and so with all others

    async def _delete_segments(self, principal: Principal, places: Sequence[SegmentPlace]) -> None:
        for place in places:
            try:
                await self._segments.delete(principal, place, timeout_s=self._timeout_s)
            except UnknownTopicOrPartition:
                continue  # gone before

    async def _is_empty(self, scope: str) -> bool:
        after = ""
        while page := await self._register.streams(scope, after):
            if any(entry.state is not StreamState.DELETED for _, entry in page):
                return False
            after = page[-1][0]
        return True


class _Contended(RequestTimedOut):
    """Others changed the same entry again and again."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: changed by others {_TRIES} times; ask again")


def _is_made(entry: Stream) -> bool:
    return entry.state in (StreamState.ACTIVE, StreamState.SEALED)


def _gone(entry: Stream) -> Stream:
    """The entry once its stream is deleted."""
    return Stream(StreamState.DELETED, 0, StreamConfig(), entry.numbers.stop)


def _places(scope: str, name: str, stream: Stream) -> list[SegmentPlace]:
    places = [segment_place(scope, name, number) for number in stream.numbers]
    return [place for place in places if place is not None]
