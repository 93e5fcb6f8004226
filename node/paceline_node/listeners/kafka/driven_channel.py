"""The connection of a consumer that is driven by its coordinator: one task while it rests.

That task reads. Requests are sent from wherever they are decided, as far as the kernel takes them
at once, which for the few bytes of a ping it does; the task is woken only for what is left over. At
most one request is unanswered (groups/DESIGN 6.2), so nothing can pile up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import trio

from paceline.errors import RemoteProtocolError
from paceline.wire.coordinator.codec import Ask, Header, read_response, request_frame
from paceline.wire.coordinator.messages import (
    REBALANCE,
    PingRequest,
    PositionsResponse,
    Question,
    StopRequest,
)
from paceline_node.client_memory import Portion
from paceline_node.listeners.kafka.frames import FrameReader
from paceline_node.net.transport import Transport

RESPONSE_BYTES_MAX = 16 * 1024 * 1024
_CHUNK_BYTES = 512
_PARTITION_BYTES = 512
"""What the coordinator keeps for each partition that a consumer reads: its place in the plan, the
position, the offset committed."""
_LAST_WORD_S = 1.0
_STALL_S = 10.0

Answered = Callable[["ConsumerChannel", int, PositionsResponse | None], None]
"""Told whose answer it is, an error number, and what a Ping or Stop was answered."""


class ConsumerChannel:
    """See :class:`paceline_node.groups.driven_state.Channel`. ``registered`` is the header of
    the consumer's registration, whose layout and version everything has from then on."""

    def __init__(
        self,
        transport: Transport,
        share: Portion,
        registered: Header,
        sender: str,
        may_read: Callable[[str], bool],
        answered: Answered,
    ) -> None:
        self._transport = transport
        self._registered = registered
        self._sender = sender
        self._may_read = may_read
        self._answered = answered
        self._share = share
        self._owned = Portion(share.holding)
        self._untaken = Portion(share.holding)
        self._frames = FrameReader(
            transport,
            share,
            max_bytes=RESPONSE_BYTES_MAX,
            stall_s=_STALL_S,
            chunk_bytes=_CHUNK_BYTES,
        )
        self._correlation_id = 0
        self._asked: Header | None = None
        self._is_told_why = False
        self._is_open = False
        self._unsent: list[bytes | bytearray | memoryview] = []
        self._life = trio.CancelScope()
        self._rest = trio.CancelScope()

    # --- the coordinator's side -------------------------------------------------------------------

    def ask(self, question: Question) -> None:
        self._correlation_id += 1
        registered = self._registered
        self._asked = Header(
            _ask_of(question),
            registered.is_layout_7,
            registered.version,
            self._correlation_id,
            self._sender,
        )
        self._is_told_why = isinstance(question, StopRequest) and question.reason != REBALANCE
        self._send(request_frame(self._asked, question))

    def end(self) -> None:
        if self._is_told_why and self._asked is not None:
            self._life.deadline = trio.current_time() + _LAST_WORD_S
        else:
            self._life.cancel("the coordinator closes the channel")

    def may_read(self, topic: str) -> bool:
        return self._may_read(topic)

    def owns(self, partitions: int) -> None:
        self._owned.set(partitions * _PARTITION_BYTES)

    def _send(self, frame: bytearray) -> None:
        sent = 0
        if self._is_open and not self._unsent:
            try:
                sent = self._transport.send_now([frame])
            except (OSError, trio.ClosedResourceError):
                self._life.cancel("the consumer is gone")
                return
        if sent < len(frame):
            self._unsent.append(memoryview(frame)[sent:])
            self._untaken.set(self._untaken.held_bytes + len(frame))
            self._rest.cancel("there is something to send")

    # --- its own ----------------------------------------------------------------------------------

    async def run(self, first: bytearray | None) -> None:
        """Send ``first``, then serve until either side has had enough. Raises RemoteProtocolError
        for what no consumer may send, and what the transport raises."""
        with self._life:
            if first is not None:
                self._unsent.insert(0, first)
            self._is_open = True
            while not (self._is_told_why and self._asked is None):
                if self._unsent:
                    await self._send_rest()
                    continue
                with trio.CancelScope() as self._rest:
                    await self._frames.begin()
                if self._rest.cancelled_caught:
                    continue
                frame = await self._frames.receive()
                if frame is None:
                    return
                self._take(frame)
                self._share.give(len(frame))

    async def _send_rest(self) -> None:
        chunks, self._unsent = self._unsent, []
        held = self._untaken.held_bytes
        with trio.fail_after(_STALL_S):
            await self._transport.send(chunks)
        self._untaken.give(held)

    def _take(self, frame: memoryview) -> None:
        asked = self._asked
        if asked is None:
            raise RemoteProtocolError("a consumer only answers, and was asked nothing")
        response = read_response(asked, frame)
        if response.correlation_id != asked.correlation_id and not asked.is_layout_7:
            raise RemoteProtocolError(
                f"an answer to request {response.correlation_id}, expected {asked.correlation_id}"
            )
        self._asked = None
        self._answered(self, response.error, cast(PositionsResponse | None, response.body))


def _ask_of(question: Question) -> Ask:
    if isinstance(question, PingRequest):
        return Ask.PING
    return Ask.STOP if isinstance(question, StopRequest) else Ask.START
