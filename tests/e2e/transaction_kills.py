"""A cluster whose nodes kill themselves at each step of a transaction's end, and who judges it.

A producer runs one transaction after the other over three partitions and a group's offsets, commits
most and aborts some, while nodes kill themselves at named points: the coordinator
before and after each thing it does, partitions' leaders when they are told. After each blow the
producer goes on and the dead node comes back; then everything is read again by a consumer of
committed data: what was said to be committed is there, in every partition, once; nothing else is;
and a consumer that read all along has seen the same. With native producers, or with one of Cursus,
whose records are staged until the commit.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from paceline.client import Client, ClientSettings, Position, TransactionalSettings, connect
from paceline.errors import ElectionNotNeeded, PacelineError, PreferredLeaderNotAvailable
from paceline.types import NodeId, TopicPartition
from paceline_cluster.faulty.fleet import Fleet, open_fleet
from paceline_cluster.processes import ProcessState
from tests.integration.faults.cursus_bookkeeper import Bookkeeper

COORDINATOR = (
    "transaction.offsets-pending",
    "transaction.deciding",
    "transaction.prepared",
    "transaction.staged",
    "transaction.partly-marked",
    "transaction.marked",
    "transaction.settled",
    "transaction.completed",
)
LEADER = (
    "transaction.staged-received",
    "transaction.marker-received",
    "transaction.marker-appended",
)
STAGED = frozenset(
    {"transaction.offsets-pending", "transaction.staged", "transaction.staged-received"}
)
"""Points that only transactions whose records are staged come to: those of Cursus."""
POINTS = {
    "native": tuple(each for each in (*COORDINATOR, *LEADER) if each not in STAGED),
    "cursus": (*COORDINATOR, *LEADER),
}
"""Every point, by the protocol of the producer."""
TOPIC, GROUP = "ledger", "ledger-readers"
PARTITIONS = 3
NODES = (0, 1, 2)
HANG_S = 90.0
TRANSACTION_TIMEOUT_S = 30

Report = dict[str, object]


@dataclass
class Ledger:
    """What the producer was told. ``unknown``: it was not told how the transaction ended."""

    committed: list[int] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    news: trio.Event = field(default_factory=trio.Event)

    def note(self, where: list[int], number: int) -> None:
        where.append(number)
        news, self.news = self.news, trio.Event()
        news.set()

    async def wait_commits(self, count: int) -> None:
        """Until so many more are committed."""
        wanted = len(self.committed) + count
        with trio.fail_after(HANG_S):
            while len(self.committed) < wanted:
                await self.news.wait()


async def write(client: Client, ledger: Ledger, stop: trio.Event) -> None:
    """Transactions, each of one record a partition and an offset, until told to stop."""
    number = max((*ledger.committed, *ledger.aborted, *ledger.unknown), default=0)
    settings = TransactionalSettings(transaction_timeout_s=TRANSACTION_TIMEOUT_S)
    while not stop.is_set():
        try:
            async with client.transactional_producer("bookkeeper", settings) as producer:
                while not stop.is_set():
                    number += 1
                    await one(producer, ledger, number)
        except PacelineError:
            ledger.note(ledger.unknown, number)


async def one(producer, ledger: Ledger, number: int) -> None:
    await producer.begin()
    for partition in range(PARTITIONS):
        await producer.submit(TOPIC, b"%d" % number, partition=partition)
    await producer.send_offsets({TopicPartition(TOPIC, 0): number}, GROUP)
    if number % 4 == 0:
        await producer.flush()
        await producer.abort()
        ledger.note(ledger.aborted, number)
    else:
        await producer.commit()
        ledger.note(ledger.committed, number)


async def write_cursus(keeper: Bookkeeper, ledger: Ledger, stop: trio.Event) -> None:
    """The same over Cursus, whose client is told of every end, whatever dies meanwhile."""
    number = max((*ledger.committed, *ledger.aborted), default=0)
    while not stop.is_set():
        number += 1
        commits = number % 4 != 0
        await keeper.transact(number, PARTITIONS, commits=commits)
        ledger.note(ledger.committed if commits else ledger.aborted, number)


async def read_along(client: Client, seen: list[tuple[int, int]]) -> None:
    """A consumer of committed data, from the start, through everything."""
    async with client.consumer(TOPIC) as consumer:
        async for record in consumer:
            seen.append((record.partition, int(record.value or b"")))


async def read_anew(client: Client) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    with trio.fail_after(HANG_S):
        async with client.consumer(TOPIC, stop=Position.LATEST) as consumer:
            async for record in consumer:
                found[record.partition].append(int(record.value or b""))
    return found


async def judge(
    client: Client, ledger: Ledger, along: list[tuple[int, int]], keeper: Bookkeeper | None
) -> None:
    """All or nothing, once, in order; what was told holds. Nobody writes meanwhile."""
    found = await read_anew(client)
    for partition in range(PARTITIONS):
        assert found[partition] == found[0], "a transaction is there in part"
    numbers = found[0]
    assert numbers == sorted(set(numbers)), "a transaction is there twice, or out of order"
    shown = set(numbers)
    assert shown >= set(ledger.committed), sorted(set(ledger.committed) - shown)
    assert not shown & set(ledger.aborted), sorted(shown & set(ledger.aborted))
    assert shown <= {*ledger.committed, *ledger.unknown}
    if keeper is None:
        offsets = await client.admin.groups.offsets(GROUP)
        assert offsets[TopicPartition(TOPIC, 0)].offset == numbers[-1]
    else:
        assert ledger.unknown == []
        assert await keeper.committed() == numbers[-1]
    with trio.fail_after(HANG_S):
        while len(along) < PARTITIONS * len(numbers):  # noqa: ASYNC110  it reads over sockets
            await trio.sleep(0.02)
    assert Counter(along) == Counter((p, n) for p in range(PARTITIONS) for n in numbers)


class Strike:
    """One blow at a named point."""

    def __init__(self, fleet: Fleet, client: Client, ledger: Ledger) -> None:
        self.fleet = fleet
        self.client = client
        self.ledger = ledger

    async def at(self, site: str) -> Report:
        coordinator = await self.client.admin.transactions.coordinator()
        victim = await self._victim(site, coordinator)
        points = self.fleet.crash_points(victim)
        self.fleet.expect_end(victim)
        before = len(self.ledger.committed)
        points.arm(site)
        with trio.fail_after(HANG_S):
            while points.hit() is None:  # noqa: ASYNC110  another process's file
                await trio.sleep(0.01)
            died = time.monotonic()
            while self.fleet.process(victim) is not ProcessState.STOPPED:  # noqa: ASYNC110  the same
                await trio.sleep(0.01)
        assert points.hit() == site
        await self.ledger.wait_commits(1)
        paused_s = time.monotonic() - died
        await self.ledger.wait_commits(3)
        self.fleet.start(victim)
        await self.fleet.wait_healthy(HANG_S)
        await self.ledger.wait_commits(2)
        return {
            "point": site,
            "node": victim,
            "coordinator": victim == coordinator,
            "committed_before": before,
            "committed_after": len(self.ledger.committed),
            "paused_s": round(paused_s, 3),
        }

    async def _victim(self, site: str, coordinator: int) -> int:
        """The coordinator, or a leader on another node: the partitions are dealt out first."""
        others = [node for node in NODES if node != coordinator]
        leaders = (others[0], others[1], coordinator)
        for partition, node in enumerate(leaders):
            with trio.fail_after(HANG_S):
                await self._elect(partition, node)
        return coordinator if site in COORDINATOR else others[0]

    async def _elect(self, partition: int, node: int) -> None:
        while True:
            try:
                await self.client.admin.elect_leader(TOPIC, partition, NodeId(node))
            except ElectionNotNeeded:
                return
            except PreferredLeaderNotAvailable:
                await trio.sleep(0.05)  # it has fallen out of sync for a moment
            else:
                return


class Proof:
    """One cluster under blows, and what its producer was told."""

    def __init__(
        self, fleet: Fleet, client: Client, protocol: str, keeper: Bookkeeper | None
    ) -> None:
        self.protocol = protocol
        self.ledger = Ledger()
        self._fleet = fleet
        self._client = client
        self._keeper = keeper
        self._along: list[tuple[int, int]] = []

    async def read_along(self) -> None:
        """Read committed data all the time, until cancelled."""
        await read_along(self._client, self._along)

    async def strike(self, site: str, blows: int, note: Callable[[Report], None]) -> None:
        """So many blows at one point among transactions, each noted; then judge everything."""
        strike = Strike(self._fleet, self._client, self.ledger)
        stop = trio.Event()
        async with trio.open_nursery() as writing:
            writing.start_soon(self._write, stop)
            await self.ledger.wait_commits(2)
            for _ in range(blows):
                note(
                    {
                        **await strike.at(site),
                        "protocol": self.protocol,
                        "unknown": len(self.ledger.unknown),
                    }
                )
            stop.set()
        await judge(self._client, self.ledger, self._along, self._keeper)
        assert self._fleet.deaths == []

    async def _write(self, stop: trio.Event) -> None:
        if self._keeper is None:
            await write(self._client, self.ledger, stop)
        else:
            await write_cursus(self._keeper, self.ledger, stop)


@asynccontextmanager
async def open_proof(directory: Path, protocol: str) -> AsyncIterator[Proof]:
    """Three nodes in ``directory``, a topic, and a consumer that reads along."""
    async with (
        open_fleet(directory, len(NODES), {}) as fleet,
        connect(fleet.bootstrap, ClientSettings(operation_timeout_s=HANG_S)) as client,
    ):
        await client.admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        keeper = await _open_keeper(fleet) if protocol == "cursus" else None
        proof = Proof(fleet, client, protocol, keeper)
        async with trio.open_nursery() as reading:
            reading.start_soon(proof.read_along)
            yield proof
            reading.cancel_scope.cancel()


async def _open_keeper(fleet: Fleet) -> Bookkeeper:
    places = [each.rpartition(":") for each in fleet.state.addresses("cursus")]
    addresses = [(host, int(port)) for host, _, port in places]
    keeper = Bookkeeper(addresses, "bookkeeper", TOPIC, GROUP)
    await keeper.open()
    return keeper
