"""Segments of a cluster: creating and ending them, writers, readers.

A segment's name tells its stream, not its node: a request goes to any node, which names the right
one, and goes on from there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import trio

from paceline.client.endpoint import Endpoint
from paceline.client.retry import Backoff
from paceline.client.segment_link import M, Moved, SegmentLink, open_link
from paceline.client.segment_reader import SegmentReader
from paceline.client.segment_writer import SegmentWriter, SegmentWriterSettings, Use
from paceline.client.settings import ClientSettings
from paceline.client.single_error_nursery import open_scope
from paceline.client.transport import Dial
from paceline.errors import (
    ConfigurationError,
    ConnectionLost,
    NotEnoughReplicas,
    RequestTimedOut,
)
from paceline.values import dataclass
from paceline.wire.segment import messages as m

Addresses = Callable[[], Awaitable[Sequence[Endpoint]]]
"""The segment listeners of the cluster's nodes, as known now."""

_WORKED_S = 1.0
"""A use that lasted so long had found what it looked for."""
_CLOSE_S = 1.0
_HOPS = 3
"""Times that a node's word about another is followed without a pause."""


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A segment: readable are the bytes ``start..length``."""

    name: str
    is_sealed: bool
    start: int
    length: int
    last_modified_ms: int


class Segments:
    """Made by :meth:`Client.segments`."""

    def __init__(
        self, addresses: Addresses, dial: Dial, settings: ClientSettings, backoff: Backoff
    ) -> None:
        self._addresses = addresses
        self._dial = dial
        self._settings = settings
        self._backoff = backoff
        self._leaders: dict[str, Endpoint] = {}
        self._idle: dict[Endpoint, SegmentLink] = {}

    # --- administration ---------------------------------------------------------------------------

    async def create(self, name: str) -> None:
        """Make a segment. Raises TopicAlreadyExists, InvalidTopic, and as every request here
        RequestTimedOut when no node answers in the operation timeout."""
        await self._ask(name, m.CreateSegment(name), m.SegmentCreated)

    async def delete(self, name: str) -> None:
        """Remove a segment with its bytes. Raises UnknownTopicOrPartition."""
        await self._ask(name, m.DeleteSegment(name), m.SegmentDeleted)

    async def seal(self, name: str) -> None:
        """End a segment: it takes no more bytes. Raises UnknownTopicOrPartition."""
        await self._ask(name, m.SealSegment(name), m.SegmentSealed)

    async def truncate(self, name: str, start: int) -> None:
        """Give up the bytes before ``start``. Raises UnknownTopicOrPartition, OffsetOutOfRange."""
        await self._ask(name, m.TruncateSegment(name, start), m.SegmentTruncated)

    async def info(self, name: str) -> SegmentInfo | None:
        """What there is to know of a segment; None when there is none of that name."""
        reply = await self._ask(name, m.GetStreamSegmentInfo(name), m.StreamSegmentInfo)
        if not reply.exists:
            return None
        return SegmentInfo(
            name, reply.is_sealed, reply.start_offset, reply.length, reply.last_modified_ms
        )

    async def _ask(self, name: str, request: m.SegmentMessage, kind: type[M]) -> M:
        answers: list[M] = []
        timeout_s = self._settings.operation_timeout_s

        async def use(link: SegmentLink) -> None:
            answers.append(await link.ask(request, kind, timeout_s=timeout_s))

        await self.serve(name, use, timeout_s=timeout_s)
        return answers[0]

    # --- writing and reading ----------------------------------------------------------------------

    @asynccontextmanager
    async def writer(
        self,
        name: str,
        *,
        writer: UUID | None = None,
        settings: SegmentWriterSettings | None = None,
    ) -> AsyncIterator[SegmentWriter]:
        """An appender with an id of its own, or the given one. Leaving the block normally flushes
        it; leaving it by an error or cancellation drops what is not acknowledged."""
        made = SegmentWriter(
            self, name, uuid4() if writer is None else writer, settings or SegmentWriterSettings()
        )
        async with open_scope() as nursery:
            nursery.start_soon(made.run)
            await made.ready()
            yield made
            made.close()
            await made.flush()

    def reader(self, name: str, position: int = 0) -> SegmentReader:
        """A reader from a byte position on."""
        return SegmentReader(self, name, position, timeout_s=self._settings.operation_timeout_s)

    # --- finding the leader -----------------------------------------------------------------------

    async def serve(self, name: str, use: Use, *, timeout_s: float) -> None:
        """Call ``use`` with a link to the node that leads a segment, again after each lost
        connection or move, until it returns.

        When ``use`` returns the link is kept for the next one: no request may be unanswered, no
        block half sent. Raises its other errors; RequestTimedOut when nothing was reached for
        ``timeout_s``.
        """
        give_up = trio.current_time() + timeout_s
        tries = 0
        while True:
            began = trio.current_time()
            endpoint = await self._next(name, tries)
            where: Endpoint | None = None
            reason: Exception
            try:
                await self._use(endpoint, use)
            except Moved as moved:
                reason, where = moved, moved.where
            except (ConnectionLost, NotEnoughReplicas) as error:
                reason = error
            else:
                self._leaders[name] = endpoint
                return
            now = trio.current_time()
            if now - began > _WORKED_S:
                tries, give_up = 0, now + timeout_s
            if now >= give_up:
                raise RequestTimedOut(f"segment {name!r}: {reason}") from reason
            tries += 1
            if where is None or where == endpoint:
                self._leaders.pop(name, None)
            else:
                self._leaders[name] = where
                if tries <= _HOPS:
                    continue
            await trio.sleep(self._backoff.pause_s(tries))

    async def _use(self, endpoint: Endpoint, use: Use) -> None:
        link = self._idle.pop(endpoint, None)
        if link is None:
            link = await open_link(endpoint, self._dial, self._settings)
        try:
            await use(link)
        except BaseException:
            with trio.move_on_after(_CLOSE_S, shield=True):
                await link.close()
            raise
        former = self._idle.get(endpoint)
        self._idle[endpoint] = link
        if former is not None:
            await former.close()

    async def _next(self, name: str, tries: int) -> Endpoint:
        known = self._leaders.get(name)
        if known is not None:
            return known
        addresses = await self._addresses()
        if not addresses:
            raise ConfigurationError("no node of the cluster has a segment listener")
        return addresses[tries % len(addresses)]

    async def close(self) -> None:
        """Close the connections that nobody uses."""
        idle, self._idle = self._idle, {}
        for link in idle.values():
            await link.close()
