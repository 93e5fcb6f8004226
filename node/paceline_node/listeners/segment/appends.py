"""The appenders of one segment connection: collecting, appending, acknowledging, failing.

Whole Events come as runs. They are appended when their block closes, when enough are collected, or
after a moment; acknowledged when they are committed. Nothing here awaits, so what a step of the
protocol asks for has happened, or is queued in order, when its method returns.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field
from functools import partial
from typing import NamedTuple

import trio

from paceline.errors import PacelineError
from paceline.values import dataclass
from paceline.wire.batch import ProducerNamespace
from paceline.wire.segment.appender import Appender
from paceline.wire.segment.errors import ReplyCode
from paceline.wire.segment.messages import (
    ErrorMessage,
    NoSuchSegment,
    SegmentMessage,
    WrongHost,
)
from paceline.wire.segment.names import SegmentPlace
from paceline.wire.segment.server import MAX_RUN_BYTES, Append
from paceline_node.listeners.segment.errors import MOVED, NOT_NOW, reply_to
from paceline_node.listeners.segment.limits import Inflight
from paceline_node.listeners.segment.outbox import SegmentOutbox
from paceline_node.net.deadlines import Deadline, Deadlines
from paceline_node.services.segments.led_segment import LedSegment, SegmentWriter
from paceline_node.services.segments.segment_service import SegmentService
from paceline_node.services.segments.segment_writers import Turn

FLUSH_BYTES = 256 * 1024
FLUSH_S = 0.005
_RETRY_S = 0.05
LISTENER = "segment"


class _Piece(NamedTuple):
    data: bytes
    event_count: int
    end: int


@dataclass(slots=True, eq=False)
class Binding:
    """A ready appender and the writer that it is to its segment.

    ``acked``: committed level. ``appended``: level up to which it was given to the log.
    ``waiting``: batches appended and not committed. ``dead``: nothing more is taken in.
    ``silent``: not even acknowledgements are sent any more.
    """

    appender: Appender
    place: SegmentPlace
    writer: SegmentWriter
    acked: int = 0
    appended: int = 0
    pieces: deque[_Piece] = field(default_factory=deque)
    collected_bytes: int = 0
    waiting: int = 0
    dead: bool = False
    silent: bool = False
    timer: Deadline | None = None
    stalled_until: float | None = None


class Appends:
    """All ready appenders of a connection; ``inflight`` is told what they have received and what
    was committed or given up."""

    def __init__(
        self,
        segments: SegmentService,
        deadlines: Deadlines,
        outbox: SegmentOutbox,
        *,
        append_timeout_s: float,
        inflight: Inflight,
        account: str = "",
    ) -> None:
        self._account = account
        self._segments = segments
        self._deadlines = deadlines
        self._outbox = outbox
        self._timeout_s = append_timeout_s
        self._inflight = inflight
        self._bindings: dict[Appender, Binding] = {}

    @property
    def is_settled(self) -> bool:
        """Whether nothing is collected or waiting."""
        return not any(each.pieces or each.waiting for each in self._bindings.values())

    # --- life -------------------------------------------------------------------------------------

    def bind(
        self, appender: Appender, place: SegmentPlace, segment: LedSegment, turn: Turn
    ) -> Binding:
        """A new binding, which fences whoever else writes as this appender, or is fenced itself
        and ``dead`` when another set-up that arrived after ``turn`` has been carried out before.
        It takes in nothing before :meth:`ready`."""
        writer = segment.writer(ProducerNamespace.SEGMENT_SEED, appender.connection_id.bytes)
        binding = self._bindings[appender] = Binding(appender, place, writer)
        writer.claim(turn, partial(self._fenced, binding))
        return binding

    def ready(self, binding: Binding, level: int) -> None:
        """Its level is known and told."""
        binding.acked = binding.appended = level
        binding.appender.ready(level)

    def unbind(self, appender: Appender) -> None:
        """The id is set up again: what was collected is appended first, and nothing more told."""
        binding = self._bindings.get(appender)
        if binding is not None:
            self.flush(binding)
            self._bury(binding)
            binding.silent = True
            self._outbox.forget(appender.connection_id)
            del self._bindings[appender]

    def close(self) -> None:
        """The connection ends: whole Events stay, so what is collected is appended."""
        for binding in list(self._bindings.values()):
            self.flush(binding)
            binding.silent = True
            self._bury(binding)

    # --- steps ------------------------------------------------------------------------------------

    def take(self, step: Append) -> None:
        """Collect a run."""
        binding = self._bindings.get(step.appender)
        if binding is None or binding.dead:
            return
        if binding.collected_bytes + len(step.data) > MAX_RUN_BYTES:
            self.flush(binding)
            if binding.dead:
                return
        binding.pieces.append(_Piece(step.data, step.count, step.end))
        binding.collected_bytes += len(step.data)
        self._inflight.change(len(step.data))
        if binding.collected_bytes >= FLUSH_BYTES:
            self.flush(binding)
        elif binding.timer is None:
            binding.timer = self._deadlines.after(FLUSH_S, partial(self._due, binding))

    def block_closed(self, appender: Appender) -> None:
        """Append what the block brought; one of mere duplicates is answered at once."""
        binding = self._bindings.get(appender)
        if binding is None or binding.dead:
            return
        self.flush(binding)
        if not (binding.waiting or binding.pieces or binding.dead):
            self._outbox.acknowledge(appender.connection_id, binding.acked)

    def refused(self, appender: Appender) -> None:
        """The protocol's own rules failed an appender; what it sent before stands."""
        binding = self._bindings.get(appender)
        if binding is not None:
            self.flush(binding)
            self._bury(binding)

    # --- appending --------------------------------------------------------------------------------

    def flush(self, binding: Binding) -> None:
        """Give what is collected to the log, unless the log is to be waited for."""
        self._stop_timer(binding)
        while binding.pieces and not binding.dead:
            pieces = _draw(binding)
            end = pieces[-1].end
            count = sum(piece.event_count for piece in pieces)
            payload = pieces[0].data if len(pieces) == 1 else b"".join(each.data for each in pieces)
            size = len(payload)
            # Before the append, which may be committed, and answered, before it returns.
            binding.collected_bytes -= size
            binding.waiting += 1
            try:
                binding.writer.append(
                    binding.appended,
                    end,
                    count,
                    payload,
                    timeout_s=self._timeout_s,
                    done=partial(self._done, binding, end, size),
                    client=self._account,
                )
            except PacelineError as error:
                binding.waiting -= 1
                binding.collected_bytes += size
                binding.pieces.extendleft(reversed(pieces))
                self._not_appended(binding, error)
                return
            binding.stalled_until = None
            binding.appended = end

    def _not_appended(self, binding: Binding, error: PacelineError) -> None:
        now = trio.current_time()
        if error.code in NOT_NOW:
            if binding.stalled_until is None:
                binding.stalled_until = now + self._timeout_s
            if now < binding.stalled_until:
                binding.timer = self._deadlines.after(_RETRY_S, partial(self._due, binding))
                return
        self._fail(binding, error)

    def _due(self, binding: Binding) -> None:
        binding.timer = None
        self.flush(binding)

    def _done(self, binding: Binding, end: int, size: int, result: object) -> None:
        """The log is done with a run: committed, unless ``result`` is an error."""
        binding.waiting -= 1
        self._inflight.change(-size)
        if isinstance(result, PacelineError):
            self._fail(binding, result)
            return
        binding.acked = max(binding.acked, end)
        if not binding.silent:
            self._outbox.acknowledge(binding.appender.connection_id, binding.acked)

    # --- failing ----------------------------------------------------------------------------------

    def _fail(self, binding: Binding, error: PacelineError) -> None:
        """An error of the store. One that concerns the segment fails all its appenders here, and
        is told once."""
        if binding.dead:
            return
        if error.code in MOVED and not self._segments.exists(binding.place):
            reply: SegmentMessage = NoSuchSegment(binding.appender.segment)
        else:
            host = self._segments.leader_address(binding.place, LISTENER)
            name = binding.appender.segment
            reply = reply_to(error, name, host, binding.appender.connection_id)
        concerned = [binding]
        if not isinstance(reply, ErrorMessage):
            key = binding.writer.segment.key
            bindings = self._bindings.values()
            concerned = [each for each in bindings if each.writer.segment.key == key]
        for each in concerned:
            each.silent = each.silent or isinstance(reply, WrongHost)
            self._bury(each)
        self._outbox.send(reply)

    def _fenced(self, binding: Binding) -> None:
        if not binding.dead:
            appender = binding.appender
            text = "another connection has set up this appender"
            self._outbox.send(
                ErrorMessage(appender.connection_id, appender.segment, text, ReplyCode.FENCED)
            )
            self._bury(binding)

    def _bury(self, binding: Binding) -> None:
        """Nothing more is taken in; what was not appended is dropped."""
        if binding.dead:
            return
        binding.dead = True
        binding.appender.fail()
        self._stop_timer(binding)
        dropped = sum(len(piece.data) for piece in binding.pieces)
        binding.pieces.clear()
        binding.collected_bytes = 0
        binding.writer.release()
        if dropped:
            self._inflight.change(-dropped)

    def _stop_timer(self, binding: Binding) -> None:
        if binding.timer is not None:
            binding.timer.cancel()
            binding.timer = None


def _draw(binding: Binding) -> list[_Piece]:
    """Take off the collected pieces that go into one batch."""
    pieces = [binding.pieces.popleft()]
    size = len(pieces[0].data)
    while binding.pieces and size + len(binding.pieces[0].data) <= MAX_RUN_BYTES:
        pieces.append(binding.pieces.popleft())
        size += len(pieces[-1].data)
    return pieces
