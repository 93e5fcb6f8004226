"""The metadata quorum's Raft core: a state machine without clock, network, disk or threads.

Feed it inputs (:meth:`Raft.tick`, :meth:`Raft.step`, :meth:`Raft.propose` ...), then take its
:class:`Effects` and carry them out. Terms, elections and the follower's side are here; the leader's
side is in ``raft_leader.py``. Rules, and why: RAFT.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

from paceline.errors import NotController, RemoteProtocolError
from paceline.types import NodeId
from paceline_node.controller.raft_ballot import Ballot
from paceline_node.controller.raft_claims import Claims
from paceline_node.controller.raft_effects import Effects
from paceline_node.controller.raft_histories import (
    contradiction,
    lacking,
    lacks_voters,
    outlived,
    refutes,
    shows,
)
from paceline_node.controller.raft_leader import Leader
from paceline_node.controller.raft_log import RaftLog
from paceline_node.controller.raft_messages import (
    Append,
    AppendResponse,
    Grant,
    RaftMessage,
    SnapshotChunk,
    SnapshotResponse,
    TimeoutNow,
    VoteKind,
    VoteRequest,
    VoteResponse,
)
from paceline_node.controller.raft_snapshot import SnapshotAssembly, decode_snapshot
from paceline_node.controller.raft_state import NodeState
from paceline_node.controller.raft_types import (
    Apart,
    Config,
    Entry,
    HardState,
    MemberId,
    Outlived,
    RaftLimits,
    RaftTiming,
    Role,
    Snapshot,
)

_DEFAULT_LIMITS = RaftLimits()
_FRESH_HEARTBEATS = 3
"""So many intervals old an answer may be where everybody's is needed; one interval after the other
all are asked again."""
TERMS_AHEAD = 1000
"""Terms that voters who are silent, or forgot, may have seen, and more: if the clock is wrong."""


class Raft:
    """One member of the quorum, voter or learner."""

    def __init__(
        self,
        me: MemberId,
        cluster_id: UUID,
        log: RaftLog,
        hard_state: HardState,
        *,
        timing: RaftTiming,
        rng: random.Random,
        wall_ms: Callable[[], int],
        limits: RaftLimits = _DEFAULT_LIMITS,
        known_commit: int = -1,
    ) -> None:
        """``known_commit``: how far a former process knew this log to be committed. ``wall_ms``: a
        clock, in milliseconds since 1970, that terms are taken from where nothing better is known
        (RAFT 2.6)."""
        self.state = NodeState(
            me,
            cluster_id,
            log,
            hard_state,
            timing,
            limits,
            known_commit,
            life=1 + rng.getrandbits(63),
        )
        self.leadership: Leader | None = None
        self._rng = rng
        self._wall_ms = wall_ms
        self._elapsed = 0
        self._timeout = 0
        heartbeat_ms = int(timing.tick_s * timing.heartbeat_ticks * 1000)
        self._ballot = Ballot(wall_ms, _FRESH_HEARTBEATS * heartbeat_ms)
        self._campaign = VoteKind.PRE
        self._self_vote_sequence = 0
        self._claims = Claims(timing.election_ticks)
        self._assembly = SnapshotAssembly()
        self._redraw_timeout()
        self._handlers: dict[type[RaftMessage], Callable[[Any], None]] = {
            VoteRequest: self._on_vote_request,
            VoteResponse: self._on_vote_response,
            Append: self._on_append,
            AppendResponse: self._on_append_response,
            SnapshotChunk: self._on_snapshot_chunk,
            SnapshotResponse: self._on_snapshot_response,
            TimeoutNow: self._on_timeout_now,
        }

    # --- what the caller sees --------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.leadership is not None

    @property
    def log(self) -> RaftLog:
        return self.state.log

    @property
    def config(self) -> Config:
        return self.state.log.config

    @property
    def durable_commit(self) -> int:
        """How far the log is committed, and on stable storage here."""
        return min(self.state.commit, self.state.log.stable_index)

    def take_effects(self) -> Effects | None:
        """What is to be done now; None when nothing is. See :class:`Effects` for the duties."""
        if self.leadership is not None:
            self.leadership.flush()
            if self.leadership.is_removed():
                self._resign(self.leadership)
        return self.state.take_effects()

    # --- inputs ----------------------------------------------------------------------------------

    def tick(self) -> None:
        """One tick of the clock passed."""
        state = self.state
        state.now_tick += 1
        self._elapsed += 1
        if self.leadership is not None:
            self.leadership.tick()
            if not self.leadership.has_quorum():
                self._become_follower(state.term, None)
            elif self.leadership.must_ask_anew():
                self._become_follower(state.term, None)
                self.campaign()
            return
        if self._elapsed >= self._timeout:
            self.campaign()
        elif state.role in (Role.PRE_CANDIDATE, Role.CANDIDATE) and self._is_retry_tick():
            self._ask_for_votes()
            if state.role is Role.PRE_CANDIDATE:
                self._count_own_vote()

    def quiet_ticks(self) -> int:
        """How many ticks it takes, at least 1, to the next one that may do anything: whoever feeds
        ticks may sleep through the others and make them up, as long as no message comes. (A leader
        notices the loss of its quorum with its heartbeats.)"""
        heartbeat_ticks = self.state.timing.heartbeat_ticks
        if self.leadership is not None:
            return heartbeat_ticks - self.state.now_tick % heartbeat_ticks
        left = max(1, self._timeout - self._elapsed)
        if self.state.role in (Role.PRE_CANDIDATE, Role.CANDIDATE):
            return min(left, heartbeat_ticks - self._elapsed % heartbeat_ticks)
        return left

    def step(self, message: RaftMessage) -> None:
        """A message arrived. Messages to another disk of this node are dropped: they were meant
        for a member that no longer exists."""
        state = self.state
        if message.to != state.me or message.sender == state.me or self._is_history(message):
            return
        self._note_claim(message)
        if message.term > state.term:
            if not self._accept_newer_term(message):
                return
        elif message.term < state.term:
            self._answer_old_term(message)
            return
        self._handlers[type(message)](message)

    def _is_history(self, message: RaftMessage) -> bool:
        """Whether it is of a leader that is not listened to (RAFT 2.10)."""
        state = self.state
        if not isinstance(message, Append | SnapshotChunk) or message.term < state.term:
            return False
        if lacks_voters(state, message.voters_since):
            state.overtaken = message.sender
            return True
        if message.term > state.term or state.leader in (None, message.sender):
            return False
        if message.voters_since.at > state.log.newest_voters_since.at:
            self._become_follower(state.term, None)
        return True

    def _note_claim(self, message: RaftMessage) -> None:
        """Whatever its term is: where the log of somebody ends who votes, or may vote since."""
        voters = self.config.voter_ids
        if len(voters) <= 2 or message.sender in voters or self._may_vote_since(message):
            self._claims.note(message, self.state.now_tick)
        if not isinstance(message, VoteRequest):
            return
        if refutes(message, self.state.apart):
            self.state.apart = None
        apart = outlived(self.state, message)
        if apart is not None:
            self._turns_away(message.sender, apart, shown=False)

    def _may_vote_since(self, message: RaftMessage) -> bool:
        newest = self.log.newest_voters_since
        return isinstance(message, VoteRequest) and message.voters_since.at > newest.at

    def persisted(self, sequence: int) -> None:
        """Effects up to this sequence number are on stable storage."""
        self.state.log.confirm(sequence)
        if self.state.role is Role.CANDIDATE and sequence >= self._self_vote_sequence:
            self._count_own_vote()
        if self.leadership is not None:
            self.leadership.advance_commit()

    def propose(self, data: bytes) -> Entry:
        """Append a batch of records. Raises NotController when not leading, Throttled."""
        return self._leading().propose(data)

    def propose_config(self, config: Config, *, force: bool = False) -> Entry:
        """Append a new configuration. Raises NotController, InvalidRequest."""
        return self._leading().propose_config(config, force=force)

    def transfer(self, target: MemberId) -> None:
        """Hand leadership to ``target``. Raises NotController, InvalidRequest."""
        self._leading().transfer(target)

    def read_index(self, context: int) -> None:
        """Begin a linearizable read; a ReadReady with ``context`` follows. Raises NotController."""
        self._leading().read_index(context)

    def compacted(self, snapshot: Snapshot) -> None:
        """A snapshot taken by the caller at an applied index is safely stored."""
        self.state.log.compact(snapshot, keep=self.state.limits.keep_entries)

    def peer_refused(self, node: NodeId) -> None:
        """The connection to ``node`` closed and its reconnect was refused: the process is dead
        (RAFT 2.5). If it led, forget it and try to replace it at once."""
        if self.leadership is not None:
            self.leadership.refused(node)
        elif self.state.leads_from(node):
            self.state.leader = None
            self.campaign()

    def campaign(self, kind: VoteKind = VoteKind.PRE) -> None:
        """Nobody leads: try to, if this member is a voter. A leader does nothing."""
        state = self.state
        self._redraw_timeout()
        if self.leadership is not None:
            return
        state.leader = None
        if not state.may_campaign():
            return
        is_sure = self._ballot.knows_every_term(self.config)
        if kind is VoteKind.FORCED or len(self.config.voter_ids) == 1:
            is_sure = state.word() is Grant.SURE
        self._ballot.begin(self.config, after_pre_votes=kind is VoteKind.REAL)
        self._campaign = kind
        if kind is VoteKind.PRE:
            state.role = Role.PRE_CANDIDATE
            self._ask_for_votes()
            self._count_own_vote()
            return
        state.role = Role.CANDIDATE
        term = state.term + 1
        state.set_term(term if is_sure else max(term + TERMS_AHEAD, self._wall_ms()))
        state.set_vote(state.me)
        self._self_vote_sequence = state.next_sequence()
        self._ask_for_votes()

    # --- terms -----------------------------------------------------------------------------------

    def _accept_newer_term(self, message: RaftMessage) -> bool:
        """Move to the message's term where its kind asks for it. False: the message is ignored."""
        if isinstance(message, VoteRequest):
            if self._holds_lease_against(message):
                return False
            if message.kind is not VoteKind.PRE:
                self._become_follower(message.term, None)
            return True
        if isinstance(message, VoteResponse) and message.kind is VoteKind.PRE and message.grant:
            return True
        leads = isinstance(message, Append | SnapshotChunk)
        self._become_follower(message.term, message.sender if leads else None)
        return True

    def _holds_lease_against(self, request: VoteRequest) -> bool:
        """Whether a live leader protects this member from candidates that merely lost touch.

        A request from the leader itself shows that it leads no more.
        """
        if request.kind is VoteKind.FORCED or request.sender == self.state.leader:
            return False
        if self.leadership is not None:
            return True
        return self.state.leader is not None and self._elapsed < self.state.timing.election_ticks

    def _answer_old_term(self, message: RaftMessage) -> None:
        """Tell a deposed leader, or a node that fell behind, which term it is."""
        state = self.state
        if isinstance(message, Append | SnapshotChunk):
            state.answer(message.sender, ok=False)
        elif isinstance(message, VoteRequest) and message.kind is VoteKind.PRE:
            self._answer_vote(message, granted=False)

    def _become_follower(self, term: int, leader: MemberId | None) -> None:
        state = self.state
        if self.leadership is not None:
            self.leadership.abandon_reads()
            self.leadership = None
        if term > state.term:
            state.set_term(term)
        state.role = Role.FOLLOWER
        state.leader = leader
        self._redraw_timeout()

    def _redraw_timeout(self) -> None:
        shortest = self.state.timing.election_ticks
        self._elapsed = 0
        self._timeout = self._rng.randrange(shortest, 2 * shortest)

    def _is_retry_tick(self) -> bool:
        return self._elapsed % self.state.timing.heartbeat_ticks == 0

    def _leading(self) -> Leader:
        if self.leadership is None:
            leader = self.state.leader
            where = "no leader is known" if leader is None else f"node {leader.node} leads"
            raise NotController(f"node {self.state.me.node} does not lead the quorum; {where}")
        return self.leadership

    # --- elections -------------------------------------------------------------------------------

    def _ask_for_votes(self) -> None:
        """Ask every voter that has not answered yet, or may answer otherwise by now."""
        for voter in self._ballot.to_ask(self.config):
            if voter != self.state.me:
                self.state.ask_for_vote(voter, self._campaign)

    def _on_vote_request(self, request: VoteRequest) -> None:
        """Grant or refuse. A learner that is asked answers like a voter: the asker's
        configuration may be newer than ours."""
        state = self.state
        pre = request.kind is VoteKind.PRE
        free = (
            state.vote == request.sender
            or (state.vote is None and state.leader is None)
            or (pre and request.term > state.term)
        )
        free = free and state.apart is None and not lacks_voters(state, request.voters_since)
        granted = free and state.log.is_up_to_date(request.last_term, request.last_index)
        if granted and pre and self._has_better_claim(request):
            # Both noticed the leader's death at the same moment. Were both to go on, each would
            # vote for itself; so the better one asks again, and the other will grant it.
            state.ask_for_vote(request.sender, self._campaign)
            return
        if granted and not pre:
            state.set_vote(request.sender)
            self._redraw_timeout()
        self._answer_vote(request, granted=granted)

    def _has_better_claim(self, request: VoteRequest) -> bool:
        state = self.state
        if state.role is not Role.PRE_CANDIDATE or request.term != state.term + 1:
            return False
        if state.word() is Grant.WAITS and self._ballot.has_majority(self.config):
            return False  # who asks may need to wait for nobody
        mine = (state.log.last_term, state.log.last_index, -state.me.node)
        return mine > (request.last_term, request.last_index, -request.sender.node)

    def _answer_vote(self, request: VoteRequest, *, granted: bool) -> None:
        heard = self._claims.newest_own(self.state.now_tick, besides=request.sender)
        self.state.answer_vote(request, granted=granted, heard=heard)

    def _on_vote_response(self, response: VoteResponse) -> None:
        state = self.state
        if response.kind is not self._campaign or response.candidate_life != state.life:
            return
        if state.role is Role.PRE_CANDIDATE:
            wanted = state.term + 1 if response.grant else state.term
        elif state.role is Role.CANDIDATE:
            wanted = state.term
        else:
            return
        if response.term == wanted:
            self._count_vote(response.sender, response.grant, response.life)

    def _count_own_vote(self) -> None:
        state = self.state
        self._count_vote(state.me, state.word(), state.life)

    def _count_vote(self, voter: MemberId, grant: Grant, life: int) -> None:
        ballot, config, state = self._ballot, self.config, self.state
        ballot.note(voter, grant, life)
        if ballot.is_refused(config):
            self._become_follower(self.state.term, None)
        elif self.state.role is Role.PRE_CANDIDATE:
            wait = state.timing.election_ticks // 2
            newest = self._claims.newest(state.now_tick)
            is_newest = newest <= state.log_end()
            if ballot.has_ripened(config, state.now_tick, wait, is_newest=is_newest):
                self.campaign(VoteKind.REAL)
        elif ballot.is_won(config):
            self._become_leader()

    def _become_leader(self) -> None:
        state = self.state
        state.settle()
        state.role = Role.LEADER
        state.leader = state.me
        self.leadership = Leader(state, self._ballot.waited_with())

    def _resign(self, leadership: Leader) -> None:
        """Removed from the voters: pass leadership on, so that nobody has to wait for a timeout."""
        successor = leadership.best_successor()
        if successor is not None:
            self.state.send(TimeoutNow(self.state.me, successor, self.state.term))
        self._become_follower(self.state.term, None)

    def _on_timeout_now(self, _: TimeoutNow) -> None:
        if self.leadership is None and self.state.is_voter():
            self.campaign(VoteKind.FORCED)

    # --- following -------------------------------------------------------------------------------

    def _follow(self, leader: MemberId) -> None:
        state = self.state
        assert self.leadership is None, f"two leaders in term {state.term}: {state.me}, {leader}"
        if state.role is not Role.FOLLOWER:
            self._become_follower(state.term, leader)
        assert state.leader in (None, leader), (
            f"two leaders in term {state.term}: {state.leader}, {leader}"
        )
        state.leader = leader
        self._elapsed = 0

    def _on_append(self, message: Append) -> None:
        state = self.state
        shown = shows(state, message)
        if self._turns_away(message.sender, contradiction(state, message), shown=shown):
            if message.prev_index > state.log.last_index:
                self._reject(message)  # it may yet show that it has all of it, or has not
            return
        self._follow(message.sender)
        if message.sure_life == state.life:
            state.settle()
        is_compacted = message.prev_index < state.log.base_index or message.prev_index == 0
        if message.prev_index < state.commit and is_compacted:
            self._accept(message, state.commit)
            return
        if state.log.term_at(message.prev_index) != message.prev_term:
            self._reject(message)
            return
        for entry in message.entries:
            found = state.log.term_at(entry.index)
            if found == entry.term:
                continue
            if found is not None:
                state.truncate(entry.index)
            state.append(entry)
        match = message.prev_index + len(message.entries)
        state.commit_to(min(message.commit, match))
        self._accept(message, match)

    def _turns_away(self, leader: MemberId, apart: Apart | Outlived | None, *, shown: bool) -> bool:
        """Whether nothing is taken from this leader (RAFT 2.7): it lacks what is committed here, or
        another one did and this one has not shown that it does not."""
        state = self.state
        if apart is None and (shown or state.apart is None):
            state.apart = None
            return False
        if apart is not None:
            state.apart = apart
        if self.leadership is not None or state.role is not Role.FOLLOWER or state.leader == leader:
            self._become_follower(state.term, None)
        return True

    def _accept(self, message: Append, match: int) -> None:
        self.state.answer(message.sender, ok=True, match=match, confirms=message.round)

    def _reject(self, message: Append) -> None:
        state = self.state
        hint = max(state.log.hint(message.prev_index, message.prev_term), state.commit)
        state.answer(
            message.sender,
            ok=False,
            reject_index=message.prev_index,
            hint=hint,
            confirms=message.round,
        )

    def _on_append_response(self, message: AppendResponse) -> None:
        if self.leadership is not None:
            self.leadership.on_append_response(message)

    def _on_snapshot_response(self, message: SnapshotResponse) -> None:
        if self.leadership is not None:
            self.leadership.on_snapshot_response(message)

    def _on_snapshot_chunk(self, chunk: SnapshotChunk) -> None:
        state = self.state
        apart = contradiction(state, chunk)
        is_known = chunk.index <= state.log.last_index
        if is_known and self._turns_away(chunk.sender, apart, shown=shows(state, chunk)):
            return
        if state.apart is None:
            self._follow(chunk.sender)
        if chunk.index <= state.commit:
            state.answer(chunk.sender, ok=True, match=state.commit)
            return
        if state.log.term_at(chunk.index) == chunk.snapshot_term:
            state.commit_to(chunk.index)
            state.answer(chunk.sender, ok=True, match=chunk.index)
            return
        if chunk.total > state.limits.snapshot_bytes:
            raise RemoteProtocolError(f"snapshot of {chunk.total} bytes from {chunk.sender}")
        whole = self._assembly.add(chunk)
        if whole is None:
            received = len(self._assembly.buffer)
            state.send(SnapshotResponse(state.me, chunk.sender, state.term, chunk.index, received))
            return
        snapshot = decode_snapshot(whole, state.cluster_id)
        if (snapshot.index, snapshot.term) != (chunk.index, chunk.snapshot_term):
            raise RemoteProtocolError(
                f"snapshot {snapshot.index} arrived under the name {chunk.index}"
            )
        apart = lacking(state, chunk, snapshot)
        if self._turns_away(chunk.sender, apart, shown=apart is None):
            return
        self._follow(chunk.sender)
        state.install(snapshot)
        state.answer(chunk.sender, ok=True, match=snapshot.index)
