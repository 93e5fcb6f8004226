"""Damaged replicas: found, reported, refetched (spec replication 2.5).

A log that lost or cannot read something durable is reported to the controller, which takes the
replica out of ISR and ELR. While it is damaged it follows nobody, so that no leader counts it. Its
damaged ranges are then fetched from the leader and swapped in; after that it follows, and joins by
the normal rule. A damaged leader only reports: leadership moves away first.

What belongs here as well: the scrubber, which looks for damage before a reader meets it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog
import trio

from paceline.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    NotLeader,
    PacelineError,
    RemoteProtocolError,
    RequestTimedOut,
    UnknownLeaderEpoch,
    UnknownTopicId,
)
from paceline.types import NO_NODE, BrokerEpoch, LeaderEpoch
from paceline.wire.frame import Frame
from paceline.wire.message import Message
from paceline.wire.native.admin import Done
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.control import ReportDamagedRequest
from paceline.wire.peer.replica import EpochSpan, FetchRange, RangeFetched, SuspectCorrupt
from paceline_node.env import Env, is_full
from paceline_node.peers.auth import Lane
from paceline_node.peers.framestream import Payload
from paceline_node.peers.links import PeerLinks
from paceline_node.peers.server import PeerServer, Session
from paceline_node.peers.transport import FilePart
from paceline_node.replication.fetch_pace import FetchPace
from paceline_node.replication.follower import truncation_point
from paceline_node.replication.partition import Partition, PartitionContext, PartitionKey
from paceline_node.replication.proposals import ControllerCalls
from paceline_node.replication.table import refs
from paceline_node.storage import damage, upkeep
from paceline_node.storage.damage import DamagedRange
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.log import Log
from paceline_node.storage.repair import SegmentRepair

_ANSWER_S = 10.0
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class RepairSettings:
    """``scrub_interval_s``: every sealed segment is read once in that time, at most
    ``scrub_bytes_per_s`` (2.5)."""

    scrub_interval_s: float = 7 * 24 * 3600.0
    scrub_bytes_per_s: int = 5_000_000
    range_max_bytes: int = 4 * 1024 * 1024


class Repairs:
    """Looks after damaged partitions. ``find`` looks one up, ``follow`` lets it follow again.
    ``repaired_count`` is how many replicas were made whole so far."""

    def __init__(
        self,
        env: Env,
        context: PartitionContext,
        links: PeerLinks,
        controller: ControllerCalls,
        *,
        find: Callable[[PartitionKey], Partition | None],
        hosted: Callable[[], tuple[Partition, ...]],
        follow: Callable[[Partition], None],
        unfollow: Callable[[PartitionKey], None],
        broker_epoch: Callable[[], BrokerEpoch],
        settings: RepairSettings | None = None,
    ) -> None:
        self._env = env
        self._node_id = context.node_id
        self._failed = context.failed
        self._links = links
        self._controller = controller
        self._find = find
        self._hosted = hosted
        self._follow = follow
        self._unfollow = unfollow
        self._broker_epoch = broker_epoch
        self._settings = settings or RepairSettings()
        self._pace = FetchPace(self._settings.range_max_bytes, _ANSWER_S)
        self._suspects: dict[tuple[PartitionKey, int], None] = {}
        self._damaged: dict[PartitionKey, bool] = {}  # whether the controller knows
        self._lost: dict[PartitionKey, DamagedRange] = {}
        self._wake = trio.Event()
        self.repaired_count = 0
        self._log = structlog.get_logger(component="repairs", node=context.node_id)

    def register(self, server: PeerServer) -> None:
        """Serve FETCH_RANGE and SUSPECT_CORRUPT on ``server``."""
        server.register(PeerApi.FETCH_RANGE, self._on_fetch_range)
        server.register_direct(PeerApi.SUSPECT_CORRUPT, self._on_suspect_corrupt)

    @property
    def damaged(self) -> tuple[PartitionKey, ...]:
        """Partitions under repair, for status and metrics."""
        return tuple(self._damaged)

    def suspect(self, partition: Partition, offset: int) -> None:
        """Read the segment that holds ``offset``, and act if it is damaged."""
        self._suspects[partition.key, offset] = None
        self._wake.set()

    def report(self, partition: Partition, *, known: bool = False) -> None:
        """``partition`` is damaged: tell the controller (unless it knows, by the registration) and
        repair it once it follows a leader."""
        if partition.key not in self._damaged:
            self._log.error(
                "replica is damaged",
                partition=str(partition),
                ranges=[str(each) for each in partition.log.damaged],
            )
            self._damaged[partition.key] = known
        self._unfollow(partition.key)
        self._wake.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Scrub, report and repair; runs until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._scrub_all)
            task_status.started()
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                while self._suspects or self._damaged:
                    await self._look_at_suspects()
                    await self._tell_controller()
                    await self._repair_all()
                    if self._suspects or self._damaged:
                        with trio.move_on_after(_RETRY_S):
                            await self._wake.wait()
                        self._wake = trio.Event()

    # --- finding ---------------------------------------------------------------------------------

    async def _look_at_suspects(self) -> None:
        suspects, self._suspects = self._suspects, {}
        for key, offset in suspects:
            partition = self._find(key)
            if partition is not None:
                await self._scrub(partition, offset)

    async def _scrub(self, partition: Partition, offset: int) -> upkeep.Scrubbed | None:
        log = partition.log
        if log.failed is not None or offset < log.log_start_offset:
            return None
        try:
            scrubbed = await upkeep.scrub(self._env.disk, log, offset)
        except OSError as error:
            if not is_full(error):
                self._disk_error(log, error)
                return None
            # What was found is known all the same, only not written down.
            scrubbed = None
        damaged = log.damaged if scrubbed is None else scrubbed.damaged
        if damaged and self._find(partition.key) is partition:
            self.report(partition)
        return scrubbed

    async def _scrub_all(self) -> None:
        """Round after round over all sealed segments."""
        while True:
            await trio.sleep(self._settings.scrub_interval_s * self._env.rng.uniform(0.9, 1.0))
            for partition in self._hosted():
                await self._scrub_sealed(partition)

    async def _scrub_sealed(self, partition: Partition) -> None:
        offset = partition.log_start_offset
        while self._find(partition.key) is partition:
            if offset >= partition.log.segments[-1].base_offset:
                return
            scrubbed = await self._scrub(partition, offset)
            if scrubbed is None or scrubbed.next_offset <= offset:
                return
            offset = scrubbed.next_offset
            await trio.sleep(scrubbed.size_bytes / self._settings.scrub_bytes_per_s)

    def _on_suspect_corrupt(self, session: Session, frame: Frame) -> None:
        suspicion = SuspectCorrupt.unpack(frame.body)
        partition = self._find((suspicion.topic_id, suspicion.partition))
        if partition is not None:
            self._log.warning(
                "follower received corrupt records",
                partition=str(partition),
                follower=session.peer,
                offset=suspicion.offset,
            )
            self.suspect(partition, min(suspicion.offset, partition.log_end_offset))

    # --- reporting -------------------------------------------------------------------------------

    async def _tell_controller(self) -> None:
        untold = [key for key, known in self._damaged.items() if not known]
        if not untold:
            return
        request = ReportDamagedRequest(self._node_id, self._broker_epoch(), refs(untold))
        try:
            await self._controller.call(request, Done, timeout_s=_ANSWER_S)
        except PacelineError as error:
            self._log.warning("damage report unanswered", reason=str(error))
            return
        for key in untold:
            if key in self._damaged:
                self._damaged[key] = True

    # --- repairing -------------------------------------------------------------------------------

    async def _repair_all(self) -> None:
        for key, known in list(self._damaged.items()):
            partition = self._find(key)
            if partition is None:
                del self._damaged[key]
                self._lost.pop(key, None)
            elif known and partition.replica.follower is not None:
                await self._repair(partition)

    async def _repair(self, partition: Partition) -> None:
        """Repair one follower from its leader; on any error it stays damaged until the next try."""
        try:
            while partition.log.damaged:
                await self._repair_range(partition, partition.log.damaged[0])
        except CorruptMessage as error:
            self._tell_of_loss(partition, str(error))
            return
        except (PacelineError, LookupError) as error:
            self._log.warning("repair failed", partition=str(partition), reason=str(error))
            if partition.log.failed is not None:
                self._disk_error(partition.log, partition.log.failed)
            return
        except OSError as error:
            if is_full(error):
                self._log.warning("no room to repair", partition=str(partition), reason=str(error))
            else:
                self._disk_error(partition.log, error)
            return
        self._damaged.pop(partition.key, None)
        self._lost.pop(partition.key, None)
        self.repaired_count += 1
        self._log.info("replica repaired", partition=str(partition))
        if self._find(partition.key) is partition and partition.replica.follower is not None:
            self._follow(partition)

    def _disk_error(self, log: Log, error: OSError) -> None:
        """The node must end, unless the partition was given up meanwhile: its files are closed and
        its directory is renamed then, and nothing is wrong with the disk."""
        if not log.closed:
            self._failed(error)

    def _tell_of_loss(self, partition: Partition, reason: str) -> None:
        """The leader cannot read these records either (2.5 (c)): only an operator can decide that
        they are lost. Said once for each range; asked for again and again all the same, since
        another replica may lead one day."""
        lost = partition.log.damaged[0]
        if self._lost.get(partition.key) == lost:
            return
        self._lost[partition.key] = lost
        self._log.error(
            "records are damaged on the leader too, so this replica cannot be repaired; give them "
            "up with: paceline topic trim, with --before the end of the range",
            partition=str(partition),
            range=str(lost),
            reason=reason,
        )

    async def _repair_range(self, partition: Partition, damaged: DamagedRange) -> None:
        """Replace the segment with that range; it may have further ranges to fill."""
        log = partition.log
        _, epochs, _ = await self._fetch_range(partition, damaged.start, damaged.start)
        if partition.replica.follower is None:
            raise NotLeader(f"{partition}: does not follow any more")
        if _cut_divergence(partition, epochs):
            return
        if log.settings.compaction is not None:
            await self._begin_anew(partition)
            return
        repair = upkeep.begin_repair(self._env.disk, log, damaged, epochs)
        try:
            while (missing := repair.missing) is not None:
                fetched, _, records = await self._fetch_range(partition, *missing)
                if fetched.next_offset <= missing[0]:
                    # The leader's log ends before: nothing there is committed, and this replica is
                    # in neither ISR nor ELR any more, so it may forget it.
                    log.truncate(missing[0])
                    partition.replica.log_was_cut()
                    return
                await repair.fill(records)
            await self._finish(log, repair)
        finally:
            repair.abandon()

    async def _finish(self, log: Log, repair: SegmentRepair) -> None:
        """Swap the replacement in. What was kept of the segment may be damaged where nobody has
        read it since: that is to be fetched, too. Raises as :func:`upkeep.finish_repair`."""
        known = log.damaged
        try:
            await upkeep.finish_repair(self._env.disk, log, repair)
        except CorruptMessage as error:
            refusal = error
        else:
            return
        if repair.damaged in log.segments:  # retention has not deleted it meanwhile
            await upkeep.scrub(self._env.disk, log, repair.damaged.base_offset)
        if log.damaged == known:
            raise refusal

    async def _begin_anew(self, partition: Partition) -> None:
        """Fetch a compacted log as a whole. Leader and replica have compacted at other times: a
        range of the one in the other could bring back a key whose tombstone is gone here."""
        log = partition.log
        log.reset(log.log_start_offset)
        partition.replica.log_was_cut()
        await damage.write(self._env.disk, log.path, log.damaged)

    async def _fetch_range(
        self, partition: Partition, start: int, end: int
    ) -> tuple[RangeFetched, EpochCache, memoryview]:
        leader = partition.leader
        if leader in (NO_NODE, self._node_id):
            raise NotLeader(f"{partition}: no other node leads")
        request = FetchRange(
            partition.topic_id,
            partition.partition,
            partition.leader_epoch,
            start,
            end,
            self._pace.max_bytes,
        )
        asked_at = self._env.now()
        try:
            frame = await self._links.call(
                leader,
                PeerApi.FETCH_RANGE,
                request,
                lane=Lane.REPAIR,
                timeout_s=self._pace.patience_s,
            )
        except RequestTimedOut:
            self._pace.overdue()
            raise
        self._pace.answered(len(frame.payload), self._env.now() - asked_at)
        fetched = RangeFetched.unpack(frame.body)
        try:
            epochs = EpochCache([(span.epoch, span.start_offset) for span in fetched.epochs])
        except ValueError as error:
            raise RemoteProtocolError(f"node {leader}: epoch table: {error}") from None
        return fetched, epochs, frame.payload

    async def _on_fetch_range(self, session: Session, frame: Frame) -> tuple[Message, Payload]:
        request = FetchRange.unpack(frame.body)
        partition = self._find((request.topic_id, request.partition))
        if partition is None:
            raise UnknownTopicId(f"partition {request.topic_id}/{request.partition} is not here")
        _require_leader(partition, request.current_leader_epoch)
        log = partition.log
        spans = tuple(EpochSpan(LeaderEpoch(epoch), start) for epoch, start in log.epochs.entries)
        if not log.log_start_offset <= request.start_offset <= log.log_end_offset:
            return RangeFetched(request.start_offset, request.start_offset, spans), b""
        found = log.locate(
            request.start_offset,
            min(request.max_bytes, self._settings.range_max_bytes),
            min(request.end_offset, log.log_end_offset),
        )
        if found is None:
            return RangeFetched(request.start_offset, request.start_offset, spans), b""
        body = RangeFetched(found.base_offset, found.next_offset, spans)
        return body, FilePart(found.file, found.position, found.size)


def _cut_divergence(partition: Partition, theirs: EpochCache) -> bool:
    """Give up what this replica wrote as a leader and nobody has; whether there was any.

    It fetches nothing while it is damaged, so the usual reconciliation (spec replication 3.4)
    cannot do it, and a segment that ends otherwise than the leader's is not to be made whole. Such
    records are not committed: the replica is in neither ISR nor ELR any more.
    """
    log = partition.log
    mine, last = log.epochs, log.epochs.last_epoch
    if theirs.last_epoch < last:
        end = mine.end_offset_for(theirs.last_epoch, log.log_end_offset)
        point = log.log_end_offset if end is None else end.end
    else:
        end = theirs.end_offset_for(last, log.log_end_offset)
        point = log.log_end_offset
        if end is not None:
            point = truncation_point(mine, log.log_end_offset, end.epoch, end.end)
    if point >= log.log_end_offset:
        return False
    log.truncate(max(point, log.log_start_offset))
    partition.replica.log_was_cut()
    return True


def _require_leader(partition: Partition, leader_epoch: int) -> None:
    if partition.replica.leader is None:
        raise NotLeader(f"{partition}: the leader is node {partition.leader}")
    if leader_epoch != partition.leader_epoch:
        error = FencedLeaderEpoch if leader_epoch < partition.leader_epoch else UnknownLeaderEpoch
        raise error(f"{partition}: leader epoch {leader_epoch}, here {partition.leader_epoch}")
