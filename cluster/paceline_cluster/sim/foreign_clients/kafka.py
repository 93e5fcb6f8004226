"""One Kafka connection as a client has it, and what of the cluster a client knows.

Codes are taken at their word: those that Kafka's clients may repeat without an open outcome say
that nothing was done (``paceline.errors``, whose numbers they are).
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import TypeVar, cast

import trio

from paceline.errors import ConnectionLost, CorruptMessage, ErrorCode, PacelineError, error_for
from paceline.types import Isolation
from paceline.wire.batch import iter_batches, verify
from paceline.wire.kafka import apis
from paceline.wire.kafka import records as wire
from paceline.wire.kafka.apis import APIS, RequestHeader
from paceline.wire.kafka.cluster import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from paceline.wire.kafka.layout import Struct
from paceline.wire.records import Record, decode_records
from paceline_cluster.sim.cluster import KAFKA_PORT, SimCluster
from paceline_cluster.sim.foreign_clients.links import ANSWER_S, Address, Connection, Links
from paceline_cluster.sim.history import Recorder, at, is_open

R = TypeVar("R", bound=Struct)
_KEYS = {api.request: api.key for api in APIS.values()}
_SIZE_BYTES = 4
_FETCH_BYTES = 64 * 1024
GROUP_KEY = 0
TRANSACTION_KEY = 1
"""Of whom a coordinator is asked for."""
_ASK_AGAIN = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


def raise_for(code: int, what: str) -> None:
    """Raise the error of a number that is not 0."""
    if code:
        raise error_for(ErrorCode(code), f"{what}: error {code}")


def is_commit_open(error: PacelineError) -> bool:
    """Whether offsets may have been committed. Kafka has no number for that: who is told that there
    is no coordinator, or another, asks again, and is told so, too, where this one could not wait
    for its topic any longer, or ceased to coordinate after it had written."""
    return error.code in _ASK_AGAIN or is_open(error)


class KafkaLink(Connection):
    """Requests out, answers in."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream)
        self._numbers = count(1)
        self._buffer = bytearray()

    async def ask(
        self, request: Struct, version: int, kind: type[R], *, within_s: float = ANSWER_S
    ) -> R:
        """The answer, whatever codes it holds. Raises ConnectionLost."""
        name = type(request).__name__
        return cast(
            R, await self.exchange(name, lambda: self._told(request, version), within_s=within_s)
        )

    async def ask_all(
        self,
        requests: Sequence[Struct],
        version: int,
        *,
        pause_s: Callable[[], float],
        within_s: float = ANSWER_S,
    ) -> list[Struct]:
        """Send all of them, with pauses, before any answer is read; the answers in order, as many
        as came before the connection broke or the time was up."""
        told: list[Struct] = []

        async def talk() -> None:
            numbers = []
            for request in requests:
                numbers.append(await self._send(request, version))
                await trio.sleep(pause_s())
            for request, number in zip(requests, numbers, strict=True):
                told.append(await self._answer(_KEYS[type(request)], number, version))

        with suppress(ConnectionLost):
            await self.exchange("a burst", talk, within_s=within_s)
        return told

    async def _told(self, request: Struct, version: int) -> Struct:
        number = await self._send(request, version)
        return await self._answer(_KEYS[type(request)], number, version)

    async def _send(self, request: Struct, version: int) -> int:
        number = next(self._numbers)
        header = RequestHeader(_KEYS[type(request)], version, number, "sim")
        await self.stream.send_all(apis.request_frame(header, request))
        return number

    async def _answer(self, key: int, number: int, version: int) -> Struct:
        frame = await self._frame()
        assert int.from_bytes(frame[:_SIZE_BYTES], "big") == number, "an answer to another request"
        return apis.read_response(memoryview(frame), _SIZE_BYTES, APIS[key], version)

    async def _frame(self) -> bytes:
        buffer = self._buffer
        while True:
            if len(buffer) >= _SIZE_BYTES:
                end = _SIZE_BYTES + int.from_bytes(buffer[:_SIZE_BYTES], "big")
                if len(buffer) >= end:
                    frame = bytes(buffer[_SIZE_BYTES:end])
                    del buffer[:end]
                    return frame
            buffer += await self.receive()


KafkaLinks = Links[KafkaLink]


class KafkaCluster:
    """Leaders and coordinators, as any node tells them; asked for again when they are wrong."""

    def __init__(self, links: KafkaLinks, rng: random.Random) -> None:
        self.links = links
        self._rng = rng
        self._leaders: dict[tuple[str, int], Address] = {}

    def forget(self) -> None:
        """What is known of leaders has turned out to be wrong."""
        self._leaders.clear()

    async def leader(self, where: tuple[str, int]) -> KafkaLink:
        """A connection to a partition's leader. Raises PacelineError, with nothing sent."""
        if where not in self._leaders:
            await self._ask(where[0])
        found = self._leaders.get(where)
        if found is None:
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, at(*where))
        return await self.links.to(found)

    async def _ask(self, topic: str) -> None:
        link = await self.links.to_any()
        request = MetadataRequest(
            topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False
        )
        told = await link.ask(request, self._rng.choice((1, 8, 12)), MetadataResponse)
        brokers = {each.node_id: Address(each.host, each.port) for each in told.brokers}
        for each in told.topics:
            for part in each.partitions:
                if part.leader_id in brokers:
                    self._leaders[topic, part.partition_index] = brokers[part.leader_id]

    async def coordinator(self, key: str, *, kind: int = GROUP_KEY) -> KafkaLink:
        """A connection to the coordinator of a group or of a transactional id. Raises
        PacelineError."""
        link = await self.links.to_any()
        request = FindCoordinatorRequest(key=key, key_type=kind)
        told = await link.ask(request, 2, FindCoordinatorResponse)
        raise_for(told.error_code, f"the coordinator of {key}")
        return await self.links.to(Address(told.host, told.port))


@asynccontextmanager
async def kafka_cluster(
    cluster: SimCluster, host: str, rng: random.Random
) -> AsyncIterator[KafkaCluster]:
    """As a client that lives on ``host`` gets to know it."""
    async with Links(cluster, host, KAFKA_PORT, KafkaLink, rng) as links:
        yield KafkaCluster(links, rng)


async def fetch(
    cluster: KafkaCluster,
    reader: str,
    where: tuple[str, int],
    offset: int,
    recorder: Recorder,
    *,
    version: int,
    wait_ms: int,
) -> int:
    """Read some at the leader, and note it; the next offset. Raises PacelineError; what stands
    before a damaged batch is read."""
    found = await fetch_batches(cluster, where, offset, version=version, wait_ms=wait_ms)
    for leader_epoch, records in found:
        values = [each.value for each in records]
        recorder.given(reader, at(*where), records[0].offset, leader_epoch, values)
        offset = records[-1].offset + 1
    return offset


async def fetch_batches(
    cluster: KafkaCluster,
    where: tuple[str, int],
    offset: int,
    *,
    version: int,
    wait_ms: int,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> list[tuple[int, list[Record]]]:
    """Batches from ``offset`` on, at the leader: their epochs and their records. No partition that
    is read so is written in transactions. Raises as :func:`fetch`."""
    link = await cluster.leader(where)
    part = wire.FetchRequestTopicPartition(
        partition=where[1], fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
    )
    request = wire.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=_FETCH_BYTES,
        isolation_level=isolation.value,
        topics=(wire.FetchRequestTopic(topic=where[0], partitions=(part,)),),
    )
    told = await link.ask(request, version, wire.FetchResponse)
    raise_for(told.error_code, "FETCH")
    (entry,) = told.responses
    (found,) = entry.partitions
    raise_for(found.error_code, f"FETCH {at(*where)}")
    if not isinstance(found.records, memoryview):
        return []
    batches: list[tuple[int, list[Record]]] = []
    for position, header in iter_batches(found.records):
        try:
            verify(found.records, position)
        except CorruptMessage:
            if not batches:
                raise
            break
        assert not header.is_control, f"a marker in {at(*where)}"
        records = [
            each for each in decode_records(found.records, position) if each.offset >= offset
        ]
        if records:
            batches.append((header.leader_epoch, records))
    return batches
