"""What a follower names in its fetch requests, seen by a leader at the other end."""

from __future__ import annotations

from uuid import UUID

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from paceline.types import BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, TopicId
from paceline.wire.batch import stamp
from paceline.wire.frame import Frame
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.replica import FetchedPartition, ReplicaFetch, ReplicaFetched
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.net.deadlines import Deadlines
from paceline_node.net.frame_bursts import Burst
from paceline_node.observe.metrics import Metrics
from paceline_node.peers.links import PeerLinks
from paceline_node.peers.server import PeerServer, Session
from paceline_node.replication.fetcher import Fetchers, FetchIdentity
from paceline_node.replication.partition import Partition, PartitionContext
from paceline_node.replication.partition_context import PartitionEvents
from paceline_node.replication.write_admission import Admission
from paceline_node.settings.topic_config import TopicConfig
from paceline_node.storage.log import Log
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.opening import create_log
from paceline_node.storage.partition_file import PartitionIdentity
from tests.sim.replication.build import broker
from tests.unit.peers.memory_network import CLUSTER, SECRET, MemoryNetwork, identity
from tests.unit.storage.world import SMALL, batch, env_on

LEADER, FOLLOWER = NodeId(2), NodeId(1)
PORT = 7002
EPOCH = LeaderEpoch(1)


class Leader:
    """Keeps what it is asked; answers when the test says so."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self._server = PeerServer(network.env(2), identity(2), SECRET)
        self._server.register_direct(PeerApi.REPLICA_FETCH, self._take)
        self._server.register_direct(PeerApi.REPLICA_ACK, self._note)
        self._seen: list[tuple[Session, Frame]] = []
        self.acks: list[ReplicaFetch] = []

    async def start(self, nursery: trio.Nursery) -> None:
        await nursery.start(self._server.run, await self._network.listen("h", PORT))

    def _take(self, session: Session, frame: Frame) -> None:
        self._seen.append((session, frame))

    def _note(self, session: Session, frame: Frame) -> None:
        self.acks.append(ReplicaFetch.unpack(frame.body))

    def requests(self) -> list[ReplicaFetch]:
        return [ReplicaFetch.unpack(frame.body) for _, frame in self._seen]

    def answer(self, number: int, records: bytes = b"", end: int = 0) -> None:
        """Answer request ``number``: each partition that it names ends at ``end``, and ``records``
        lie where the last one is asked from."""
        session, frame = self._seen[number]
        request = ReplicaFetch.unpack(frame.body)
        last = request.partitions[-1] if request.partitions else None
        told = tuple(
            FetchedPartition(
                named.topic_id,
                named.partition,
                0,
                EPOCH,
                LEADER,
                named.fetch_offset,
                0,
                0,
                end,
                LeaderEpoch(-1),
                -1,
                len(records) if named is last else 0,
            )
            for named in request.partitions
        )
        session.respond(frame, ReplicaFetched(request.nonce, told), records)

    def answer_nothing(self, number: int) -> None:
        """Answer request ``number``: there is no news of any partition."""
        session, frame = self._seen[number]
        session.respond(frame, ReplicaFetched(ReplicaFetch.unpack(frame.body).nonce, ()), b"")


class Quiet(PartitionEvents[Partition]):
    """Nobody acts on anything; the disk is to be sound."""

    def unreadable(self, partition: Partition, offset: int, reason: str) -> None:
        pytest.fail(reason)

    def append_failed(self, log: Log) -> None:
        pytest.fail(str(log.failed))

    def failed(self, error: OSError) -> None:
        pytest.fail(str(error))


class Follower:
    """Partitions on memory disks, and what fetches for them."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._deadlines = Deadlines()
        self._links = PeerLinks(network.env(), identity(1), SECRET)
        self._links.set_addresses({LEADER: ("h", PORT)})
        self.fetchers = Fetchers(
            network.env(),
            FetchIdentity(CLUSTER, FOLLOWER, UUID(int=0xD1), lambda: BrokerEpoch(10)),
            self._links,
            self._deadlines,
            append_failed=lambda log: pytest.fail(str(log.failed)),
            behind=lambda partition: None,
            lacking=lambda partition, end, is_committed: None,
            request_flush=lambda partition: None,
        )

    async def start(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self._deadlines.run)
        await nursery.start(self._links.run)
        await nursery.start(self.fetchers.run)

    async def partition(self, number: int) -> Partition:
        """A replica that follows LEADER."""
        disk = MemoryDisk()
        disk.mkdir("topics")
        topic = TopicId(UUID(int=7))
        log = await create_log(
            env_on(disk), f"topics/t-{number}", PartitionIdentity(topic, "t", number), SMALL
        )
        made = Partition(self._context(), "t", log, TopicConfig.of({}))
        nodes = (FOLLOWER, LEADER)
        registration = PartitionRegistration(
            topic, number, nodes, nodes, (), (), LEADER, EPOCH, PartitionEpoch(1), 1, 2
        )
        made.apply(registration, {node: broker(node) for node in nodes})
        return made

    def _context(self) -> PartitionContext[Partition]:
        return PartitionContext(
            env_on(MemoryDisk()),
            FOLLOWER,
            self._deadlines,
            Admission(),
            burst=Burst(),
            events=Quiet(),
            traffic=Metrics(version="test").topic,
            lag_max_s=10.0,
        )


async def test_a_request_after_one_given_up_names_all_positions_anew(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The leader may have refused a partition, and so forgotten it, in the answer nobody reads."""
    network = MemoryNetwork()
    leader, follower = Leader(network), Follower(network)
    await leader.start(nursery)
    await follower.start(nursery)
    first, second = await follower.partition(0), await follower.partition(1)

    follower.fetchers.follow(first)
    await trio.testing.wait_all_tasks_blocked()
    leader.answer(0)
    await trio.testing.wait_all_tasks_blocked()
    # This one is parked at the leader when a second partition is named for it.
    follower.fetchers.follow(second)
    await trio.testing.wait_all_tasks_blocked()
    assert len(leader.requests()) == 2
    assert [[each.partition for each in ack.partitions] for ack in leader.acks] == [[1]]
    assert leader.acks[0].nonce == leader.requests()[1].nonce
    # One that is no longer followed gives a reason to ask anew.
    follower.fetchers.unfollow(second.key)
    follower.fetchers.follow(second)
    await trio.testing.wait_all_tasks_blocked()

    requests = leader.requests()
    assert [len(request.partitions) for request in requests] == [1, 1, 2]
    assert [request.incremental for request in requests] == [False, True, False]
    assert {named.partition for named in requests[-1].partitions} == {0, 1}

    # What was answered is remembered again: the next one names only what was told since.
    leader.answer(1)
    leader.answer(2)
    await trio.testing.wait_all_tasks_blocked()
    assert leader.requests()[-1].incremental


@pytest.mark.parametrize(("end", "asks_at_once"), [(1, False), (2, True)])
async def test_a_replica_that_is_behind_asks_for_more_before_it_has_flushed(
    nursery: trio.Nursery, autojump_clock: MockClock, end: int, asks_at_once: bool
) -> None:
    """One that has all there is waits for its flush, to tell of it in the same request."""
    network = MemoryNetwork()
    leader, follower = Leader(network), Follower(network)
    await leader.start(nursery)
    await follower.start(nursery)
    partition = await follower.partition(0)
    follower.fetchers.follow(partition)
    await trio.testing.wait_all_tasks_blocked()

    records = batch()
    stamp(records, 0, 0, EPOCH)
    leader.answer(0, bytes(records), end)
    await trio.testing.wait_all_tasks_blocked()
    assert partition.log_end_offset == 1
    assert len(leader.requests()) == (2 if asks_at_once else 1)
    await trio.sleep(0.1)
    assert len(leader.requests()) == 2


async def test_many_partitions_are_named_in_several_requests(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """So that no request keeps the leader's loop; none of them waits but the last."""
    network = MemoryNetwork()
    leader, follower = Leader(network), Follower(network)
    await leader.start(nursery)
    await follower.start(nursery)
    for partition in [await follower.partition(number) for number in range(600)]:
        follower.fetchers.follow(partition)
    await trio.testing.wait_all_tasks_blocked()
    for number in range(10):
        if leader.requests()[-1].max_wait_ms > 0:
            break
        leader.answer_nothing(number)
        await trio.testing.wait_all_tasks_blocked()
    requests = leader.requests()
    assert max(len(request.partitions) for request in requests) <= 250
    first = max(n for n, request in enumerate(requests) if not request.incremental)
    naming = requests[first:]
    assert [request.max_wait_ms for request in naming[:-1]] == [0] * (len(naming) - 1)
    assert naming[-1].max_wait_ms > 0
    named = [each.partition for request in naming for each in request.partitions]
    assert set(named) == set(range(600))
