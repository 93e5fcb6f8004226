"""Going on without a majority of voters that is lost for good: the offline half of
``paceline metadata force-quorum``.

The survivor with the longest metadata log becomes the only voter; the others listen, and the quorum
grows again by itself. What only the lost voters had committed is gone: who was in sync there, and
whatever may be given out once only. So every number that is given out goes far above all that can
have been: leader and partition epochs, producer ids, and places in the metadata log itself, which
are broker epochs. (Topic ids are random; numbers of segments are their creators' own.) Partitions
elect anew, from the in-sync replicas that are known and not lost; others may have been in sync
since, so each partition counts as one that has lost records. That such a step was taken stays in
the metadata as a cluster setting.

A lost voter must never start again on its old directory: two of them could elect a leader of their
own. Rules: RAFT 6.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Sequence
from dataclasses import replace

import msgpack

from paceline.errors import InvalidRequest
from paceline.types import NO_NODE, BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch
from paceline.values import dataclass
from paceline_node.controller import elections
from paceline_node.controller.context import Draft
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_records import Config as ConfigRecord
from paceline_node.controller.metadata_records import (
    PartitionRegistration,
    ProducerIds,
    Record,
    decode_record,
)
from paceline_node.controller.raft_copies import copy_of
from paceline_node.controller.raft_effects import Effects
from paceline_node.controller.raft_log import RaftLog
from paceline_node.controller.raft_mark import mark_of
from paceline_node.controller.raft_progress import majority
from paceline_node.controller.raft_store import RaftStore
from paceline_node.controller.raft_types import (
    Config,
    EntryAt,
    EntryKind,
    HardState,
    Member,
    MemberId,
    Snapshot,
)
from paceline_node.controller.request_handlers import PRODUCER_ID_BLOCK
from paceline_node.env import Disk
from paceline_node.storage import incarnation
from paceline_node.storage.layout import DirectoryMeta
from paceline_node.storage.memory_disk import MemoryDisk

EPOCHS_AHEAD = 1_000_000
"""Leader and partition epochs, entries, and blocks of producer ids that the lost voters may have
handed out, and more."""
LOSSES_AHEAD = 1000
"""Losses of one partition that the lost voters may have known of, and more."""
RECORD_KEY = "quorum.forced"
_NO_EPOCH = BrokerEpoch(-1)


@dataclass(frozen=True, slots=True)
class Survivor:
    """A node's metadata as found on its disk."""

    meta: DirectoryMeta
    hard_state: HardState
    log: RaftLog

    @property
    def id(self) -> MemberId:
        return MemberId(self.meta.node_id, self.meta.directory_id.bytes)

    @property
    def term(self) -> int:
        return max(self.hard_state.term, self.log.last_term)

    @property
    def end(self) -> tuple[int, int]:
        """Term and index of the last entry: how far this log goes."""
        return self.log.last_term, self.log.last_index


@dataclass(frozen=True, slots=True)
class Forced:
    """What is going to be done: ``keeper`` votes alone, from ``term`` on; ``lost`` voters are no
    members any more."""

    keeper: Survivor
    config: Config
    lost: tuple[Member, ...]
    term: int


async def examine(disk: Disk, path: str, meta: DirectoryMeta) -> Survivor:
    """Read the metadata log of a stopped node and change nothing. Raises MetadataCorrupt,
    InconsistentClusterId, OSError."""
    copy = MemoryDisk()
    for directory in (path, copy_of(path)):
        for name in disk.list(directory):
            copy.mkdir(directory)
            await _copy(disk, f"{directory}/{name}", copy)
    if disk.exists(mark_of(path)):
        await _copy(disk, mark_of(path), copy)
    previous = await incarnation.read(disk, meta.node)
    reached = -1 if previous is None else previous.metadata.of(meta.directory_id.bytes)
    store = await RaftStore.open(copy, path, meta.cluster_id, reached=reached)
    store.close()
    return Survivor(meta, store.recovery.hard_state, store.recovery.log)


async def _copy(disk: Disk, name: str, copy: Disk) -> None:
    source = await disk.open(name)
    with contextlib.closing(source):
        content = await source.read(source.size(), 0)
    target = copy.create(name)
    target.append([content])
    target.close()


def decide(survivors: Sequence[Survivor]) -> Forced:
    """Who shall go on. Raises InvalidRequest when the nodes do not belong together, when they can
    go on by themselves, or when the longest log is not a member's."""
    clusters = sorted({str(each.meta.cluster_id) for each in survivors})
    if len(clusters) > 1:
        raise InvalidRequest(f"directories of different clusters: {', '.join(clusters)}")
    keeper = max(survivors, key=lambda each: (*each.end, -each.meta.node_id))
    config = keeper.log.config
    if keeper.id not in config.member_ids:
        raise InvalidRequest(
            f"node {keeper.meta.node_id} has the longest log but is no member of the quorum there"
        )
    found = {each.id for each in survivors}
    present = [voter for voter in config.voters if voter.id in found]
    needed = majority(len(config.voters))
    if len(present) >= needed:
        raise InvalidRequest(
            f"{len(present)} of {len(config.voters)} voters are here and {needed} suffice: start "
            "them, there is nothing to force"
        )
    lost = tuple(voter for voter in config.voters if voter.id not in found)
    gone = {voter.id for voter in lost}
    staying = [member for member in config.members if member.id not in gone]
    new = Config(
        tuple(member for member in staying if member.id == keeper.id),
        tuple(sorted((m for m in staying if m.id != keeper.id), key=lambda member: member.id)),
    )
    return Forced(keeper, new, lost, max(each.term for each in survivors) + 1)


def check_lost(forced: Forced, named: Collection[int]) -> None:
    """Raise InvalidRequest unless the operator named exactly the voters that are lost."""
    lost = sorted(int(voter.node_id) for voter in forced.lost)
    if sorted(named) != lost:
        words = " ".join(f"--lost {node}" for node in lost)
        raise InvalidRequest(
            f"confirm each voter that will never start again on its old directory: {words}"
        )


async def force(disk: Disk, path: str, forced: Forced, *, wall_ms: int) -> int:
    """Write it into the keeper's directory, whose lock must be held; the number of partitions that
    elect anew. Raises what opening it does."""
    keeper = forced.keeper
    store = await RaftStore.open(disk, path, keeper.meta.cluster_id)
    try:
        image = _with_epochs_ahead(latest_image(store.recovery.log))
        records = _records(image, forced, store.recovery.log.last_index, wall_ms)
        # As if received from a leader: no log reaches that far, so the survivors get it, too.
        index = store.recovery.log.last_index + EPOCHS_AHEAD
        state = image.apply(index, records).to_snapshot()
        since = EntryAt(index, forced.term)
        snapshot = Snapshot(*since, forced.config, state, voters_since=since)
        hard_state = HardState(forced.term, None)
        await store.write([Effects(hard_state=hard_state, snapshot=snapshot, sequence=1)])
    finally:
        store.close()
    return sum(isinstance(record, PartitionRegistration) for record in records)


def _records(image: Image, forced: Forced, last: int, wall_ms: int) -> list[Record]:
    next_id = image.next_producer_id + EPOCHS_AHEAD * PRODUCER_ID_BLOCK
    return [
        *_without_the_lost(image, forced.lost),
        ProducerIds(forced.keeper.meta.node_id, _NO_EPOCH, next_id),
        _account(forced, last, wall_ms),
    ]


def _with_epochs_ahead(image: Image) -> Image:
    """The lost voters may have known a newer topic of a name that none has here (DESIGN 9.6)."""
    ahead = {name: LeaderEpoch(epoch + EPOCHS_AHEAD) for name, epoch in image.former_epochs.items()}
    return replace(image, former_epochs=ahead)


def latest_image(log: RaftLog) -> Image:
    """The image that all entries of a log add up to, committed or not."""
    snapshot = log.snapshot
    image = Image.from_snapshot(snapshot.state)
    for entry in log.slice(snapshot.index + 1, log.last_index + 1):
        packed = msgpack.unpackb(entry.data) if entry.kind is EntryKind.RECORDS else ()
        image = image.apply(entry.index, [decode_record(data) for data in packed])
    return image


def _without_the_lost(image: Image, lost: Sequence[Member]) -> list[Record]:
    """The lost voters' brokers are fenced, and in no in-sync set: else the survivors, registering
    anew, would leave in-sync sets that only the dead are left in."""
    draft = Draft(image)
    for voter in lost:
        broker = draft.broker(voter.node_id)
        if broker is not None and broker.directory_id == voter.directory_id:
            elections.fence(draft, voter.node_id)
            elections.distrust(draft, voter.node_id)
    records: list[Record] = [
        each for each in draft.records if not isinstance(each, PartitionRegistration)
    ]
    for partition in draft.partitions():
        records.append(
            replace(
                partition,
                leader=NO_NODE,
                leader_epoch=LeaderEpoch(partition.leader_epoch + EPOCHS_AHEAD),
                partition_epoch=PartitionEpoch(partition.partition_epoch + EPOCHS_AHEAD),
                losses=partition.losses + LOSSES_AHEAD,
            )
        )
    return records


def _account(forced: Forced, index: int, wall_ms: int) -> Record:
    """What was done, for whoever reads the metadata later."""
    told = {
        "at_ms": wall_ms,
        "keeper": NodeId(forced.keeper.meta.node_id),
        "lost": [str(voter.id) for voter in forced.lost],
        "term": forced.term,
    }
    return ConfigRecord("cluster", "", f"{RECORD_KEY}.{index + 1}", json.dumps(told))
