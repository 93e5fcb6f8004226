"""The controller on this node: idle until the quorum makes this node its leader (DESIGN 1).

The active controller decides every request at once, in order of arrival, against the newest
*appended* image, proposes the records as one entry and goes on with the next request; the answer
waits until the entry is committed and applied. So many requests share the quorum's round trips.
Whatever was decided but not committed is forgotten when leadership ends.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence, Sized
from dataclasses import field, replace
from typing import Protocol

import structlog
import trio

from paceline.errors import InternalError, NotController, PacelineError, Throttled
from paceline.types import NodeId
from paceline.values import dataclass
from paceline.wire.message import Message
from paceline.wire.native.admin import AddVoter, Done, RemoveVoter
from paceline_node.bare_errors import bare
from paceline_node.controller import (
    durable_offsets,
    elections,
    internal_topics,
    request_handlers,
    unfinished_decisions,
)
from paceline_node.controller.context import (
    MAX_BATCH_RECORDS,
    MAX_STEP_RECORDS,
    Context,
    ControllerSettings,
    Draft,
    Outcome,
    Position,
    TopicDefaults,
)
from paceline_node.controller.election_reasons import ElectionReason, election_reason
from paceline_node.controller.image import Image
from paceline_node.controller.liveness import Sessions
from paceline_node.controller.membership import VoterChanges
from paceline_node.controller.metadata_records import (
    NoOp,
    PartitionRegistration,
    Record,
    encode_record,
)
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import Env

_RETRY_S = 0.1
_STALL_SHARE = 4
"""A loop that is late by this part of a session did not hear heartbeats either."""

_DEFAULT_SETTINGS = ControllerSettings()


class Quorum(Protocol):
    """What the controller needs of the metadata quorum. Entries this node proposed while leader
    of a term are applied to the store in order, with that term, or never."""

    @property
    def is_leader(self) -> bool: ...

    @property
    def term(self) -> int: ...

    @property
    def voters(self) -> Sized: ...

    @property
    def membership(self) -> VoterChanges: ...

    def is_sure(self) -> bool:
        """Whether this member leads and has not been deposed while its process was stopped."""

    def propose(self, records: Sequence[bytes]) -> tuple[int, int]:
        """Append one entry; its index and term. Raises NotController when not the leader, or
        Throttled."""


@dataclass(slots=True)
class ControllerStatistics:
    """Counters since this process started, exported as metrics."""

    requests: int = 0
    refused_requests: int = 0
    entries: int = 0
    activations: int = 0
    elections: Counter[ElectionReason] = field(default_factory=Counter)
    fenced_by_session: int = 0
    fenced_by_proof: int = 0
    balance_moves: int = 0


@dataclass(slots=True)
class _Waiting:
    """A request whose answer is known but not yet true: it holds once ``offset`` is applied."""

    offset: int
    answer: Callable[[], Message] | PacelineError
    settled: trio.Event = field(default_factory=trio.Event)
    lost: bool = False


class Controller:
    """One per node. :meth:`run` must be running for the node to become active.

    The composition root wires :meth:`role_changed` to the quorum's role callback and
    :meth:`peer_lost` to refused reconnects.
    """

    def __init__(
        self,
        env: Env,
        quorum: Quorum,
        store: MetadataStore,
        settings: ControllerSettings = _DEFAULT_SETTINGS,
    ) -> None:
        self._env = env
        self._quorum = quorum
        self._store = store
        self._settings = settings
        self._log = structlog.get_logger()
        self._sessions = Sessions(settings.session_timeout_s)
        self._image = store.image  # newest appended state; true only while _term is set
        self._term: int | None = None  # in which this node proposed its first entry
        self._first_entry = 0
        self._active = False
        self._unsettled = False
        self._active_since = 0.0
        self._waiting: deque[_Waiting] = deque()
        self._lost: dict[NodeId, float] = {}
        self._wake = trio.Event()
        self._balance_at = 0.0
        self._noop_at = 0.0
        self.statistics = ControllerStatistics()

    @property
    def active(self) -> bool:
        """Whether this node answers requests: it leads the quorum and has applied all that was
        committed before its term."""
        return self._active and self._leads()

    @property
    def waiting_count(self) -> int:
        """Requests that wait for the quorum to commit."""
        return len(self._waiting)

    # --- requests --------------------------------------------------------------------------

    async def handle(self, sender: NodeId | None, message: Message) -> Message:
        """Decide ``message`` and answer once the decision is committed.

        ``sender`` is the node the connection is bound to; None for this process itself.
        Raises the handlers' typed errors; NotController when this node is not active, and, with
        unknown outcome, when it ceases to be while the entry is under way. Cancelling does not
        undo the decision.
        """
        waiting = self._submit(sender, message)
        if waiting.offset > self._store.image.offset:
            self._waiting.append(waiting)
            await waiting.settled.wait()
            if waiting.lost:
                raise NotController("leadership of the metadata quorum was lost; outcome unknown")
        answer = waiting.answer
        if isinstance(answer, PacelineError):
            try:
                raise answer
            finally:
                del answer, waiting  # that hold it
        return answer()

    def _submit(self, sender: NodeId | None, message: Message) -> _Waiting:
        # Many an answer comes from memory, a broker's session among them, and holds nothing if
        # another controller is active.
        if not (self.active and self._quorum.is_sure()):
            raise NotController("this node is not the active controller")
        if len(self._waiting) >= self._settings.max_waiting:
            raise Throttled(f"{len(self._waiting)} requests wait for the metadata quorum")
        self.statistics.requests += 1
        try:
            if isinstance(message, AddVoter | RemoveVoter):
                return self._change_voters(message)
            outcome = request_handlers.handle(sender, message, self._context())
        except PacelineError as error:
            return self._refusal(error)
        except Exception as error:  # noqa: BLE001  nothing was appended: one request's bug
            what = type(message).__name__
            self._log.error("controller request failed", request=what, exc_info=error)
            return self._refusal(InternalError(f"{what}: {type(error).__name__}: {error}"))
        position = self._append(outcome)
        return _Waiting(position.offset, lambda: outcome.reply(position))

    def _change_voters(self, message: AddVoter | RemoveVoter) -> _Waiting:
        """An entry of the quorum's own: no record says who votes."""
        members = self._quorum.membership
        change = members.add_voter if isinstance(message, AddVoter) else members.remove_voter
        index, term = change(message.node, message.directory_id)
        return _Waiting(index, lambda: Done(index, term))

    def _refusal(self, refusal: PacelineError) -> _Waiting:
        """A refusal is judged by entries that may be uncommitted, so it waits for them too."""
        self.statistics.refused_requests += 1
        return _Waiting(self._image.offset, bare(refusal))

    def change_topic_defaults(self, defaults: TopicDefaults) -> None:
        """What topics get whose creator does not say, from now on."""
        self._settings = replace(self._settings, topics=defaults)

    def _context(self) -> Context:
        return Context(
            image=self._image,
            now=self._env.now(),
            wall_ms=self._env.host.wall_ms(),
            settings=self._settings,
            sessions=self._sessions,
            new_id=self._env.uuid,
            expected_brokers=len(self._quorum.voters),
            active_since=self._active_since,
            settled=not self._unsettled,
        )

    def _append(self, outcome: Outcome) -> Position:
        """Propose an outcome's records and step the speculative image; the position is that of the
        last entry. More records than one entry holds are split in their order: handlers put first
        what makes the rest follow, so that :mod:`settling` can tell what is missing."""
        assert self._term is not None
        records = outcome.records
        position = Position(self._image.offset, self._term)
        if outcome.unfinished:
            self._unsettled = True
            self._wake.set()
        for first in range(0, len(records), MAX_BATCH_RECORDS):
            # Should the rest not be appended, for want of room or of leadership, it is settled
            # later, here or by the next controller.
            self._unsettled = self._unsettled or first > 0
            position = self._append_entry(records[first : first + MAX_BATCH_RECORDS])
        return position

    def _append_entry(self, records: Sequence[Record]) -> Position:
        assert self._term is not None
        index, term = self._quorum.propose([encode_record(r) for r in records])
        assert term == self._term, (term, self._term)
        before = self._image
        # A quorum of one may have applied the entry before propose() returned.
        done = self._store.image.offset >= index
        self._image = self._store.image if done else before.apply(index, records)
        self._count(before, records)
        if self._image.brokers is not before.brokers:
            self._wake.set()
        return Position(index, term)

    def _count(self, before: Image, records: Sequence[Record]) -> None:
        self.statistics.entries += 1
        for record in records:
            if not isinstance(record, PartitionRegistration):
                continue
            known = before.find_partition(record.topic_id, record.partition)
            reason = None if known is None else election_reason(known, record, self._image)
            if reason is None:
                continue
            self.statistics.elections[reason] += 1
            if reason is ElectionReason.UNCLEAN:
                self._log.warning(
                    "unclean leader election",
                    topic_id=str(record.topic_id),
                    partition=record.partition,
                    leader=record.leader,
                    leader_epoch=record.leader_epoch,
                )

    # --- leadership of the quorum ----------------------------------------------------------

    def role_changed(self) -> None:
        """The quorum's role, term or leader changed. Callable from within the quorum: it only
        drops state here; what must be proposed is proposed by :meth:`run`."""
        if self._term is not None and not self._leads():
            self._resign()
        self._wake.set()

    def _leads(self) -> bool:
        return self._quorum.is_leader and self._quorum.term == self._term

    def _resign(self) -> None:
        if self._active:
            self._log.info("stopped being the active controller", term=self._term)
        self._term = None
        self._active = False
        self._image = self._store.image
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            request.lost = True
            request.settled.set()

    def _on_image(self, old: Image, new: Image) -> None:
        if self._term is None:
            return
        while self._waiting and self._waiting[0].offset <= new.offset:
            self._waiting.popleft().settled.set()
        if self._active:
            if new.offset >= self._image.offset:
                self._image = new  # equal, but shares its parts with what everybody else holds
        elif new.offset >= self._first_entry:
            self._wake.set()

    def _activate(self, now: float) -> None:
        self._active = True
        self._unsettled = True
        self._active_since = now
        self._image = self._store.image
        self._sessions.reset(self._image.brokers, now, self._env.times.cluster_ms(now))
        self._balance_at = now + self._settings.balance_interval_s
        self._noop_at = now + self._settings.noop_interval_s
        self.statistics.activations += 1
        self._log.info("became the active controller", term=self._term, offset=self._image.offset)

    # --- proof of death --------------------------------------------------------------------

    def peer_lost(self, node: NodeId, lost_at: float | None = None) -> None:
        """The process of ``node`` is gone: its connection broke at ``lost_at`` (monotonic seconds;
        None: now) and a reconnect was refused (DESIGN 3.3).

        Fences the broker at once, unless a newer process of it was heard since. A node that is
        not active remembers the proof for a session time, in case it becomes active.
        """
        self._lost[node] = self._env.now() if lost_at is None else lost_at
        if self.active:
            try:
                self._fence_the_lost()
            except (NotController, Throttled):
                self._wake.set()  # run() tries again

    def _fence_the_lost(self) -> None:
        oldest = self._env.now() - self._settings.session_timeout_s
        for node, lost_at in sorted(self._lost.items()):
            if lost_at >= oldest and not self._sessions.heard_since(node, lost_at):
                broker = self._image.brokers.get(node)
                if broker is not None and not broker.fenced:
                    self._fence((node,), "process is gone")
                    self.statistics.fenced_by_proof += 1
                self._sessions.end(node)
            del self._lost[node]

    def _fence(self, nodes: Sequence[NodeId], reason: str) -> None:
        draft = Draft(self._image, MAX_STEP_RECORDS)
        for node in nodes:
            elections.fence(draft, node)
        self._append_draft(draft)
        for node in nodes:
            self._log.info("broker fenced", broker=node, reason=reason)

    def _append_draft(self, draft: Draft) -> None:
        self._append(Outcome(tuple(draft.records), _no_answer, draft.unfinished))

    # --- timers ----------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take and give up the active role as the quorum decides, and act on time: sessions,
        balancer, internal topics, idle entries. Runs until cancelled."""
        unsubscribe = self._store.subscribe(self._on_image)
        try:
            task_status.started()
            while True:
                self._wake = trio.Event()
                due = self._step(self._env.now())
                with trio.move_on_after(max(0.0, due - self._env.now())):
                    await self._wake.wait()
                self._forgive_stall(due)
        finally:
            unsubscribe()
            self._resign()

    def _forgive_stall(self, due: float) -> None:
        late = self._env.now() - due
        if late * _STALL_SHARE > self._settings.session_timeout_s:
            self._sessions.postpone(late)
            self._log.warning("controller was stalled", late_s=round(late, 3))

    def _step(self, now: float) -> float:
        """Do what is due; the time to look again."""
        try:
            return self._advance(now)
        except (NotController, Throttled):
            if self._term is not None and not self._leads():
                self._resign()
            # A leader that is handing over refuses proposals, and may yet stay the leader.
            return now + _RETRY_S if self._quorum.is_leader else float("inf")

    def _advance(self, now: float) -> float:
        if self._term is None:
            if not self._quorum.is_leader:
                return float("inf")
            term = self._quorum.term
            self._first_entry, self._term = self._quorum.propose([encode_record(NoOp(term))])
        if not self._active:
            if self._store.image.offset < self._first_entry:
                return float("inf")
            self._activate(now)
        self._fence_the_lost()
        self._expire_sessions(now)
        self._settle()
        if self._unsettled:
            return now  # others have their turns, and then the rest
        self._keep_internal_topics()
        self._balance(now)
        if now >= self._noop_at:
            self._noop_at = now + self._settings.noop_interval_s
            self._append(Outcome((self._idle_record(),), _no_answer))
        unfenced = self._unfenced()
        return min(self._sessions.next_expiry(unfenced), self._balance_at, self._noop_at)

    def _idle_record(self) -> NoOp:
        image = self._image
        news = durable_offsets.news(image.brokers, image.durable_offsets, self._sessions)
        return NoOp(self._term or 0, news)

    def _settle(self) -> None:
        """Go on with what was begun in an entry: its sequel was left for later, or was never
        appended."""
        if not self._unsettled:
            return
        draft = Draft(self._image, MAX_STEP_RECORDS)
        unfinished_decisions.settle(draft)
        self._append_draft(draft)
        self._unsettled = draft.unfinished

    def _unfenced(self) -> list[NodeId]:
        return [node for node, broker in self._image.brokers.items() if not broker.fenced]

    def _expire_sessions(self, now: float) -> None:
        due = self._sessions.due(self._unfenced(), len(self._image.brokers), now)
        if due:
            self._fence(due, "session expired")
            self.statistics.fenced_by_session += len(due)

    def _keep_internal_topics(self) -> None:
        while (step := internal_topics.upkeep(self._context())) is not None:
            self._append(step)

    def _balance(self, now: float) -> None:
        if now < self._balance_at:
            return
        self._balance_at = now + self._settings.balance_interval_s
        draft = Draft(self._image)
        self.statistics.balance_moves += elections.balance(draft)
        self._append_draft(draft)


def _no_answer(position: Position) -> Message:
    raise AssertionError(f"nobody asked for the entry at {position}")
