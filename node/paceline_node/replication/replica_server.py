"""The leader's side of REPLICA_FETCH and REPLICA_ACK (DESIGN 3.3).

Both are handled synchronously, in order of arrival. A fetch without news parks as an object: no
task, and no timer beyond one deadline. One task per node answers parked fetches; it runs a tick
after the first append or flush that concerns them, so that an answer carries everything that was
appended meanwhile. A mere move of the high watermark waits a little longer for company: data will
most likely follow and carry it along.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

import trio

from paceline.errors import (
    AuthorizationFailed,
    CorruptMessage,
    ErrorCode,
    InconsistentClusterId,
)
from paceline.types import NO_EPOCH, NO_NODE, BrokerEpoch
from paceline.values import dataclass
from paceline.wire.frame import Frame
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.replica import (
    FetchedPartition,
    FetchPartition,
    ReplicaFetch,
    ReplicaFetched,
)
from paceline_node.env import Env
from paceline_node.loop_turns import AT_A_TIME
from paceline_node.net.deadlines import Deadline, Deadlines
from paceline_node.net.framestream import Chunk
from paceline_node.net.transport import FilePart
from paceline_node.peers.server import PeerServer, Session
from paceline_node.replication.catchup_throttle import CatchupThrottle
from paceline_node.replication.fetch_checks import ACCEPTED, FetchCheck, FollowerIdentity
from paceline_node.replication.partition import Partition, PartitionKey
from paceline_node.storage.reading import LocalSlice

_INLINE_BYTES = 128 * 1024
"""Slices up to this are read into the answer, which then leaves in one write; larger ones are sent
from the file."""
_EARLY = frozenset((ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID))
_TOUCH_S = 0.2
"""Positions that a connection leaves unchanged count as fetched again this often,"""
_TOUCH_EACH_S = 0.0005
"""or, where they are many, as often as that costs a few hundredths of a processor."""


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """``notice_s``: how long a move of the high watermark waits for data to go with it."""

    max_wait_s: float = 0.5
    max_bytes: int = 10 * 1024 * 1024
    notice_s: float = 0.005


class _Parked(NamedTuple):
    """A fetch that waits for news."""

    frame: Frame
    nonce: int
    max_bytes: int
    deadline: Deadline


class FollowerSession:
    """What a follower's connection has told: positions by partition, and the fetch it awaits.

    ``ready`` are the partitions that may have news, in the order they got them, so that a full
    answer leaves the others for the next one. ``early`` are those whose metadata the follower has
    seen before this node: they wait for it instead of being refused, and are looked at when it
    comes, or a fetch has waited its time.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.identity = FollowerIdentity(session.peer, BrokerEpoch(-1), session.directory_id)
        self.positions: dict[PartitionKey, FetchPartition] = {}
        self.ready: dict[PartitionKey, None] = {}
        self.early: dict[PartitionKey, None] = {}
        self.parked: _Parked | None = None
        self.touched_at = 0.0
        self.untouched: deque[tuple[PartitionKey, FetchPartition]] = deque()
        self.notice: Deadline | None = None
        self.notice_due = False


class ReplicaServer:
    """Serves the followers of this node's partitions.

    ``find`` looks a partition up; ``lag_max_s``: who is not heard of for so long is out of sync.
    """

    def __init__(
        self,
        env: Env,
        cluster_id: UUID,
        find: Callable[[PartitionKey], Partition | None],
        deadlines: Deadlines,
        limits: ServingLimits | None = None,
        *,
        lag_max_s: float,
        throttle: CatchupThrottle | None = None,
    ) -> None:
        self._env = env
        self._cluster_id = cluster_id
        self._find = find
        self._deadlines = deadlines
        self._limits = limits or ServingLimits()
        self._lag_max_s = lag_max_s
        self.throttle = throttle or CatchupThrottle(lambda: -1)
        self._held_up: dict[FollowerSession, None] = {}
        self._going_on: Deadline | None = None
        self._followers: dict[Session, FollowerSession] = {}
        self._watching: dict[PartitionKey, dict[FollowerSession, None]] = {}
        self._due: dict[FollowerSession, None] = {}
        self._untold: dict[Partition, None] = {}
        self._advanced: dict[Partition, None] = {}
        self._touching: dict[FollowerSession, None] = {}
        self._idle = trio.lowlevel.ParkingLot()

    def register(self, server: PeerServer) -> None:
        """Serve REPLICA_FETCH and REPLICA_ACK on ``server``. Its ``on_close`` must reach
        :meth:`closed`."""
        server.register_direct(PeerApi.REPLICA_FETCH, self._on_fetch)
        server.register_direct(PeerApi.REPLICA_ACK, self._on_ack)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Answer parked fetches as news comes; runs until cancelled."""
        task_status.started()
        while True:
            if not (self._due or self._untold or self._advanced or self._touching):
                await self._idle.park()
            self.answer_now()
            if self._touching:
                for follower in list(self._touching):
                    self._touch(follower)
                await trio.lowlevel.checkpoint()

    def answer_now(self) -> None:
        """Answer parked fetches with what has come. :meth:`run` does so a tick after the first
        news; whoever knows that nothing more comes at once saves that tick."""
        self._spread_news()
        due, self._due = self._due, {}
        for follower in due:
            self._answer_parked(follower, at_any_rate=False)

    # --- news ------------------------------------------------------------------------------------

    def tell_followers(self, partition: Partition) -> None:
        """There may be records, or another role, to tell followers about. Called for every write,
        so it only notes it."""
        if partition not in self._untold:
            self._untold[partition] = None
            self._idle.unpark()

    def advanced(self, partition: Partition) -> None:
        """The high watermark moved."""
        if partition not in self._advanced:
            self._advanced[partition] = None
            self._idle.unpark()

    def _spread_news(self) -> None:
        """Tell the followers concerned what was noted."""
        untold, self._untold = self._untold, {}
        for partition in untold:
            for follower in self._watching.get(partition.key, ()):
                follower.ready[partition.key] = None
                self._wake(follower)
        advanced, self._advanced = self._advanced, {}
        for partition in advanced:
            for follower in self._watching.get(partition.key, ()):
                follower.ready[partition.key] = None
                self._promise_notice(follower)

    def closed(self, session: Session) -> None:
        """A peer's connection ended."""
        follower = self._followers.pop(session, None)
        if follower is not None:
            self._forget_all(follower)
            self._release(follower)
            self._due.pop(follower, None)
            self._touching.pop(follower, None)
            self._held_up.pop(follower, None)

    def _wake(self, follower: FollowerSession) -> None:
        if follower.parked is not None:
            self._due[follower] = None
            self._idle.unpark()

    def _promise_notice(self, follower: FollowerSession) -> None:
        if follower.parked is None or follower.notice is not None:
            return

        def due() -> None:
            follower.notice = None
            follower.notice_due = True
            self._wake(follower)

        follower.notice = self._deadlines.after(self._limits.notice_s, due)

    # --- requests --------------------------------------------------------------------------------

    def _on_fetch(self, session: Session, frame: Frame) -> None:
        follower, request = self._take_in(session, frame)
        self._spread_news()
        if follower.parked is not None:
            # A newer fetch on the same connection replaces the one that waits.
            self._send(follower, [], [])
        wait_s = min(request.max_wait_ms / 1000, self._limits.max_wait_s)
        follower.parked = _Parked(
            frame,
            request.nonce,
            min(request.max_bytes, self._limits.max_bytes),
            self._deadlines.after(wait_s, lambda: self._answer_parked(follower, at_any_rate=True)),
        )
        self._answer_parked(follower, at_any_rate=False)
        if wait_s <= 0 and follower.parked is not None:
            # It has more to name. What this node has not heard of yet may be known then.
            self._send(follower, [], [])

    def _on_ack(self, session: Session, frame: Frame) -> None:
        self._take_in(session, frame)

    def _take_in(self, session: Session, frame: Frame) -> tuple[FollowerSession, ReplicaFetch]:
        """Step 8 for every partition that the request names. Raises InconsistentClusterId or
        AuthorizationFailed."""
        request = ReplicaFetch.unpack(frame.body)
        if request.cluster_id != self._cluster_id:
            raise InconsistentClusterId(
                f"fetch for cluster {request.cluster_id}, this is {self._cluster_id}"
            )
        proved = (session.peer, session.directory_id)
        if (request.follower_id, request.follower_directory_id) != proved:
            raise AuthorizationFailed(
                f"fetch of node {request.follower_id} on the connection of node {session.peer}"
            )
        follower = self._followers.get(session)
        if follower is None:
            follower = self._followers[session] = FollowerSession(session)
        if follower.identity.broker_epoch != request.follower_broker_epoch:
            follower.identity = FollowerIdentity(
                session.peer, request.follower_broker_epoch, session.directory_id
            )
        if not request.incremental:
            self._forget_all(follower)
        now = self._env.now()
        for position in request.partitions:
            key = (position.topic_id, position.partition)
            if key not in follower.positions:  # the fetch that waits is for it, too
                self._wake(follower)
            follower.positions[key] = position
            self._watching.setdefault(key, {})[follower] = None
            follower.ready[key] = None
            self._observe(follower, key, position, now)
        pause_s = touch_pause_s(len(follower.positions), self._lag_max_s)
        if now - follower.touched_at > pause_s and not follower.untouched:
            follower.touched_at = now
            follower.untouched.extend(follower.positions.items())
            self._touch(follower)
        return follower, request

    def _touch(self, follower: FollowerSession) -> None:
        """Count positions as fetched again, which were when ``touched_at`` was set; some now, the
        others in the next turns of :meth:`run`."""
        untouched = follower.untouched
        for _ in range(min(AT_A_TIME, len(untouched))):
            key, position = untouched.popleft()
            if follower.positions.get(key) is position:  # else it was told anew since
                self._observe(follower, key, position, follower.touched_at)
        if untouched:
            self._touching[follower] = None
            self._idle.unpark()
        else:
            self._touching.pop(follower, None)

    def _observe(
        self, follower: FollowerSession, key: PartitionKey, position: FetchPartition, now: float
    ) -> None:
        partition = self._find(key)
        if partition is not None and (
            partition.replica.on_fetch(follower.identity, position, now) is ACCEPTED
        ):
            partition.on_follower_progress()

    # --- answers ---------------------------------------------------------------------------------

    def _answer_parked(self, follower: FollowerSession, *, at_any_rate: bool) -> None:
        """Answer the parked fetch if there is news, or ``at_any_rate``."""
        parked = follower.parked
        if parked is None:
            return
        answers: list[FetchedPartition] = []
        chunks: list[Chunk] = []
        notices: list[PartitionKey] = []
        budget = parked.max_bytes
        if at_any_rate:
            follower.ready |= follower.early
        for key in list(follower.ready):
            position = follower.positions.get(key)
            partition = self._find(key)
            if position is None:
                del follower.ready[key]
                continue
            check = self._check(follower, partition, position)
            if check.error in _EARLY:
                follower.early[key] = None
                del follower.ready[key]
            elif check is not ACCEPTED or partition is None:
                self._refuse(follower, key, answers, _refusal(partition, position, check))
            elif position.fetch_offset < partition.log_end_offset:
                budget -= self._add_records(follower, partition, position, budget, answers, chunks)
            elif _has_notice(partition, position):
                notices.append(key)
            else:
                del follower.ready[key]
        if notices and (answers or at_any_rate or follower.notice_due):
            self._add_notices(follower, notices, answers)
        if answers or at_any_rate:
            self._send(follower, answers, chunks)
        elif notices:
            self._promise_notice(follower)

    def _allowed(self, follower: FollowerSession) -> float:
        """How many bytes the follower may have of partitions that may wait. Where that is none,
        they stay ready, and it is answered when there are some."""
        allowed = self.throttle.allowed(self._env.now())
        if not allowed:
            self._held_up[follower] = None
            if self._going_on is None:
                self._going_on = self._deadlines.after(self.throttle.wait_s(), self._go_on)
        return allowed

    def _go_on(self) -> None:
        """Bytes are allowed again."""
        self._going_on = None
        held_up, self._held_up = self._held_up, {}
        for follower in held_up:
            self._wake(follower)

    def _check(
        self, follower: FollowerSession, partition: Partition | None, position: FetchPartition
    ) -> FetchCheck:
        if partition is None:
            return FetchCheck(ErrorCode.UNKNOWN_TOPIC_ID)
        check = partition.replica.check_fetch(follower.identity, position)
        if check is ACCEPTED and partition.key in follower.early:
            del follower.early[partition.key]
            self._observe(follower, partition.key, position, self._env.now())
        return check

    def _refuse(
        self,
        follower: FollowerSession,
        key: PartitionKey,
        answers: list[FetchedPartition],
        refusal: FetchedPartition,
    ) -> None:
        answers.append(refusal)
        self._forget(follower, key)

    def _add_records(
        self,
        follower: FollowerSession,
        partition: Partition,
        position: FetchPartition,
        budget: int,
        answers: list[FetchedPartition],
        chunks: list[Chunk],
    ) -> int:
        """Add a slice of records; returns its bytes. What does not fit stays ready; the first
        slice always fits (DESIGN 3.3)."""
        may_wait = _may_wait(follower, partition)
        if may_wait:
            allowed = self._allowed(follower)
            if not allowed:
                return 0
            budget = int(min(budget, allowed))
        try:
            found = partition.log.locate(
                position.fetch_offset,
                max(1, min(position.max_bytes, budget)),
                partition.log_end_offset,
                below_start=True,
            )
            if found is None or (chunks and found.size > budget):
                return 0
            chunk = _chunk(found)
        except CorruptMessage:
            # Never sent on: this replica reports itself, and another one leads (DESIGN 6.1).
            partition.suspect(position.fetch_offset)
            check = FetchCheck(ErrorCode.STORAGE_ERROR)
            self._refuse(
                follower, partition.key, answers, partition.replica.answer(position, check)
            )
            return 0
        del follower.ready[partition.key]
        if may_wait:
            self.throttle.take(found.size)
        chunks.append(chunk)
        answer = partition.replica.answer(position, ACCEPTED, found.size, found.next_offset)
        answers.append(answer)
        return found.size

    def _add_notices(
        self,
        follower: FollowerSession,
        keys: list[PartitionKey],
        answers: list[FetchedPartition],
    ) -> None:
        for key in keys:
            partition = self._find(key)
            assert partition is not None
            answers.append(partition.replica.answer(follower.positions[key], ACCEPTED))
            del follower.ready[key]

    def _send(
        self, follower: FollowerSession, answers: list[FetchedPartition], chunks: list[Chunk]
    ) -> None:
        parked = follower.parked
        assert parked is not None
        self._release(follower)
        body = ReplicaFetched(parked.nonce, tuple(answers))
        follower.session.respond(parked.frame, body, tuple(chunks))

    def _release(self, follower: FollowerSession) -> None:
        if follower.parked is not None:
            follower.parked.deadline.cancel()
            follower.parked = None
        if follower.notice is not None:
            follower.notice.cancel()
            follower.notice = None
        follower.notice_due = False

    def _forget(self, follower: FollowerSession, key: PartitionKey) -> None:
        """The connection has to name the partition again."""
        follower.positions.pop(key, None)
        follower.ready.pop(key, None)
        follower.early.pop(key, None)
        watching = self._watching.get(key)
        if watching is not None:
            watching.pop(follower, None)
            if not watching:
                del self._watching[key]

    def _forget_all(self, follower: FollowerSession) -> None:
        for key in list(follower.positions):
            self._forget(follower, key)
        follower.ready.clear()


def _may_wait(follower: FollowerSession, partition: Partition) -> bool:
    """Whether nobody waits for the follower to have the partition's records."""
    isr = partition.isr
    return follower.session.peer not in isr and len(isr) >= partition.appends.required_isr


def touch_pause_s(positions: int, lag_max_s: float) -> float:
    """After how long unchanged positions count as fetched again: the rarer the more they are, but
    several times before their follower would count as lagging."""
    return max(_TOUCH_S, min(positions * _TOUCH_EACH_S, lag_max_s / 4))


def _refusal(
    partition: Partition | None, position: FetchPartition, check: FetchCheck
) -> FetchedPartition:
    if partition is not None:
        return partition.replica.answer(position, check)
    return FetchedPartition(
        topic_id=position.topic_id,
        partition=position.partition,
        error=check.error,
        leader_epoch=NO_EPOCH,
        leader_id=NO_NODE,
        fetch_offset=position.fetch_offset,
        high_watermark=-1,
        log_start_offset=-1,
        log_end_offset=-1,
        diverging_epoch=NO_EPOCH,
        diverging_end_offset=-1,
        records_bytes=0,
    )


def _has_notice(partition: Partition, position: FetchPartition) -> bool:
    return (
        partition.high_watermark > position.known_hw
        or partition.log_start_offset > position.log_start_offset
    )


def _chunk(found: LocalSlice) -> Chunk:
    if found.size <= _INLINE_BYTES:
        return found.read()
    return FilePart(found.file, found.position, found.size)
