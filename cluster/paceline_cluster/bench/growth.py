"""How work grows with what a node remembers: members, groups, transactional ids, producers.

The engines run as a node runs them, in one thread and with a log in memory; so what is measured is
what the event loop is held for, and nothing of disks and sockets. Each synchronous call is one
step: the CPU of an operation is the sum of the steps by the operations, and the longest step is the
longest stall, with what the garbage collector takes of it and without. It is the thread's CPU time,
so that neighbours count little.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import thread_time
from uuid import UUID

from paceline.errors import ErrorCode
from paceline.types import TopicId
from paceline.values import dataclass
from paceline.wire.batch import ProducerNamespace, build_batch
from paceline.wire.batch_header import read_header
from paceline.wire.peer.names import PartitionName
from paceline.wire.records import Record
from paceline_cluster.bench.figures import Aim, Figure
from paceline_node.app.garbage_collector import Collector
from paceline_node.groups.committed_offsets import Commit, OffsetRule
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.kafka_rounds import Joined, JoinRequest, SyncRequest
from paceline_node.groups.keys import Family as GroupFamily
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.records import Protocol
from paceline_node.replication.producer_quota import ProducerLimits, ProducerQuota, ProducerShares
from paceline_node.state_machines.machine import Deferred, Entry, Scope
from paceline_node.storage.producer_state import ProducerKey, key_of_id
from paceline_node.storage.producers import ProducerTable, idle_before, read_detail
from paceline_node.storage.sequenced_batches import expire_batch
from paceline_node.storage.state_map import SLICES, expiry_key
from paceline_node.transaction_names import Family, TransactionKey
from paceline_node.transactions.engine import TransactionEngine
from paceline_node.transactions.limits import TransactionLimits

MEMBERS = (10, 100, 500, 1000, 2000)
GROUPS = (10, 100, 1000, 10_000)
IDS = (100, 1000, 10_000, 100_000)
PRODUCERS = (1000, 10_000, 100_000, 1_000_000)
STALL = Aim(10.0, at_least=False)
"""Milliseconds."""
_DELAY_S = 0.3
_TOPIC = TopicId(UUID(int=7))


class _Collector:
    """How long the garbage collector has worked within a step."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        self._began = 0.0

    def __call__(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = thread_time()
        else:
            self.spent_s += thread_time() - self._began


collector = _Collector()


@dataclass(frozen=True, slots=True)
class Growth:
    """What one kind of work costs at one size. ``work`` names it, with {} for the size; ``cpu_us``
    is that of each ``unit`` of it. ``longest_ms`` is the longest stall, ``longest_own_ms`` the same
    without the garbage collector."""

    work: str
    unit: str
    size: int
    cpu_us: float
    longest_ms: float
    longest_own_ms: float
    steps: int
    total_s: float

    def figures(self) -> tuple[Figure, Figure]:
        name = self.work.format(self.size)
        details = {"steps": self.steps, "total_s": round(self.total_s, 3)}
        each = Figure(f"{name}, CPU of {self.unit}", round(self.cpu_us, 1), "µs", details=details)
        details = {"without_collector_ms": round(self.longest_own_ms, 2)}
        longest = round(self.longest_ms, 2)
        return each, Figure(f"{name}, longest stall", longest, "ms", STALL, details)


class _Meter:
    """Sums up the steps of one measurement."""

    def __init__(self, work: str, unit: str, size: int) -> None:
        self._work = work
        self._unit = unit
        self._size = size
        self._total_s = self._longest_s = self._longest_own_s = 0.0
        self._steps = 0

    @contextmanager
    def step(self) -> Iterator[None]:
        collector.spent_s, began = 0.0, thread_time()
        yield
        spent = thread_time() - began
        self._total_s += spent
        self._longest_s = max(self._longest_s, spent)
        self._longest_own_s = max(self._longest_own_s, spent - collector.spent_s)
        self._steps += 1

    def growth(self, count: int) -> Growth:
        """Of ``count`` operations."""
        return Growth(
            work=self._work,
            unit=self._unit,
            size=self._size,
            cpu_us=self._total_s / count * 1e6,
            longest_ms=self._longest_s * 1000,
            longest_own_ms=self._longest_own_s * 1000,
            steps=self._steps,
            total_s=self._total_s,
        )


class _Desk:
    """A journal that commits at once, and a clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.led_epoch = 0
        self.serves = True
        self.losses = 0
        self.apply: Callable[[Entry], None]

    def write(self, scope: Scope, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.apply(entry)

    def now(self) -> float:
        return self.time

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.time * 1000)


class _Topics(dict[str, TopicId]):
    def get(self, topic: str, default: object = None) -> TopicId:
        return _TOPIC


def _group_engine(desk: _Desk, limits: GroupLimits) -> GroupEngine:
    rng = random.Random(1)  # noqa: S311  names of members
    engine = GroupEngine(limits, rng, _Topics)
    desk.apply = engine.apply
    engine.lead(desk, log_is_empty=True)
    return engine


def members(count: int) -> Iterator[Growth]:
    """One Kafka group that so many members join, is balanced, and is joined by one more."""
    desk, key = _Desk(), GroupKey(GroupFamily.KAFKA, "g")
    engine = _group_engine(desk, GroupLimits(members_max=count + 1))
    meter = _Meter("rebalance of {} members", "a member", count)
    joined: list[Joined] = []

    def join(known: str = "") -> tuple[str, Joined | Deferred[Joined]]:
        request = JoinRequest(
            key=key,
            member_id=known,
            instance_id=None,
            client_id="bench",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(Protocol("range", b"r"),),
        )
        with meter.step():
            answer = engine.kafka.join(request)
        if isinstance(answer, Joined) and answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            return join(answer.member_id)
        return known, answer

    def wake() -> None:
        while engine.next_alarm() <= desk.time:
            with meter.step():
                engine.on_alarm()

    waiting = [join() for _ in range(count)]
    desk.time += _DELAY_S + 0.01
    wake()
    for _, answer in waiting:
        found = answer.value if isinstance(answer, Deferred) else answer
        assert isinstance(found, Joined), found
        joined.append(found)
    everybody = [(each.member_id, each.member_id.encode()) for each in joined]
    for each in sorted(joined, key=lambda one: one.member_id == one.leader):
        assigned = everybody if each.member_id == each.leader else []
        with meter.step():
            engine.kafka.sync(
                SyncRequest(key, each.generation, each.member_id, None, "", "", tuple(assigned))
            )
    wake()
    for each in joined:
        with meter.step():
            engine.kafka.heartbeat(key, each.generation, each.member_id, None)
    join()
    yield meter.growth(count)


def groups(count: int) -> Iterator[Growth]:
    """So many groups, each of which commits an offset of ten partitions."""
    desk = _Desk()
    engine = _group_engine(desk, GroupLimits(groups_max=count + 1))
    meter = _Meter("commits of {} groups", "a commit", count)
    commits = [Commit("t", number, 5) for number in range(10)]
    for number in range(count):
        key = GroupKey(GroupFamily.KAFKA, f"g{number}")
        with meter.step():
            engine.offsets.commit(key, commits, OffsetRule.FREE)
    end = desk.time + 1000  # beyond a look for offsets that are too old
    while engine.next_alarm() <= end:
        desk.time = max(desk.time, engine.next_alarm())
        with meter.step():
            engine.on_alarm()
    yield meter.growth(count)


def transactional_ids(count: int) -> Iterator[Growth]:
    """So many ids, each of which has one transaction."""
    desk = _Desk()
    engine = TransactionEngine(TransactionLimits(ids_max=count), lambda: None)
    desk.apply = engine.apply
    engine.lead(desk, log_is_empty=True)
    meter = _Meter("transactions of {} ids", "a transaction", count)
    where = [PartitionName("t", 0)]
    for number in range(count):
        key = TransactionKey(Family.KAFKA, f"id-{number}")
        with meter.step():
            who = engine.producers.init(key, 60_000, spare=number)
        assert who is not None
        with meter.step():
            engine.producers.add_partitions(key, who, where)
        with meter.step():
            engine.producers.end(key, who, commits=True, bumps=False)
        ending = engine.ending(key)
        assert ending is not None
        with meter.step():
            engine.producers.complete(key, ending.serial)
    yield meter.growth(count)


def producers(count: int) -> Iterator[Growth]:
    """So many producers that write once in one partition, with a bound of as many; a snapshot;
    then a tenth more, for which others are forgotten; then all fall silent."""
    table, clock, end = ProducerTable(), [0.0], [0]

    def append(batch: bytearray) -> None:
        header = read_header(batch)
        table.note(header, read_detail(batch, 0, header), end[0])
        end[0] += 1

    def forget(keys: Sequence[ProducerKey]) -> None:
        append(table.eviction(keys, 5))

    limits = ProducerLimits(per_partition=count, per_client=2 * count)
    quota = ProducerQuota(
        ProducerShares(limits), "bench", table, lambda: clock[0], lambda: end[0], forget
    )
    template = build_batch(
        [Record(value=b"v", timestamp_ms=1)], producer_id=1, producer_epoch=0, base_sequence=0
    )
    header = read_header(template)

    def write(number: int) -> None:
        quota.admit([key_of_id(number)], f"client {number % 4}")
        table.update(header._replace(producer_id=number), end[0])
        end[0] += 1

    meter = _Meter("{} producers", "a first write", count)
    for number in range(count):
        with meter.step():
            write(number)
    with meter.step():
        table.mark(table.freeze(end[0]))
    yield meter.growth(count)

    clock[0] += 3600
    meter = _Meter("more than {} producers", "a first write", count)
    for number in range(count, count + count // 10):
        with meter.step():
            write(number)
    assert table.producer_count <= count
    yield meter.growth(count // 10)

    meter = _Meter("forgetting {} silent producers", "one of them", count)
    known = table.producer_count
    for number in range(SLICES):
        with meter.step():
            found = list(idle_before(table.states_of(number), end[0]))
        if found:
            key = expiry_key(number)
            with meter.step():
                append(expire_batch(end[0], 5, ProducerNamespace.NONE, producer_key=key))
    assert not table.producer_count
    yield meter.growth(known)


def measure() -> Iterator[Growth]:
    """All of it."""
    Collector()  # as a node does when it has started
    gc.callbacks.append(collector)
    for work, counts in (
        (members, MEMBERS),
        (groups, GROUPS),
        (transactional_ids, IDS),
        (producers, PRODUCERS),
    ):
        for count in counts:
            yield from work(count)
