"""A data plane that does as it is told: the services of records, as listeners call them, over
batches in memory.

It is for a listener's own work: what it makes of a request, and of whatever a service may say to
it. A node in memory (``lone.py``) says what a healthy node says; here any partition is refused with
any error, waits for as long as a test wants, or holds what cannot be read. What listeners asked for
is noted. ``test_data_plane.py`` holds the methods against those of the services.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn, cast
from uuid import UUID

import trio
from trio.testing import memory_stream_pair

from paceline.errors import CorruptMessage, PacelineError, UnknownTopicOrPartition
from paceline.types import NO_NODE, Isolation, LeaderEpoch, NodeId
from paceline.wire.batch import CLIENT_ATTRIBUTES
from paceline.wire.native.api import PROTOCOL_VERSION, NativeApi
from paceline.wire.native.data import Hello, HelloReply
from paceline_node.env import Env
from paceline_node.listeners.kafka.connection import KafkaLimits
from paceline_node.listeners.kafka.listener import KafkaListener
from paceline_node.listeners.native.fetch import FetchHandler
from paceline_node.listeners.native.groups import NativeGroups
from paceline_node.listeners.native.listener import NativeLimits, NativeService
from paceline_node.listeners.native.produce import ProduceHandler
from paceline_node.listeners.native.requests import NativeRequests
from paceline_node.listeners.serving import Client
from paceline_node.loop_turns import Turns
from paceline_node.net.deadlines import Deadlines
from paceline_node.net.frame_bursts import Burst
from paceline_node.observe.metrics import Metrics
from paceline_node.replication.partition import ProduceResult
from paceline_node.security.authentication import Authenticator
from paceline_node.security.principals import Principal
from paceline_node.services.partitions.partition_access import Refused
from paceline_node.services.records import fetch as reading
from paceline_node.services.records import list_offsets, produce
from paceline_node.services.records.multi_part_answer import MultiPartAnswer
from paceline_node.sliced_work import Work
from paceline_node.storage.memory_disk import MemoryDisk, MemoryFile
from paceline_node.storage.reading import LogSlice
from paceline_node.storage.tiered_storage import InOlderTier
from tests.unit.listeners.lone import Host, KafkaClient, NativeClient
from tests.unit.peers.memory_network import MemoryNetwork

At = tuple[str, int]
"""A partition: its topic and its number."""
SOMEBODY = Client("10.0.0.1:50000", is_loopback=False)


class Absent:
    """A service that a test does not give: whoever asks it anything fails."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"{name} is asked of a service that is not there")


class _Partition:
    """One that leads here."""

    def __init__(self, at: At, disk: MemoryDisk) -> None:
        self.file: MemoryFile = disk.create("-".join(map(str, at)))
        self.end = 0
        self.size = 0

    def append(self, batches: bytes, count: int) -> ProduceResult:
        base = self.end
        self.file.append([batches])
        self.size += len(batches)
        self.end += count
        return ProduceResult(base, self.end - 1, LeaderEpoch(0), self.end, 0, False)

    def read(self, offset: int = 0) -> reading.ReadResult:
        """All of it, as long as something lies at ``offset``."""
        found = None
        if offset < self.end:
            found = LogSlice(self.file, 0, self.size, 0, self.end)
        return reading.ReadResult(found, self.end, self.end, 0, self.end, LeaderEpoch(0))


class DataPlane:
    """``partitions`` lead here; others do not exist."""

    def __init__(self, *partitions: At) -> None:
        disk = MemoryDisk()
        self.partitions = {at: _Partition(at, disk) for at in partitions}
        self.refused: dict[At, Refused] = {}
        self.produce = FakeProduce(self)
        self.fetch = FakeFetch(self)
        self.offsets = FakeOffsets(self)
        self.trimming = FakeTrimming(self)

    def refuse(
        self, topic: str, number: int, error: PacelineError, leader: int = NO_NODE, epoch: int = -1
    ) -> None:
        """Whatever is asked of a partition, this is what is told."""
        self.refused[topic, number] = Refused(error, NodeId(leader), LeaderEpoch(epoch))

    def put(self, topic: str, number: int, batch: bytes, count: int = 1) -> None:
        """Records that are there already, whole or not."""
        self.partitions[topic, number].append(batch, count)

    def at(self, topic: str, number: int) -> _Partition | Refused:
        """The partition, or why it is none."""
        refused = self.refused.get((topic, number))
        if refused is not None:
            return refused
        found = self.partitions.get((topic, number))
        return found or Refused(UnknownTopicOrPartition(f"{topic}/{number}"))

    def needed(self, topic: str, number: int) -> _Partition:
        """The partition. Raises what it is refused for."""
        found = self.at(topic, number)
        if isinstance(found, Refused):
            raise found.error
        return found


class FakeProduce:
    """What was appended to ``waiting`` partitions is answered by :meth:`settle`."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._done: dict[At, deque[Callable[[produce.Outcome], None]]] = defaultdict(deque)
        self.wishes: list[produce.Wish] = []
        self.waiting: set[At] = set()
        self.refusal: PacelineError | None = None
        """Of whole requests."""

    def appending(
        self,
        wish: produce.Wish,
        parts: Sequence[produce.Part],
        answer: Callable[[list[produce.Outcome]], None],
    ) -> Work[None]:
        self.wishes.append(wish)
        if self.refusal is not None:
            raise self.refusal
        gather: MultiPartAnswer[produce.Outcome] = MultiPartAnswer(len(parts), answer)
        for index, part in enumerate(parts):
            yield 1
            outcome = self._outcome(wish, part)
            at = (part.topic, part.partition)
            if at in self.waiting and not isinstance(outcome, Refused):
                self._done[at].append(partial(gather.put, index))
            else:
                gather.put(index, outcome)
        gather.all_begun()

    def _outcome(self, wish: produce.Wish, part: produce.Part) -> produce.Outcome:
        found = self._plane.at(part.topic, part.partition)
        if isinstance(found, Refused):
            return found
        try:
            if part.fault is not None:
                raise part.fault
            headers = list(wish.validate(part.batches, CLIENT_ATTRIBUTES))
        except PacelineError as error:
            return Refused(error)
        return found.append(bytes(part.batches), sum(each.record_count for each in headers))

    def settle(self, topic: str, number: int, outcome: produce.Outcome) -> None:
        """What became of the first append to a partition that waits."""
        self._done[topic, number].popleft()(outcome)


class _Parked:
    def __init__(self, parked: list[_Parked]) -> None:
        self._parked = parked
        parked.append(self)

    def abandon(self) -> None:
        self._parked.remove(self)


class FakeFetch:
    """``parked`` are fetches that found nothing and may wait. ``in_older_tier``: only what awaits
    can read it."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self.wishes: list[reading.Wish] = []
        self.parked: list[_Parked] = []
        self.in_older_tier = False
        self.reported: list[At] = []
        """What was found not to hold by who read it."""

    def _outcomes(self, wish: reading.Wish) -> list[reading.Outcome]:
        found: list[reading.Outcome] = []
        for wanted in wish.parts:
            at = self._plane.at(wanted.topic, wanted.partition)
            found.append(at if isinstance(at, Refused) else at.read(wanted.offset))
        return found

    def fetch(self, wish: reading.Wish, answer: reading.Answer) -> reading.ParkedFetch | None:
        if self.in_older_tier:
            raise InOlderTier("older")
        self.wishes.append(wish)
        outcomes = self._outcomes(wish)
        is_empty = all(not isinstance(each, Refused) and each.slice is None for each in outcomes)
        if is_empty and wish.wait_s > 0:
            return cast(reading.ParkedFetch, _Parked(self.parked))
        answer(outcomes)
        return None

    async def fetch_in_turns(self, wish: reading.Wish) -> list[reading.Outcome]:
        await trio.lowlevel.checkpoint()
        self.wishes.append(wish)
        return self._outcomes(wish)

    def behind(
        self, wish: reading.Wish, wanted: reading.Wanted, offset: int, max_bytes: int
    ) -> reading.ReadResult:
        return self._plane.needed(wanted.topic, wanted.partition).read(offset)

    def corrupt(
        self, wanted: reading.Wanted, found: reading.ReadResult, error: CorruptMessage
    ) -> PacelineError:
        self.reported.append((wanted.topic, wanted.partition))
        return error


class FakeOffsets:
    """``is_known``: whether times can be looked up at once. An offset is found at its own time."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self.queries: list[list_offsets.Query] = []
        self.is_known = True
        self.waited = 0
        """Look-ups that waited for a time index."""
        self.starts: list[int] = [0]
        self.epochs: dict[int, tuple[LeaderEpoch, int]] = {}

    def find(
        self,
        principal: Principal,
        queries: Sequence[list_offsets.Query],
        isolation: Isolation,
    ) -> list[list_offsets.Outcome] | None:
        if not self.is_known:
            return None
        self.queries += queries
        return [self._found(each) for each in queries]

    def _found(self, query: list_offsets.Query) -> list_offsets.Outcome:
        at = self._plane.at(query.topic, query.partition)
        if isinstance(at, Refused):
            return at
        offset = query.spec if query.spec >= 0 else at.end
        return list_offsets.FoundOffset(offset, query.spec, LeaderEpoch(3))

    async def find_in_turns(
        self,
        principal: Principal,
        queries: Sequence[list_offsets.Query],
        isolation: Isolation,
    ) -> list[list_offsets.Outcome]:
        await trio.lowlevel.checkpoint()
        self.waited += not self.is_known
        return [self._found(each) for each in queries]

    def segment_starts(self, principal: Principal, query: list_offsets.Query) -> list[int]:
        self._plane.needed(query.topic, query.partition)
        return self.starts

    def end_of_epoch(
        self, principal: Principal, query: list_offsets.Query
    ) -> tuple[LeaderEpoch, int] | None:
        self._plane.needed(query.topic, query.partition)
        return self.epochs.get(query.epoch)


class FakeTrimming:
    """Each takes ``takes_s``; ``asked`` notes what, and how long it might have taken."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self.takes_s = 0.0
        self.asked: list[tuple[str, int, int, float]] = []

    async def trim(
        self, principal: Principal, topic: str, number: int, offset: int, *, timeout_s: float
    ) -> int:
        self.asked.append((topic, number, offset, timeout_s))
        await trio.sleep(self.takes_s)
        partition = self._plane.needed(topic, number)
        return partition.end if offset < 0 else offset


# --- listeners over it ----------------------------------------------------------------------------


def _services(plane: DataPlane, others: dict[str, object]) -> Any:
    """As ``BrokerServices``; what is not named is absent."""
    names = (
        *("topics", "groups", "status", "transactions", "authorized", "producer_ids", "users"),
        *("transaction_offsets", "acls", "corruption_reports", "quotas", "loads"),
    )
    return SimpleNamespace(
        produce=plane.produce,
        fetch=plane.fetch,
        offsets=plane.offsets,
        trimming=plane.trimming,
        turns=Turns(),
        **{name: others.get(name, Absent()) for name in names},
    )


def _env() -> Env:
    return Env(Host(), MemoryDisk(), MemoryNetwork(), random.Random(1))


def _authenticator() -> Authenticator:
    absent = cast(Any, Absent())
    return Authenticator(absent, absent, absent, absent, random=bytes, wall_ms=lambda: 0)


def kafka_listener(
    plane: DataPlane, limits: KafkaLimits | None = None, **services: object
) -> KafkaListener:
    return KafkaListener(
        _env(),
        _services(plane, services),
        cast(Any, Absent()),
        limits or KafkaLimits(),
        Metrics(version="t"),
        cast(Any, Absent()),
        _authenticator(),
        after_append=lambda: None,
    )


def native_listener(
    plane: DataPlane, limits: NativeLimits | None = None, **services: object
) -> NativeService:
    given, env = _services(plane, services), _env()
    requests = NativeRequests(
        given.topics,
        cast(Any, Absent()),
        cast(Any, Absent()),
        given.producer_ids,
        given.transactions,
        given.status,
        given.loads,
        given.corruption_reports,
        given.trimming,
        given.users,
        given.turns,
        env.host.run_blocking,
    )
    return NativeService(
        UUID(int=1),
        NodeId(0),
        "t",
        ProduceHandler(given.produce),
        FetchHandler(given.fetch, given.offsets),
        {
            **requests.handlers(),
            **NativeGroups(given.groups, given.transaction_offsets, given.turns).handlers(),
        },
        requests.metadata,
        limits or NativeLimits(),
        Metrics(version="t"),
        deadlines=Deadlines(),
        burst=Burst(),
        after_burst=lambda: None,
        turns=given.turns,
        run_blocking=env.host.run_blocking,
        authenticator=_authenticator(),
    )


@asynccontextmanager
async def connected(listener: Any) -> AsyncIterator[trio.abc.Stream]:
    """A client's end of a connection to a listener."""
    theirs, ours = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve, ours, SOMEBODY)
        yield theirs
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def kafka_client(listener: KafkaListener) -> AsyncIterator[KafkaClient]:
    async with connected(listener) as stream:
        yield KafkaClient(stream)


@asynccontextmanager
async def native_client(listener: NativeService) -> AsyncIterator[NativeClient]:
    async with connected(listener) as stream:
        client = NativeClient(stream)
        hello = Hello(PROTOCOL_VERSION, PROTOCOL_VERSION, "t")
        await client.ask(NativeApi.HELLO, hello, HelloReply)
        yield client
