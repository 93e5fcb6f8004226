"""One connection of a Kafka client: requests in order, answers in order.

::

    reader   bytes -> frames, one ahead            worker   one request at a time
    writer   answers in the order of the requests  (produces wait side by side, in their places)

Who is over a quota is told for how long its next request is going to wait.

A consumer that registers with its coordinator ends all three: its channel is one task.

Reading ahead is how a client that goes away is noticed while its request waits: that ends the wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import trio

from paceline.errors import PacelineError, RemoteProtocolError, UnsupportedVersion
from paceline.values import dataclass
from paceline.wire.coordinator.codec import (
    LAST_VERSION,
    Ask,
    ask_of,
    read_header,
    response_frame,
)
from paceline.wire.kafka import apis
from paceline.wire.kafka.apis import API_VERSIONS, Api, RequestHeader
from paceline.wire.kafka.cluster import ApiVersionsResponse
from paceline.wire.kafka.layout import Apart, Struct, has_more_items
from paceline.wire.kafka.reading import TooManyItems
from paceline.wire.kafka.records import ProduceRequest, ProduceResponse
from paceline.wire.native.quotas import QuotaLimit
from paceline_node.client_memory import Portion
from paceline_node.env import RunBlocking
from paceline_node.listeners.kafka.call import Call, Handlers
from paceline_node.listeners.kafka.driven_requests import Asked, CoordinatorRequests
from paceline_node.listeners.kafka.errors import message_of
from paceline_node.listeners.kafka.frames import FrameReader
from paceline_node.listeners.kafka.login import LOGIN_APIS, KafkaLogin
from paceline_node.listeners.kafka.produce import KafkaProduce
from paceline_node.listeners.serving import Client
from paceline_node.loop_turns import Turns
from paceline_node.net.connection_tasks import connection_tasks
from paceline_node.net.outbox import Outbox, Part, Place
from paceline_node.net.transport import Transport, transport_for
from paceline_node.observe.metrics import OK, RequestMeters, code_label
from paceline_node.observe.rate_limited_log import RateLimitedLog
from paceline_node.request_pace import Pace
from paceline_node.security.authentication import Authenticator
from paceline_node.settings.limits import LimitSettings
from paceline_node.sliced_work import at_once

_PRODUCE = 0
_UNCOUNTED = LOGIN_APIS | {API_VERSIONS}
_ANSWERED_HERE = _UNCOUNTED | {_PRODUCE}
_SMALL_REQUEST_BYTES = 8 * 1024
_SMALL_PRODUCE_BYTES = 2 * 1024 * 1024
"""Appended at once; what is larger is appended in turns with others' work."""
_ITEMS_AT_ONCE = 500
"""A message of more items is read, or written, in a thread."""
_PARSED_FACTOR = 20
"""What is made of a request takes so many times its bytes."""


@dataclass(frozen=True, slots=True)
class KafkaLimits:
    """Of one connection: bytes of a frame, and of one that is no PRODUCE; answers not sent yet, and
    their bytes in memory; seconds for a client to take a MiB of an answer or to finish a frame it
    began, to say anything, and, when it has closed its side, to be answered."""

    max_frame_bytes: int = LimitSettings().frame_bytes
    max_request_bytes: int = 4 * 1024 * 1024
    max_unsent: int = 64
    max_unsent_bytes: int = 16 * 1024 * 1024
    stall_s: float = LimitSettings().stall_ms / 1000
    idle_s: float = 600.0
    last_s: float = 1.0


@dataclass(frozen=True, slots=True)
class KafkaShared:
    """What all connections of a node share. ``after_append`` lets the followers know."""

    produce: KafkaProduce
    handlers: Handlers
    versions: ApiVersionsResponse
    limits: KafkaLimits
    meters: RequestMeters[int]
    coordinator: CoordinatorRequests
    authenticator: Authenticator
    after_append: Callable[[], None]
    log: RateLimitedLog
    turns: Turns
    run_blocking: RunBlocking


class KafkaConnection:
    """Serves one client to the connection's end."""

    def __init__(self, shared: KafkaShared, client: Client) -> None:
        self._shared = shared
        self._login = KafkaLogin(shared.authenticator, client)
        limits = shared.limits
        self._share = Portion(client.memory)
        self._request = Portion(client.memory, is_passing=True)
        self._making = Portion(client.memory)
        self._outbox = Outbox(
            Portion(client.memory),
            max_unsent=limits.max_unsent,
            max_bytes=limits.max_unsent_bytes,
            stall_s=limits.stall_s,
        )
        self._registering: Asked | None = None
        self._nursery: trio.Nursery | None = None
        self._is_spoken_to = False
        """A frame was read that no worker has taken."""

    @property
    def _client(self) -> Client:
        """Who it is so far."""
        return self._login.client

    async def run(self, stream: trio.abc.Stream) -> None:
        """Serve until the client is gone, or sends what the protocol does not allow."""
        transport = transport_for(stream)
        try:
            async with connection_tasks() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._outbox.run, transport)
                ahead, frames = trio.open_memory_channel[memoryview](0)
                done = trio.Event()
                nursery.start_soon(self._work, frames, done, nursery.cancel_scope)
                async with ahead:
                    await self._read(transport, ahead)
                with trio.move_on_after(self._shared.limits.last_s):
                    await done.wait()
                    await self._outbox.emptied()
                nursery.cancel_scope.cancel()
            self._nursery = None
            if self._registering is not None:
                await self._coordinate(transport, self._registering)
        except* RemoteProtocolError as group:
            reasons = "; ".join(message_of(error) for error in _leaves(group))
            self._shared.log.info(
                "kafka connection refused",
                cause="protocol",
                peer=self._client.name,
                why=reasons,
            )
        except* (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, OSError):
            pass  # who went away, or does not read, needs no answer
        finally:
            self._nursery = None
            self._login.close()
            self._share.give_all()
            self._request.give_all()
            self._making.give_all()
            self._outbox.close()

    async def _read(self, transport: Transport, ahead: trio.MemorySendChannel[memoryview]) -> None:
        limits = self._shared.limits
        frames = FrameReader(
            transport, self._share, max_bytes=limits.max_frame_bytes, stall_s=limits.stall_s
        )
        try:
            while True:
                due = min(trio.current_time() + limits.idle_s, self._login.due)
                with trio.move_on_at(due) as silence:
                    await frames.begin()
                if silence.cancelled_caught and not self._outbox.is_empty:
                    continue  # it waits for an answer
                frames.max_bytes = self._login.frame_bytes(limits.max_frame_bytes)
                if silence.cancelled_caught or (frame := await frames.receive()) is None:
                    return
                self._is_spoken_to = True
                await ahead.send(frame)
        finally:
            self._is_spoken_to |= not frames.is_between

    async def _work(
        self,
        frames: trio.MemoryReceiveChannel[memoryview],
        done: trio.Event,
        ordinary: trio.CancelScope,
    ) -> None:
        async with frames:
            async for frame in frames:
                await self._client.quotas.pace(self._client.principal)
                await self._shared.turns.small()
                self._is_spoken_to = False
                await self._outbox.room()
                is_kept = False
                if self._login.expects_raw:
                    self._outbox.place().put([await self._login.raw(bytes(frame))])
                elif ask_of(apis.key_of(frame)) is None:
                    is_kept = await self._one(frame)
                elif await self._consult_or_register(frame):
                    ordinary.cancel("a consumer has registered")
                if not is_kept:
                    self._share.give(len(frame))
        done.set()

    # --- consumers that a coordinator drives ------------------------------------------------------

    async def _consult_or_register(self, frame: memoryview) -> bool:
        """Answer; True once the connection is to become a consumer's channel."""
        header, start = read_header(frame)
        self._login.require(int(header.ask))
        asked = Asked(header, frame, start)
        if header.ask is Ask.CONSULT:
            answer = self._shared.coordinator.consult(asked, self._client.principal)
            self._outbox.place().put([answer])
            return False
        if header.ask is not Ask.REGISTER:
            raise RemoteProtocolError(f"{header.ask.name} is the coordinator's to ask")
        if not 0 <= header.version <= LAST_VERSION:
            code = UnsupportedVersion.code
            self._outbox.place().put([response_frame(header, code, None)])
            return False
        await self._outbox.emptied()
        self._registering = asked
        return True

    async def _coordinate(self, transport: Transport, asked: Asked) -> None:
        """From here on only the coordinator asks; this task is the connection's only one."""
        if self._is_spoken_to:
            raise RemoteProtocolError("a request after Register")
        self._share.give_all()
        with trio.move_on_at(self._login.ends_at):  # nothing is repeated on a consumer's channel
            await self._shared.coordinator.serve(transport, self._share, asked, self._client)

    # --- everything else --------------------------------------------------------------------------

    async def _one(self, frame: memoryview) -> bool:
        """Carry out one request; True where its bytes are needed until it is answered."""
        arrived = trio.current_time()
        header, start = apis.read_header(frame)
        try:
            api = apis.require_api(header)
            if header.key not in self._shared.handlers and header.key not in _ANSWERED_HERE:
                raise UnsupportedVersion(f"API {header.key} is not served here")
        except UnsupportedVersion as error:
            self._shared.meters[header.key].done(code_label(error.code), 0.0)
            if header.key != API_VERSIONS:
                raise RemoteProtocolError(str(error)) from None
            self._outbox.place().put([apis.version_unknown_response(header.correlation_id)])
            return False
        self._login.require(header.key)
        if header.key not in _UNCOUNTED:
            self._client.quotas.spend(self._client.principal, QuotaLimit.REQUESTS, 1)
        call = Call(
            header.version,
            self._client.principal,
            header.client_id or "",
            self._client.name,
            self._making,
            Pace(self._shared.turns, self._making),
            self._client.account,
        )
        if header.key == _PRODUCE:
            request = await self._parsed(frame, start, api, header.version)
            assert isinstance(request, ProduceRequest)
            return await self._produce(request, call, api, header, arrived, len(frame))
        if len(frame) > self._shared.limits.max_request_bytes:
            raise RemoteProtocolError(
                f"API {header.key}: a request of {len(frame)} bytes, "
                f"{self._shared.limits.max_request_bytes} are allowed"
            )
        if len(frame) > _SMALL_REQUEST_BYTES:
            await self._client.memory.room()
            self._request.set(_PARSED_FACTOR * len(frame))
            await self._shared.turns.next()
        asked = await self._parsed(frame, start, api, header.version)
        place = self._outbox.place()
        response: Struct = self._shared.versions
        if header.key in LOGIN_APIS:
            response = await self._login.answer(asked, header.version)
        elif header.key != API_VERSIONS:
            response = await self._shared.handlers[header.key](asked, call)
        is_long = call.pace.took_turns
        put_later = self._answer(place, api, header, arrived, response, is_long=is_long)
        if put_later is not None:
            await put_later()
        self._making.give_all()
        self._request.give_all()
        if self._login.refused:
            await self._outbox.emptied()
            raise RemoteProtocolError(f"log-in failed: {self._login.refused}")
        return False

    async def _produce(
        self,
        request: ProduceRequest,
        call: Call,
        api: Api,
        header: RequestHeader,
        arrived: float,
        frame_bytes: int,
    ) -> bool:
        # A batch of a transaction may wait for the coordinator's word before it is appended.
        is_kept = request.transactional_id is not None
        kept_bytes = frame_bytes if is_kept else 0
        place = self._outbox.place()
        answer = partial(self._produced, place, api, header, arrived, kept_bytes)
        produce = self._shared.produce
        starting = produce.starting(await produce.prepare(request, call), call, answer)
        if frame_bytes <= _SMALL_PRODUCE_BYTES and not has_more_items(request, _ITEMS_AT_ONCE):
            at_once(starting)
        else:
            await self._shared.turns.run(starting)
        self._shared.after_append()
        return is_kept

    def _produced(
        self,
        place: Place,
        api: Api,
        header: RequestHeader,
        arrived: float,
        kept_bytes: int,
        make: Callable[[], ProduceResponse] | None,
        partitions: int,
    ) -> None:
        self._share.give(kept_bytes)
        self._shared.meters[header.key].done(OK, trio.current_time() - arrived)
        if make is None:
            place.put(())
            return

        def write() -> list[memoryview | Apart]:
            told = self._with_throttle(make())
            return apis.response_parts(api, header.version, header.correlation_id, told)

        if partitions <= _ITEMS_AT_ONCE:
            place.put(cast(Sequence[Part], write()))
        elif self._nursery is not None:
            self._nursery.start_soon(self._put_later, place, write)

    async def _parsed(self, frame: memoryview, start: int, api: Api, version: int) -> Struct:
        try:
            return apis.read_request(frame, start, api, version, at_most=_ITEMS_AT_ONCE)
        except TooManyItems:
            read = partial(apis.read_request, frame, start, api, version)
            return await self._shared.run_blocking(read)

    def _answer(
        self,
        place: Place,
        api: Api,
        header: RequestHeader,
        arrived: float,
        response: Struct,
        *,
        is_long: bool = False,
    ) -> Callable[[], Awaitable[None]] | None:
        """Put the answer in its place; a long one is put there by what is returned."""
        response = self._with_throttle(response)
        code = getattr(response, "error_code", 0)
        self._shared.meters[header.key].done(
            code_label(code) if code else OK, trio.current_time() - arrived
        )
        write = partial(apis.response_parts, api, header.version, header.correlation_id, response)
        if is_long or has_more_items(response, _ITEMS_AT_ONCE):
            return partial(self._put_later, place, write)
        place.put(cast(Sequence[Part], write()))  # what lies apart, lies in files
        return None

    def _with_throttle(self, response: Struct) -> Struct:
        """The response, which tells for how long the next request will not be read."""
        throttle_ms = self._client.quotas.throttle_ms(self._client.principal)
        if not (throttle_ms and hasattr(response, "throttle_time_ms")):
            return response
        return cast(Struct, replace(cast(Any, response), throttle_time_ms=throttle_ms))

    async def _put_later(self, place: Place, write: Callable[[], list[memoryview | Apart]]) -> None:
        place.put(cast(Sequence[Part], await self._shared.run_blocking(write)))


def _leaves(group: BaseExceptionGroup[PacelineError]) -> list[PacelineError]:
    found: list[PacelineError] = []
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            found += _leaves(error)
        else:
            found.append(error)
    return found
