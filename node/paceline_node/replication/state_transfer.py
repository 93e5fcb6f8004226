"""The state as of a log's start goes from leader to follower.

A log does not begin at 0 for ever: records expire, are deleted, or were there before a replica was.
What they have said must not be forgotten with them: which batches of a producer are stored, how
long a segment is and whether it is sealed. Every log keeps that as of its start
(``storage/log_state.py``), and whoever begins to follow above 0 takes it over first:

    follower                              leader
    REPLICA_FETCH at 0           ->
                                 <-       OFFSET_OUT_OF_RANGE, state at 500
    FETCH_STATE, byte 0          ->
                                 <-       a piece of the snapshot at 500 (checked as a whole before)
    ... until all is there; checked, synced, renamed, directory synced
    log emptied, goes on at 500
    REPLICA_FETCH at 500         ->       as always

Until then the follower's log is as it was, and nobody counts it. A crash at any moment leaves the
old log, or an empty one whose state is on disk.

What belongs here as well: writing the snapshots that are too large to be written in an append.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
import trio

from paceline.errors import (
    CorruptMessage,
    NotLeader,
    PacelineError,
    RemoteProtocolError,
    RequestTimedOut,
    StorageError,
    StorageFull,
    UnknownTopicId,
)
from paceline.types import NO_NODE
from paceline.wire.frame import Frame
from paceline.wire.message import Message
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.replica import FetchState, StateFetched
from paceline_node.env import Env, is_full
from paceline_node.net.framestream import Payload
from paceline_node.peers.auth import Lane
from paceline_node.peers.links import PeerLinks
from paceline_node.peers.server import PeerServer, Session
from paceline_node.replication.disk_health import Health
from paceline_node.replication.fetch_pace import FetchPace
from paceline_node.replication.partition import Partition, PartitionContext, PartitionKey
from paceline_node.storage import anchors, producer_file, scrubbing
from paceline_node.storage.log import Log
from paceline_node.storage.log_file import LogFile, open_file
from paceline_node.storage.producer_file import IncomingSnapshot
from paceline_node.storage.producers import FrozenTable
from paceline_node.storage.scrubbing import Beginning

_PIECE_BYTES = 1024 * 1024
_ANSWER_S = 10.0
_AT_ONCE = 4
_RETRY_S = 1.0
_SNAPSHOTS = "snapshots"


class StateTransfers:
    """Fetches states for followers, serves them to others, in pieces of at most ``piece_bytes``,
    and writes what is due. ``find`` looks a partition up, ``follow`` lets one be fetched at
    once."""

    def __init__(
        self,
        env: Env,
        context: PartitionContext[Partition],
        links: PeerLinks,
        health: Health,
        *,
        find: Callable[[PartitionKey], Partition | None],
        follow: Callable[[Partition], None],
    ) -> None:
        self._env = env
        self._node_id = context.node_id
        self._failed = context.events.failed
        self._links = links
        self._health = health
        self._find = find
        self._follow = follow
        self.piece_bytes = _PIECE_BYTES
        self._pace = FetchPace(_PIECE_BYTES, _ANSWER_S)
        self._wanted: dict[PartitionKey, Partition] = {}
        self._under_way: set[PartitionKey] = set()
        self._due: dict[Log, None] = {}
        self._idle = trio.lowlevel.ParkingLot()
        self._unwritten = trio.lowlevel.ParkingLot()
        self._log = structlog.get_logger(component="states", node=context.node_id)

    def register(self, server: PeerServer) -> None:
        """Serve FETCH_STATE on ``server``."""
        server.register(PeerApi.FETCH_STATE, self._on_fetch_state)

    def behind(self, partition: Partition) -> None:
        """``partition`` must begin anew with its leader's state; asking twice costs nothing."""
        if partition.key not in self._under_way:
            self._wanted[partition.key] = partition
            self._idle.unpark()

    def due(self, log: Log) -> None:
        """Snapshots of ``log`` wait to be written."""
        self._due[log] = None
        self._unwritten.unpark()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        slots = trio.CapacityLimiter(_AT_ONCE)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write_all)
            task_status.started()
            while True:
                if not self._wanted:
                    await self._idle.park()
                wanted, self._wanted = self._wanted, {}
                for key, partition in wanted.items():
                    self._under_way.add(key)
                    nursery.start_soon(self._begin, partition, slots)

    # --- the follower's side ---------------------------------------------------------------------

    async def _begin(self, partition: Partition, slots: trio.CapacityLimiter) -> None:
        try:
            async with slots:
                await self._begin_anew(partition)
        except PacelineError as error:
            # The next answer of the leader says whether it is still needed.
            self._log.warning("no state fetched", partition=str(partition), reason=str(error))
            if partition.log.failed is not None:
                self._disk_error(partition.log, partition.log.failed)
        except OSError as error:
            self._disk_error(partition.log, error)
        finally:
            self._under_way.discard(partition.key)

    async def _begin_anew(self, partition: Partition) -> None:
        beginning = await self.fetch(partition)
        state = beginning.state
        # Nothing waits from here on.
        if self._find(partition.key) is not partition or not partition.replica.begin_at(state):
            return
        await scrubbing.note_beginning(self._env.disk, partition.log, beginning)
        self._log.info(
            "log begins anew with its leader's state",
            partition=str(partition),
            log_start_offset=state.offset,
            states=len(state.states),
        )
        self._follow(partition)

    async def fetch(self, partition: Partition) -> Beginning:
        """The leader's state as of its log start, on this node's disk when this returns. Once the
        log has begun anew with it, that is to be noted (``scrubbing.note_beginning``).

        Raises NotLeader, RequestTimedOut and other PacelineErrors, OSError.
        """
        first, piece = await self._piece(partition, -1, 0)
        epoch = partition.leader_epoch
        table = await self._whole(partition, first, piece)
        return Beginning(table, epoch, first.removed_to, first.cleaned_offset)

    async def _whole(
        self, partition: Partition, first: StateFetched, piece: memoryview
    ) -> FrozenTable:
        if first.size_bytes == 0:
            return FrozenTable(first.offset)
        incoming = IncomingSnapshot(
            self._env.disk, partition.log.path, partition.log.identity.owner, first.offset
        )
        try:
            while incoming.add(piece) < first.size_bytes:
                answer, piece = await self._piece(partition, first.offset, incoming.size_bytes)
                same = (answer.offset, answer.size_bytes) == (first.offset, first.size_bytes)
                if not same or not len(piece):
                    raise RequestTimedOut(f"{partition}: the leader's log start has moved on")
            return (await incoming.finish()).table
        except CorruptMessage as error:
            raise RemoteProtocolError(f"{partition}: {error}") from None
        finally:
            incoming.abandon()

    async def _piece(
        self, partition: Partition, offset: int, position: int
    ) -> tuple[StateFetched, memoryview]:
        leader, epoch = partition.leader, partition.leader_epoch
        if leader in (NO_NODE, self._node_id):
            raise NotLeader(f"{partition}: no other node leads")
        request = FetchState(
            partition.topic_id,
            partition.partition,
            epoch,
            offset,
            position,
            self._pace.max_bytes,
        )
        asked_at = self._env.now()
        try:
            frame = await self._links.call(
                leader,
                PeerApi.FETCH_STATE,
                request,
                lane=Lane.REPAIR,
                timeout_s=self._pace.patience_s,
            )
        except RequestTimedOut:
            self._pace.overdue()
            raise
        self._pace.answered(len(frame.payload), self._env.now() - asked_at)
        if partition.leader_epoch != epoch:
            raise NotLeader(f"{partition}: another leader epoch began meanwhile")
        return StateFetched.unpack(frame.body), frame.payload

    # --- the leader's side -----------------------------------------------------------------------

    async def _on_fetch_state(self, session: Session, frame: Frame) -> tuple[Message, Payload]:
        request = FetchState.unpack(frame.body)
        partition = self._find((request.topic_id, request.partition))
        if partition is None:
            raise UnknownTopicId(f"partition {request.topic_id}/{request.partition} is not here")
        partition.replica.check_leading()
        partition.check_epoch(request.current_leader_epoch)
        offset = partition.log.state_offset
        if offset is None:
            raise StorageError(f"{partition}: the state at the log start is not known here, or yet")
        removed_to = partition.log.compaction.removals.removed_to
        cleaned_offset = partition.log.compaction.cleaned_offset
        if offset == 0:
            return StateFetched(0, 0, removed_to, cleaned_offset), b""
        try:
            size, piece = await self._read_piece(partition.log, offset, request)
            return StateFetched(offset, size, removed_to, cleaned_offset), piece
        except CorruptMessage as error:
            self._log.error("state is damaged", partition=str(partition), reason=str(error))
            if partition.log.state_offset == offset:
                partition.log.state.unreadable(offset)
            raise StorageError(f"{partition}: {error}") from None
        except OSError as error:
            if not is_full(error):
                raise
            raise StorageFull(f"{partition}: {error.strerror}") from None  # asked again soon

    async def _read_piece(self, log: Log, offset: int, request: FetchState) -> tuple[int, bytes]:
        """The size of the snapshot at ``offset``, and a piece of it. Raises CorruptMessage
        where the disk cannot give them, OSError."""
        path = f"{log.path}/{producer_file.name(offset)}"
        try:
            file = LogFile(await open_file(self._env.disk, path))
        except FileNotFoundError:
            raise CorruptMessage(f"{path} is missing") from None
        try:
            size = file.size()
            if request.offset != offset:  # the first piece: all of it must be good
                await producer_file.check(file, log.identity.owner)
            position = request.position if request.offset == offset else 0
            wanted = min(request.max_bytes, self.piece_bytes)
            return size, await file.read(wanted, position)
        finally:
            file.close()

    # --- writing ---------------------------------------------------------------------------------

    async def _write_all(self) -> None:
        while True:
            if not self._due:
                self._health.lacks_room(_SNAPSHOTS, False)
                await self._unwritten.park()
            log = next(iter(self._due))
            del self._due[log]
            if log.failed is not None:
                continue
            try:
                await log.write_state()
                await self._renew_anchor(log)
            except OSError as error:
                self._disk_error(log, error)
                if is_full(error):
                    self._health.lacks_room(_SNAPSHOTS)
                    self._due[log] = None
                    await trio.sleep(_RETRY_S)
            except (LookupError, CorruptMessage) as error:
                self._log.warning("no state written", log=str(log.identity), reason=str(error))
                self._due[log] = None
                await trio.sleep(_RETRY_S)
            except StorageError:
                assert log.failed is not None
                self._disk_error(log, log.failed)

    async def _renew_anchor(self, log: Log) -> None:
        partition = self._find((log.topic_id, log.partition))
        if partition is None or partition.log is not log:
            return
        if await anchors.renew(self._env.disk, log, partition.high_watermark):
            self._log.info(
                "state at the log start written anew",
                partition=str(partition),
                offset=log.state_offset,
            )

    def _disk_error(self, log: Log, error: OSError) -> None:
        """The node must end, unless the disk is full, or the partition was given up meanwhile."""
        if is_full(error):
            self._log.warning("no room for a state", partition=str(log.identity), reason=str(error))
        elif not log.closed:
            self._failed(error)
