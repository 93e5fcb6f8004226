"""The register of scopes and streams: an internal table, one update of which is atomic.

Keys and values::

    scope/<scope>              (empty)
    stream/<scope>/<stream>    a Stream
    first                      where the numbers of a stream begin of which there is no entry

A deleted stream keeps its entry, which says where the numbers of the next one of that name begin:
a position that somebody has kept of a segment must name none of another stream. Is the register
full, such entries go, and ``first`` is at or above all that they said.

A scope's entry is written again, unchanged, whenever a stream begins in it: so the removal of a
scope that was seen empty fails when a stream has begun meanwhile. The same goes for ``first``.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from contextlib import suppress

import msgpack

from paceline.errors import StorageFull
from paceline.values import dataclass
from paceline.wire.message import Message
from paceline.wire.peer.tables import (
    ABSENT,
    TableAnswer,
    TableOperation,
    TableRequest,
    TableStatus,
)
from paceline_node.services.segments.keyvalue_tables import TableService

_REGISTER = "/streams"
"""The table; no client can name it, as its tables' names hold a scope."""
_PAGE = 500
_SCOPE = b"scope/"
_STREAM = b"stream/"
_FIRST = b"first"


class StreamState(enum.IntEnum):
    """Where a stream is in its life."""

    MAKING = 0
    ACTIVE = 1
    SEALED = 2
    DELETED = 3


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
    """A stream's entry. Its ``segments`` are numbered from ``first`` on; they share the keys
    evenly. Of a deleted one: it has none, and the next begins there."""

    state: StreamState
    segments: int
    config: StreamConfig
    first: int = 0

    @property
    def numbers(self) -> range:
        """Of its segments."""
        return range(self.first, self.first + self.segments)


@dataclass(frozen=True, slots=True)
class Found:
    """What the register has under a stream's name; ``version`` is ABSENT for nothing, and
    ``stream`` then a deleted one."""

    stream: Stream
    version: int
    first_version: int
    """Of the entry that says where numbers begin."""


class StreamRegistry:
    """``timeout_s``: how long one request may take. Methods raise NotLeader with nothing done,
    StorageFull, and errors of unknown outcome, after which they may be called again."""

    def __init__(self, tables: TableService, *, timeout_s: float) -> None:
        self._tables = tables
        self._timeout_s = timeout_s

    @property
    def is_there(self) -> bool:
        """Whether it may hold anything, as far as this node knows."""
        return self._tables.are_there

    # --- scopes -----------------------------------------------------------------------------------

    async def create_scope(self, scope: str) -> bool:
        """Whether there was none."""
        return await self._add({_scope_key(scope): (b"", ABSENT)})

    async def scope_version(self, scope: str) -> int:
        """ABSENT where there is no such scope."""
        return (await self._get(_scope_key(scope))).versions[0]

    async def remove_scope(self, scope: str, version: int) -> bool:
        """Whether it was as it was seen."""
        return await self._remove({_scope_key(scope): version})

    async def scopes(self, after: str) -> list[str]:
        """Names behind ``after``, in order, some at a time; none at the end."""
        return [name for name, _, _ in await self._page(_SCOPE, after)]

    # --- streams ----------------------------------------------------------------------------------

    async def find(self, scope: str, stream: str) -> Found:
        """What is known of a stream."""
        answer = await self._get(_stream_key(scope, stream), _FIRST)
        if answer.versions[0] != ABSENT:
            return Found(_unpacked(answer.values[0]), *answer.versions)
        first = 0 if answer.versions[1] == ABSENT else msgpack.unpackb(answer.values[1])
        return Found(Stream(StreamState.DELETED, 0, StreamConfig(), first), *answer.versions)

    async def begin(
        self, scope: str, stream: str, found: Found, entry: Stream, scope_version: int
    ) -> bool:
        """Let a stream begin in its scope; whether all was as it was seen."""
        cells = {
            _scope_key(scope): (b"", scope_version),
            _stream_key(scope, stream): (_packed(entry), found.version),
        }
        if found.version == ABSENT:
            cells[_FIRST] = (msgpack.packb(found.stream.first), found.first_version)
        return await self._add(cells)

    async def put(self, scope: str, stream: str, found: Found, entry: Stream) -> bool:
        """Change an entry; whether it was as it was seen."""
        return await self._update({_stream_key(scope, stream): (_packed(entry), found.version)})

    async def streams(self, scope: str, after: str) -> Sequence[tuple[str, Stream]]:
        """Names behind ``after`` and their entries, in order, some at a time; none at the end."""
        found = await self._page(_stream_prefix(scope), after)
        return [(name, _unpacked(value)) for name, value, _ in found]

    # --- room -------------------------------------------------------------------------------------

    async def _add(self, cells: dict[bytes, tuple[bytes, int]]) -> bool:
        """Update cells of which some are new."""
        with suppress(StorageFull):
            return await self._update(cells)
        await self._forget_deleted()
        return await self._update(cells)

    async def _forget_deleted(self) -> None:
        """Make room, if deleted streams have some."""
        after = ""
        while page := await self._page(_STREAM, after):
            entries = {name: _unpacked(value) for name, value, _ in page}
            gone = [each for each in page if entries[each[0]].state is StreamState.DELETED]
            if gone:
                first = max(entries[name].first for name, _, _ in gone)
                if await self._raise_first(first):
                    await self._remove({_STREAM + name.encode(): at for name, _, at in gone})
                return
            after = page[-1][0]

    async def _raise_first(self, first: int) -> bool:
        answer = await self._get(_FIRST)
        if answer.versions[0] != ABSENT and msgpack.unpackb(answer.values[0]) >= first:
            return True
        return await self._update({_FIRST: (msgpack.packb(first), answer.versions[0])})

    # --- the table --------------------------------------------------------------------------------

    async def _get(self, *keys: bytes) -> TableAnswer:
        return await self._ask(TableRequest(TableOperation.GET, _REGISTER, keys=keys))

    async def _page(self, prefix: bytes, after: str) -> list[tuple[str, bytes, int]]:
        """Names, values and versions of keys with ``prefix``, behind the one called ``after``."""
        start = prefix + after.encode()
        request = TableRequest(TableOperation.LIST, _REGISTER, keys=(start,), count=_PAGE)
        answer = await self._ask(request)
        return [
            (key[len(prefix) :].decode(), value, version)
            for key, value, version in zip(answer.keys, answer.values, answer.versions, strict=True)
            if key.startswith(prefix)
        ]

    async def _update(self, cells: dict[bytes, tuple[bytes, int]]) -> bool:
        """Write cells if each has the version given with it; whether they had."""
        answer = await self._ask(
            TableRequest(
                TableOperation.UPDATE,
                _REGISTER,
                tuple(cells),
                tuple(value for value, _ in cells.values()),
                tuple(version for _, version in cells.values()),
            )
        )
        return answer.status is TableStatus.OK

    async def _remove(self, keys: dict[bytes, int]) -> bool:
        """Remove keys if each has the version given with it; whether they had."""
        wanted = tuple(keys.values())
        request = TableRequest(TableOperation.REMOVE, _REGISTER, tuple(keys), versions=wanted)
        return (await self._ask(request)).status is TableStatus.OK

    async def _ask(self, request: TableRequest) -> TableAnswer:
        """Ask the register, which is made when it is first needed."""
        answer = await self._tables.inside(request, timeout_s=self._timeout_s)
        if answer.status is TableStatus.NO_TABLE:
            made = TableRequest(TableOperation.CREATE, _REGISTER)
            await self._tables.inside(made, timeout_s=self._timeout_s)
            answer = await self._tables.inside(request, timeout_s=self._timeout_s)
        if answer.status is TableStatus.TOO_LARGE:
            raise StorageFull("the register of streams is full (limits.table_keys): delete some")
        return answer


def _scope_key(scope: str) -> bytes:
    return _SCOPE + scope.encode()


def _stream_prefix(scope: str) -> bytes:
    return _STREAM + f"{scope}/".encode()


def _stream_key(scope: str, stream: str) -> bytes:
    return _stream_prefix(scope) + stream.encode()


def _packed(entry: Stream) -> bytes:
    packed: bytes = msgpack.packb(entry.pack())
    return packed


def _unpacked(value: bytes) -> Stream:
    return Stream.unpack(msgpack.unpackb(value))
