"""Groups driven by their coordinator: one of real processes and of a program, that loses a member,
its coordinator and a leader; one whose coordinator freezes and goes on."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import trio

from paceline.client import DrivenSettings, blocking
from paceline.errors import ErrorCode, PacelineError
from paceline.wire.coordinator.codec import Ask, read_header, read_request
from tests.e2e.cluster import Cluster, wait_until
from tests.e2e.members import Member, OffsetWatch
from tests.e2e.test_groups import Source, in_sync, producing
from tests.integration.node.consumer import ScriptedConsumer, registration

LINES = 40_000
PARTITIONS = 6
FAMILY = ("--family", "coordinator")
HANG_S = 60.0
INTERVAL_MS, RETRIES = 700, 2
FENCE_S = INTERVAL_MS * (RETRIES + 1) / 1000
TIMES = {"heartbeat_interval_ms": INTERVAL_MS, "max_heartbeat_retries": RETRIES}
in_thread = trio.to_thread.run_sync
TopicLookup = dict[tuple[int, int], str]


class Program(threading.Thread):
    """A member in this process: the blocking client."""

    def __init__(self, bootstrap: list[str], topic: str, group: str) -> None:
        super().__init__()
        self._nodes = bootstrap
        self._topic = topic
        self._group = group
        self._ending = threading.Event()
        self.seen: TopicLookup = {}

    def run(self) -> None:
        driven = DrivenSettings(heartbeat_interval_ms=500)
        with (
            blocking.connect(self._nodes) as client,
            client.coordinated_consumer(
                self._topic, self._group, driven=driven, auto_offset_reset="smallest"
            ) as consumer,
        ):
            while not self._ending.is_set():
                try:
                    batch = consumer.next_batch(timeout_s=0.2)
                except TimeoutError:
                    continue
                assert batch is not None
                for record in batch.consumed():
                    assert record.value is not None
                    self.seen[record.partition, record.offset] = record.value.decode()

    def stop(self) -> None:
        self._ending.set()
        self.join(60)


def shares(cluster: Cluster, group: str) -> list[int]:
    """How many partitions each member has, while the group is stable."""
    result = cluster.run("group", "describe", group, *FAMILY, "--output", "json", exit_code=None)
    described = json.loads(result.stdout) if result.returncode == 0 else {"state": ""}
    if described["state"] != "Stable":
        return []
    return sorted(member["partitions"] for member in described["members"])


def listed(cluster: Cluster, group: str) -> list[tuple[str, int]]:
    """Family and number of members of the groups of that name."""
    groups = cluster.json("group", "list")["groups"]
    return [(each["family"], each["members"]) for each in groups if each["group"] == group]


def lags(cluster: Cluster, group: str) -> list[int]:
    """Records of each partition that the group has not said to have read."""
    described = cluster.json("group", "describe", group, *FAMILY)
    return [each["lag"] for each in described["partitions"]]


class Readers:
    """Two members of the command line and one of a program."""

    def __init__(self, cluster: Cluster, topic: str, group: str, folder: Path) -> None:
        words = ("--protocol", "coordinator", "--session-timeout", "2")
        self.members = [
            Member(cluster, topic, group, folder / f"m{number}", *words) for number in range(2)
        ]
        self.nodes = [":".join(map(str, cluster.address(node, "native"))) for node in range(3)]
        self.program = Program(self.nodes, topic, group)
        self.program.start()

    def union(self) -> TopicLookup:
        together = dict(self.program.seen)
        for member in self.members:
            member.look()
            together |= member.seen
        return together

    def go_on(self, mark: int) -> None:
        """Of every partition something is read that was written after ``mark``."""

        def fresh() -> set[int]:
            return {place[0] for place, value in self.union().items() if int(value) >= mark}

        wait_until("reading goes on everywhere", lambda: len(fresh()) == PARTITIONS)

    def kill(self) -> None:
        for member in self.members:
            member.kill()
        self.program.stop()


def strike(cluster: Cluster, topic: str, group: str, readers: Readers, source: Source) -> None:
    """Kill a member, the coordinator, a leader; after each reading goes on."""
    readers.members[0].kill()
    wait_until("two take over", lambda: shares(cluster, group) == [3, 3])
    readers.go_on(source.fed)

    coordinator = coordinator_of(readers.nodes, group)
    cluster.run("node", "kill", str(coordinator))
    wait_until("another coordinates", lambda: shares(cluster, group) == [3, 3])
    readers.go_on(source.fed)
    cluster.run("node", "restart", str(coordinator))
    wait_until("all replicas in sync", lambda: in_sync(cluster))

    killed = cluster.json("node", "kill", f"leader-of:{topic}/0")["node"]
    readers.go_on(source.fed)
    cluster.run("node", "restart", str(killed))


@pytest.mark.slow
def test_a_driven_group_survives_a_member_its_coordinator_and_a_leader(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    cluster, topic, group = shared_cluster, "driven", "drive"
    cluster.run("topic", "create", topic, "--partitions", str(PARTITIONS))
    readers = Readers(cluster, topic, group, tmp_path)
    try:
        wait_until("three members", lambda: shares(cluster, group) == [2, 2, 2])
        wait_until("it is listed", lambda: listed(cluster, group) == [("coordinator", 3)])
        with (
            OffsetWatch(readers.nodes, group, "coordinator") as watch,
            producing(cluster, topic, tmp_path / "producer.errors", LINES) as source,
        ):
            wait_until("reading has begun", lambda: len(readers.union()) > LINES // 20)
            strike(cluster, topic, group, readers, source)
        wait_until("every record is read", lambda: len(readers.union()) >= source.fed)
        # Members tell how far they are when they are pinged, and not once more when they go.
        wait_until("every position is told", lambda: not any(lags(cluster, group)))
        assert readers.members[1].stop() == 0
        readers.program.stop()
        assert not readers.program.is_alive()
    finally:
        readers.kill()
    together = readers.union()
    assert sorted(map(int, together.values())) == list(range(source.fed))
    for partition in range(PARTITIONS):
        offsets = sorted(offset for number, offset in together if number == partition)
        assert offsets == list(range(len(offsets))), f"partition {partition} has gaps"
    assert watch.looks > 10
    assert watch.falls == []
    assert lags(cluster, group) == [0] * PARTITIONS


class Listening(ScriptedConsumer):
    """A script: does what it is asked until the coordinator closes, and remembers. It keeps the
    channel open however silent that is, as no real consumer would, to hear all that is said."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address)
        self.heard_at = self.started_at = 0.0
        self.epoch = -1
        self.was_asked: list[Ask] = []
        self.ended = trio.Event()

    async def _next_frame(self) -> bytes | None:
        try:
            return await self.read_frame()
        except trio.ClosedResourceError:
            return None  # the test is over; why is what it raises

    async def obey(self) -> None:
        while (frame := await self._next_frame()) is not None:
            header, start = read_header(memoryview(frame))
            body = read_request(header, memoryview(frame), start)
            self.heard_at = trio.current_time()
            self.epoch = body.coordinator_epoch
            self.was_asked.append(header.ask)
            await self.answer(header, body)
            if header.ask is Ask.START:
                self.started_at = self.heard_at
        self.ended.set()


async def test_a_frozen_coordinator_that_goes_on_starts_nobody(
    shared_cluster: Cluster,
) -> None:
    cluster = shared_cluster
    cluster.run("topic", "create", "t", "--partitions", str(PARTITIONS))
    assert cluster.json("group", "topics", "frozen", "t")["topics"] == ["t"]
    nodes = [":".join(map(str, cluster.address(node, "native"))) for node in range(3)]
    first = await in_thread(coordinator_of, nodes, "frozen")
    others = [node for number, node in enumerate(nodes) if number != first]
    old = cluster.address(first, "kafka")
    async with Listening(old) as a, Listening(old) as b, trio.open_nursery() as nursery:
        for name, each in (("a", a), ("b", b)):
            await each.register(registration(name, group="frozen", **TIMES))
            nursery.start_soon(each.obey)
        await in_thread(
            wait_until, "both read", lambda: len(a.positions) + len(b.positions) == PARTITIONS
        )
        await in_thread(cluster.run, "node", "suspend", str(first))
        await in_thread(wait_until, "another coordinates", lambda: moved(others, first))
        second = await in_thread(coordinator_of, others, "frozen")
        said = (len(a.was_asked), len(b.was_asked))
        # One comes back. The other one is not heard of: it may be reading until it fences itself.
        async with Listening(cluster.address(second, "kafka")) as again:
            asked = registration("a", group="frozen", generation=a.generation, **TIMES)
            with trio.fail_after(HANG_S):
                told = await again.register(asked)
            assert told is not None
            assert told.error == 0
            nursery.start_soon(again.obey)
            await in_thread(wait_until, "one reads all", lambda: len(again.positions) == PARTITIONS)
            assert again.started_at >= b.heard_at + FENCE_S, "b may still read what a was given"
            assert again.epoch > a.epoch
            assert again.generation > a.generation
            await in_thread(cluster.run, "node", "resume", str(first))
            with trio.fail_after(HANG_S):
                await a.ended.wait()
                await b.ended.wait()
            assert (len(a.was_asked), len(b.was_asked)) == said, "the old coordinator went on"
            count = len(again.was_asked)
            await in_thread(wait_until, "pings go on", lambda: len(again.was_asked) > count + 1)
            assert {*again.was_asked[count:]} == {Ask.PING}
            nursery.cancel_scope.cancel()
    async with ScriptedConsumer(old) as late:
        told = await late.register(asked)
        assert told is not None
        assert told.error == ErrorCode.NOT_COORDINATOR
    wait_until("all replicas in sync", lambda: in_sync(cluster))


def moved(bootstrap: list[str], before: int) -> bool:
    try:
        return coordinator_of(bootstrap, "frozen") != before
    except AssertionError:
        return False


def coordinator_of(bootstrap: list[str], group: str) -> int:
    with blocking.connect(bootstrap) as client:
        try:
            return client.admin.groups.coordinator(group, family="coordinator")
        except PacelineError as error:
            raise AssertionError(f"nobody coordinates: {error}") from error
