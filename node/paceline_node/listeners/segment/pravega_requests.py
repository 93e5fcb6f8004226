"""Requests of the Pravega dialect that are not appends: set-up, reads, administration, tables.

Each is answered once, with its request id. Where real clients could only misunderstand an error,
the connection is closed instead (``pravega_errors.py``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from paceline.errors import (
    ErrorCode,
    InvalidRequest,
    InvalidTopic,
    PacelineError,
    UnknownTopicOrPartition,
)
from paceline.wire.segment import pravega_messages as w
from paceline.wire.segment.errors import ReplyCode
from paceline.wire.segment.framing import SegmentMessage
from paceline.wire.segment.names import SegmentPlace, place_of
from paceline_node.env import Env
from paceline_node.listeners.segment.appends import LISTENER
from paceline_node.listeners.segment.errors import MOVED
from paceline_node.listeners.segment.limits import RequestTimes
from paceline_node.listeners.segment.outbox import SegmentOutbox
from paceline_node.listeners.segment.pravega_appends import PravegaAppends
from paceline_node.listeners.segment.pravega_errors import reply_to
from paceline_node.listeners.segment.pravega_tables import TableRequests
from paceline_node.listeners.segment.tail_reads import (
    LEAST_READ_BYTES,
    MAX_READ_REPLY_BYTES,
    TailReads,
)
from paceline_node.observe.metrics import OK, RequestMeters
from paceline_node.observe.rate_limited_log import RateLimitedLog
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.segments.led_segment import LedSegment
from paceline_node.services.segments.segment_service import SegmentService
from paceline_node.services.segments.segment_writers import Turn

_TOLD = frozenset({ErrorCode.AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUEST})
"""What a request to a table is answered with: it will be no better on another connection."""
_LOGGED_CHARACTERS = 300
"""Of an error, which may quote as much as a client likes to say."""


class PravegaRequests:
    """Carries out one connection's requests; ``end`` closes the connection."""

    def __init__(
        self,
        env: Env,
        segments: SegmentService,
        tables: TableRequests,
        who: Callable[[], Principal],
        outbox: SegmentOutbox,
        appends: PravegaAppends,
        times: RequestTimes,
        meters: RequestMeters[str],
        log: RateLimitedLog,
        *,
        end: Callable[[], None],
    ) -> None:
        self._env = env
        self._segments = segments
        self._who = who
        self._outbox = outbox
        self._appends = appends
        self._times = times
        self._meters = meters
        self._log = log
        self._end = end
        self._tails = TailReads(env, times.read_s)
        self._tables = tables

    def hurry(self) -> None:
        """The client says no more: what waits for data answers as it is."""
        self._tails.hurry()

    async def answer(self, request: SegmentMessage, turn: Turn) -> None:
        """Answer one request that arrived in ``turn``, with an error if need be."""
        arrived = self._env.now()
        code = OK
        request_id, name = identity_of(request)
        try:
            if isinstance(request, w.SetupAppend):
                await self._set_up(request, turn)
            else:
                await _HANDLERS[type(request)](self, request)
        except PacelineError as error:
            code = error.code.name.lower()
            self._refuse(error, request_id, name)
        except Exception as error:  # noqa: BLE001  one request's bug must not end the appenders
            code = "internal"
            kind = type(request).__name__
            self._log.error("segment request failed", cause=kind, request=kind, exc_info=error)
            self._outbox.send(
                w.ErrorMessage(request_id, name, "broker failure", ReplyCode.INTERNAL)
            )
        self._meters[type(request).__name__].done(code, self._env.now() - arrived)

    def _refuse(self, error: PacelineError, request_id: int, name: str) -> None:
        place = place_of(name)
        host = ""
        if place is not None and error.code in MOVED:
            host = self._segments.leader_address(place, LISTENER)
        reply = reply_to(error, request_id, name, host)
        if reply is None:
            self._end()
        else:
            self._outbox.send(reply)

    async def _leading(self, name: str, operation: Operation) -> tuple[SegmentPlace, LedSegment]:
        place = place_of(name)
        if place is None:
            raise UnknownTopicOrPartition(f"{name!r} names no segment")
        return place, await self._segments.leading(self._who(), operation, place)

    # --- appending --------------------------------------------------------------------------------

    def create_transient(self, request: w.CreateTransientSegment) -> None:
        """A place in memory for pieces of what is to be merged into a segment, for who may write to
        that. Done at once: what goes there follows without waiting for the answer."""
        try:
            place = place_of(request.parent)
            if place is None:
                raise UnknownTopicOrPartition(f"{request.parent!r} names no segment")
            parent = self._segments.open(self._who(), Operation.PRODUCE, place)
        except PacelineError as error:
            self._refuse(error, request.request_id, request.parent)
            return
        self._appends.create_transient(request, parent)

    async def _set_up(self, request: w.SetupAppend, turn: Turn) -> None:
        if request.writer.int == 0:
            raise InvalidRequest("a writer id of zeros names no writer")
        lead = partial(self._leading, request.segment, Operation.PRODUCE)
        await self._appends.set_up(request, turn, lead)

    async def _merge(self, request: w.MergeSegments) -> None:
        _, segment = await self._leading(request.target, Operation.PRODUCE)
        await self._appends.merge(request, segment)

    # --- reading ----------------------------------------------------------------------------------

    async def _read(self, request: w.ReadSegment) -> None:
        """One reply, of at most 2 MiB (DESIGN 8.3)."""
        name, position = request.segment, request.offset
        if request.suggested_length < 0 or position < 0:
            raise InvalidRequest(f"offset {position}, length {request.suggested_length}")
        _, segment = await self._leading(name, Operation.CONSUME)
        bounds = await self._tails.bounds(segment, position, request.suggested_length)
        if position < bounds.start:
            self._outbox.send(
                w.SegmentIsTruncated(request.request_id, name, bounds.start, "", position)
            )
            return
        wanted = min(max(LEAST_READ_BYTES, request.suggested_length), MAX_READ_REPLY_BYTES)
        async with self._outbox.reading(wanted):
            data = b""
            if request.suggested_length and position < bounds.end:
                parts = await segment.read(position, wanted)
                data = b"".join(parts)[:wanted]
                bounds = segment.bounds()
            await self._outbox.room()
            at_tail = position + len(data) >= bounds.end
            at_end = at_tail and bounds.is_sealed
            self._outbox.send(
                w.SegmentRead(name, position, at_tail, at_end, data, request.request_id)
            )

    # --- administration ---------------------------------------------------------------------------

    async def _info(self, request: w.GetStreamSegmentInfo) -> None:
        _, segment = await self._leading(request.segment, Operation.DESCRIBE)
        info = await segment.info(timeout_s=self._times.append_s)
        self._outbox.send(
            w.StreamSegmentInfo(
                request_id=request.request_id,
                segment=request.segment,
                exists=True,
                is_sealed=info.bounds.is_sealed,
                is_deleted=False,
                last_modified_ms=info.last_modified_ms,
                length=info.bounds.end,
                start_offset=info.bounds.start,
            )
        )

    async def _create(self, request: w.CreateSegment) -> None:
        place = place_of(request.segment)
        if place is None:
            raise InvalidTopic(f"{request.segment!r}: a segment's name has 1 to 512 bytes")
        await self._segments.create(self._who(), place, timeout_s=self._times.append_s)
        self._outbox.send(w.SegmentCreated(request.request_id, request.segment))

    async def _delete(self, request: w.DeleteSegment) -> None:
        place = place_of(request.segment)
        if place is None:
            raise UnknownTopicOrPartition(f"{request.segment!r} names no segment")
        await self._segments.delete(self._who(), place, timeout_s=self._times.append_s)
        self._outbox.send(w.SegmentDeleted(request.request_id, request.segment))

    async def _seal(self, request: w.SealSegment) -> None:
        _, segment = await self._leading(request.segment, Operation.ALTER)
        await segment.seal(timeout_s=self._times.append_s)
        self._outbox.send(w.SegmentSealed(request.request_id, request.segment))

    async def _truncate(self, request: w.TruncateSegment) -> None:
        _, segment = await self._leading(request.segment, Operation.ALTER)
        await segment.truncate(request.offset, timeout_s=self._times.append_s)
        self._outbox.send(w.SegmentTruncated(request.request_id, request.segment))

    # --- tables -----------------------------------------------------------------------------------

    async def _table(self, request: SegmentMessage) -> None:
        try:
            reply = await self._tables.answer(self._who(), request)
        except PacelineError as error:
            if error.code in _TOLD:
                raise
            # Real clients take an error reply to a table request for a bug, and end.
            self._log.info(
                "table request not answered",
                cause=error.code.name,
                request=type(request).__name__,
                error=str(error)[:_LOGGED_CHARACTERS],
            )
            self._end()
        else:
            await self._outbox.room()
            self._outbox.send(reply)


_Handler = Callable[[PravegaRequests, Any], Awaitable[None]]
_HANDLERS: Mapping[type[SegmentMessage], _Handler] = {
    w.MergeSegments: PravegaRequests._merge,
    w.ReadSegment: PravegaRequests._read,
    w.GetStreamSegmentInfo: PravegaRequests._info,
    w.CreateSegment: PravegaRequests._create,
    w.SealSegment: PravegaRequests._seal,
    w.DeleteSegment: PravegaRequests._delete,
    w.TruncateSegment: PravegaRequests._truncate,
    **dict.fromkeys(TableRequests.KINDS, PravegaRequests._table),
}


def identity_of(request: SegmentMessage) -> tuple[int, str]:
    """The request id and the segment that a reply repeats."""
    request_id: int = getattr(request, "request_id")  # noqa: B009  every request here has one
    name = getattr(request, "segment", None) or getattr(request, "target", "")
    return request_id, str(name)
