"""The quorum's trio driver: clock, disk and peers round the Raft core.

What belongs here: carrying out the core's effects in their order, batching, snapshots. Who is a
member is the business of ``membership.py``. What the records mean is the controller's business.
Rules: RAFT 1, 4 and 2.5.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from functools import partial

import msgpack
import structlog
import trio

from paceline.errors import (
    InvalidRequest,
    NotController,
    RemoteProtocolError,
    StorageError,
    Throttled,
)
from paceline.types import NodeId
from paceline.values import dataclass
from paceline_node.controller.membership import Membership
from paceline_node.controller.quorum_applying import RECORDS_AT_A_TIME, Applying, StateMachine
from paceline_node.controller.raft import Raft
from paceline_node.controller.raft_effects import Effects
from paceline_node.controller.raft_histories import explained
from paceline_node.controller.raft_messages import RaftMessage, decode, encode
from paceline_node.controller.raft_store import RaftStore
from paceline_node.controller.raft_types import (
    UNKNOWN_START,
    Apart,
    Config,
    Member,
    MemberId,
    Outlived,
    RaftLimits,
    RaftTiming,
    ReadReady,
    RoleInfo,
    Snapshot,
    Start,
)
from paceline_node.controller.voter_starts import NOBODY_REGISTERED, OldCopies, Registered
from paceline_node.env import Env, is_full
from paceline_node.settings.tree import RaftSettings

_RAFT = RaftSettings()
PLAN_EVERY_S = 0.25
MOST_TICKS = 4
"""Ticks slept through at a time: each waking of an idle process costs 0.2 to 0.3 ms of CPU."""
ROOM_RETRY_S = 0.5
MAX_QUEUED_BATCHES = 4096

_DEFAULT_LIMITS = RaftLimits()


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """``most_voters`` bounds the voter set (``--voters``); the snapshot limits count what was
    applied since the last one."""

    timing: RaftTiming = RaftTiming.of(
        heartbeat_ms=_RAFT.heartbeat_ms, election_ms=_RAFT.election_ms
    )
    limits: RaftLimits = _DEFAULT_LIMITS
    most_voters: int = _RAFT.voters
    snapshot_entries: int = _RAFT.snapshot_records
    snapshot_bytes: int = _RAFT.snapshot_bytes


@dataclass(slots=True, eq=False)
class _Barrier:
    """A reader waiting for a majority to confirm the leader."""

    done: trio.Event = field(default_factory=trio.Event)
    index: int = -1


def _ignore_config(_: Config) -> None:
    """Default for callers that take the addresses when they need them."""


class Quorum:
    """One member of the metadata quorum; ``membership`` says who the others are. ``registered``
    says what the log tells of a member's process: of an older copy of its directory no vote counts
    (RAFT 2.8).

    Callbacks are synchronous and run inside the driver; they may call :meth:`propose`. A failing
    disk ends :meth:`run` with StorageError, and the node with it (storage/DESIGN 2.4).
    """

    def __init__(
        self,
        env: Env,
        store: RaftStore,
        me: MemberId,
        machine: StateMachine,
        settings: QuorumSettings,
        *,
        send: Callable[[NodeId, bytes], None],
        on_role: Callable[[RoleInfo], None],
        on_config: Callable[[Config], None] = _ignore_config,
        registered: Registered = NOBODY_REGISTERED,
    ) -> None:
        self._env = env
        self._store = store
        self._machine = machine
        self._settings = settings
        self._send = send
        self._on_role = on_role
        self._on_config = on_config
        self.lacks_room: Callable[[str, bool], None] = lambda *_: None
        """Told what finds no room, and when it does again."""
        recovery = store.recovery
        self._core = Raft(
            me,
            store.cluster_id,
            recovery.log,
            recovery.hard_state,
            timing=settings.timing,
            rng=env.rng,
            wall_ms=env.host.wall_ms,
            limits=settings.limits,
            known_commit=store.known_commit,
        )
        self._applying = Applying(machine, recovery.log.snapshot.index, self._answer_barriers)
        self._config = Config()
        self._saving: Snapshot | None = None
        self._ticked_at = env.now()
        self._queue: list[Effects] = []
        self._writing = False
        self._draining = False
        self._wake_pump = trio.Event()
        self._wake_writer = trio.Event()
        self._wake_saver = trio.Event()
        self._wake_applier = trio.Event()
        self._barriers: list[_Barrier] = []
        self._asked: dict[int, list[_Barrier]] = {}
        self._told_apart: Apart | Outlived | None = None
        self._told_overtaken: set[MemberId] = set()
        self._contexts = 0
        self._doubt: _Barrier | None = None
        self.membership = Membership(
            self._core,
            most_voters=settings.most_voters,
            retired=machine.is_retired,
            changed=self._pump,
        )
        self._log = structlog.get_logger(component="quorum", node=me.node)
        self._copies = OldCopies(registered, self._log)

    # --- what others may know --------------------------------------------------------------------

    @property
    def leader_id(self) -> NodeId | None:
        """The node believed to lead; None while nobody is known."""
        leader = self._core.state.leader
        return None if leader is None else leader.node

    @property
    def term(self) -> int:
        return self._core.state.term

    @property
    def is_leader(self) -> bool:
        return self._core.is_leader

    @property
    def commit_index(self) -> int:
        return self._core.state.commit

    @property
    def applied_index(self) -> int:
        return self._applying.index

    @property
    def last_index(self) -> int:
        """The newest entry in this member's log, committed or not."""
        return self._core.log.last_index

    @property
    def config(self) -> Config:
        """Voters and learners in force, with addresses; known before any image is."""
        return self._core.config

    @property
    def config_index(self) -> int:
        """Where in the log that configuration stands."""
        return self._core.log.config_index

    @property
    def voters(self) -> tuple[Member, ...]:
        return self._core.config.voters

    @property
    def learners(self) -> tuple[Member, ...]:
        return self._core.config.learners

    @property
    def addresses(self) -> Mapping[NodeId, tuple[str, int]]:
        """Peer address (host, port) of every member."""
        return self._core.config.addresses()

    @property
    def is_voter(self) -> bool:
        return self._core.state.is_voter()

    @property
    def member_id(self) -> MemberId:
        return self._core.state.me

    @property
    def other_history(self) -> str:
        """What is wrong, and the ways on, where this member follows nobody because what it knows to
        be committed was lost by the others (RAFT 2.7); empty: nothing is."""
        apart = self._core.state.apart
        return "" if apart is None else explained(apart)

    @property
    def acknowledged(self) -> Mapping[MemberId, int]:
        """How far each member has said that it holds the log, durably; empty unless this one
        leads."""
        leading = self._core.leadership
        if leading is None:
            return {}
        return {member: progress.match for member, progress in leading.progress.items()}

    # --- running ---------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Install the recovered snapshot, report started, then serve until cancelled.

        Raises StorageError (in a group) when the disk fails; nothing was promised that is not
        stored.
        """
        snapshot = self._core.log.snapshot
        if snapshot.index > 0:
            self._machine.install(snapshot.state, snapshot.index)
        # Nobody waits out a timeout for a leader that may not be there: pre-votes, asked for again
        # with every heartbeat, disturb none that is.
        self._core.campaign()
        self._drain()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tick_loop)
            nursery.start_soon(self._pump_loop)
            nursery.start_soon(self._write_loop)
            nursery.start_soon(self._save_loop)
            nursery.start_soon(self._apply_loop)
            task_status.started()

    async def _tick_loop(self) -> None:
        """Wake for ticks that may do something, and often enough to notice a stopped process."""
        tick_s = self._settings.timing.tick_s
        self._ticked_at = self._env.now()
        next_plan = self._ticked_at + PLAN_EVERY_S
        while True:
            ticks = min(self._core.quiet_ticks(), MOST_TICKS)
            await trio.sleep_until(self._ticked_at + ticks * tick_s)
            self._make_up_ticks()
            if self._env.now() >= next_plan:
                next_plan = self._env.now() + PLAN_EVERY_S
                self.membership.follow_plan()
            self._drain()

    def _make_up_ticks(self) -> None:
        """Feed the ticks that have passed, before anything else that has to do with time. More than
        were slept through on purpose are not made up for: a process that was stopped has not been
        waiting for its leader all the while. One that led may have been deposed meanwhile, and
        asks the others."""
        tick_s = self._settings.timing.tick_s
        now = self._env.now()
        passed = int((now - self._ticked_at) / tick_s + 1e-6)  # sums of floats fall short a little
        for _ in range(min(passed, MOST_TICKS)):
            self._core.tick()
        if passed >= self._settings.timing.election_ticks and self._core.is_leader:
            self._doubt = _Barrier()
            self._barriers.append(self._doubt)
            self._ask_barriers()
        self._ticked_at = now if passed > MOST_TICKS else self._ticked_at + passed * tick_s

    def _pump(self) -> None:
        self._wake_pump.set()

    async def _pump_loop(self) -> None:
        """Carry out what callers proposed; all of one scheduler pass shares one round."""
        while True:
            await self._wake_pump.wait()
            self._wake_pump = trio.Event()
            self._ask_barriers()
            self._drain()

    async def _write_loop(self) -> None:
        """Persist in rounds: what arrives during one sync shares the next."""
        while True:
            await self._wake_writer.wait()
            self._wake_writer = trio.Event()
            batches, self._queue = self._queue, []
            self._writing = True
            written = [batch for batch in batches if batch.sequence]
            await self._with_room("log", partial(self._store.write, written))
            self._writing = False
            for batch in batches:
                self._post(batch.after_persist)
            self._core.persisted(max(batch.sequence for batch in batches))
            self._drain()

    async def _apply_loop(self) -> None:
        """Go on with what one turn had no room for."""
        while True:
            await self._wake_applier.wait()
            self._wake_applier = trio.Event()
            self._drain()

    async def _save_loop(self) -> None:
        """Store snapshots of our own beside the log's work."""
        while True:
            await self._wake_saver.wait()
            self._wake_saver = trio.Event()
            snapshot = self._saving
            assert snapshot is not None
            await self._with_room("snapshot", partial(self._store.save_snapshot, snapshot))
            self._saving = None
            self._core.compacted(snapshot)

    async def _with_room(self, what: str, write: Callable[[], Awaitable[None]]) -> None:
        """Write, and wait for room as long as there is none: this member promises nothing
        meanwhile, and the others go on without it. Raises StorageError when the disk fails."""
        told = False
        while True:
            try:
                await write()
            except OSError as error:
                if not is_full(error):
                    raise StorageError(f"metadata {what}: {error}") from error
                if not told:
                    self._log.error("no room for metadata", file=what, reason=str(error))
                    self.lacks_room(f"metadata {what}", True)
                    told = True
                await trio.sleep(ROOM_RETRY_S)
            else:
                if told:
                    self.lacks_room(f"metadata {what}", False)
                    self._log.info("metadata has room again", file=what)
                return

    def is_sure(self) -> bool:
        """Whether this member leads, and need not fear to have been deposed while its process was
        stopped: after a stop of an election timeout a majority must have confirmed it. For what is
        said from memory alone; whoever is woken first must ask."""
        self._make_up_ticks()
        self._drain()
        return self._core.is_leader and (self._doubt is None or self._doubt.done.is_set())

    # --- effects ---------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Carry out all effects, but apply no more than a turn's worth. Called again from within a
        callback it does nothing: the outer call goes on until there are none left."""
        if self._draining:
            return
        self._draining = True
        room = RECORDS_AT_A_TIME
        try:
            while True:
                if (effects := self._core.take_effects()) is not None:
                    self._carry_out(effects)
                elif self._applying.is_due and room > 0:
                    room -= self._applying.next()
                else:
                    break
            if self._applying.is_due:
                self._wake_applier.set()
        finally:
            self._draining = False
        self._store.committed(self._core.durable_commit)
        self._tell_of_other_history()
        self._tell_of_overtaken()
        self._report_config()
        self._maybe_snapshot()

    def _carry_out(self, effects: Effects) -> None:
        self._post(effects.now)
        if effects.sequence or (effects.after_persist and (self._queue or self._writing)):
            self._queue.append(effects)
            self._wake_writer.set()
        else:
            self._post(effects.after_persist)
        if effects.role is not None:
            # Before applying: who loses the lead must know it when another leader's entries come.
            if not self._core.is_leader:
                self.membership.deposed()
            self._on_role(effects.role)
        self._applying.add(effects)

    def _post(self, messages: Sequence[RaftMessage]) -> None:
        for message in messages:
            self._send(message.to.node, encode(message, self._store.cluster_id))

    def _tell_of_other_history(self) -> None:
        apart = self._core.state.apart
        if apart is not None and self._told_apart is None:
            self._log.error(
                "this node does not follow the metadata quorum: " + self.other_history,
                known_commit=self._core.state.known_commit,
            )
        self._told_apart = apart or self._told_apart

    def _tell_of_overtaken(self) -> None:
        member = self._core.state.overtaken
        if member is not None and member not in self._told_overtaken:
            self._told_overtaken.add(member)
            self._log.error(
                f"node {member.node} leads the metadata quorum without voters who are known here: "
                "its disk is an older copy, or it was elected by one; it is not listened to. "
                "Format it: paceline node format --replace",
                member=str(member),
            )

    def _report_config(self) -> None:
        if self._core.config != self._config:
            self._config = self._core.config
            self._on_config(self._config)

    def _maybe_snapshot(self) -> None:
        settings = self._settings
        applying = self._applying
        due = (
            applying.unsaved_entries >= settings.snapshot_entries
            or applying.unsaved_bytes >= settings.snapshot_bytes
        )
        is_behind = applying.index < self._core.log.snapshot.index  # of the leader's snapshot
        if not due or is_behind or self._saving is not None:
            return
        self._saving = self._core.log.snapshot_at(applying.index, self._machine.snapshot())
        applying.saved()
        self._wake_saver.set()

    # --- from the network ------------------------------------------------------------------------

    def receive(
        self, sender: NodeId, data: bytes | memoryview, start: Start = UNKNOWN_START
    ) -> None:
        """The payload of a RAFT frame arrived from an authenticated peer, whose process is that
        start of its directory.

        Raises RemoteProtocolError for malformed bytes, another cluster, or a message in somebody
        else's name. Dropped, as the network may do, while the disk is far behind.
        """
        message = decode(data, self._store.cluster_id)
        if message.sender.node != sender:
            raise RemoteProtocolError(f"node {sender} speaks in the name of {message.sender}")
        if len(self._queue) >= MAX_QUEUED_BATCHES:
            return
        self._make_up_ticks()
        if self._copies.have_sent(message, start, self._core.log):
            return
        self._core.step(message)
        self._drain()

    def peer_refused(self, node: NodeId) -> None:
        """The connection to ``node`` was lost and its reconnect refused: the process is dead
        (RAFT 2.5)."""
        self._core.peer_refused(node)
        self._drain()

    # --- proposing -------------------------------------------------------------------------------

    def propose(self, records: Sequence[bytes]) -> tuple[int, int]:
        """Append one atomic batch of encoded records; (index, term) of its entry.

        It is committed when ``apply`` brings this index with this term; when it brings the index
        with another term, it is lost. Raises NotController, Throttled; nothing was appended then.
        """
        entry = self._core.propose(msgpack.packb(list(records)))
        self._pump()
        return entry.index, entry.term

    async def read_barrier(self) -> int:
        """Wait until a majority confirms this leader; everything committed before the call is
        applied then. Returns the index. Raises NotController. Cancel-safe."""
        if not self._core.is_leader:
            raise NotController(f"node {self._core.state.me.node} does not lead the quorum")
        if len(self._barriers) >= MAX_QUEUED_BATCHES:
            raise Throttled("too many reads wait for the metadata quorum")
        barrier = _Barrier()
        self._barriers.append(barrier)
        self._pump()
        await barrier.done.wait()
        if barrier.index < 0:
            raise NotController("leadership was lost before a majority confirmed it")
        return barrier.index

    def _ask_barriers(self) -> None:
        if not self._barriers:
            return
        self._contexts += 1
        self._asked[self._contexts], self._barriers = self._barriers, []
        if self._core.is_leader:
            self._core.read_index(self._contexts)
        else:
            self._answer_barriers(ReadReady(self._contexts, -1))

    def _answer_barriers(self, read: ReadReady) -> None:
        for barrier in self._asked.pop(read.context):
            barrier.index = read.index
            barrier.done.set()

    # --- handing over ----------------------------------------------------------------------------

    def transfer_leadership(self, node: NodeId | None = None) -> NodeId:
        """Hand leadership to ``node``, or to the live voter with the longest log; the target.

        Proposals are refused until it took over or one election timeout passed. Raises
        NotController, InvalidRequest when there is nobody to hand it to.
        """
        leadership = self._core.leadership
        if leadership is None:
            raise NotController(f"node {self._core.state.me.node} does not lead the quorum")
        if node is None:
            target = leadership.best_successor()
        else:
            voter = self._core.config.voter(node)
            target = None if voter is None else voter.id
        if target is None:
            raise InvalidRequest("no other voter of the metadata quorum can take over")
        self._core.transfer(target)
        self._pump()
        return target.node
