"""Requests of a segment connection that are not appends: set-up, reads, administration.

Each runs beside the connection's reader, so that one that waits holds up nothing else. Replies to
the same kind of request on the same segment leave in the order of the requests (DESIGN 8.4).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog

from paceline.errors import ErrorCode, PacelineError, TopicAlreadyExists
from paceline.wire.segment import messages as m
from paceline.wire.segment.errors import ReplyCode
from paceline.wire.segment.names import SegmentPlace, place_of
from paceline.wire.segment.server import SetUp
from paceline_node.env import Env
from paceline_node.listeners.segment.appends import LISTENER, Appends
from paceline_node.listeners.segment.errors import MOVED, reply_to
from paceline_node.listeners.segment.limits import RequestTimes
from paceline_node.listeners.segment.outbox import SegmentOutbox
from paceline_node.listeners.segment.tail_reads import (
    LEAST_READ_BYTES,
    MAX_READ_REPLY_BYTES,
    TailReads,
)
from paceline_node.observe.metrics import OK, RequestMeters
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.segments.led_segment import LedSegment
from paceline_node.services.segments.segment_reads import SegmentBounds
from paceline_node.services.segments.segment_service import SegmentService
from paceline_node.services.segments.segment_writers import Turn

_NO_ID_TEXT = "a connection id of zeros names no appender"


class SegmentRequests:
    """Carries out one connection's requests."""

    def __init__(
        self,
        env: Env,
        segments: SegmentService,
        principal: Principal,
        outbox: SegmentOutbox,
        appends: Appends,
        times: RequestTimes,
        meters: RequestMeters[str],
    ) -> None:
        self._env = env
        self._segments = segments
        self._principal = principal
        self._outbox = outbox
        self._appends = appends
        self._times = times
        self._meters = meters
        self._tails = TailReads(env, times.read_s)

    def hurry(self) -> None:
        """The client says no more: what waits for data at a tail answers as it is."""
        self._tails.hurry()

    # --- set-up -----------------------------------------------------------------------------------

    async def set_up(self, step: SetUp, turn: Turn) -> None:
        """Answer a SetupAppend that arrived in ``turn`` (services/DESIGN 7.3)."""
        appender = step.appender
        name, connection_id = appender.segment, appender.connection_id
        if connection_id == m.NO_ID:
            appender.fail()
            text, code = _NO_ID_TEXT, ReplyCode.ILLEGAL_ARGUMENT
            self._outbox.send(m.ErrorMessage(connection_id, name, text, code))
            return
        place = place_of(name)
        if place is None:
            appender.fail()
            self._outbox.send(m.NoSuchSegment(name))
            return
        arrived = self._env.now()
        try:
            segment = await self._segments.leading(self._principal, Operation.PRODUCE, place)
            if step.replaced is not None:
                # Its own set-up stood before this one in line: nobody else's, so nobody is fenced.
                self._appends.unbind(step.replaced)
            binding = self._appends.bind(appender, place, segment, turn)
            level = 0
            if not binding.dead:
                level = await binding.writer.level(timeout_s=self._times.append_s)
        except PacelineError as error:
            appender.fail()
            self._appends.refused(appender)
            self._count(m.SetupAppend, arrived, error.code.name.lower())
            host = self._segments.leader_address(place, LISTENER)
            self._outbox.send(reply_to(error, name, host, connection_id))
            return
        self._count(m.SetupAppend, arrived, OK)
        if not binding.dead:  # fenced, or set up anew, while it waited: that was told already
            self._appends.ready(binding, level)
            self._outbox.send(m.AppendSetup(name, connection_id, level))

    # --- everything else --------------------------------------------------------------------------

    async def answer(self, request: m.SegmentMessage) -> None:
        """Answer one request, with an error if need be."""
        name: str = getattr(request, "segment")  # noqa: B009  every such request has one
        place = place_of(name)
        if place is None:
            self._outbox.send(_malformed(request, name))
            return
        arrived = self._env.now()
        code = OK
        try:
            await _HANDLERS[type(request)](self, request, place)
        except PacelineError as error:
            code = error.code.name.lower()
            host = ""
            if error.code in MOVED:
                host = self._segments.leader_address(place, LISTENER)
            self._outbox.send(reply_to(error, name, host))
        except Exception as error:  # noqa: BLE001  one request's bug must not end the appenders
            structlog.get_logger().error(
                "segment request failed", request=type(request).__name__, exc_info=error
            )
            text = "broker failure"
            self._outbox.send(m.ErrorMessage(m.NO_ID, name, text, ReplyCode.INTERNAL))
        self._count(type(request), arrived, code)

    def _count(self, kind: type[m.SegmentMessage], arrived: float, code: str) -> None:
        self._meters[kind.__name__].done(code, self._env.now() - arrived)

    async def _create(self, request: m.CreateSegment, place: SegmentPlace) -> None:
        try:
            await self._segments.create(self._principal, place, timeout_s=self._times.append_s)
        except TopicAlreadyExists:
            self._outbox.send(m.SegmentAlreadyExists(request.segment))
        else:
            self._outbox.send(m.SegmentCreated(request.segment))

    async def _delete(self, request: m.DeleteSegment, place: SegmentPlace) -> None:
        await self._segments.delete(self._principal, place, timeout_s=self._times.append_s)
        self._outbox.send(m.SegmentDeleted(request.segment))

    async def _seal(self, request: m.SealSegment, place: SegmentPlace) -> None:
        segment = await self._segments.leading(self._principal, Operation.ALTER, place)
        await segment.seal(timeout_s=self._times.append_s)
        self._outbox.send(m.SegmentSealed(request.segment))

    async def _truncate(self, request: m.TruncateSegment, place: SegmentPlace) -> None:
        segment = await self._segments.leading(self._principal, Operation.ALTER, place)
        await segment.truncate(request.offset, timeout_s=self._times.append_s)
        self._outbox.send(m.SegmentTruncated(request.segment))

    async def _info(self, request: m.GetStreamSegmentInfo, place: SegmentPlace) -> None:
        name = request.segment
        try:
            segment = await self._segments.leading(self._principal, Operation.DESCRIBE, place)
        except PacelineError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            self._outbox.send(m.StreamSegmentInfo(name, False, True, True, 0, 0, 0))
            return
        info = await segment.info(timeout_s=self._times.append_s)
        bounds = info.bounds
        self._outbox.send(
            m.StreamSegmentInfo(
                name,
                True,
                bounds.is_sealed,
                False,
                info.last_modified_ms,
                bounds.end,
                bounds.start,
            )
        )

    # --- reading (DESIGN 8.3) -----------------------------------------------------------------

    async def _read(self, request: m.ReadSegment, place: SegmentPlace) -> None:
        name, position = request.segment, request.offset
        if request.suggested_length < 0 or position < 0:
            text = f"offset {position}, length {request.suggested_length}: neither may be negative"
            self._outbox.send(m.ErrorMessage(m.NO_ID, name, text, ReplyCode.ILLEGAL_ARGUMENT))
            return
        segment = await self._segments.leading(self._principal, Operation.CONSUME, place)
        bounds = await self._tails.bounds(segment, position, request.suggested_length)
        wanted = request.suggested_length and max(LEAST_READ_BYTES, request.suggested_length)
        if position < bounds.start:
            self._outbox.send(m.SegmentIsTruncated(name, bounds.start))
            return
        while True:
            budget = min(wanted, MAX_READ_REPLY_BYTES)
            async with self._outbox.reading(budget):
                parts: list[memoryview] = []
                if wanted and position < bounds.end:
                    parts = await segment.read(position, budget)
                sent = await self._send_data(segment, name, position, parts, wanted)
            position += sent
            wanted -= sent
            bounds = segment.bounds()
            if wanted == 0 or position >= bounds.end:
                return
            segment.check_serving()

    async def _send_data(
        self,
        segment: LedSegment,
        name: str,
        position: int,
        parts: list[memoryview],
        wanted: int,
    ) -> int:
        """Send what was read, ``wanted`` bytes of it at most, in replies of at most 2 MiB; returns
        how many. The last one says whether it reaches the end."""
        rest = memoryview(b"".join(parts))[:wanted]
        total = len(rest)
        while True:
            data, rest = rest[:MAX_READ_REPLY_BYTES], rest[MAX_READ_REPLY_BYTES:]
            await self._outbox.room()
            flags = m.ReadFlags.NONE
            if not rest:
                flags = _flags_at(position + len(data), segment.bounds())
            self._outbox.send(m.SegmentRead(name, position, flags, bytes(data)))
            position += len(data)
            if not rest:
                return total


_Handler = Callable[[SegmentRequests, Any, SegmentPlace], Awaitable[None]]
_HANDLERS: Mapping[type[m.SegmentMessage], _Handler] = {
    m.ReadSegment: SegmentRequests._read,
    m.GetStreamSegmentInfo: SegmentRequests._info,
    m.CreateSegment: SegmentRequests._create,
    m.SealSegment: SegmentRequests._seal,
    m.DeleteSegment: SegmentRequests._delete,
    m.TruncateSegment: SegmentRequests._truncate,
}


def _flags_at(position: int, bounds: SegmentBounds) -> m.ReadFlags:
    if position < bounds.end:
        return m.ReadFlags.NONE
    return m.ReadFlags.END if bounds.is_sealed else m.ReadFlags.TAIL


def _malformed(request: m.SegmentMessage, name: str) -> m.SegmentMessage:
    if isinstance(request, m.CreateSegment):
        text = "a segment's name has 1 to 512 bytes"
        return m.ErrorMessage(m.NO_ID, name, text, ReplyCode.INVALID_NAME)
    if isinstance(request, m.GetStreamSegmentInfo):
        return m.StreamSegmentInfo(name, False, True, True, 0, 0, 0)
    return m.NoSuchSegment(name)
