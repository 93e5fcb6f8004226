"""Wrong versions of the rules that make a node stand a disk which lies: can the simulator see them?

Each takes back one rule: what is believed of files, what a replica with damage counts for, what a
voter does that has lost its votes. The profiles of harmed disks must find them, from seeds.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock
from uuid import UUID

from paceline.types import BrokerEpoch, NodeId, PartitionEpoch
from paceline.wire.peer.control import IsrMember
from paceline_cluster.sim.profiles import (
    DESCRIPTORS,
    EXCHANGED,
    FORCED,
    FORGETFUL,
    LOSS,
    PASSED,
    ROT,
    STALE,
    UNREADABLE,
    WAITING,
)
from paceline_node import env
from paceline_node.controller import (
    force_quorum,
    former_epochs,
    isr_proposals,
    partition_change,
    raft_store,
)
from paceline_node.controller.metadata_records import PartitionRegistration, ProducerIds, Record
from paceline_node.controller.raft_copies import copy_of
from paceline_node.controller.raft_hard_state import Kept
from paceline_node.controller.raft_types import HardState
from paceline_node.env import Disk
from paceline_node.groups.topic_ids import TopicIds
from paceline_node.replication.leader import ALREADY_MEMBER, Brokers, LeaderState
from paceline_node.replication.log_directory import LogDirectory, OpenedLogs
from paceline_node.replication.partition import Partition
from paceline_node.replication.replica import Replica
from paceline_node.services.event_streams import event_streams
from paceline_node.services.event_streams.event_stream_index import StreamIndex
from paceline_node.storage import layout, log_file
from paceline_node.storage.file_owner import Owner
from paceline_node.storage.layout import Offsets
from paceline_node.storage.log import Log
from paceline_node.storage.producers import FrozenTable
from paceline_node.storage.recovery_report import RecoveryHints
from paceline_node.storage.torn_tail import Ending, Tail
from tests.sim.node.mutants import NodeMutant

# --- what a replica counts for --------------------------------------------------------------------

_observe_fetch = LeaderState.observe_fetch
_membership = partition_change._membership
_eligible = isr_proposals._eligible


def _adopt_and_remember(self: LeaderState, registration: PartitionRegistration) -> None:
    """What followers said before they left the ISR still counts."""
    self.registration = registration
    pending = self.pending
    if pending is not None and registration.partition_epoch > pending.partition_epoch:
        self.pending = None
    self._recount()


def _observe_any(
    self: LeaderState,
    node: NodeId,
    broker_epoch: BrokerEpoch,
    fetch_offset: int,
    durable_offset: int,
    leader_end: int,
    now: float,
    partition_epoch: PartitionEpoch,
) -> bool:
    known = self.followers.get(node)
    if known is not None:
        known.partition_epoch = min(known.partition_epoch, partition_epoch)
    return _observe_fetch(
        self, node, broker_epoch, fetch_offset, durable_offset, leader_end, now, partition_epoch
    )


def _may_join_by_old_progress(
    self: LeaderState, node: NodeId, high_watermark: int, brokers: Brokers
) -> bool:
    known = self.followers.get(node)
    registered = brokers.get(node)
    return (
        known is not None
        and registered is not None
        and known.ack >= high_watermark
        and known.ack >= self.start_offset
        and not registered.fenced
        and not registered.in_controlled_shutdown
        and known.broker_epoch == registered.broker_epoch
    )


def _consider_all(self: LeaderState, _: NodeId, high_watermark: int, brokers: Brokers) -> bool:
    """One follower's fetch has all of them considered."""
    isr = self.registration.isr
    if self.pending is not None:
        return False
    joining = [
        node
        for node in self.registration.replicas
        if node not in isr and self.may_join(node, high_watermark, brokers)
    ]
    if not joining:
        return False
    members = [IsrMember(node, ALREADY_MEMBER) for node in isr]
    members += [IsrMember(node, brokers[node].broker_epoch) for node in joining]
    self._propose(tuple(members))
    return True


def _members_without_marks(*args: Any) -> Any:
    """Marks on damaged replicas are kept, and keep nobody out."""
    return _membership(*args[:4], ())


def _eligible_although_damaged(
    member: IsrMember, partition: PartitionRegistration, draft: Any
) -> bool:
    return _eligible(member, replace(partition, damaged=()), draft)


@contextlib.contextmanager
def _old_progress_counts() -> Iterator[None]:
    with (
        mock.patch.object(LeaderState, "adopt", _adopt_and_remember),
        mock.patch.object(LeaderState, "observe_fetch", _observe_any),
        mock.patch.object(LeaderState, "may_join", _may_join_by_old_progress),
        mock.patch.object(LeaderState, "consider_expand", _consider_all),
        mock.patch.object(partition_change, "_membership", _members_without_marks),
        mock.patch.object(isr_proposals, "_eligible", _eligible_although_damaged),
    ):
        yield


# --- what files are believed ----------------------------------------------------------------------

_hints = LogDirectory._hints


def _any_first_segment(self: LogDirectory, *args: Any, **options: Any) -> RecoveryHints:
    """Where a log begins is where its files begin."""
    return replace(_hints(self, *args, **options), first_offset=None)


_open_all = LogDirectory.open_all


async def _nothing_is_missing(self: LogDirectory, **options: Any) -> OpenedLogs:
    """Whatever has no log is new."""
    return replace(await _open_all(self, **options), missing=(), list_is_lost=False)


def _as_of_the_checkpoint(self: LogDirectory, *args: Any, **options: Any) -> RecoveryHints:
    """What was synced is what the last checkpoint says."""
    hints = _hints(self, *args, **options)
    return replace(hints, recovery_point=hints.checkpoint or 0, mark_exact=True)


def _anything_may_be_torn(ending: Ending, *, mark_exact: bool) -> Tail:
    return Tail.ALL


@contextlib.contextmanager
def _rot_is_torn() -> Iterator[None]:
    with (
        mock.patch.object(LogDirectory, "_hints", _as_of_the_checkpoint),
        mock.patch.object(Tail, "after", _anything_may_be_torn),
    ):
        yield


_write_checkpoints = LogDirectory.write_checkpoints


async def _checkpoint_what_is_hosted(self: LogDirectory, watermarks: Mapping[Log, int]) -> None:
    """Checkpoints and marks speak of what is hosted: of nothing, while there is no quorum."""
    marks = self.marks
    if watermarks:
        for slot, mark in marks._owners.items():
            marks.change(mark, slot)
        await _write_checkpoints(self, watermarks)
        return
    for which in Offsets:
        await layout.write_offsets(self._disk, which, {})
        self._known._written[which] = {}
        self._known._written_changes.pop(which, None)
    if marks._file is not None:
        marks._file.pwrite(bytes(len(marks._image)), 0)
        await self._disk.sync([marks._file])


def _new_if_unmentioned(self: LogDirectory, *args: Any, **options: Any) -> RecoveryHints:
    """Nobody has been told of a record of a log that nothing speaks of."""
    hints = _hints(self, *args, **options)
    return hints if hints.point_known else replace(hints, point_known=True, mark_exact=True)


@contextlib.contextmanager
def _checkpoints_before_hosting() -> Iterator[None]:
    with (
        mock.patch.object(LogDirectory, "write_checkpoints", _checkpoint_what_is_hosted),
        mock.patch.object(LogDirectory, "_hints", _new_if_unmentioned),
    ):
        yield


# --- what a voter has promised --------------------------------------------------------------------

_read_hard_state = raft_store._read_hard_state


async def _copy_anew(disk: Disk, path: str) -> tuple[str, ...]:
    """The copy is made like the first directory, whatever that holds."""
    copy = copy_of(path)
    disk.mkdir(path)
    disk.remove_tree(copy)
    disk.mkdir(copy)
    for name in disk.list(path):
        source = await disk.open(f"{path}/{name}")
        target = disk.create(f"{copy}/{name}")
        target.append([await source.read(source.size(), 0)])
        await disk.sync([target])
        source.close()
        target.close()
    await disk.fsync_dir(copy)
    return ()


async def _nothing_promised(disk: Disk, path: str) -> Kept:
    kept = await _read_hard_state(disk, path) or Kept(HardState(0), 0)
    return Kept(kept.state, 0)


async def _nothing_forgotten(*_: object) -> str | None:
    return None


@contextlib.contextmanager
def _votes_as_if_new() -> Iterator[None]:
    with (
        mock.patch.object(raft_store, "mend", _copy_anew),
        mock.patch.object(raft_store, "_read_hard_state", _nothing_promised),
        mock.patch.object(raft_store, "_forgotten", _nothing_forgotten),
    ):
        yield


_forced_records = force_quorum._records


def _without_new_ids(*args: Any) -> list[Record]:
    """Who goes on alone hands out the producer ids that it knows of no use of."""
    return [each for each in _forced_records(*args) if not isinstance(each, ProducerIds)]


# --- what is remembered of what has expired -------------------------------------------------------

_begin_anew = Replica.begin_anew


def _begin_without_memory(self: Replica, state: FrozenTable) -> None:
    """Whoever begins behind deleted records knows nothing of them."""
    _begin_anew(self, FrozenTable(state.offset))


def _version_of_what_is_left(partition: Partition, index: StreamIndex, key: bytes, end: int) -> int:
    return index.version(key, end=end)


def _holds_by_name(self: TopicIds, topic: str, topic_id: UUID | None) -> bool:
    return self.current(topic) is not None


# --- what ends a node -----------------------------------------------------------------------------


def _never(error: OSError) -> bool:
    return False


@contextlib.contextmanager
def _unreadable_bytes_end_it() -> Iterator[None]:
    with mock.patch.object(log_file, "is_unreadable", _never):
        yield


@contextlib.contextmanager
def _want_of_descriptors_ends_it() -> Iterator[None]:
    with mock.patch.object(env, "_FULL", frozenset({errno.ENOSPC, errno.EDQUOT})):
        yield


def _hear_of_nothing(self: Log) -> None:
    """The producers that were read around a hole are believed when the log start has passed it."""


def _whosesoever(self: Owner, named: object) -> None:
    """What another log's file says is believed."""


def _patch(target: object, name: str, value: object) -> Any:
    return lambda: mock.patch.object(target, name, value)


MUTANTS: Sequence[NodeMutant] = (
    NodeMutant("old progress counts", ROT, _old_progress_counts, seed=2, rare=True),
    NodeMutant(
        "missing first segments have expired",
        LOSS,
        _patch(LogDirectory, "_hints", _any_first_segment),
        seed=6,
        rare=True,
    ),
    NodeMutant(
        "missing logs are new",
        LOSS,
        _patch(LogDirectory, "open_all", _nothing_is_missing),
        seed=7,
        rare=True,
    ),
    NodeMutant(
        "deleted damage is forgotten",
        PASSED,
        _patch(Log, "_weigh_holes", _hear_of_nothing),
        seed=2,
        alone=True,
    ),
    NodeMutant("rot behind the last checkpoint is torn", ROT, _rot_is_torn, seed=4, rare=True),
    NodeMutant(
        "checkpoints before hosting",
        WAITING,
        _checkpoints_before_hosting,
        seed=5,
        seconds=15.0,
        rare=True,
    ),
    NodeMutant("voters without votes are new", LOSS, _votes_as_if_new, seed=5),
    NodeMutant("voters with old votes vote", STALE, _votes_as_if_new, seed=10, rare=True),
    NodeMutant(
        "producer ids are handed out again",
        FORCED,
        _patch(force_quorum, "_records", _without_new_ids),
        seed=66,
        foreign_clients=True,
        found_elsewhere=True,
    ),
    NodeMutant(
        "files are whosesoever",
        EXCHANGED,
        _patch(Owner, "check", _whosesoever),
        seed=0,
        whole=True,
        rare=True,
    ),
    NodeMutant("unreadable bytes end the node", UNREADABLE, _unreadable_bytes_end_it, seed=3),
    NodeMutant(
        "want of descriptors ends it",
        DESCRIPTORS,
        _want_of_descriptors_ends_it,
        seed=0,
        found_elsewhere=True,
    ),
    NodeMutant(
        "offsets belong to names",
        FORGETFUL,
        _patch(TopicIds, "holds", _holds_by_name),
        seed=72,
        rare=True,
        foreign_clients=True,
    ),
    NodeMutant(
        "leader epochs of a name fall",
        FORGETFUL,
        _patch(former_epochs, "remembered", lambda known, name, epoch: dict(known)),
        seed=3,
        foreign_clients=True,
    ),
    NodeMutant(
        "what was deleted is forgotten",
        FORGETFUL,
        _patch(Replica, "begin_anew", _begin_without_memory),
        seed=1,
        foreign_clients=True,
        found_elsewhere=True,
    ),
    NodeMutant(
        "versions are those of the events left",
        FORGETFUL,
        _patch(event_streams, "_version", _version_of_what_is_left),
        seed=18,
        rare=True,
        foreign_clients=True,
    ),
)
