"""A consumer's life in the hands of its coordinator (DESIGN 3).

::

    consult -> connect -> register -> idle -- Start --> running -- Stop --> idle
       ^                  any error, silence for too long, a program that hangs |
       +---------------------------------------- lost <-------------------------+

The coordinator pings, stops and starts; this task answers, whatever the program does meanwhile. A
consumer that hears nothing for ``interval x (retries + 1)`` stops by itself: the coordinator waits
longer than that before it gives the partitions to others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import trio

from paceline.client.driven_link import DrivenLink, dialled
from paceline.client.endpoint import Endpoint
from paceline.client.retry import Backoff
from paceline.client.single_error_nursery import open_scope
from paceline.client.transport import Dial
from paceline.errors import (
    ConfigurationError,
    ConnectionLost,
    CoordinatorNotAvailable,
    PacelineError,
    RemoteProtocolError,
    error_for,
)
from paceline.types import TopicPartition
from paceline.values import dataclass
from paceline.wire.coordinator.codec import (
    Ask,
    Header,
    read_header,
    read_request,
    request_frame,
    response_frame,
)
from paceline.wire.coordinator.messages import (
    ConsultRequest,
    ConsultResponse,
    PingRequest,
    Position,
    PositionsResponse,
    RegisterRequest,
    RegisterResponse,
    StartRequest,
    StopRequest,
    TopicCount,
)

DIAL_S = 5.0
_STOP_PART = 0.75
_LAYOUT_7 = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class DrivenSettings:
    """``heartbeat_interval_ms`` (100 to 300,000) and ``max_heartbeat_retries`` (0 to 100) are both
    sides' measure of silence, together at most 300 s. ``auto_commit``: the coordinator keeps what
    the answers to its pings say. ``streams`` is how many portions of a topic this consumer takes.
    ``layout`` 8 has the headers of Kafka 0.8, ``layout`` 7 the seed's bare blocks; ``version`` 0
    knows neither generations nor topics: it reads those listed for its group
    (:meth:`GroupAdmin.set_topics`), or all. ``whitelist``: the one topic is a pattern.
    ``max_poll_interval_s``: as in :class:`GroupSettings`.
    """

    auto_commit: bool = True
    heartbeat_interval_ms: int = 3000
    max_heartbeat_retries: int = 3
    streams: int = 1
    layout: int = 8
    version: int = 1
    whitelist: bool = False
    max_poll_interval_s: float | None = 300.0

    def __post_init__(self) -> None:
        if self.max_poll_interval_s is not None and self.max_poll_interval_s <= 0:
            raise ConfigurationError("max_poll_interval_s must be above 0, or None")
        if (self.layout, self.version) not in ((8, 1), (8, 0), (7, 0)):
            raise ConfigurationError(
                f"layout {self.layout}, version {self.version}: expected layout 8 with version 1 "
                "or 0, or layout 7 with version 0"
            )

    @property
    def fence_s(self) -> float:
        """Silence after which a consumer stops by itself."""
        return self.heartbeat_interval_ms * (self.max_heartbeat_retries + 1) / 1000


class Owner(Protocol):
    """Whose partitions these are."""

    def done(self) -> Mapping[TopicPartition, int]:
        """How far each is read: the next offset that the program will read."""

    async def take(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read these from now on, and nothing else; negative offsets as in a Start."""

    async def hand_back(self, at_most_s: float) -> None:
        """Stop handing out, and wait a while for what the program has in hand."""

    async def give_up(self, *, lost: bool) -> Mapping[TopicPartition, int]:
        """Hand out nothing any more and forget the partitions, which others may read already when
        they are ``lost``; how far each was read."""

    def is_stuck(self) -> bool:
        """Whether the program has asked for nothing for too long."""

    async def asked_again(self) -> None:
        """Return when the program asks for more."""


class Driven:
    """``bootstrap`` lists the Kafka listeners known otherwise; those that a Consult names are
    added."""

    def __init__(
        self,
        settings: DrivenSettings,
        dial: Dial,
        backoff: Backoff,
        owner: Owner,
        bootstrap: Callable[[], Sequence[Endpoint]],
        *,
        group: str,
        topics: Sequence[str],
        consumer_id: str,
        client_id: str,
        from_smallest: bool,
    ) -> None:
        self.consumer_id = consumer_id
        self.generation = -1
        self.where: Endpoint | None = None
        """The coordinator, while registered there."""
        self._settings = settings
        self._dial = dial
        self._backoff = backoff
        self._owner = owner
        self._bootstrap = bootstrap
        self._told: tuple[Endpoint, ...] = ()
        self._group = group
        self._topics = tuple(topics)
        self._client_id = client_id
        self._from_smallest = from_smallest
        self._highest_epoch = -1
        self._turn = 0

    # --- its life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Be a consumer until cancelled, however long no coordinator is there. Raises what a
        coordinator refuses for good: impossible names, topics, times; no permission."""
        failures = 0
        while True:
            before, hangs = self.generation, False
            try:
                where = await self._consult()
                async with dialled(self._dial, where, timeout_s=DIAL_S) as link:
                    await self._register(link)
                    self.where = where
                    hangs = await self._obey(link)
            except PacelineError as error:
                if not (error.retriable or isinstance(error, ConnectionLost | RemoteProtocolError)):
                    raise
            finally:
                self.where = None
            await self._owner.give_up(lost=True)
            if hangs:
                await self._owner.asked_again()
            failures = 0 if self.generation != before else failures + 1
            await trio.sleep(self._backoff.pause_s(failures))

    def _header(self, ask: Ask) -> Header:
        settings = self._settings
        if settings.layout == _LAYOUT_7:
            return Header(ask, is_layout_7=True)
        return Header(ask, False, settings.version, 1, self._client_id)

    async def _consult(self) -> Endpoint:
        """The coordinator, as the next node in turn knows it."""
        known = [*self._bootstrap(), *self._told]
        if not known:
            raise ConnectionLost("no node with a kafka listener is known", was_sent=False)
        self._turn += 1
        asked = known[self._turn % len(known)]
        request = ConsultRequest(group_id=self._group)
        with trio.move_on_after(DIAL_S):
            async with dialled(self._dial, asked, timeout_s=DIAL_S) as link:
                response = await link.ask(self._header(Ask.CONSULT), request)
                return self._named(response.error, response.body)
        raise ConnectionLost(f"{asked} did not answer")

    def _named(self, error: int, body: object) -> Endpoint:
        if error:
            raise error_for(error, f"group {self._group}: who coordinates")
        assert isinstance(body, ConsultResponse)
        self._told = tuple(Endpoint(each.host, each.port) for each in body.brokers)
        for each in body.brokers:
            if each.id == body.coordinator_id:
                return Endpoint(each.host, each.port)
        raise CoordinatorNotAvailable(f"group {self._group}: node {body.coordinator_id} is gone")

    async def _register(self, link: DrivenLink) -> None:
        settings = self._settings
        header = self._header(Ask.REGISTER)
        request = RegisterRequest(
            group_id=self._group,
            consumer_id=self.consumer_id,
            auto_commit=int(settings.auto_commit),
            auto_offset_rest="smallest" if self._from_smallest else "largest",
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            max_heartbeat_retries=settings.max_heartbeat_retries,
            topic_count=tuple(
                TopicCount(topic=topic, streams=settings.streams) for topic in self._topics
            ),
            pattern_kind=int(settings.whitelist),
            generation=self.generation,
        )
        if settings.version == 0:
            await link.send(request_frame(header, request))
            return
        with trio.move_on_after(settings.fence_s + DIAL_S):
            response = await link.ask(header, request)
            if response.error:
                raise error_for(response.error, f"registering in group {self._group}")
            assert isinstance(response.body, RegisterResponse)
            self._check_epoch(response.body.coordinator_epoch)
            return
        raise ConnectionLost(f"group {self._group}: the coordinator does not answer")

    # --- obeying ----------------------------------------------------------------------------------

    async def _obey(self, link: DrivenLink) -> bool:
        """Answer until the channel ends, the coordinator is silent for too long, or the program
        hangs; only then this returns: True."""
        heard_at = trio.current_time()
        while True:
            with trio.move_on_at(heard_at + self._settings.fence_s) as silence:
                frame = await link.receive()
            if silence.cancelled_caught:
                raise ConnectionLost(f"group {self._group}: the coordinator is silent")
            if self._owner.is_stuck():
                return True  # the end of the channel lets others have the partitions
            heard_at = trio.current_time()
            header, start = read_header(frame)
            request = read_request(header, frame, start)
            match request:
                case PingRequest():
                    self._check_epoch(request.coordinator_epoch)
                    answer = self._positions(self._owner.done())
                case StopRequest():
                    self._check_epoch(request.coordinator_epoch)
                    answer = self._positions(await self._stop(link))
                case StartRequest():
                    await self._start(request)
                    answer = None
                case _:
                    raise RemoteProtocolError(f"a coordinator does not ask {header.ask.name}")
            await link.send(response_frame(header, 0, answer))
            if isinstance(request, StopRequest) and request.reason:
                raise ConnectionLost(f"group {self._group}: sent away, reason {request.reason}")

    async def _stop(self, link: DrivenLink) -> Mapping[TopicPartition, int]:
        """Give up everything; how far each was read. If the channel ends while the program still
        has something in hand, that is loss: the partitions may be others' at once."""
        async with open_scope() as nursery:
            nursery.start_soon(link.read_ahead)
            await self._owner.hand_back(self._settings.fence_s * _STOP_PART)
        return await self._owner.give_up(lost=False)

    async def _start(self, request: StartRequest) -> None:
        self._check_epoch(request.coordinator_epoch)
        self.generation = request.generation
        await self._owner.take(
            {TopicPartition(each.topic, each.partition): each.offset for each in request.partitions}
        )

    def _check_epoch(self, epoch: int) -> None:
        """An older coordinator than one heard before is none any more (DESIGN 3)."""
        if self._settings.version == 0:
            return
        if epoch < self._highest_epoch:
            raise ConnectionLost(
                f"group {self._group}: coordinator epoch {epoch}, {self._highest_epoch} was heard"
            )
        self._highest_epoch = epoch

    def _positions(self, done: Mapping[TopicPartition, int]) -> PositionsResponse | None:
        settings = self._settings
        if not settings.auto_commit:
            # Version 0 then says nothing at all, not even that there is nothing.
            done = {}
            if settings.version == 0:
                return None
        return PositionsResponse(
            generation=self.generation,
            positions=tuple(
                Position(topic=at.topic, partition=at.partition, offset=offset)
                for at, offset in sorted(done.items())
            ),
        )
