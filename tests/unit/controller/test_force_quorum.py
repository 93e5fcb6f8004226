"""Who goes on without a lost majority, and what is written into its log."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from paceline.errors import InvalidRequest
from paceline.types import NodeId
from paceline.wire.native.admin import DeleteTopic
from paceline.wire.peer.control import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from paceline_node.controller import force_quorum
from paceline_node.controller.force_quorum import Survivor, check_lost, decide
from paceline_node.controller.image import Image
from paceline_node.controller.raft_effects import Effects
from paceline_node.controller.raft_log import RaftLog
from paceline_node.controller.raft_store import RaftStore, write_bootstrap, write_newcomer
from paceline_node.controller.raft_types import (
    Config,
    Entry,
    EntryKind,
    HardState,
    Member,
    Snapshot,
)
from paceline_node.storage.layout import DirectoryMeta
from paceline_node.storage.memory_disk import MemoryDisk
from tests.unit.controller.bench import CLUSTER, Bench, uuid_of

MEMBERS = tuple(Member(NodeId(n), uuid_of(n, 9), "host", 7000 + n) for n in range(5))
VOTERS = Config(MEMBERS[:3], MEMBERS[3:])


def survivor(
    node: int, *terms: int, config: Config = VOTERS, cluster: UUID = CLUSTER, term: int = 0
) -> Survivor:
    """A node whose log has entries of these terms behind the snapshot."""
    log = RaftLog(Snapshot(1, 1, config, b""), base=None)
    for number, each in enumerate(terms):
        log.append(Entry(2 + number, each, EntryKind.NOOP))
    return Survivor(
        DirectoryMeta(cluster, NodeId(node), uuid_of(node, 9)), HardState(max((term, *terms))), log
    )


def numbers(members: Sequence[Member]) -> list[int]:
    return [int(member.node_id) for member in members]


def test_the_longest_log_goes_on_alone_and_the_others_listen() -> None:
    forced = decide([survivor(4, 1, 1, 2), survivor(1, 1, 1, 1, 1, term=7), survivor(3, 1, 1, 2)])
    assert forced.keeper.meta.node_id == 3, "a later term, then the lower number"
    assert numbers(forced.config.voters) == [3]
    assert numbers(forced.config.learners) == [1, 4]
    assert numbers(forced.lost) == [0, 2]
    assert forced.term == 8, "above every term that was seen"


def test_nothing_is_forced_where_a_majority_is_left() -> None:
    with pytest.raises(InvalidRequest, match="2 of 3 voters are here and 2 suffice"):
        decide([survivor(0, 1), survivor(2, 1), survivor(3, 1)])


def test_directories_must_belong_together() -> None:
    with pytest.raises(InvalidRequest, match="different clusters"):
        decide([survivor(0, 1), survivor(1, 1, cluster=uuid_of(1, 2))])


def test_a_node_that_is_no_member_cannot_go_on() -> None:
    with pytest.raises(InvalidRequest, match="no member"):
        decide([survivor(0, 1), survivor(4, 1, 2, config=Config(MEMBERS[:3], ()))])


def test_an_old_directory_of_a_voter_does_not_count_as_the_voter() -> None:
    old = survivor(1, 1)
    old = Survivor(DirectoryMeta(CLUSTER, NodeId(1), uuid_of(1, 5)), old.hard_state, old.log)
    assert numbers(decide([survivor(0, 1, 2), old]).lost) == [1, 2]


def test_each_lost_voter_is_to_be_named() -> None:
    forced = decide([survivor(0, 1)])
    check_lost(forced, (2, 1))
    for named in ((), (1,), (0, 1, 2), (1, 1, 2)):
        with pytest.raises(InvalidRequest, match="--lost 1 --lost 2"):
            check_lost(forced, named)


async def test_looking_changes_nothing_and_forcing_is_found_again() -> None:
    disk = MemoryDisk()
    await write_bootstrap(
        disk,
        "metadata",
        cluster_id=CLUSTER,
        voters=MEMBERS[:3],
        state=Image.bootstrap(CLUSTER).to_snapshot(),
    )
    meta = DirectoryMeta(CLUSTER, NodeId(0), uuid_of(0, 9))
    store = await RaftStore.open(disk, "metadata", CLUSTER)
    entry = Entry(2, 3, EntryKind.NOOP)
    await store.write([Effects(hard_state=HardState(3), entries=[entry], sequence=1)])
    store.close()
    before = {name: disk.content(f"metadata/{name}") for name in disk.list("metadata")}

    found = await force_quorum.examine(disk, "metadata", meta)
    assert found.end == (3, 2)
    assert {name: disk.content(f"metadata/{name}") for name in disk.list("metadata")} == before

    forced = decide([found])
    await force_quorum.force(disk, "metadata", forced, wall_ms=17)
    again = await force_quorum.examine(disk, "metadata", meta)
    assert again.term == 4
    assert numbers(again.log.config.voters) == [0]
    image = force_quorum.latest_image(again.log)
    [(key, text)] = image.configs.items()
    assert key.startswith(force_quorum.RECORD_KEY)
    assert '"at_ms": 17' in text


async def test_nothing_that_the_lost_voters_gave_out_is_given_out_again() -> None:
    """They may have committed entries that no survivor has: producer ids, and places in the log,
    which are broker epochs and what every node compares its image by."""
    disk = MemoryDisk()
    bench = Bench()
    bench.start(0)
    node = bench.image.brokers[NodeId(0)]
    bench.create("orders", factor=1)
    bench.ask(DeleteTopic("orders"))
    bench.ask(AllocateProducerIdsRequest(NodeId(0), node.broker_epoch))
    known_here = bench.image.next_producer_id
    index = bench.image.offset
    snapshot = Snapshot(index, 2, VOTERS, bench.image.to_snapshot())
    await write_newcomer(disk, "metadata")
    store = await RaftStore.open(disk, "metadata", CLUSTER)
    await store.write([Effects(hard_state=HardState(2), snapshot=snapshot, sequence=1)])
    store.close()

    bench.create("orders", factor=1)
    lost_leader_epoch = bench.partition().leader_epoch
    elsewhere = bench.ask(AllocateProducerIdsRequest(NodeId(0), node.broker_epoch))
    assert isinstance(elsewhere, AllocateProducerIdsResponse)
    assert elsewhere.first_id == known_here
    lost_epoch = bench.register(1)

    meta = DirectoryMeta(CLUSTER, NodeId(0), uuid_of(0, 9))
    forced = decide([await force_quorum.examine(disk, "metadata", meta)])
    await force_quorum.force(disk, "metadata", forced, wall_ms=17)

    found = await force_quorum.examine(disk, "metadata", meta)
    assert numbers(found.log.config.voters) == [0]
    bench.image = force_quorum.latest_image(found.log)
    assert bench.image.offset == found.log.last_index
    assert bench.image.next_producer_id >= known_here + 1_000_000 * elsewhere.count
    assert bench.image.offset >= lost_epoch + 900_000
    bench.now += 100
    assert bench.register(1) > bench.image.offset - 1 > lost_epoch
    bench.create("orders", factor=1)
    assert bench.partition().leader_epoch >= lost_leader_epoch + 900_000
