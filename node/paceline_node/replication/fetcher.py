"""The follower's side: fetching from every leader that this node follows (DESIGN 3.4).

One :class:`LeaderFetcher` per leader, with one request in flight. It has no task: an answer is
applied where it arrives. After a large answer the next request leaves at once, so that a fetch is
waiting at the leader while this node flushes, and what the flush made durable is told by a one-way
REPLICA_ACK, sent once for all partitions of the flush. After a small one the next request waits for
the flush and tells it too: one frame instead of two, and company for the records to come. Unless
the leader has more already: a replica that is behind asks at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from uuid import UUID

import structlog
import trio

from paceline.errors import (
    CorruptMessage,
    PacelineError,
    RemoteProtocolError,
    RequestTimedOut,
    StorageError,
    StorageFull,
)
from paceline.types import NO_NODE, BrokerEpoch, NodeId
from paceline.values import dataclass
from paceline.wire.frame import Frame
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.replica import (
    FetchedPartition,
    FetchPartition,
    ReplicaFetch,
    ReplicaFetched,
    SuspectCorrupt,
)
from paceline_node.env import Env
from paceline_node.net.deadlines import Deadline, Deadlines
from paceline_node.peers.links import PeerLinks, Ticket
from paceline_node.replication.fetch_pace import FetchPace
from paceline_node.replication.follower import FetchOutcome
from paceline_node.replication.partition import Partition, PartitionKey
from paceline_node.settings import tree
from paceline_node.storage.log import Log

LANE = "fetch"
_HOLD_BYTES = 64 * 1024
"""After an answer of at most this many bytes the next request waits for the flush of them."""
_HOLD_S = 0.02
"""But no longer than this: a hanging disk must not keep its node from hearing of others."""
_NAMED_AT_A_TIME = 250
"""Positions that one request names: some milliseconds of the leader's loop. It is answered at once
if there are more to name."""


_REPLICATION = tree.ReplicationSettings()


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Timings and sizes of 3.7. ``max_bytes`` and ``patience_s``, how much longer than
    ``max_wait_s`` an answer may take before the request is given up, are where a
    :class:`FetchPace` begins."""

    max_wait_s: float = _REPLICATION.fetch_max_wait_ms / 1000
    min_bytes: int = _REPLICATION.fetch_min_bytes
    max_bytes: int = _REPLICATION.fetch_response_bytes
    partition_max_bytes: int = _REPLICATION.fetch_partition_bytes
    backoff_min_s: float = _REPLICATION.backoff_min_ms / 1000
    backoff_max_s: float = _REPLICATION.backoff_max_ms / 1000
    patience_s: float = 5.0


@dataclass(frozen=True, slots=True)
class FetchIdentity:
    """Who fetches. ``broker_epoch`` is that of this process's registration."""

    cluster_id: UUID
    node_id: NodeId
    directory_id: UUID
    broker_epoch: Callable[[], BrokerEpoch]


class Backoff:
    """Pauses between retries: doubling, with jitter, back to the start after a success."""

    def __init__(self, env: Env, settings: FetchSettings) -> None:
        self._env = env
        self._settings = settings
        self._pause_s = settings.backoff_min_s

    def reset(self) -> None:
        self._pause_s = self._settings.backoff_min_s

    def next_s(self) -> float:
        pause_s = self._pause_s * self._env.rng.uniform(0.5, 1.0)
        self._pause_s = min(self._pause_s * 2, self._settings.backoff_max_s)
        return pause_s


class _Followed:
    """A partition that is fetched from one leader. ``told`` is the position that the leader knows
    from this connection, None when it must be named again; ``resting`` until its backoff ends."""

    def __init__(self, partition: Partition, backoff: Backoff) -> None:
        self.partition = partition
        self.told: FetchPartition | None = None
        self.resting: Deadline | None = None
        self.backoff = backoff

    def wake(self) -> None:
        if self.resting is not None:
            self.resting.cancel()
            self.resting = None


class Fetchers:
    """Everything this node follows, by leader.

    ``append_failed`` is told of an append that raised a StorageError, ``behind`` of a partition
    that must begin anew with its leader's state, ``lacking`` of one whose leader lacks what is
    committed (True) or has the shorter log (False). ``settings`` apply to all leaders.
    """

    def __init__(
        self,
        env: Env,
        identity: FetchIdentity,
        links: PeerLinks,
        deadlines: Deadlines,
        *,
        append_failed: Callable[[Log], None],
        behind: Callable[[Partition], None],
        lacking: Callable[[Partition, int, bool], None],
        request_flush: Callable[[Partition], None],
        settings: FetchSettings | None = None,
    ) -> None:
        self.env = env
        self.identity = identity
        self.links = links
        self.deadlines = deadlines
        self.append_failed = append_failed
        self.behind = behind
        self.lacking = lacking
        self.request_flush = request_flush
        self.settings = settings or FetchSettings()
        self.log = structlog.get_logger(component="fetcher", node=identity.node_id)
        self._nonce = env.rng.getrandbits(48)
        self._leaders: dict[NodeId, LeaderFetcher] = {}
        self._leader_of: dict[PartitionKey, NodeId] = {}
        self._durable: dict[PartitionKey, None] = {}
        self._renewed: dict[PartitionKey, None] = {}
        self._kicked: dict[LeaderFetcher, None] = {}
        self._idle = trio.lowlevel.ParkingLot()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send new requests a tick after what caused them; runs until cancelled."""
        task_status.started()
        while True:
            if not (self._kicked or self._renewed):
                await self._idle.park()
            renewed, self._renewed = self._renewed, {}
            self._acknowledge(renewed)
            kicked, self._kicked = self._kicked, {}
            for fetcher in kicked:
                fetcher.fetch()

    def follow(self, partition: Partition) -> None:
        """Fetch ``partition`` from its leader, in its present leader epoch."""
        self.unfollow(partition.key)
        leader = partition.leader
        if leader in (NO_NODE, self.identity.node_id):
            return
        fetcher = self._leaders.get(leader)
        if fetcher is None:
            fetcher = self._leaders[leader] = LeaderFetcher(self, leader)
        self._leader_of[partition.key] = leader
        fetcher.add(partition)
        self.kick(fetcher)

    def unfollow(self, key: PartitionKey) -> None:
        """Stop fetching a partition; fine when it is not fetched."""
        leader = self._leader_of.pop(key, None)
        if leader is not None:
            fetcher = self._leaders[leader]
            fetcher.remove(key)
            if fetcher.is_empty:
                del self._leaders[leader]
                self._kicked.pop(fetcher, None)

    def durable(self, partition: Partition) -> None:
        """A flush covered ``partition``; :meth:`send_acks` tells its leader."""
        if partition.key in self._leader_of:
            self._durable[partition.key] = None

    def renew(self, partition: Partition) -> None:
        """The registration that ``partition`` acts by has changed: tell its leader soon, which
        takes no replica into the ISR that speaks by an older one."""
        if partition.key in self._leader_of:
            self._renewed[partition.key] = None
            self._idle.unpark()

    def kick(self, fetcher: LeaderFetcher) -> None:
        """Let ``fetcher`` send a request soon, though one may be under way."""
        self._kicked[fetcher] = None
        self._idle.unpark()

    def next_nonce(self) -> int:
        self._nonce += 1
        return self._nonce

    def send_acks(self) -> None:
        """All partitions of a flush are named: one ack for each leader."""
        durable, self._durable = self._durable, {}
        self._acknowledge(durable)

    def _acknowledge(self, moved: Iterable[PartitionKey]) -> None:
        by_leader: dict[NodeId, list[PartitionKey]] = {}
        for key in moved:
            leader = self._leader_of.get(key)
            if leader is not None:
                by_leader.setdefault(leader, []).append(key)
        for leader, keys in by_leader.items():
            self._leaders[leader].acknowledge(keys)

    def describe(self) -> dict[NodeId, int]:
        """Partitions followed per leader, for metrics and status."""
        return {leader: len(fetcher) for leader, fetcher in sorted(self._leaders.items())}


class LeaderFetcher:
    """Fetches from one leader."""

    def __init__(self, owner: Fetchers, leader: NodeId) -> None:
        self._owner = owner
        self._leader = leader
        self._followed: dict[PartitionKey, _Followed] = {}
        self._changed: dict[PartitionKey, None] = {}
        self._full = True
        self._nonce = 0
        self._ticket: Ticket | None = None
        self._backoff = Backoff(owner.env, owner.settings)
        self._retry: Deadline | None = None
        self._held: Deadline | None = None
        self._flush_comes = False
        self._is_behind = False
        self._pace = FetchPace(owner.settings.max_bytes, owner.settings.patience_s)
        self._asked_at = 0.0

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def is_empty(self) -> bool:
        return not self._followed

    def add(self, partition: Partition) -> None:
        backoff = Backoff(self._owner.env, self._owner.settings)
        self._followed[partition.key] = _Followed(partition, backoff)
        self._changed[partition.key] = None

    def remove(self, key: PartitionKey) -> None:
        followed = self._followed.pop(key)
        followed.wake()
        self._changed.pop(key, None)
        # Without a whole list the leader would go on answering for it.
        self._full = True
        if not self._followed:
            self._stop()

    def _stop(self) -> None:
        if self._ticket is not None:
            self._ticket.cancel()
            self._ticket = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._let_go()

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.cancel()
            self._held = None

    # --- requests --------------------------------------------------------------------------------

    def fetch(self) -> None:
        """Send a request now; one under way is given up, unless there is nothing to say but of
        partitions that the leader does not know.

        Its answer may be on the way already, and what the leader sent or refused in it counts as
        told there; so all positions are named anew.
        """
        if self._retry is not None or not self._followed or self._has_named_more():
            return
        self._let_go()
        if self._ticket is not None:
            self._ticket.cancel()
            self._full = True
        owner = self._owner
        settings = owner.settings
        self._nonce = owner.next_nonce()
        positions = self._positions()
        wait_ms = 0 if self._changed else int(settings.max_wait_s * 1000)
        request = self._request(positions, wait_ms, incremental=not self._full)
        self._asked_at = owner.env.now()
        try:
            self._ticket = owner.links.submit(
                self._leader,
                PeerApi.REPLICA_FETCH,
                request,
                lane=LANE,
                timeout_s=settings.max_wait_s + self._pace.patience_s,
                done=self._answered,
            )
        except PacelineError as error:  # whatever the last attempt to connect met with
            self._lost(error)
        else:
            self._full = False

    def _has_named_more(self) -> bool:
        """Name what the leader does not know for the request that is under way: whoever comes to
        follow thousands, one after the other, would name all of them with each."""
        followed = self._followed
        if self._ticket is None or self._full or not self._changed:
            return False
        if any(followed[key].told is not None for key in self._changed):
            return False
        keys = list(islice(self._changed, _NAMED_AT_A_TIME))
        for key in keys:
            state = followed[key].partition.replica.follower
            if state is not None:
                state.in_flight = self._nonce
        request = self._request(self._named(keys), 0, incremental=True)
        if not self._owner.links.post(self._leader, PeerApi.REPLICA_ACK, request, lane=LANE):
            self._full = True
            return False
        if self._changed:
            self._owner.kick(self)
        return True

    def _positions(self) -> tuple[FetchPartition, ...]:
        """What to name in the next request, and the nonce for all that may be answered."""
        nonce = self._nonce
        for followed in self._followed.values():
            state = followed.partition.replica.follower
            if state is not None:
                state.in_flight = nonce
        if self._full:
            self._changed = dict.fromkeys(self._followed)
        return self._named(list(islice(self._changed, _NAMED_AT_A_TIME)))

    def _named(self, keys: list[PartitionKey]) -> tuple[FetchPartition, ...]:
        size = self._owner.settings.partition_max_bytes
        positions = []
        for key in keys:
            del self._changed[key]
            followed = self._followed[key]
            if followed.resting is None and followed.partition.replica.follower is not None:
                followed.told = followed.partition.replica.position(size)
                positions.append(followed.told)
        return tuple(positions)

    def acknowledge(self, keys: list[PartitionKey]) -> None:
        """Tell the leader what is durable now, where it does not know."""
        if self._held is not None:
            self._changed.update(dict.fromkeys(keys))
            self.fetch()
            return
        size = self._owner.settings.partition_max_bytes
        positions = []
        for key in keys:
            followed = self._followed[key]
            if followed.told is None or followed.partition.replica.follower is None:
                continue  # the next request names it
            position = followed.partition.replica.position(size)
            if position != followed.told:
                followed.told = position
                positions.append(position)
        if not positions or self._full:
            return
        request = self._request(tuple(positions), 0, incremental=True)
        if not self._owner.links.post(self._leader, PeerApi.REPLICA_ACK, request, lane=LANE):
            self._full = True

    def _request(
        self, positions: tuple[FetchPartition, ...], max_wait_ms: int, *, incremental: bool
    ) -> ReplicaFetch:
        identity = self._owner.identity
        settings = self._owner.settings
        return ReplicaFetch(
            cluster_id=identity.cluster_id,
            follower_id=identity.node_id,
            follower_broker_epoch=identity.broker_epoch(),
            follower_directory_id=identity.directory_id,
            nonce=self._nonce,
            max_wait_ms=max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=self._pace.max_bytes,
            partitions=positions,
            incremental=incremental,
        )

    # --- answers ---------------------------------------------------------------------------------

    def _answered(self, answer: Frame | PacelineError) -> None:
        self._ticket = None
        if isinstance(answer, PacelineError):
            if isinstance(answer, RequestTimedOut):
                self._pace.overdue()
            self._lost(answer)
            return
        self._pace.answered(len(answer.payload), self._owner.env.now() - self._asked_at)
        try:
            fetched = ReplicaFetched.unpack(answer.body)
            if fetched.nonce == self._nonce:
                self._apply(fetched, answer.payload)
        except RemoteProtocolError as error:
            self._lost(error)
            return
        self._backoff.reset()
        if self._flush_comes and not self._is_behind and len(answer.payload) <= _HOLD_BYTES:
            self._held = self._owner.deadlines.after(_HOLD_S, self.fetch)
        else:
            self.fetch()

    def _lost(self, error: PacelineError) -> None:
        """The connection or the request failed: begin anew after a pause."""
        self._full = True
        owner = self._owner
        owner.log.debug("fetch failed", leader=self._leader, reason=str(error))

        def retry() -> None:
            self._retry = None
            self.fetch()

        self._retry = owner.deadlines.after(self._backoff.next_s(), retry)

    def _apply(self, fetched: ReplicaFetched, payload: memoryview) -> None:
        position = 0
        self._flush_comes = self._is_behind = False
        for answer in fetched.partitions:
            records = payload[position : position + answer.records_bytes]
            position += answer.records_bytes
            if len(records) != answer.records_bytes or answer.records_bytes < 0:
                raise RemoteProtocolError(
                    f"node {self._leader}: fetched {len(payload)} bytes, the partitions name more"
                )
            followed = self._followed.get((answer.topic_id, answer.partition))
            if followed is not None:
                self._apply_one(followed, answer, records)

    def _apply_one(
        self, followed: _Followed, answer: FetchedPartition, records: memoryview
    ) -> None:
        partition = followed.partition
        try:
            outcome = partition.replica.on_fetched(self._nonce, answer, records)
        except StorageFull as error:
            self._owner.log.warning(
                "no room to follow", partition=str(partition), reason=str(error)
            )
            self._owner.append_failed(partition.log)
            self._rest(followed)
            return
        except StorageError:
            self._owner.append_failed(partition.log)
            self._rest(followed)
            return
        except CorruptMessage as error:  # where it would have to be cut, it cannot be read
            self._owner.log.warning(
                "cannot cut a damaged log", partition=str(partition), reason=str(error)
            )
            partition.suspect(max(answer.diverging_end_offset, partition.log_start_offset))
            self._rest(followed)
            return
        if outcome in _PROGRESS:
            followed.backoff.reset()
            self._changed[partition.key] = None
            partition.on_fetched()
            self._is_behind |= answer.log_end_offset > partition.log_end_offset
            if outcome is not FetchOutcome.IDLE:
                self._owner.request_flush(partition)
                self._flush_comes = partition.replica.counts_durable
            if outcome is FetchOutcome.TRUNCATED:
                self._tell_cut(partition, outcome, answer)
        elif outcome is FetchOutcome.CORRUPT:
            self._suspect(followed)
        elif outcome is FetchOutcome.REFUSED:
            self._rest(followed)
        elif outcome is FetchOutcome.BEHIND:
            self._rest(followed)
            self._owner.behind(partition)
        elif outcome in (FetchOutcome.LACKING, FetchOutcome.LONGER):
            self._rest(followed)
            self._owner.lacking(partition, answer.log_end_offset, outcome is FetchOutcome.LACKING)
        else:
            self._changed[partition.key] = None

    def _rest(self, followed: _Followed) -> None:
        """The leader has forgotten the partition: name it again after a pause."""
        key = followed.partition.key
        followed.told = None
        followed.wake()

        def rested() -> None:
            followed.resting = None
            if self._followed.get(key) is followed:
                self._changed[key] = None
                self._owner.kick(self)

        followed.resting = self._owner.deadlines.after(followed.backoff.next_s(), rested)

    def _suspect(self, followed: _Followed) -> None:
        """Corrupt records: ask again, and after three times in a row ask the leader to look."""
        partition = followed.partition
        state = partition.replica.follower
        assert state is not None
        self._owner.log.warning("corrupt records received", partition=str(partition))
        if state.count_corrupt():
            state.corrupt_in_row = 0
            suspicion = SuspectCorrupt(
                partition.topic_id, partition.partition, partition.log_end_offset
            )
            self._owner.links.post(self._leader, PeerApi.SUSPECT_CORRUPT, suspicion, lane="control")
        self._rest(followed)

    def _tell_cut(
        self, partition: Partition, outcome: FetchOutcome, answer: FetchedPartition
    ) -> None:
        self._owner.log.info(
            "log cut to the leader's",
            partition=str(partition),
            outcome=outcome.value,
            leader=self._leader,
            leader_epoch=partition.leader_epoch,
            log_end_offset=partition.log_end_offset,
            diverging_epoch=answer.diverging_epoch,
        )
        for lost in partition.log.damaged:  # what had to be read for the cut
            partition.suspect(lost.start)
        if partition.log.state.is_missing:  # nor can it be read again, below the log start
            partition.suspect(partition.log_start_offset)


_PROGRESS = frozenset(
    (FetchOutcome.APPENDED, FetchOutcome.IDLE, FetchOutcome.PROVEN, FetchOutcome.TRUNCATED)
)
