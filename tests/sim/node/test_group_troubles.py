"""Native members in trouble, in whole nodes: a dead partition beside another topic, a topic that
goes, static members that restart, slow callbacks, hung programs, quiet readers, ended transactions.

Each act is played by itself, and once more with the rule taken away that it is about: then it must
fail. ``tests/integration/client/test_group_troubles.py`` plays the same over real sockets.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import pytest
import trio
import trio.lowlevel

from paceline.client import (
    Client,
    GroupSettings,
    OutOfRange,
    Position,
    RebalanceListener,
    fetcher,
    membership,
    offsets,
)
from paceline.client.group_consumer import GroupConsumer
from paceline.client.membership import Membership
from paceline.client.transactional import TransactionalProducer
from paceline.errors import PacelineError, RequestTimedOut
from paceline.types import TopicPartition
from paceline.wire.native.transactions import EndTransaction
from paceline_cluster.sim.plan import Plan
from paceline_cluster.sim.workload import while_connected
from paceline_node.groups.kafka_groups import KafkaGroups
from tests.sim.node.story import Story, perform, plan_of, play

pytestmark = pytest.mark.timeout(600)

GROUP, HOST = "troubled", "10.0.3.1"
SHORT = GroupSettings(session_timeout_s=2, rebalance_timeout_s=20, auto_commit_s=0.2)
LONG_S = 2.5 * SHORT.session_timeout_s


def plan() -> Plan:
    return replace(plan_of(), pause_s=0.5)


class Reader(RebalanceListener):
    """A member in a task of its own; what it has, what it was told, what it has read."""

    def __init__(
        self,
        client: Client,
        *topics: str,
        settings: GroupSettings = SHORT,
        out_of_range: OutOfRange = OutOfRange.EARLIEST,
    ) -> None:
        self._client = client
        self._topics = topics
        self._settings = settings
        self._out_of_range = out_of_range
        self.told: list[str] = []
        self.owned: set[TopicPartition] = set()
        self.seen: list[bytes | None] = []
        self.may_revoke = trio.Event()
        self.may_revoke.set()
        self.may_go_on = trio.Event()
        self.may_go_on.set()
        self._scope = trio.CancelScope()
        self.ended = trio.Event()

    async def run(self) -> None:
        with self._scope:
            async with self._client.consumer(
                self._topics,
                group=GROUP,
                membership=self._settings,
                listener=self,
                out_of_range=self._out_of_range,
            ) as consumer:
                async for record in consumer:
                    self.seen.append(record.value)
                    await self.may_go_on.wait()
        self.ended.set()

    async def stop(self) -> None:
        self._scope.cancel()
        await self.ended.wait()

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append("assigned")
        self.owned |= set(partitions)

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append("revoked")
        await self.may_revoke.wait()
        self.owned -= set(partitions)

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append("lost")
        self.owned -= set(partitions)


class Stage:
    """What the acts need of the cluster."""

    def __init__(self, story: Story, client: Client, nursery: trio.Nursery) -> None:
        self.story = story
        self.client = client
        self.nursery = nursery

    def reader(self, *topics: str, **options: Any) -> Reader:
        reader = Reader(self.client, *topics, **options)

        async def live() -> None:
            try:
                await reader.run()
            except PacelineError as error:
                self.story.check(False, f"a member ended: {error}")

        self.nursery.start_soon(live)
        return reader

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        await self.story.until(what, holds, within=15)

    async def create(self, topic: str, partitions: int, replicas: int = 3) -> None:
        await self.client.admin.create_topic(
            topic, partitions=partitions, replication_factor=replicas
        )

    async def write(self, topic: str, partition: int, value: bytes) -> None:
        async with self.client.producer() as producer:
            await producer.send(topic, value, partition=partition)


Act = Callable[[Stage], Awaitable[None]]


async def a_dead_partition(stage: Stage) -> None:
    """One of two topics has partitions that nobody leads: the rest is read, by a member that stays
    one, and others may join."""
    story = stage.story
    await stage.create("single", 6, replicas=1)
    await stage.create("whole", 1)
    found = (await stage.client.admin.describe_topic("single")).partitions
    coordinator = await stage.client.admin.groups.coordinator(GROUP)
    controller = story.controller
    assert controller is not None
    spared = {coordinator, controller.number}
    victims = sorted({each.leader for each in found} - spared)
    victim = story.machines[victims[0]]
    victim.kill()
    one = stage.reader("single", "whole")
    await stage.until("it has all", lambda: len(one.owned) == 7)
    alive = [each.partition for each in found if each.leader != victim.number]
    for partition in alive:
        await stage.write("single", partition, b"%d" % partition)
    await stage.write("whole", 0, b"whole")
    wanted = {b"whole", *(b"%d" % each for each in alive)}
    await stage.until("the rest is read", lambda: set(one.seen) == wanted)
    await trio.sleep(LONG_S)
    story.check(one.told == ["assigned"], f"it is a member all the time: {one.told}")
    two = stage.reader("single", "whole")
    await stage.until("they share", lambda: bool(two.owned) and len(one.owned | two.owned) == 7)
    story.start(victim)


async def a_deleted_topic(stage: Stage) -> None:
    """A member reads on when one of its topics goes, and that topic too when it comes again."""
    for topic in ("a", "b"):
        await stage.create(topic, 1)
        await stage.write(topic, 0, topic.encode())
    reader = stage.reader("a", "b")
    await stage.until("both are read", lambda: set(reader.seen) == {b"a", b"b"})
    await stage.client.admin.delete_topic("b")
    await trio.sleep(LONG_S)
    await stage.write("a", 0, b"more")
    await stage.until("it reads on", lambda: b"more" in reader.seen)
    await stage.create("b", 1)
    await stage.write("b", 0, b"anew")
    await stage.until("what is new is read", lambda: b"anew" in reader.seen)


async def a_static_leader(stage: Stage) -> None:
    """It comes back to what it had, and still looks for new partitions."""
    await stage.create("growing", 2)
    static = replace(SHORT, instance_id="one", session_timeout_s=6.0)
    first = stage.reader("growing", settings=static)
    await stage.until("it has both", lambda: len(first.owned) == 2)
    await first.stop()
    again = stage.reader("growing", settings=static)
    await stage.until("it is back", lambda: len(again.owned) == 2)
    await stage.client.admin.add_partitions("growing", 3)
    await stage.until("it has the new one", lambda: len(again.owned) == 3)


async def a_slow_callback(stage: Stage) -> None:
    """Nobody is given a partition before its reader has let go of it."""
    await stage.create("slow", 4)
    one = stage.reader("slow")
    await stage.until("it has all", lambda: len(one.owned) == 4)
    one.may_revoke = trio.Event()
    two = stage.reader("slow")
    await stage.until("it is asked to let go", lambda: "revoked" in one.told)
    await trio.sleep(LONG_S)
    stage.story.check(not two.owned, "it was given what another still has")
    one.may_revoke.set()
    await stage.until("they share", lambda: len(one.owned) == len(two.owned) == 2)
    stage.story.check("lost" not in one.told, "it was thrown out while it let go")


async def a_hung_program(stage: Stage) -> None:
    """It asks for nothing any more: others read what it had."""
    await stage.create("hung", 2)
    await stage.write("hung", 0, b"1")
    hasty = replace(SHORT, max_poll_interval_s=2.0)
    one = stage.reader("hung", settings=hasty)
    one.may_go_on = trio.Event()
    await stage.until("it has a record", lambda: bool(one.seen))
    two = stage.reader("hung")
    await stage.until("another reads it", lambda: len(two.owned) == 2 and two.seen == [b"1"])
    one.may_go_on.set()
    await stage.until("they share", lambda: len(one.owned) == len(two.owned) == 1)


async def a_quiet_reader(stage: Stage) -> None:
    """It began at the end; what is written while it is away is there for it."""
    await stage.create("quiet", 1)
    await stage.write("quiet", 0, b"old")
    first = stage.reader("quiet", out_of_range=OutOfRange.LATEST)
    await stage.until("it has it", lambda: len(first.owned) == 1)
    await trio.sleep(1.0)
    await first.stop()
    await stage.write("quiet", 0, b"new")
    again = stage.reader("quiet", out_of_range=OutOfRange.LATEST)
    await stage.until("it skips nothing", lambda: again.seen == [b"new"])


async def the_end_of_a_transaction(stage: Stage) -> None:
    """A group gets past the control record that is the last of its topic."""
    await stage.create("ended", 1)
    reader = stage.reader("ended")
    async with (
        stage.client.transactional_producer("writer") as producer,
        producer.transaction(),
    ):
        await producer.send("ended", b"1", partition=0)
    await stage.until("it is read", lambda: reader.seen == [b"1"])
    at = TopicPartition("ended", 0)
    with trio.move_on_after(15):
        while True:
            found = await stage.client.admin.groups.offsets(GROUP)
            if at in found and found[at].offset == 2:
                return
            await trio.sleep(0.1)
    stage.story.check(False, "its lag is never 0")


async def a_send_while_the_commit_waits(stage: Stage) -> None:
    """It is refused: it would be of the next transaction, or of none."""
    await stage.create("late", 1)
    async with stage.client.transactional_producer("writer") as producer:
        await producer.begin()
        await producer.send("late", b"1", partition=0)
        refused: list[PacelineError] = []

        async def send_late() -> None:
            for _ in range(20):
                try:
                    await producer.submit("late", b"2", partition=0)
                except PacelineError as error:
                    refused.append(error)
                    return
                await trio.sleep(0.001)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.commit)
            await trio.lowlevel.checkpoint()
            nursery.start_soon(send_late)
        stage.story.check(bool(refused), "a record was taken while the commit was under way")


async def a_commit_that_seems_lost(stage: Stage) -> None:
    """The answer was lost, and asking again says that it is committed: then it is no error."""
    await stage.create("found", 1)
    async with stage.client.transactional_producer("writer") as producer:
        honest, lost = producer._coordinator.call, []

        async def losing(api: Any, body: Any, *arguments: Any, **more: Any) -> Any:
            told = await honest(api, body, *arguments, **more)
            if isinstance(body, EndTransaction) and body.commits and not lost:
                lost.append(body)
                raise RequestTimedOut("the answer was lost")
            return told

        failure: PacelineError | None = None
        with mock.patch.object(producer._coordinator, "call", losing):
            try:
                async with producer.transaction():
                    await producer.send("found", b"1", partition=0)
            except RequestTimedOut as error:
                failure = error
        stage.story.check(failure is None, f"it is committed, and told as {failure}")


# --- playing --------------------------------------------------------------------------------------


def script(act: Act) -> Callable[[Story], Awaitable[None]]:
    async def told(story: Story) -> None:
        async def work(client: Client) -> None:
            async with trio.open_nursery() as nursery:
                await act(Stage(story, client, nursery))
                nursery.cancel_scope.cancel()

        await while_connected(story.run.cluster, HOST, random.Random(1), work)

    return told


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "MISSING_PARTITION_S", 0.5)
    monkeypatch.setattr(offsets, "MISSING_PARTITION_S", 0.5)
    monkeypatch.setattr(membership, "REFRESH_S", 1.0)


async def _one_after_the_other(self: GroupConsumer, partitions: Sequence[TopicPartition]) -> None:
    committed = await self._fetch_committed(partitions)
    starts = {at: offset for at, offset in committed.items() if offset is not None}
    rest = [at for at in partitions if at not in starts]
    positions = dict.fromkeys(rest, Position.EARLIEST)
    starts |= await self._finder.resolve(positions, self.isolation)
    self._begin_at(starts)


async def _no_heartbeats(self: Membership) -> None:
    """The program is busy."""


def _started_as_committed(self: GroupConsumer, at: TopicPartition, offset: int) -> None:
    self._begin_at({at: offset})


async def _never_looks(self: TransactionalProducer) -> bool:
    return False


async def _count_nothing(self: Membership, joined: object) -> None:
    return None


@dataclass(frozen=True)
class Rule:
    """An act, and what takes away the rule that it is about; ``other``: who sees to it as well."""

    act: Act
    target: type
    name: str
    broken: object
    other: Rule | None = None

    @contextlib.contextmanager
    def taken_away(self) -> Iterator[None]:
        other = contextlib.nullcontext() if self.other is None else self.other.taken_away()
        with mock.patch.object(self.target, self.name, self.broken), other:
            yield


COORDINATOR_WATCHES = Rule(a_static_leader, KafkaGroups, "topics_grew", lambda self: None)


RULES = (
    Rule(a_dead_partition, GroupConsumer, "_begin_reading", _one_after_the_other),
    Rule(a_deleted_topic, GroupConsumer, "_put_off", lambda self, at: None),
    Rule(a_static_leader, Membership, "_count_assigned", _count_nothing, COORDINATOR_WATCHES),
    Rule(a_slow_callback, Membership, "_keep", _no_heartbeats),
    Rule(a_hung_program, GroupConsumer, "is_stuck", lambda self: False),
    Rule(a_quiet_reader, GroupConsumer, "_started", _started_as_committed),
    Rule(the_end_of_a_transaction, GroupConsumer, "_pass_over", lambda self: None),
    Rule(a_send_while_the_commit_waits, TransactionalProducer, "_check_open", lambda self: None),
    Rule(a_commit_that_seems_lost, TransactionalProducer, "_abandon", _never_looks),
)
FIRST = (a_dead_partition, a_slow_callback, a_quiet_reader, a_commit_that_seems_lost)
"""Integration tests tell the stories of the others, too: they are slow here."""
each_rule = pytest.mark.parametrize(
    "rule",
    [
        pytest.param(
            rule,
            id=rule.act.__name__,
            marks=[] if rule.act in FIRST else [pytest.mark.slow],
        )
        for rule in RULES
    ],
)


@each_rule
def test_members_get_through(rule: Rule) -> None:
    play(script(rule.act), plan())


@pytest.mark.slow
@each_rule
def test_without_the_rule_they_do_not(rule: Rule) -> None:
    with rule.taken_away():
        assert perform(script(rule.act), plan()).violation is not None
