"""Damaged replicas: found, reported, refetched (DESIGN 6).

A log that lost or cannot read something durable is reported to the controller, which takes the
replica out of ISR and ELR. While it is damaged it follows nobody, so that no leader counts it. Its
damaged ranges are then fetched from the leader and swapped in; after that it follows, and joins by
the normal rule. A damaged leader only reports: leadership moves away first.

What belongs here as well: the scrubber, which looks for damage before a reader meets it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

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
from paceline.values import dataclass
from paceline.wire.frame import Frame
from paceline.wire.message import Message
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.replica import EpochSpan, FetchRange, RangeFetched, SuspectCorrupt
from paceline_node.bare_errors import bare
from paceline_node.env import Env, is_full
from paceline_node.net.framestream import Payload
from paceline_node.net.transport import FilePart
from paceline_node.peers.auth import Lane
from paceline_node.peers.links import PeerLinks
from paceline_node.peers.server import PeerServer, Session
from paceline_node.replication.damage_refusals import was_elected_anyway
from paceline_node.replication.damage_reports import DamageReports
from paceline_node.replication.fetch_pace import FetchPace
from paceline_node.replication.follower import truncation_point
from paceline_node.replication.partition import Partition, PartitionContext, PartitionKey
from paceline_node.replication.proposals import ControllerCalls
from paceline_node.settings.tree import LogSettings
from paceline_node.storage import anchors, scrubbing
from paceline_node.storage.damage import DamagedRange
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.log import Log
from paceline_node.storage.log_file import Unreadable
from paceline_node.storage.repair import SegmentRepair
from paceline_node.storage.scrubbing import Beginning

_ANSWER_S = 10.0
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class RepairSettings:
    """``scrub_interval_s``: every segment is read once in that time, at most
    ``scrub_bytes_per_s`` (DESIGN 6.6)."""

    scrub_interval_s: float = LogSettings().scrub_interval_ms / 1000
    scrub_bytes_per_s: int = 5_000_000
    range_max_bytes: int = 4 * 1024 * 1024


class Repairs:
    """Looks after damaged partitions. ``find`` looks one up, ``follow`` lets it follow again.
    ``repaired_count`` is how many replicas were made whole so far."""

    def __init__(
        self,
        env: Env,
        context: PartitionContext[Partition],
        links: PeerLinks,
        controller: ControllerCalls,
        *,
        find: Callable[[PartitionKey], Partition | None],
        hosted: Callable[[], tuple[Partition, ...]],
        follow: Callable[[Partition], None],
        unfollow: Callable[[PartitionKey], None],
        broker_epoch: Callable[[], BrokerEpoch],
        fetch_state: Callable[[Partition], Awaitable[Beginning]],
        settings: RepairSettings | None = None,
    ) -> None:
        self._env = env
        self._node_id = context.node_id
        self._failed = context.events.failed
        self._links = links
        self._find = find
        self._hosted = hosted
        self._follow = follow
        self._unfollow = unfollow
        self._standing = DamageReports(context.node_id, controller, find, broker_epoch)
        self._fetch_state = fetch_state
        self._settings = settings or RepairSettings()
        self._pace = FetchPace(self._settings.range_max_bytes, _ANSWER_S)
        self._suspects: dict[tuple[PartitionKey, int], None] = {}
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
        return self._standing.damaged

    def suspect(self, partition: Partition, offset: int) -> None:
        """Read the segment that holds ``offset``, and act if it is damaged."""
        self._suspects[partition.key, offset] = None
        self._wake.set()

    def report(self, partition: Partition, *, known: bool = False) -> None:
        """``partition`` is damaged: tell the controller (unless it knows, by the registration) and
        repair it once it follows a leader."""
        if self._standing.found(partition.key, known=known):
            self._log.error(
                "replica is damaged",
                partition=str(partition),
                ranges=[str(each) for each in partition.log.damaged],
                state_missing=partition.log.state.is_missing,
            )
        self._unfollow(partition.key)
        self._wake.set()

    def leader_lacks(self, partition: Partition, leader_end: int, *, is_committed: bool) -> None:
        """The leader of ``partition`` lacks what is committed, by what this complete replica knows;
        or has the shorter log after all were down, which is no damage most often. Tell the
        controller, which lets this one lead."""
        if self._standing.leader_lacks(partition, is_committed=is_committed):
            say = self._log.error if is_committed else self._log.info
            what = "lacks committed records" if is_committed else "has a shorter log"
            say(
                f"the leader {what}; nothing was cut here to match it",
                partition=str(partition),
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                leader_end_offset=leader_end,
                high_watermark=partition.high_watermark,
                log_end_offset=partition.log_end_offset,
            )
        self._wake.set()

    def registered(self, partition: Partition) -> None:
        """The metadata shows another registration of ``partition``."""
        if self._standing.registered(partition):
            self._wake.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Scrub, report and repair; runs until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._scrub_all)
            task_status.started()
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                while self._suspects or not self._standing.at_rest:
                    await self._look_at_suspects()
                    await self._read_doubted()
                    await self._standing.tell()
                    await self._repair_all()
                    await self._standing.tell()
                    if self._suspects or not self._standing.at_rest:
                        with trio.move_on_after(_RETRY_S):
                            await self._wake.wait()
                        self._wake = trio.Event()

    # --- finding ---------------------------------------------------------------------------------

    async def _look_at_suspects(self) -> None:
        suspects, self._suspects = self._suspects, {}
        for key, offset in suspects:
            partition = self._find(key)
            if partition is not None:
                await self.scrub(partition, offset)

    async def scrub(self, partition: Partition, offset: int) -> scrubbing.Scrubbed | None:
        """Read the segment that holds ``offset``, and report it if it is damaged; None: that was
        not possible, or the disk has no room to note the damage."""
        log = partition.log
        if log.failed is not None or offset < log.log_start_offset:
            return None
        try:
            scrubbed = await scrubbing.scrub(self._env.disk, log, offset)
        except OSError as error:
            if not is_full(error):
                self._disk_error(log, error)
                return None
            # What was found is known all the same, only not written down.
            scrubbed = None
        if (log.damaged or log.state.is_missing) and self._find(partition.key) is partition:
            self.report(partition)
        return scrubbed

    async def _read_doubted(self) -> None:
        """Read whole logs that the controller calls damaged and this process does not."""
        for key in self._standing.doubted:
            partition = self._find(key)
            if partition is None:
                self._standing.forget(key)
            elif await self._reads_well(partition):
                self._standing.is_whole(key)
                self._log.info("replica called damaged is whole", partition=str(partition))

    async def _reads_well(self, partition: Partition) -> bool:
        log = partition.log
        offset, end = log.log_start_offset, log.log_end_offset
        while self._find(partition.key) is partition and not log.is_damaged:
            scrubbed = await self.scrub(partition, offset)
            if scrubbed is None:
                return False
            # What is written meanwhile is checked as it comes; or this might not end.
            if scrubbed.next_offset >= min(end, log.log_end_offset):
                return not log.is_damaged
            offset = max(scrubbed.next_offset, log.log_start_offset)
        return False

    async def _scrub_all(self) -> None:
        while True:
            await trio.sleep(self._settings.scrub_interval_s * self._env.rng.uniform(0.9, 1.0))
            await self.scrub_round()

    async def scrub_round(self) -> None:
        """Read all segments once. The one that is written to is read as far as it is when its turn
        comes: an idle log has no other, and keeps it for good."""
        for partition in self._hosted():
            await self._scrub_log(partition)

    async def _scrub_log(self, partition: Partition) -> None:
        offset, end = partition.log_start_offset, partition.log.log_end_offset
        while self._find(partition.key) is partition:
            if offset >= min(end, partition.log.log_end_offset):
                return
            scrubbed = await self.scrub(partition, offset)
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

    # --- repairing -------------------------------------------------------------------------------

    async def _repair_all(self) -> None:
        for key in self._standing.damaged:
            partition = self._find(key)
            if partition is None:
                self._standing.forget(key)
                self._lost.pop(key, None)
            elif (
                not partition.log.is_damaged
                or (self._standing.knows(key) and partition.replica.follower is not None)
                or (not partition.log.damaged and self._was_elected_anyway(partition))
            ):
                await self._repair(partition)

    async def _repair(self, partition: Partition) -> None:
        """Repair one follower from its leader; on any error it stays damaged until the next try."""
        try:
            while partition.log.damaged:
                await self._repair_range(partition, partition.log.damaged[0])
            await scrubbing.rebuild_producers(partition.log)
            if partition.log.state.is_missing:
                await self._restore_state(partition)
        except CorruptMessage as error:
            if partition.log.damaged:
                self._tell_of_loss(partition, str(error))
            else:  # nobody had met it: reading the segment tells what is damaged
                self._log.warning("repair failed", partition=str(partition), reason=str(error))
                unread = partition.log.producers.transactions.known_to
                self.suspect(partition, partition.log_start_offset if unread is None else unread)
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
        self._standing.is_whole(partition.key)
        self._lost.pop(partition.key, None)
        self.repaired_count += 1
        self._log.info("replica repaired", partition=str(partition))
        if self._find(partition.key) is partition and partition.replica.follower is not None:
            self._follow(partition)

    def _was_elected_anyway(self, partition: Partition) -> bool:
        return was_elected_anyway(self._node_id, partition.registration)

    def _disk_error(self, log: Log, error: OSError) -> None:
        """The node must end, unless the partition was given up meanwhile: its files are closed and
        its directory is renamed then, and nothing is wrong with the disk."""
        if not log.closed:
            self._failed(error)

    def _tell_of_loss(self, partition: Partition, reason: str) -> None:
        """The leader cannot read these records either (DESIGN 6.5): only an operator can decide
        that they are lost. Said once for each range; asked for again and again all the same, since
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
        fetched, epochs, _ = await self._fetch_range(partition, damaged.start, damaged.start)
        if await self._cut(partition, epochs, fetched.log_start_offset):
            return
        removed_to = max(fetched.removed_to, log.compaction.removals.removed_to)
        if log.settings.compaction is not None or removed_to > damaged.start:
            await self._begin_anew(partition)
            return
        if await scrubbing.take_epochs(self._env.disk, log, epochs):
            return
        repair = scrubbing.begin_repair(self._env.disk, log, damaged, epochs)
        try:
            while (missing := repair.missing) is not None:
                fetched, epochs, records = await self._fetch_range(partition, *missing)
                if fetched.next_offset <= missing[0]:
                    # The leader's log begins behind this, or ends before it: then nothing there is
                    # committed.
                    if not await self._cut(partition, epochs, fetched.log_start_offset):
                        self._check_forgettable(partition)
                        await self._truncate(partition, missing[0])
                        partition.replica.log_was_cut()
                    return
                is_spoiled = False
                try:
                    await repair.fill(records)
                except Unreadable:
                    is_spoiled = True
                if is_spoiled:  # what is kept of the segment has to be fetched as well
                    await self.scrub(partition, repair.damaged.base_offset)
                    raise LookupError(f"{partition}: more of the segment is damaged")
            await self._finish(log, repair, epochs)
        finally:
            repair.abandon()

    async def _cut(self, partition: Partition, theirs: EpochCache, leader_start: int) -> bool:
        """Give up what the leader does not have, at both ends; whether there was any. Where damage
        goes with it, nobody here knows what those records have said."""
        log = partition.log
        point = _divergence(log, theirs)
        if point < log.log_end_offset:
            self._check_forgettable(partition)
            await self._truncate(partition, point)
        elif leader_start > log.log_start_offset:
            self._check_forgettable(partition)
            if min(log.damaged[0].start, log.log_end_offset) < leader_start:
                await self._begin_anew(partition)
            else:
                log.advance_start(leader_start)
        else:
            return False
        partition.replica.log_was_cut()
        return True

    async def _truncate(self, partition: Partition, offset: int) -> None:
        """Remove what is at or above ``offset``, and all if that is a part of the first batch."""
        log = partition.log
        offset = max(offset, log.log_start_offset)
        if offset < log.log_end_offset and log.end_if_cut(offset) < log.log_start_offset:
            await self._begin_anew(partition)
        else:
            log.truncate(offset)

    def _check_forgettable(self, partition: Partition) -> None:
        """Raise NotLeader unless nobody counts on what is here: it is about to be given up."""
        registration = partition.registration
        assert registration is not None
        if (
            self._node_id in (*registration.isr, *registration.elr)
            or self._node_id not in registration.damaged
        ):
            raise NotLeader(f"{partition}: is still taken for complete, so nothing is given up")

    async def _finish(self, log: Log, repair: SegmentRepair, theirs: EpochCache) -> None:
        """Swap the replacement in. What was kept of the segment may be damaged where nobody has
        read it since, or nobody here knows its epochs: that is to be fetched, too. Raises as
        :func:`scrubbing.finish_repair`."""
        known = log.damaged
        try:
            await scrubbing.finish_repair(self._env.disk, log, repair)
        except CorruptMessage as error:
            refusal = bare(error)
        else:
            return
        if repair.damaged in log.segments:  # retention has not deleted it meanwhile
            await scrubbing.scrub(self._env.disk, log, repair.damaged.base_offset, theirs)
        if log.damaged == known:
            try:
                raise refusal
            finally:
                del refusal

    async def _restore_state(self, partition: Partition) -> None:
        """Get back what the records below this log's start have said. Where its own snapshot would
        lie it is put in place; elsewhere the whole log is fetched anew."""
        if self._was_elected_anyway(partition):
            certain = min(partition.high_watermark, partition.log.durable_offset)
            await anchors.believe_own(self._env.disk, partition.log, certain)
            return
        beginning = await self._fetch_state(partition)
        state, log = beginning.state, partition.log
        if partition.replica.follower is None:
            raise NotLeader(f"{partition}: is no longer a follower here")
        in_place = log.oldest_offset <= state.offset <= partition.high_watermark
        if in_place and log.state.is_founded:
            log.state.anchored(state)
            log.advance_start(state.offset)
            return
        await self._begin_with(partition, beginning)

    async def _begin_with(self, partition: Partition, beginning: Beginning) -> None:
        log = partition.log
        partition.replica.begin_anew(beginning.state)
        await scrubbing.note_beginning(self._env.disk, log, beginning)
        await scrubbing.write_damage(self._env.disk, log)

    async def _begin_anew(self, partition: Partition) -> None:
        """Fetch the log as a whole. A compacted one, since leader and replica have compacted at
        other times: a range of the one in the other could bring back a key whose tombstone is gone
        here."""
        beginning = await self._fetch_state(partition)
        self._check_forgettable(partition)
        await self._begin_with(partition, beginning)

    async def _fetch_range(
        self, partition: Partition, start: int, end: int
    ) -> tuple[RangeFetched, EpochCache, memoryview]:
        leader = partition.leader
        if leader in (NO_NODE, self._node_id):
            raise NotLeader(f"{partition}: no other node leads")
        key, epoch = partition.key, partition.leader_epoch
        request = FetchRange(*key, epoch, start, end, self._pace.max_bytes)
        asked_at, follower = self._env.now(), partition.replica.follower
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
        if follower is None or partition.replica.follower is not follower:
            raise NotLeader(f"{partition}: has another leader epoch now")
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
            return _nothing(request, log, spans), b""
        try:
            found = log.locate(
                request.start_offset,
                min(request.max_bytes, self._settings.range_max_bytes),
                min(request.end_offset, log.log_end_offset),
            )
        except CorruptMessage:
            partition.suspect(request.start_offset)
            raise
        if found is None:
            return _nothing(request, log, spans), b""
        body = RangeFetched(
            found.base_offset,
            found.next_offset,
            spans,
            log.log_start_offset,
            log.compaction.removals.removed_to,
        )
        return body, FilePart(found.file, found.position, found.size)


def _divergence(log: Log, theirs: EpochCache) -> int:
    """Where this log forks from the leader's, at most its end: what it wrote as a leader and nobody
    has.

    It fetches nothing while it is damaged, so the usual reconciliation (DESIGN 3.4)
    cannot find it, and a segment that ends otherwise than the leader's is not to be made whole.
    """
    mine, last = log.epochs, log.epochs.last_epoch
    if theirs.last_epoch < last:
        end = mine.end_offset_for(theirs.last_epoch, log.log_end_offset)
        return log.log_end_offset if end is None else end.end
    end = theirs.end_offset_for(last, log.log_end_offset)
    if end is None:
        return log.log_end_offset
    return min(truncation_point(mine, log.log_end_offset, end.epoch, end.end), log.log_end_offset)


def _nothing(request: FetchRange, log: Log, spans: tuple[EpochSpan, ...]) -> RangeFetched:
    at = request.start_offset
    removed_to = log.compaction.removals.removed_to
    return RangeFetched(at, at, spans, log.log_start_offset, removed_to)


def _require_leader(partition: Partition, leader_epoch: int) -> None:
    if partition.replica.leader is None:
        raise NotLeader(f"{partition}: the leader is node {partition.leader}")
    if leader_epoch != partition.leader_epoch:
        error = FencedLeaderEpoch if leader_epoch < partition.leader_epoch else UnknownLeaderEpoch
        raise error(f"{partition}: leader epoch {leader_epoch}, here {partition.leader_epoch}")
