"""What producers of all foreign protocols have in common: one request at a time, and how it ends.

A producer that numbers its records sends the same ones again until they are acknowledged; it is the
only one of its name, so a gap or a stale epoch that it is told of is a finding. Others take
refusals as such. What a request looks like and where it goes to is the dialect's.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

import trio

from paceline.errors import PacelineError
from paceline.types import Acks
from paceline.values import dataclass
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.foreign_clients.links import AGAIN_S
from paceline_cluster.sim.history import Recorder, Stream, at, is_open
from paceline_cluster.sim.plan import Plan, places_of

_RENEW = 0.03
"""How likely a producer that numbers its records begins anew behind an acknowledgement."""


@dataclass(slots=True)
class Request:
    """What is to be acknowledged: counters of a stream, in one message."""

    where: tuple[str, int]
    stream: Stream
    first: int
    count: int
    body: bytes
    tries: int = 0


class ForeignWriter(ABC):
    """Writes until told to stop."""

    def __init__(
        self, name: str, plan: Plan, recorder: Recorder, rng: random.Random, *, is_numbered: bool
    ) -> None:
        self.name = name
        self.stopping = False
        self.ended = trio.Event()
        self._rng = rng
        self._recorder = recorder
        self._pause_s = plan.foreign_pause_s
        self._is_numbered = is_numbered
        self._acks = Acks.ALL if is_numbered else rng.choice((Acks.ALL, Acks.LEADER))
        self._places = places_of(plan.written)
        self._streams: dict[tuple[str, int], Stream] = {}
        self._request: Request | None = None

    # --- what a dialect says ----------------------------------------------------------------------

    @abstractmethod
    async def run(self, cluster: SimCluster, host: str) -> None:
        """Connect from ``host``, :meth:`_work`, and set ``ended`` when the connections are
        closed."""

    @abstractmethod
    def _body(self, where: tuple[str, int], values: list[bytes]) -> bytes:
        """Records with these values as they are sent; with the next numbers, if they have any."""

    @abstractmethod
    def _renew(self) -> None:
        """Go on under another epoch or id, with numbers from the first."""

    @abstractmethod
    def _is_finding(self, error: PacelineError) -> bool:
        """Whether the only producer of a name that sends one request at a time is never told so."""

    def _is_open(self, error: PacelineError) -> bool:
        """Whether the records may have been stored."""
        return is_open(error)

    # --- one request after another ----------------------------------------------------------------

    async def _work(self, write: Callable[[], Awaitable[None]], forget: Callable[[], None]) -> None:
        """Until told to stop: ``write`` takes what is :meth:`_due` and lets it be
        :meth:`_settled`; after a failure ``forget`` what is known of the cluster."""
        while not self.stopping or self._request is not None:
            try:
                await write()
            except PacelineError:
                forget()
                await trio.sleep(AGAIN_S)
            else:
                await trio.sleep(self._rng.uniform(0.0, self._pause_s))

    def _due(self) -> Request:
        """What has no outcome yet, or something new."""
        if self._request is None:
            self._request = self._next()
        return self._request

    def _next(self) -> Request:
        rng, recorder = self._rng, self._recorder
        where = rng.choice(self._places)
        stream = self._streams.get(where)
        if stream is None:
            stream = self._streams[where] = recorder.open(
                self.name, at(*where), self._acks, idempotent=self._is_numbered
            )
        count = rng.choice((1, 1, 2, 5))
        first, values = recorder.invoke(stream, count, rng.choice((0, 20)))
        return Request(where, stream, first, count, self._body(where, values))

    async def _settled(self, request: Request, send: Callable[[], Awaitable[int]]) -> None:
        """Note how a request ends. ``send`` tells the offset of its first record, or -1 where the
        answer does not say. Raises what ``send`` raises."""
        request.tries += 1
        try:
            offset = await send()
        except PacelineError as error:
            self._refused(request, error)
            raise
        self._request = None
        for n in range(request.count):
            told = -1 if offset < 0 else offset + n
            self._recorder.ok(request.stream, request.first + n, told, -1)
        if self._is_numbered and self._rng.random() < _RENEW:
            self._renew()

    def _refused(self, request: Request, error: PacelineError) -> None:
        if self._is_numbered:
            told = f"{request.where}: the only producer {self.name} was told {error!r}"
            assert not self._is_finding(error), told
            return
        self._request = None
        may_be_stored = self._is_open(error)
        note = self._recorder.unknown_outcome if may_be_stored else self._recorder.fail
        for counter in range(request.first, request.first + request.count):
            note(request.stream, counter, repr(error))
        if may_be_stored:
            del self._streams[request.where]
