"""Scopes and streams of the modern segment dialect: made, listed, sealed, removed.

Their register is an internal table; a stream's segments are those of the cluster's metadata. One
update of the register is atomic over its keys, and every step may be taken again, so a request
that was cut off in the middle is finished by the next one of its kind::

    (nothing) --create--> MAKING --segments made--> ACTIVE --segments sealed--> SEALED --+
        ^                                                                                |
        +------------------ segments deleted, then the entry ---------------------------+

A scope's entry is written again, unchanged, whenever a stream begins in it: so the removal of a
scope that was seen empty fails when a stream has begun meanwhile.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence

import msgpack

from paceline.errors import (
    RequestTimedOut,
    StorageFull,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from paceline.values import dataclass
from paceline.wire.message import Message
from paceline.wire.peer.tables import (
    ABSENT,
    TableAnswer,
    TableOperation,
    TableRequest,
    TableStatus,
)
from paceline.wire.segment.names import SegmentPlace, place_of
from paceline_node.env import Env
from paceline_node.security.principals import (
    Operation,
    Principal,
    Resource,
    ResourceKind,
)
from paceline_node.services.access import Access
from paceline_node.services.segment_leaders import SegmentLeaders
from paceline_node.services.segments import SegmentService
from paceline_node.services.tables import TableService
from paceline_node.settings.counts import STREAM_SEGMENTS

_REGISTER = "/streams"
"""The register's table; no client can name it, as its tables' names hold a scope."""
_PAGE = 500
_TRIES = 20
_NAME = re.compile(r"[A-Za-z0-9.-]{1,248}\Z")


class StreamState(enum.IntEnum):
    """Where a stream is in its life."""

    MAKING = 0
    ACTIVE = 1
    SEALED = 2


class Verdict(enum.Enum):
    """What became of a request; what is not DONE changed nothing."""

    DONE = "done"
    EXISTS = "exists"
    NO_SCOPE = "no scope"
    NO_STREAM = "no stream"
    BAD_NAME = "bad name"
    NOT_EMPTY = "not empty"
    NOT_SEALED = "not sealed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class StreamConfig(Message):
    """What a client wants of a stream. The scaling policy is kept and shown; the number of
    segments never changes. The retention policy is kept and shown."""

    scale_type: int = 0
    target_rate: int = 0
    scale_factor: int = 0
    segments: int = 1
    retention_type: int = 0
    retention_param: int = 0
    retention_max: int = 0
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stream(Message):
    """A stream's entry. ``segments`` are numbered from 0; they share the keys evenly."""

    state: StreamState
    segments: int
    config: StreamConfig


@dataclass(frozen=True, slots=True)
class _Found:
    stream: Stream
    version: int


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
        access: Access,
        tables: TableService,
        segments: SegmentService,
        leaders: SegmentLeaders,
        *,
        timeout_s: float,
    ) -> None:
        self._env = env
        self._access = access
        self._tables = tables
        self._segments = segments
        self._leaders = leaders
        self._timeout_s = timeout_s

    # --- scopes -----------------------------------------------------------------------------------

    async def create_scope(self, principal: Principal, scope: str) -> Verdict:
        """Make a scope."""
        self._permit(principal, Operation.CREATE, scope)
        if not _NAME.match(scope):
            return Verdict.BAD_NAME
        status = await self._update({_scope_key(scope): (b"", ABSENT)})
        return Verdict.DONE if status is TableStatus.OK else Verdict.EXISTS

    async def delete_scope(self, principal: Principal, scope: str) -> Verdict:
        """Remove a scope without streams."""
        self._permit(principal, Operation.DELETE, scope)
        for _ in range(_TRIES):
            version = await self._scope_version(scope)
            if version == ABSENT:
                return Verdict.NO_SCOPE
            if (await self._page(_stream_prefix(scope), b"", 1))[0]:
                return Verdict.NOT_EMPTY
            key = _scope_key(scope)
            if await self._remove(key, version) is TableStatus.OK:
                return Verdict.DONE
        raise _Contended(scope)

    async def has_scope(self, principal: Principal, scope: str) -> bool:
        """Whether there is such a scope."""
        self._permit(principal, Operation.DESCRIBE, scope)
        return await self._scope_version(scope) != ABSENT

    async def list_scopes(self, principal: Principal, after: str) -> list[str]:
        """Names of scopes behind ``after``, in order, some at a time; none at the end."""
        self._permit(principal, Operation.DESCRIBE, "")
        names, _ = await self._page(_SCOPE, after.encode(), _PAGE)
        return names

    # --- streams ----------------------------------------------------------------------------------

    async def create(
        self, principal: Principal, scope: str, stream: str, config: StreamConfig
    ) -> Verdict:
        """Make a stream with ``config.segments`` segments."""
        self._permit(principal, Operation.CREATE, f"{scope}_{stream}")
        if segment_place(scope, stream, 0) is None:
            return Verdict.BAD_NAME
        if not 1 <= config.segments <= STREAM_SEGMENTS.bound:
            return Verdict.REFUSED
        for _ in range(_TRIES):
            found = await self._find(scope, stream)
            if found is None:
                scope_version = await self._scope_version(scope)
                if scope_version == ABSENT:
                    return Verdict.NO_SCOPE
                entry = Stream(StreamState.MAKING, config.segments, config)
                await self._update(
                    {
                        _scope_key(scope): (b"", scope_version),
                        _stream_key(scope, stream): (_packed(entry), ABSENT),
                    }
                )
                continue
            if found.stream.state is not StreamState.MAKING:
                return Verdict.EXISTS
            await self._make_segments(principal, scope, stream, found.stream.segments)
            if await self._put(scope, stream, found, StreamState.ACTIVE):
                return Verdict.DONE
        raise _Contended(f"{scope}/{stream}")

    async def update(
        self, principal: Principal, scope: str, stream: str, config: StreamConfig
    ) -> Verdict:
        """Change what is kept of a stream; the number of its segments stays."""
        self._permit(principal, Operation.ALTER, f"{scope}_{stream}")
        for _ in range(_TRIES):
            found = await self._find(scope, stream)
            if found is None or found.stream.state is StreamState.MAKING:
                return Verdict.NO_STREAM
            entry = Stream(found.stream.state, found.stream.segments, config)
            key = _stream_key(scope, stream)
            if await self._update({key: (_packed(entry), found.version)}) is TableStatus.OK:
                return Verdict.DONE
        raise _Contended(f"{scope}/{stream}")

    async def seal(self, principal: Principal, scope: str, stream: str) -> Verdict:
        """End all segments of a stream; no effect when they have ended."""
        self._permit(principal, Operation.ALTER, f"{scope}_{stream}")
        for _ in range(_TRIES):
            found = await self._find(scope, stream)
            if found is None or found.stream.state is StreamState.MAKING:
                return Verdict.NO_STREAM
            if found.stream.state is StreamState.SEALED:
                return Verdict.DONE
            for place in _places(scope, stream, found.stream.segments):
                await self._leaders.seal(principal, place, timeout_s=self._timeout_s)
            if await self._put(scope, stream, found, StreamState.SEALED):
                return Verdict.DONE
        raise _Contended(f"{scope}/{stream}")

    async def delete(self, principal: Principal, scope: str, stream: str) -> Verdict:
        """Remove a sealed stream with all that is in it."""
        self._permit(principal, Operation.DELETE, f"{scope}_{stream}")
        for _ in range(_TRIES):
            found = await self._find(scope, stream)
            if found is None:
                return Verdict.NO_STREAM
            if found.stream.state is StreamState.ACTIVE:
                return Verdict.NOT_SEALED
            for place in _places(scope, stream, found.stream.segments):
                try:
                    await self._segments.delete(principal, place, timeout_s=self._timeout_s)
                except UnknownTopicOrPartition:
                    continue  # gone before
            if await self._remove(_stream_key(scope, stream), found.version) is TableStatus.OK:
                return Verdict.DONE
        raise _Contended(f"{scope}/{stream}")

    async def find(self, principal: Principal, scope: str, stream: str) -> Stream | None:
        """A stream that was made; None when there is none."""
        self._permit(principal, Operation.DESCRIBE, f"{scope}_{stream}")
        found = await self._find(scope, stream)
        if found is None or found.stream.state is StreamState.MAKING:
            return None
        return found.stream

    async def list_streams(
        self, principal: Principal, scope: str, after: str, tag: str | None = None
    ) -> Sequence[str] | None:
        """Names of a scope's streams behind ``after``, in order, some at a time; none at the end.
        With ``tag``, those that have it. None when there is no such scope."""
        self._permit(principal, Operation.DESCRIBE, scope)
        if await self._scope_version(scope) == ABSENT:
            return None
        while True:
            names, values = await self._page(_stream_prefix(scope), after.encode(), _PAGE)
            found = []
            for name, value in zip(names, values, strict=True):
                entry = _unpacked(value)
                hidden = entry.state is StreamState.MAKING
                if not hidden and (tag is None or tag in entry.config.tags):
                    found.append(name)
            if found or not names:
                return found
            after = names[-1]

    async def heads(
        self, principal: Principal, scope: str, stream: str, count: int
    ) -> list[tuple[int, int]]:
        """(number, first readable position) of every segment."""
        places = _places(scope, stream, count)
        looks = [
            await self._leaders.look(principal, place, timeout_s=self._timeout_s)
            for place in places
        ]
        return [(place.partition, each.start) for place, each in zip(places, looks, strict=True)]

    # --- parts ------------------------------------------------------------------------------------

    def _permit(self, principal: Principal, operation: Operation, name: str) -> None:
        self._access.resource(principal, operation, Resource(ResourceKind.TOPIC, name))

    async def _make_segments(
        self, principal: Principal, scope: str, stream: str, count: int
    ) -> None:
        for place in _places(scope, stream, count):
            try:
                await self._segments.create(principal, place, timeout_s=self._timeout_s)
            except TopicAlreadyExists:
                continue  # by an earlier try, or by a client of the seed dialect

    async def _put(self, scope: str, stream: str, found: _Found, state: StreamState) -> bool:
        entry = Stream(state, found.stream.segments, found.stream.config)
        key = _stream_key(scope, stream)
        return await self._update({key: (_packed(entry), found.version)}) is TableStatus.OK

    async def _find(self, scope: str, stream: str) -> _Found | None:
        key = _stream_key(scope, stream)
        answer = await self._ask(TableRequest(TableOperation.GET, _REGISTER, keys=(key,)))
        if answer.versions[0] == ABSENT:
            return None
        return _Found(_unpacked(answer.values[0]), answer.versions[0])

    async def _scope_version(self, scope: str) -> int:
        key = _scope_key(scope)
        answer = await self._ask(TableRequest(TableOperation.GET, _REGISTER, keys=(key,)))
        return answer.versions[0]

    async def _page(self, prefix: bytes, after: bytes, count: int) -> tuple[list[str], list[bytes]]:
        """Names and values of keys with ``prefix``, behind the one called ``after``."""
        request = TableRequest(TableOperation.LIST, _REGISTER, keys=(prefix + after,), count=count)
        answer = await self._ask(request)
        found = [
            (key[len(prefix) :].decode(), value)
            for key, value in zip(answer.keys, answer.values, strict=True)
            if key.startswith(prefix)
        ]
        return [name for name, _ in found], [value for _, value in found]

    async def _update(self, cells: dict[bytes, tuple[bytes, int]]) -> TableStatus:
        """Write cells if each has the version given with it."""
        answer = await self._ask(
            TableRequest(
                TableOperation.UPDATE,
                _REGISTER,
                tuple(cells),
                tuple(value for value, _ in cells.values()),
                tuple(version for _, version in cells.values()),
            )
        )
        return answer.status

    async def _remove(self, key: bytes, version: int) -> TableStatus:
        request = TableRequest(TableOperation.REMOVE, _REGISTER, (key,), versions=(version,))
        return (await self._ask(request)).status

    async def _ask(self, request: TableRequest) -> TableAnswer:
        """Ask the register, which is made when it is first needed."""
        answer = await self._tables.ask(request, timeout_s=self._timeout_s)
        if answer.status is TableStatus.NO_TABLE:
            made = TableRequest(TableOperation.CREATE, _REGISTER)
            await self._tables.ask(made, timeout_s=self._timeout_s)
            answer = await self._tables.ask(request, timeout_s=self._timeout_s)
        if answer.status is TableStatus.TOO_LARGE:
            raise StorageFull("the register of streams is full (limits.table_keys): delete some")
        return answer


class _Contended(RequestTimedOut):
    """Others changed the same entry again and again."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: changed by others {_TRIES} times; ask again")


_SCOPE = b"scope/"


def _scope_key(scope: str) -> bytes:
    return _SCOPE + scope.encode()


def _stream_prefix(scope: str) -> bytes:
    return f"stream/{scope}/".encode()


def _stream_key(scope: str, stream: str) -> bytes:
    return _stream_prefix(scope) + stream.encode()


def _places(scope: str, stream: str, count: int) -> list[SegmentPlace]:
    places = [segment_place(scope, stream, number) for number in range(count)]
    return [place for place in places if place is not None]


def _packed(entry: Stream) -> bytes:
    packed: bytes = msgpack.packb(entry.pack())
    return packed


def _unpacked(value: bytes) -> Stream:
    return Stream.unpack(msgpack.unpackb(value))
