"""The appenders of one connection of the Pravega dialect (DESIGN 8.5).

An appender is a writer's id bound to a segment; its level is the number of its last Event. Each
append is one batch of the log, stored only behind the level that the server saw before: a block
carries its last number alone, so one that was stored before cannot be trimmed, and is refused.

Transient segments hold the pieces of one large Event until they are merged into its segment, as one
batch. They are this connection's and end with it: their client then begins anew with the same
writer id, by which a merge that was stored already is recognised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import field
from functools import partial
from uuid import UUID

import trio

from paceline.errors import CorruptMessage, MessageTooLarge, PacelineError, SegmentSealed
from paceline.values import dataclass
from paceline.wire.batch import PayloadKind, ProducerNamespace
from paceline.wire.segment import pravega_messages as w
from paceline.wire.segment.errors import Fault, SegmentProtocolError
from paceline.wire.segment.events import walk_events
from paceline.wire.segment.framing import HEADER, HEADER_BYTES, SegmentMessage
from paceline.wire.segment.names import SegmentPlace, place_of
from paceline_node.listeners.segment.appends import LISTENER
from paceline_node.listeners.segment.errors import NOT_NOW
from paceline_node.listeners.segment.limits import Inflight
from paceline_node.listeners.segment.pravega_errors import reply_to
from paceline_node.listeners.segment.transient_budget import TransientPart
from paceline_node.services.segments.led_segment import LedSegment, SegmentWriter
from paceline_node.services.segments.segment_service import OpenSegment, SegmentService
from paceline_node.services.segments.segment_writers import Turn

_PRAVEGA = ProducerNamespace.SEGMENT_PRAVEGA
_RETRY_S = 0.05
_KEY_BYTES = 16
Append = w.AppendBlockEnd | w.ConditionalBlockEnd | w.ConditionalAppend


@dataclass(slots=True, eq=False)
class Binding:
    """A writer and the segment that it appends to. ``level``: number of its last Event that was
    given to the log. ``dead``: nothing more is taken in, and nothing more told."""

    id: UUID
    name: str
    place: SegmentPlace
    writer: SegmentWriter
    level: int = w.NO_EVENT
    ready: bool = False
    dead: bool = False


@dataclass(slots=True)
class Transient:
    """A transient segment: the pieces so far, and the number of the last one. ``takes`` what its
    writer appends, which may be set up for a segment as well: then whichever it set up last does.
    """

    writer: UUID
    name: str
    takes: bool
    level: int = w.NO_EVENT
    data: bytearray = field(default_factory=bytearray)


class PravegaAppends:
    """``say`` sends a reply; ``end`` closes the connection, which makes real clients set up again.
    ``inflight`` is told what is given to the log, and what of it was committed or given up."""

    def __init__(
        self,
        segments: SegmentService,
        transients: TransientPart,
        *,
        append_timeout_s: float,
        max_event_bytes: int,
        max_appenders: int,
        say: Callable[[SegmentMessage], None],
        end: Callable[[], None],
        inflight: Inflight,
        account: Callable[[], str],
    ) -> None:
        self._account = account
        self._segments = segments
        self._part = transients
        self._timeout_s = append_timeout_s
        self._max_event_bytes = max_event_bytes
        self._max_appenders = max_appenders
        self._say = say
        self._end = end
        self._inflight = inflight
        self._bindings: dict[UUID, Binding] = {}
        self._transients: dict[str, Transient] = {}

    def close(self) -> None:
        """The connection is over."""
        for binding in list(self._bindings.values()):
            self._bury(binding)
        for transient in self._transients.values():
            self._part.give_back(len(transient.data))
        self._transients.clear()

    # --- setting up -------------------------------------------------------------------------------

    async def set_up(
        self,
        request: w.SetupAppend,
        turn: Turn,
        lead: Callable[[], Awaitable[tuple[SegmentPlace, LedSegment]]],
    ) -> None:
        """Answer a SetupAppend once all that the writer has stored is committed; ``lead`` finds
        the segment. One that arrived in ``turn`` and was overtaken by another connection's that
        came later is fenced by that. Raises what ``lead`` does, NotLeader, NotEnoughReplicas."""
        transient = self._transients.get(request.segment)
        if transient is not None:
            self._let_take(request.writer, transient)
            self._say(
                w.AppendSetup(request.request_id, request.segment, request.writer, transient.level)
            )
            return
        place, segment = await lead()
        self._let_take(request.writer, None)
        if request.writer not in self._bindings and len(self._bindings) >= self._max_appenders:
            raise MessageTooLarge(f"more than {self._max_appenders} appenders on one connection")
        former = self._bindings.pop(request.writer, None)
        if former is not None:
            self._bury(former)
        writer = segment.writer(_PRAVEGA, request.writer.bytes)
        binding = Binding(request.writer, request.segment, place, writer)
        self._bindings[request.writer] = binding
        writer.claim(turn, partial(self._fenced, binding))
        if binding.dead:
            return
        level = await writer.level(timeout_s=self._timeout_s)
        if not binding.dead:
            binding.level, binding.ready = level, True
            self._say(w.AppendSetup(request.request_id, request.segment, request.writer, level))

    def create_transient(self, request: w.CreateTransientSegment, parent: OpenSegment) -> None:
        """A new place for pieces of the writer's, which may write to ``parent``; one that it had is
        given up."""
        assert place_of(request.parent) == parent.place, f"{request.parent}: another segment"
        self._forget_transients(request.writer)
        if len(self._transients) >= self._max_appenders:
            self._end()
            return
        name = f"{request.parent}#transient.{request.writer.hex}.{len(self._transients):032x}"
        is_bound = request.writer in self._bindings
        self._transients[name] = Transient(request.writer, name, takes=not is_bound)
        self._say(w.SegmentCreated(request.request_id, name))

    def _let_take(self, writer: UUID, chosen: Transient | None) -> None:
        """What the writer appends from now on goes to ``chosen``, None: to its segment."""
        for transient in self._transients.values():
            if transient.writer == writer:
                transient.takes = transient is chosen

    def _forget_transients(self, writer: UUID) -> None:
        for transient in [each for each in self._transients.values() if each.writer == writer]:
            self._part.give_back(len(transient.data))
            del self._transients[transient.name]

    # --- appending --------------------------------------------------------------------------------

    async def append(self, request: Append) -> None:
        """Give an append to the log, waiting while the log takes none for a moment.

        Raises SegmentProtocolError for what no client may send; its connection is to be closed.
        """
        number = request.last_event if isinstance(request, w.AppendBlockEnd) else request.event
        transient = self._transient_of(request.writer)
        if transient is not None:
            self._append_piece(transient, number, request)
            return
        binding = self._bindings.get(request.writer)
        if binding is None or not (binding.ready or binding.dead):
            raise SegmentProtocolError(Fault.E20)
        if binding.dead:
            return
        if number <= binding.level or number < 0:
            self._say(w.InvalidEventNumber(request.writer, request.request_id, "", binding.level))
            self._end()
            return
        await self._store(binding, number, request)

    def _transient_of(self, writer: UUID) -> Transient | None:
        places = self._transients.values()
        return next((each for each in places if each.writer == writer and each.takes), None)

    async def _store(self, binding: Binding, number: int, request: Append) -> None:
        kind, count, payload = self._checked(request)
        deadline = trio.current_time() + self._timeout_s
        while not binding.dead:
            try:
                self._store_now(binding, number, request, kind, count, payload)
                return
            except PacelineError as error:
                if error.code not in NOT_NOW or trio.current_time() >= deadline:
                    self._fail(binding, error, request.request_id)
                    return
            await trio.sleep(_RETRY_S)

    def _store_now(
        self,
        binding: Binding,
        number: int,
        request: Append,
        kind: PayloadKind,
        count: int,
        payload: bytes,
    ) -> None:
        segment = binding.writer.segment
        if segment.is_sealed:
            raise SegmentSealed(f"{binding.name} is sealed")
        if not isinstance(request, w.AppendBlockEnd) and request.expected != segment.log_end:
            self._say(w.ConditionalCheckFailed(request.writer, request.event, request.request_id))
            return
        previous = binding.level
        end = segment.log_end + len(payload)
        reply = w.DataAppended(binding.id, number, previous, request.request_id, end)
        done = partial(self._done, binding, len(payload), reply)
        # Before the append, which may be committed, and answered, before it returns.
        self._inflight.change(len(payload))
        binding.level = number
        try:
            binding.writer.append(
                previous,
                number,
                count,
                payload,
                kind,
                timeout_s=self._timeout_s,
                done=done,
                client=self._account(),
            )
        except PacelineError:
            binding.level = previous
            self._inflight.change(-len(payload))
            raise

    def _checked(self, request: Append) -> tuple[PayloadKind, int, bytes]:
        """What is to be stored, and as how many Events. Raises SegmentProtocolError."""
        if isinstance(request, w.ConditionalAppend):
            if request.kind != 0:
                raise SegmentProtocolError(Fault.E22)
            return PayloadKind.EVENTS, 1, HEADER.pack(0, len(request.data)) + request.data
        if not request.data:
            raise SegmentProtocolError(Fault.E22)
        if isinstance(request, w.ConditionalBlockEnd):
            return PayloadKind.RAW, 1, request.data
        count = self._count_events(request.data)
        if not count == request.event_count or request.whole_bytes != len(request.data):
            raise SegmentProtocolError(Fault.E22)
        return PayloadKind.EVENTS, count, request.data

    def _count_events(self, data: bytes | bytearray) -> int:
        """How many Events ``data`` is; 0 for what is not whole Events of an allowed size."""
        largest = HEADER_BYTES + self._max_event_bytes
        try:
            sizes = [end - start for start, end in walk_events(data)]
        except CorruptMessage:
            return 0
        return len(sizes) if max(sizes, default=0) <= largest else 0

    def _done(self, binding: Binding, size: int, reply: w.DataAppended, result: object) -> None:
        """The log is done with an append: committed, unless ``result`` is an error."""
        self._inflight.change(-size)
        if isinstance(result, PacelineError):
            self._fail(binding, result, reply.request_id)
        elif not binding.dead:
            self._say(reply)

    # --- large Events -----------------------------------------------------------------------------

    def _append_piece(self, transient: Transient, number: int, request: Append) -> None:
        if number <= transient.level or isinstance(request, w.ConditionalAppend):
            raise SegmentProtocolError(Fault.E22)
        if isinstance(request, w.ConditionalBlockEnd) and request.expected != len(transient.data):
            self._say(w.ConditionalCheckFailed(request.writer, number, request.request_id))
            return
        size = len(request.data)
        if len(transient.data) + size > HEADER_BYTES + self._max_event_bytes:
            # A whole Event of this size cannot be stored; real clients give it up at this reply.
            self._say(w.SegmentIsSealed(request.request_id, transient.name))
            return
        if not self._part.take(size):
            self._end()
            return
        transient.data += request.data
        previous, transient.level = transient.level, number
        self._say(
            w.DataAppended(
                request.writer, number, previous, request.request_id, len(transient.data)
            )
        )

    async def merge(self, request: w.MergeSegments, segment: LedSegment) -> None:
        """Append what a transient segment holds, once. Raises as :meth:`set_up`, StorageFull."""
        transient = self._transients.get(request.source)
        if transient is None:
            self._say(w.NoSuchSegment(request.request_id, request.source))
            return
        payload = bytes(transient.data)
        key = hashlib.blake2b(transient.writer.bytes + payload, digest_size=_KEY_BYTES).digest()
        writer = segment.writer(_PRAVEGA, key)
        level = await writer.level(timeout_s=self._timeout_s)
        if level == w.NO_EVENT and payload:
            count = self._count_events(payload)
            kind = PayloadKind.EVENTS if count else PayloadKind.RAW
            await writer.append_and_wait(
                w.NO_EVENT,
                transient.level,
                max(1, count),
                payload,
                kind,
                timeout_s=self._timeout_s,
                client=self._account(),
            )
        end = segment.log_end
        self._forget_transients(transient.writer)
        self._say(w.SegmentsMerged(request.request_id, request.target, request.source, end))

    # --- failing ----------------------------------------------------------------------------------

    def _fail(self, binding: Binding, error: PacelineError, request_id: int) -> None:
        """An append failed, and with it what its writer has sent since."""
        if binding.dead:
            return
        self._bury(binding)
        host = self._segments.leader_address(binding.place, LISTENER)
        reply = reply_to(error, request_id, binding.name, host)
        if reply is None or isinstance(reply, w.ErrorMessage):
            self._end()
        else:
            self._say(reply)

    def _fenced(self, binding: Binding) -> None:
        """The writer has set up elsewhere; here it is heard no more."""
        if not binding.dead:
            self._bury(binding)

    def _bury(self, binding: Binding) -> None:
        binding.dead = True
        binding.writer.release()
