"""What every role of a member shares: identity, durable facts, log, commit index, effects."""

from __future__ import annotations

from uuid import UUID

from paceline.types import NodeId
from paceline_node.controller.raft_claims import NO_LOG, LogEnd
from paceline_node.controller.raft_effects import Effects
from paceline_node.controller.raft_log import RaftLog
from paceline_node.controller.raft_messages import (
    AppendResponse,
    Grant,
    RaftMessage,
    VoteKind,
    VoteRequest,
    VoteResponse,
)
from paceline_node.controller.raft_types import (
    Apart,
    Entry,
    HardState,
    MemberId,
    Outlived,
    RaftLimits,
    RaftTiming,
    Role,
    RoleInfo,
    Snapshot,
)


class NodeState:
    """Facts of one member. Roles change them only through these methods, which record what has to
    be persisted, sent and applied."""

    def __init__(
        self,
        me: MemberId,
        cluster_id: UUID,
        log: RaftLog,
        hard_state: HardState,
        timing: RaftTiming,
        limits: RaftLimits,
        known_commit: int,
        life: int,
    ) -> None:
        self.me = me
        self.cluster_id = cluster_id
        self.log = log
        self.timing = timing
        self.limits = limits
        # The log may hold entries of a term whose hard state was not yet stored when the node
        # fell. It cannot have voted in that term: votes leave only after the hard state is safe.
        self.term = max(hard_state.term, log.last_term)
        self.vote = hard_state.vote if hard_state.term == self.term else None
        self.role = Role.FOLLOWER
        self.leader: MemberId | None = None
        self.commit = log.snapshot.index
        self._known_commit = known_commit
        self.apart: Apart | Outlived | None = None
        """Why this member follows nobody: another history leads (RAFT 2.7)."""
        self.overtaken: MemberId | None = None
        """A leader that lacks voters who are known here: it is not listened to (RAFT 2.10)."""
        self.emitted = log.snapshot.index
        self.life = life
        self._is_settled = False
        self.now_tick = 0
        self.sequence = 0
        self.effects = Effects()
        self._reported = RoleInfo(self.role, self.term, self.leader)

    # --- durable facts ---------------------------------------------------------------------------

    def set_term(self, term: int) -> None:
        """Enter a newer term, without a vote in it."""
        assert term > self.term, f"term {term} behind {self.term}"
        self.term = term
        self.vote = None
        self.effects.hard_state = HardState(term, None)

    def set_vote(self, candidate: MemberId) -> None:
        assert self.vote is None or self.vote == candidate, f"second vote in term {self.term}"
        if self.vote != candidate:
            self.vote = candidate
            self.effects.hard_state = HardState(self.term, candidate)

    def append(self, entry: Entry) -> None:
        self.log.append(entry)
        self.effects.entries.append(entry)

    def truncate(self, index: int) -> None:
        """Drop uncommitted entries from ``index`` on; the leader's follow at once."""
        assert index > self.known_commit, f"truncation at {index}, committed {self.known_commit}"
        self.log.truncate(index)

    def install(self, snapshot: Snapshot) -> None:
        """Replace log and state by a snapshot from the leader."""
        assert snapshot.index > self.commit
        self.log.reset(snapshot)
        self.commit = snapshot.index
        self.emitted = snapshot.index
        self.effects.snapshot = snapshot
        # Superseded: the snapshot contains what these would have brought.
        self.effects.entries.clear()
        self.effects.committed.clear()

    def commit_to(self, index: int) -> None:
        assert index <= self.log.last_index, f"commit {index} beyond {self.log.last_index}"
        self.commit = max(self.commit, index)

    # --- outgoing --------------------------------------------------------------------------------

    def send(self, message: RaftMessage) -> None:
        self.effects.now.append(message)

    def send_after_persist(self, message: RaftMessage) -> None:
        self.effects.after_persist.append(message)

    def answer(
        self,
        leader: MemberId,
        *,
        ok: bool,
        match: int = 0,
        reject_index: int = 0,
        hint: int = 0,
        confirms: int = 0,
    ) -> None:
        """Answer an Append or a snapshot, once all that was recorded before is stored."""
        self.send_after_persist(
            AppendResponse(
                sender=self.me,
                to=leader,
                term=self.term,
                ok=ok,
                match=match,
                reject_index=reject_index,
                hint=hint,
                round=confirms,
                life=self.life,
                word=self.word(),
            )
        )

    def ask_for_vote(self, voter: MemberId, kind: VoteKind) -> None:
        """Ask for a vote in this term, or whether one would be given in the next."""
        since = self.log.newest_voters_since
        self.send_after_persist(
            VoteRequest(
                sender=self.me,
                to=voter,
                term=self.term + 1 if kind is VoteKind.PRE else self.term,
                kind=kind,
                last_index=self.log.last_index,
                last_term=self.log.last_term,
                voters_since=since,
                is_committed=since.at <= self.known_commit,
                life=self.life,
            )
        )

    def answer_vote(self, request: VoteRequest, *, granted: bool, heard: LogEnd) -> None:
        """Answer a request; ``heard`` is the newest log of another voter."""
        is_pre_grant = granted and request.kind is VoteKind.PRE
        own = self.log_end() if self.may_campaign() else NO_LOG
        self.send_after_persist(
            VoteResponse(
                self.me,
                request.sender,
                request.term if is_pre_grant else self.term,
                request.kind,
                self.word() if granted else Grant.REFUSED,
                self.life,
                *own,
                *heard,
                request.life,
            )
        )

    def next_sequence(self) -> int:
        """The number under which what is recorded now will be persisted."""
        return self.sequence + 1

    def take_effects(self) -> Effects | None:
        """Hand out what has gathered since the last call; None when nothing has."""
        effects = self.effects
        if self.emitted < self.commit:
            effects.committed.extend(self.log.slice(self.emitted + 1, self.commit + 1))
            self.emitted = self.commit
        info = RoleInfo(self.role, self.term, self.leader)
        if info != self._reported:
            self._reported = info
            effects.role = info
        if effects.is_empty():
            return None
        if effects.must_persist():
            self.sequence += 1
            effects.sequence = self.sequence
            self.log.expect(self.sequence)
        self.effects = Effects()
        return effects

    @property
    def known_commit(self) -> int:
        """How far the log is known to be committed, in this life of the process or a former one."""
        return max(self.commit, self._known_commit)

    # --- facts -----------------------------------------------------------------------------------

    def settle(self) -> None:
        """This process leads, or has all that its disk may have forgotten (RAFT 2.9)."""
        self._is_settled = True

    def log_end(self) -> tuple[int, int]:
        """Term and index of the last entry: the newer log has the greater one."""
        return self.log.last_term, self.log.last_index

    def word(self) -> Grant:
        """How far this member is to be trusted."""
        patience_ticks = self.timing.patience_ticks
        if self._is_settled or not patience_ticks:
            return Grant.SURE
        return Grant.WAITS if self.now_tick < patience_ticks else Grant.UNSURE

    def is_voter(self) -> bool:
        return self.me in self.log.config.voter_ids

    def may_campaign(self) -> bool:
        """Voters may; so may a member that a change takes out which is not known to be committed:
        it can hold the only copy of that change, and then nobody else can win an election. After a
        restart less is known than before."""
        if self.apart is not None:
            return False
        configs = self.log.configs_since(self.known_commit)
        return any(self.me in config.voter_ids for config in configs)

    def leads_from(self, node: NodeId) -> bool:
        """Whether the known leader is this node."""
        return self.leader is not None and self.leader.node == node
