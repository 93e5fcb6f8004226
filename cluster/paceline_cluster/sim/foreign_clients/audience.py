"""A group of hundreds of members in a shortened form: they join, are dealt one seat each, and keep
it; nobody reads anything. A few of them leave or fall silent all the time, and come back as others.

What they are told is held against the :class:`SeatingPlan`; and when the faults are over, all who
stay have to become members of one generation.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress

import trio

from paceline.errors import PacelineError
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.foreign_clients.kafka import KafkaCluster, KafkaLink, kafka_cluster
from paceline_cluster.sim.foreign_clients.kafka_seat import AGAIN, ANEW, KafkaSeat
from paceline_cluster.sim.foreign_clients.links import AGAIN_S

GROUP = "audience"
HALL = "hall"
"""Whose seats are dealt out; there is no such topic."""
_SESSION_MS = 6000
_BEAT_S = (1.0, 2.0)
_ARRIVAL_S = 1.0
"""They come within so long."""
_RESTLESS = 40
"""One in so many does not stay."""
_STAY_S = (2.0, 6.0)
_AWAY_S = (0.5, 3.0)
_LEAVE = 0.5
"""How likely a restless one says that it goes."""
_LEAVE_S = 1.0
_LOOK_S = 0.2


class SeatingPlan:
    """What holds of a group's generations. The one who deals does so once in a generation; each
    member is told what it was dealt, and no seat is told to two; no member's generation falls."""

    def __init__(self) -> None:
        self._dealt: dict[int, Mapping[str, Sequence[int]]] = {}
        self._taken: dict[tuple[int, int], str] = {}
        self._generations: dict[str, int] = {}

    def dealt(self, generation: int, seats: Mapping[str, Sequence[int]]) -> None:
        """A leader is about to say who gets which. Raises AssertionError, as the others do."""
        before = self._dealt.setdefault(generation, seats)
        assert before == seats, f"two deal in generation {generation} of {GROUP}"

    def joined(self, member: str, generation: int) -> None:
        """A member was told its generation."""
        before = self._generations.get(member, -1)
        assert generation >= before, f"{member} was in generation {before}, now in {generation}"
        self._generations[member] = generation

    def told(self, member: str, generation: int, seats: Sequence[int]) -> None:
        """A member was told what to have."""
        dealt = self._dealt.get(generation)
        assert dealt is not None, f"{member} has seats of {generation}, in which nobody has dealt"
        wanted = list(dealt.get(member, ()))
        assert list(seats) == wanted, f"{member} was dealt {wanted} in {generation}, told {seats}"
        for seat in seats:
            other = self._taken.setdefault((generation, seat), member)
            assert other == member, f"{other} and {member} have seat {seat} in {generation}"


class Audience:
    """``size`` members. Told to stop, the restless ones go, and once the others have seats in one
    generation all is over."""

    def __init__(self, name: str, size: int, rng: random.Random) -> None:
        self.name = name
        self.size = size
        self.stopping = False
        self.ended = trio.Event()
        self.seating = SeatingPlan()
        self.generations: dict[int, int] = {}
        """Of those who have a seat."""
        self._rng = rng

    def is_settled(self) -> bool:
        """Whether all who stay have seats of one generation."""
        stayers = range(self._restless, self.size)
        return len({self.generations.get(number, -number - 1) for number in stayers}) == 1

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Come from ``host``, and stay until told to stop."""
        async with trio.open_nursery() as nursery:
            for number in range(self.size):
                rng = random.Random(self._rng.getrandbits(64))
                visitor = _Visitor(self, number, rng)
                nursery.start_soon(visitor.run, cluster, host, number >= self._restless)
            while not (self.stopping and self.is_settled()):  # noqa: ASYNC110  virtual time
                await trio.sleep(_LOOK_S)
            nursery.cancel_scope.cancel()
        self.ended.set()

    @property
    def _restless(self) -> int:
        return max(1, self.size // _RESTLESS)


class _Visitor:
    """A member, on connections of its own."""

    def __init__(self, audience: Audience, number: int, rng: random.Random) -> None:
        self._audience = audience
        self._number = number
        self._rng = rng
        self._take_place()

    def _take_place(self) -> None:
        self._seat = KafkaSeat(GROUP, HALL, self._audience.size, session_ms=_SESSION_MS)

    async def run(self, cluster: SimCluster, host: str, stays: bool) -> None:
        """Be a member until cancelled; one who does not stay, until all are to come to an end."""
        await trio.sleep(self._rng.uniform(0.0, _ARRIVAL_S))
        async with kafka_cluster(cluster, host, self._rng) as known:
            if stays:
                await self._stay(known)
            while not self._audience.stopping:
                with trio.move_on_after(self._rng.uniform(*_STAY_S)):
                    await self._stay(known)
                if self._rng.random() < _LEAVE:
                    await self._leave(known)
                self._take_place()
                await trio.sleep(self._rng.uniform(*_AWAY_S))

    async def _leave(self, known: KafkaCluster) -> None:
        with trio.move_on_after(_LEAVE_S), suppress(PacelineError):
            await self._seat.leave(await known.coordinator(GROUP))

    async def _stay(self, known: KafkaCluster) -> None:
        """Join again whenever the group goes on."""
        while True:
            try:
                link = await known.coordinator(GROUP)
                await self._be_seated(link)
                while True:
                    await trio.sleep(self._rng.uniform(*_BEAT_S))
                    await self._seat.beat(link)
            except PacelineError as error:
                self._audience.generations.pop(self._number, None)
                if error.code in ANEW:
                    self._seat.id = ""
                if error.code not in AGAIN:
                    await trio.sleep(self._rng.uniform(0.0, 2 * AGAIN_S))

    async def _be_seated(self, link: KafkaLink) -> None:
        seat, seating = self._seat, self._audience.seating
        await seat.join(link)
        seating.joined(seat.id, seat.generation)
        if seat.dealing:
            seating.dealt(seat.generation, seat.dealing)
        seating.told(seat.id, seat.generation, await seat.sync(link))
        self._audience.generations[self._number] = seat.generation
