"""The native listener: one session per connection, over TCP or WebSocket.

A session reads frames in order. PRODUCE and FETCH are handled without a task and answered by
callbacks; rarer requests run as tasks, at most ``max_in_flight`` unanswered requests in all, after
which the session stops reading (spec wire/native README).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import structlog
import trio

from paceline.errors import (
    ConnectionLost,
    InconsistentClusterId,
    InvalidRequest,
    PacelineError,
    RemoteProtocolError,
    UnsupportedVersion,
)
from paceline.types import NodeId
from paceline.wire.frame import Frame, Kind
from paceline.wire.message import Message, Packed
from paceline.wire.native.api import PROTOCOL_VERSION, NativeApi
from paceline.wire.native.data import (
    FetchReply,
    Hello,
    HelloReply,
    ListOffsets,
    ListOffsetsReply,
)
from paceline_node.listeners.native_fetch import FetchHandler, ParkedFetch
from paceline_node.listeners.native_produce import ProduceHandler
from paceline_node.listeners.serving import Client
from paceline_node.observe.metrics import OK, Metrics, code_label
from paceline_node.peers.burst import Burst
from paceline_node.peers.framestream import FrameStream, OutboxLimits
from paceline_node.peers.transport import FilePart
from paceline_node.security.principals import Principal

RequestHandler = Callable[[Frame, Principal], Awaitable[Message]]
_BEFORE_HELLO_BYTES = 64 * 1024
# Looked up for every request; a plain number compares faster than a member of an enumeration.
_REQUEST, _RESPONSE, _PRODUCE = int(Kind.REQUEST), int(Kind.RESPONSE), int(NativeApi.PRODUCE)
_NOTHING = memoryview(b"")
_API_NAMES = {int(api): api.name.lower() for api in NativeApi}


@dataclass(frozen=True, slots=True)
class NativeLimits:
    """Per connection: bytes of one frame, unanswered requests, bytes of answers that the client
    has not taken, seconds for the first Hello."""

    max_frame_bytes: int = 64 * 1024 * 1024
    max_in_flight: int = 1000
    outbox_bytes: int = 256 * 1024 * 1024
    hello_s: float = 10.0


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
        limits: NativeLimits,
        metrics: Metrics,
        *,
        burst: Burst,
        after_burst: Callable[[], None],
    ) -> None:
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.software = software
        self.produce = produce
        self.fetch = fetch
        self.requests = requests
        self.limits = limits
        self.burst = burst
        self.after_burst = after_burst
        self.meters = metrics.requests_by("native", _API_NAMES)
        self._streams: set[FrameStream] = set()

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
        )
        session = _Session(self, frames, client.principal)
        self._streams.add(frames)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(frames.run_writer)
            try:
                await session.run(nursery)
            except RemoteProtocolError as error:
                structlog.get_logger().info("native connection refused", peer=name, why=str(error))
                frames.finish()
            except ConnectionLost:
                frames.abort(f"{name}: connection lost")
            finally:
                self._streams.discard(frames)
                session.close()


class _Session:
    def __init__(self, service: NativeService, frames: FrameStream, principal: Principal) -> None:
        self._service = service
        self._principal = principal
        self._meters = service.meters
        self._frames = frames
        self._unanswered = 0
        self._room = trio.Event()
        self._waiting = False
        self._parked: set[ParkedFetch] = set()

    async def run(self, nursery: trio.Nursery) -> None:
        """Read and dispatch until the client closes its side."""
        with trio.move_on_after(self._service.limits.hello_s) as scope:
            greeted = await self._greet()
        if scope.cancelled_caught or not greeted:
            self._frames.finish()
            return
        while (frame := await self._frames.receive()) is not None:
            arrived = trio.current_time()
            self._take(frame, arrived, nursery)
            while self._has_room and (more := self._frames.receive_buffered()) is not None:
                self._take(more, arrived, nursery)
            # What came together goes to the followers together, and at once.
            self._service.after_burst()
            await self._frames.drain()
            while not self._has_room:
                self._room = trio.Event()
                self._waiting = True
                await self._room.wait()
                self._waiting = False
        self._frames.finish()

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
        self._frames.allow_frames_of(limits.max_frame_bytes)
        reply = HelloReply(
            PROTOCOL_VERSION,
            self._service.cluster_id,
            self._service.node_id,
            limits.max_frame_bytes,
            limits.max_in_flight,
            self._service.software,
        )
        self._frames.send_frame(Kind.RESPONSE, frame.api, frame.correlation, reply)
        return True

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

    def _take(self, frame: Frame, arrived: float, nursery: trio.Nursery) -> None:
        if frame.kind != _REQUEST:
            raise RemoteProtocolError(f"{self._frames.name}: frame of kind {frame.kind}")
        self._unanswered += 1
        try:
            if frame.api == _PRODUCE:
                # Who waits for followers needs the frame's numbers, and is not to keep its records.
                bare = Frame(frame.kind, frame.api, frame.correlation, [], _NOTHING)
                self._service.produce.handle(
                    frame, self._principal, partial(self._answer, bare, arrived)
                )
            elif frame.api == NativeApi.FETCH:
                self._fetch(frame, arrived)
            elif frame.api == NativeApi.LIST_OFFSETS:
                wanted = ListOffsets.unpack(frame.body)
                found = self._service.fetch.list_offsets(wanted, self._principal)
                self._answer(frame, arrived, found, _error_of(found))
            elif frame.api in self._service.requests:
                handler = self._service.requests[frame.api]
                nursery.start_soon(self._handle, frame, arrived, handler)
            else:
                raise InvalidRequest(f"api {frame.api} is not served here")
        except PacelineError as error:
            self._refuse(frame, arrived, error)

    async def _handle(self, frame: Frame, arrived: float, handler: RequestHandler) -> None:
        try:
            self._answer(frame, arrived, await handler(frame, self._principal))
        except PacelineError as error:
            self._refuse(frame, arrived, error)

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
        self._meters[frame.api].done(label, trio.current_time() - arrived)
        self._unanswered -= 1
        if self._waiting:
            self._room.set()

    def close(self) -> None:
        """Forget parked fetches; produce callbacks that still come find the stream closed."""
        for parked in self._parked:
            parked.abandon()
        self._parked.clear()


def _error_of(reply: FetchReply | ListOffsetsReply) -> int:
    """The first partition's error that is one; 0 when all went well."""
    for result in reply.partitions:
        if result.error:
            return result.error
    return 0
