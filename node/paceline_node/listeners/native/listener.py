"""The native listener: one session per connection, over TCP or WebSocket.

A session reads frames in order. PRODUCE and FETCH are handled without a task and answered by
callbacks; rarer requests run as tasks, at most ``max_in_flight`` unanswered requests in all, after
which the session stops reading (``wire/native/README.md``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from uuid import UUID

import trio

from paceline.errors import (
    AuthenticationFailed,
    ConnectionLost,
    InconsistentClusterId,
    InvalidRequest,
    PacelineError,
    RemoteProtocolError,
    UnsupportedVersion,
)
from paceline.types import NodeId
from paceline.values import dataclass
from paceline.wire.frame import Frame, Kind
from paceline.wire.message import Message, Packed
from paceline.wire.native.api import MAX_ITEMS, PROTOCOL_VERSION, NativeApi, items_of
from paceline.wire.native.data import (
    Fetch,
    FetchReply,
    Hello,
    HelloReply,
    ListOffsets,
    ListOffsetsReply,
)
from paceline.wire.native.quotas import QuotaLimit, with_throttle
from paceline.wire.native.users import Authenticate
from paceline_node.client_memory import Portion
from paceline_node.env import RunBlocking
from paceline_node.listeners.native.fetch import FetchHandler
from paceline_node.listeners.native.login import LOGIN_S, NativeLogin
from paceline_node.listeners.native.produce import ProduceHandler
from paceline_node.listeners.serving import Client
from paceline_node.loop_turns import Turns
from paceline_node.net.connection_tasks import connection_tasks
from paceline_node.net.deadlines import Deadline, Deadlines
from paceline_node.net.frame_bursts import Burst
from paceline_node.net.framestream import FrameStream, OutboxLimits
from paceline_node.net.transport import FilePart
from paceline_node.observe.metrics import OK, Metrics, code_label
from paceline_node.observe.rate_limited_log import RateLimitedLog
from paceline_node.request_pace import Pace
from paceline_node.security.authentication import Authenticator
from paceline_node.security.principals import Principal
from paceline_node.services.records.fetch import InOlderTier, ParkedFetch
from paceline_node.settings.limits import LimitSettings

RequestHandler = Callable[[Frame, Principal], Awaitable[Message | Packed]]
MetadataHandler = Callable[[Frame, Principal, Pace], Awaitable[Message | Packed]]
_BEFORE_HELLO_BYTES = 64 * 1024
# Looked up for every request; a plain number compares faster than a member of an enumeration.
_REQUEST, _RESPONSE, _PRODUCE = int(Kind.REQUEST), int(Kind.RESPONSE), int(NativeApi.PRODUCE)
_NOTHING = memoryview(b"")
_IN_TURNS = frozenset({int(NativeApi.PRODUCE), int(NativeApi.FETCH), int(NativeApi.LIST_OFFSETS)})
"""What is answered without a task as long as it is small."""
_DATA = frozenset({int(NativeApi.PRODUCE), int(NativeApi.FETCH)})
_OF_DATA, _OF_OTHERS = tuple(QuotaLimit), (QuotaLimit.REQUESTS,)
"""What a request waits for. Others than those of data do not wait for bytes: a member of a group
whose heartbeats waited would be taken for dead."""
_ITEMS_PER_UNIT = 8
_BYTES_PER_UNIT = 64 * 1024
_LARGE_UNITS = 100
_BURST_UNITS = 4
"""What it costs to wake a connection's tasks for the requests that have arrived together."""
_SMALL_BYTES = 8 * 1024
_PARSED_FACTOR = 8
_API_NAMES = {int(api): api.name.lower() for api in NativeApi}


@dataclass(frozen=True, slots=True)
class NativeLimits:
    """Per connection: bytes of one frame, unanswered requests, bytes of answers that the client
    has not taken, seconds for the first Hello, for the rest of a large frame and for taking what is
    written, and of silence while nothing is to be answered."""

    max_frame_bytes: int = LimitSettings().frame_bytes
    max_in_flight: int = LimitSettings().requests_per_connection
    outbox_bytes: int = LimitSettings().outbox_bytes
    hello_s: float = 10.0
    stall_s: float = LimitSettings().stall_ms / 1000
    idle_s: float = float("inf")


class NativeService:
    """What all sessions of a node share. ``requests`` answers the APIs that need to wait."""

    def __init__(
        self,
        cluster_id: UUID,
        node_id: NodeId,
        software: str,
        produce: ProduceHandler,
        fetch: FetchHandler,
        requests: Mapping[int, RequestHandler],
        metadata: MetadataHandler,
        limits: NativeLimits,
        metrics: Metrics,
        *,
        deadlines: Deadlines,
        burst: Burst,
        after_burst: Callable[[], None],
        turns: Turns,
        run_blocking: RunBlocking,
        authenticator: Authenticator,
    ) -> None:
        self.authenticator = authenticator
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.software = software
        self.produce = produce
        self.fetch = fetch
        self.requests = requests
        self.metadata = metadata
        self.limits = limits
        self.deadlines = deadlines
        self.burst = burst
        self.after_burst = after_burst
        self.turns = turns
        self.run_blocking = run_blocking
        self.meters = metrics.requests_by("native", _API_NAMES)
        self._streams: set[FrameStream] = set()
        self._log = RateLimitedLog()

    @property
    def outbox_bytes(self) -> int:
        """Bytes that clients have not taken yet, over all connections."""
        return sum(stream.queued_bytes for stream in self._streams)

    async def serve(self, stream: trio.abc.Stream, client: Client) -> None:
        """Serve one connection until it ends; owns and closes ``stream``."""
        name = client.name
        outbox = OutboxLimits(max_bytes=self.limits.outbox_bytes)
        frames = FrameStream(
            stream,
            name=name,
            max_frame_bytes=_BEFORE_HELLO_BYTES,
            outbox=outbox,
            burst=self.burst,
            memory=client.memory,
            stall_s=self.limits.stall_s,
        )
        session = _Session(self, frames, client)
        self._streams.add(frames)
        async with connection_tasks() as nursery:
            nursery.start_soon(frames.run_writer)
            try:
                await session.run(nursery)
            except RemoteProtocolError as error:
                self._log.info(
                    "native connection refused",
                    cause=type(error).__name__,
                    peer=name,
                    why=str(error),
                )
                frames.finish()
            except ConnectionLost:
                frames.abort(f"{name}: connection lost")
            finally:
                self._streams.discard(frames)
                session.close()


class _Session:
    def __init__(self, service: NativeService, frames: FrameStream, client: Client) -> None:
        self._service = service
        self._login = NativeLogin(service.authenticator, client)
        self._principal = client.principal
        self._account = client.account
        self._memory = client.memory
        self._quotas = client.quotas
        self._at_work = Portion(client.memory, is_passing=True)
        self._large: dict[int, int] = {}  # what large requests that are unanswered are charged with
        self._meters = service.meters
        self._rare = service.requests.keys() | {NativeApi.METADATA}
        self._frames = frames
        self._active_at = trio.current_time()
        self._idle: Deadline | None = None
        self._unanswered = 0
        self._room = trio.Event()
        self._waiting = False
        self._parked: set[ParkedFetch] = set()

    async def run(self, nursery: trio.Nursery) -> None:
        """Read and dispatch until the client closes its side."""
        with trio.move_on_after(self._service.limits.hello_s) as scope:
            greeted = await self._greet()
        if greeted and self._login.is_missing:
            with trio.move_on_after(LOGIN_S) as scope:
                greeted = await self._log_in()
        if scope.cancelled_caught or not greeted:
            self._frames.finish()
            return
        self._look_at_silence()
        while (frame := await self._frames.receive()) is not None:
            arrived = self._active_at = trio.current_time()
            spent = 0
            more: Frame | None = frame
            while more is not None:
                spent += await self._take(more, arrived, nursery, spent)
                more = self._frames.receive_buffered() if self._has_room else None
            # What came together goes to the followers together, and at once.
            self._service.after_burst()
            await self._frames.drain()
            while not self._has_room:
                self._room = trio.Event()
                self._waiting = True
                await self._room.wait()
                self._waiting = False
        self._frames.finish()

    def _look_at_silence(self) -> None:
        """End a connection that has been silent for too long; whoever waits for an answer (or
        polls) is not. One deadline a connection, and nothing for a request."""
        now = trio.current_time()
        if self._unanswered:
            self._active_at = now
        due = self._active_at + self._service.limits.idle_s
        if due <= now:
            self._frames.finish()
        elif due < float("inf"):
            self._idle = self._service.deadlines.at(due, self._look_at_silence)

    @property
    def _has_room(self) -> bool:
        return self._unanswered < self._service.limits.max_in_flight

    async def _greet(self) -> bool:
        frame = await self._frames.receive()
        if frame is None:
            return False
        if frame.kind != Kind.REQUEST or frame.api != NativeApi.HELLO:
            raise RemoteProtocolError(f"{self._frames.name}: the first request must be HELLO")
        arrived = trio.current_time()
        hello = Hello.unpack(frame.body)
        refusal = self._refusal(hello)
        code = OK if refusal is None else code_label(refusal.code)
        self._meters[frame.api].done(code, trio.current_time() - arrived)
        if refusal is not None:
            self._frames.send_error(frame, refusal)
            return False
        limits = self._service.limits
        if not self._login.is_missing:
            self._frames.allow_frames_of(limits.max_frame_bytes)
        reply = HelloReply(
            PROTOCOL_VERSION,
            self._service.cluster_id,
            self._service.node_id,
            limits.max_frame_bytes,
            limits.max_in_flight,
            self._service.software,
            self._login.offered(),
        )
        self._frames.send_frame(Kind.RESPONSE, frame.api, frame.correlation, reply)
        return True

    async def _log_in(self) -> bool:
        """Before anything else is answered; False at the end of the stream."""
        while self._login.is_missing:
            frame = await self._frames.receive()
            if frame is None:
                return False
            if frame.kind != _REQUEST or frame.api != NativeApi.AUTHENTICATE:
                refusal = AuthenticationFailed("this listener wants a log-in before anything else")
                self._frames.send_error(frame, refusal)
                return False
            self._unanswered += 1
            await self._authenticate(frame, trio.current_time())
        self._frames.allow_frames_of(self._service.limits.max_frame_bytes)
        return True

    async def _authenticate(self, frame: Frame, arrived: float) -> None:
        """Nothing else of the connection is begun meanwhile. Raises RemoteProtocolError where the
        log-in failed, which ends the session."""
        try:
            answer = await self._login.step(Authenticate.unpack(frame.body))
        except AuthenticationFailed as error:
            self._refuse(frame, arrived, error)
            raise RemoteProtocolError(f"log-in failed: {error}") from None
        self._principal = self._login.client.principal
        self._account = self._login.client.account
        self._answer(frame, arrived, answer)

    def _refusal(self, hello: Hello) -> PacelineError | None:
        if not hello.min_version <= PROTOCOL_VERSION <= hello.max_version:
            return UnsupportedVersion(
                f"this node speaks version {PROTOCOL_VERSION}, the client "
                f"{hello.min_version} to {hello.max_version}"
            )
        ours = self._service.cluster_id
        if hello.cluster_id is not None and hello.cluster_id != ours:
            return InconsistentClusterId(f"this cluster is {ours}, not {hello.cluster_id}")
        return None

    # --- requests ---------------------------------------------------------------------------------

    async def _take(self, frame: Frame, arrived: float, nursery: trio.Nursery, spent: int) -> int:
        """Begin a request; what it cost, after others of a burst that cost ``spent``. Awaits its
        turn only where it, or all clients' requests together, may take long."""
        if frame.kind != _REQUEST:
            raise RemoteProtocolError(f"{self._frames.name}: frame of kind {frame.kind}")
        self._unanswered += 1
        limits = _OF_DATA if frame.api in _DATA else _OF_OTHERS
        await self._quotas.pace(self._principal, limits)
        self._quotas.spend(self._principal, QuotaLimit.REQUESTS, 1)
        size = self._frames.last_frame_bytes
        if size > _SMALL_BYTES and frame.api != _PRODUCE:
            # It is kept until it is answered, and what is made of it is larger.
            self._large[id(frame)] = size * _PARSED_FACTOR
            self._at_work.set(self._at_work.held_bytes + size * _PARSED_FACTOR)
            await self._memory.room()
        if self._login.is_over and frame.api != NativeApi.AUTHENTICATE:
            raise RemoteProtocolError("the log-in has expired, and was not repeated")
        try:
            if frame.api == NativeApi.AUTHENTICATE:
                await self._authenticate(frame, arrived)
                return 1
            items = items_of(frame.body, at_most=MAX_ITEMS)
            units = 1 + items // _ITEMS_PER_UNIT + len(frame.payload) // _BYTES_PER_UNIT
            is_large = units > _LARGE_UNITS
            turns = self._service.turns
            if is_large or frame.api in self._rare:
                self._service.after_burst()
                await turns.next()
            elif not turns.admits(cost := units if spent else units + _BURST_UNITS):
                self._service.after_burst()
                await turns.small(cost)
            if is_large and frame.api in _IN_TURNS:
                await self._take_in_turns(frame, arrived, nursery)
            else:
                self._start(frame, arrived, nursery)
        except PacelineError as error:
            self._refuse(frame, arrived, error)
            return 1
        return units

    async def _take_in_turns(self, frame: Frame, arrived: float, nursery: trio.Nursery) -> None:
        """A request of much on the data path. While it appends, nothing else of the connection is
        begun: appends stay in order."""
        if frame.api == _PRODUCE:
            bare = Frame(frame.kind, frame.api, frame.correlation, [], _NOTHING)
            answer = partial(self._answer, bare, arrived)
            work = self._service.produce.handling(frame, self._principal, answer, self._account)
            await self._service.turns.run(work)
            return
        request: Fetch | ListOffsets
        if frame.api == NativeApi.FETCH:
            request = await self._service.run_blocking(partial(Fetch.unpack, frame.body))
        else:
            request = await self._service.run_blocking(partial(ListOffsets.unpack, frame.body))
        nursery.start_soon(self._look_up, frame, arrived, request)

    async def _look_up(self, frame: Frame, arrived: float, request: Fetch | ListOffsets) -> None:
        fetch = self._service.fetch
        try:
            parts: Sequence[FilePart] = ()
            reply: FetchReply | ListOffsetsReply
            if isinstance(request, Fetch):
                reply, parts = await fetch.fetch_in_turns(request, self._principal)
            else:
                reply = await fetch.list_offsets_in_turns(request, self._principal)
            packed = Packed(await self._service.run_blocking(reply.pack))
            self._answer(frame, arrived, packed, _error_of(reply), parts)
        except PacelineError as error:
            self._refuse(frame, arrived, error)

    def _start(self, frame: Frame, arrived: float, nursery: trio.Nursery) -> None:
        if frame.api == _PRODUCE:
            # Who waits for followers needs the frame's numbers, and is not to keep its records.
            bare = Frame(frame.kind, frame.api, frame.correlation, [], _NOTHING)
            self._service.produce.handle(
                frame, self._principal, partial(self._answer, bare, arrived), self._account
            )
        elif frame.api == NativeApi.FETCH:
            try:
                self._fetch(frame, arrived)
            except InOlderTier:
                nursery.start_soon(self._look_up, frame, arrived, Fetch.unpack(frame.body))
        elif frame.api == NativeApi.LIST_OFFSETS:
            wanted = ListOffsets.unpack(frame.body)
            found = self._service.fetch.list_offsets(wanted, self._principal)
            if found is None:
                nursery.start_soon(self._look_up, frame, arrived, wanted)
            else:
                self._answer(frame, arrived, found, _error_of(found))
        elif frame.api == NativeApi.METADATA:
            nursery.start_soon(self._handle, frame, arrived, self._metadata, name="native metadata")
        elif frame.api in self._service.requests:
            handler = self._service.requests[frame.api]
            name = f"native {_API_NAMES[frame.api]}"
            nursery.start_soon(self._handle, frame, arrived, handler, name=name)
        else:
            raise InvalidRequest(f"api {frame.api} is not served here")

    async def _handle(self, frame: Frame, arrived: float, handler: RequestHandler) -> None:
        try:
            self._answer(frame, arrived, await handler(frame, self._principal))
        except PacelineError as error:
            self._refuse(frame, arrived, error)

    async def _metadata(self, frame: Frame, principal: Principal) -> Message | Packed:
        room = Portion(self._memory)
        try:
            return await self._service.metadata(frame, principal, Pace(self._service.turns, room))
        finally:
            room.give_all()  # from here on the answer's bytes are counted

    def _fetch(self, frame: Frame, arrived: float) -> None:
        parked: ParkedFetch | None = None

        def answer(reply: FetchReply, parts: list[FilePart]) -> None:
            if parked is not None:
                self._parked.discard(parked)
            self._answer(frame, arrived, reply, _error_of(reply), parts)

        parked = self._service.fetch.handle(frame, self._principal, answer)
        if parked is not None:
            self._parked.add(parked)

    # --- answers ----------------------------------------------------------------------------------

    def _answer(
        self,
        frame: Frame,
        arrived: float,
        reply: Message | Packed,
        code: int = 0,
        parts: Sequence[FilePart] = (),
    ) -> None:
        self._settled(frame, arrived, code)
        if frame.api in _DATA:
            reply = with_throttle(reply, self._quotas.throttle_ms(self._principal))
        try:
            self._frames.send_frame(_RESPONSE, frame.api, frame.correlation, reply, tuple(parts))
        except ConnectionLost:
            return  # who went away, or does not read, gets no answer; the reader sees the end

    def _refuse(self, frame: Frame, arrived: float, error: PacelineError) -> None:
        self._settled(frame, arrived, error.code)
        with suppress(ConnectionLost):
            self._frames.send_error(frame, error)

    def _settled(self, frame: Frame, arrived: float, code: int) -> None:
        label = code_label(code) if code else OK
        self._active_at = trio.current_time()
        self._meters[frame.api].done(label, self._active_at - arrived)
        self._unanswered -= 1
        if self._large:
            self._at_work.give(self._large.pop(id(frame), 0))
        if self._waiting:
            self._room.set()

    def close(self) -> None:
        """Forget parked fetches; produce callbacks that still come find the stream closed."""
        self._login.close()
        if self._idle is not None:
            self._idle.cancel()
        for parked in self._parked:
            parked.abandon()
        self._parked.clear()


def _error_of(reply: FetchReply | ListOffsetsReply) -> int:
    """The first partition's error that is one; 0 when all went well."""
    for result in reply.partitions:
        if result.error:
            return result.error
    return 0
