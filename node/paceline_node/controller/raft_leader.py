"""The leader's duties: replicate, commit, confirm reads, hand over, change the membership.

One object per leadership; it dies with it. Rules: RAFT 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from paceline.errors import InvalidRequest, NotController, Throttled
from paceline.values import dataclass
from paceline_node.controller.raft_membership import check_change
from paceline_node.controller.raft_messages import (
    Append,
    AppendResponse,
    SnapshotChunk,
    SnapshotResponse,
    TimeoutNow,
)
from paceline_node.controller.raft_progress import Mode, Progress, has_majority, trusted_index
from paceline_node.controller.raft_snapshot import SnapshotTransfer, encode_snapshot
from paceline_node.controller.raft_state import NodeState
from paceline_node.controller.raft_trust import Trust
from paceline_node.controller.raft_types import Config, Entry, EntryKind, MemberId, ReadReady

_MANY_VOTERS = 5
"""Among so many a candidate may win yet with the vote of a member that has forgotten it, though a
majority follows another leader. So all must have answered before that member counts (RAFT 2.9)."""


@dataclass(slots=True)
class _Handover:
    """A leadership transfer under way; no proposals until it ends."""

    target: MemberId
    deadline_tick: int
    sent: bool = False


@dataclass(slots=True)
class _Read:
    context: int
    round: int
    index: int


class Leader:
    """State that exists only while this member leads."""

    def __init__(self, state: NodeState, elected_with: Mapping[MemberId, int]) -> None:
        """``elected_with``: processes that the election rested on though they are not sure (RAFT
        2.9)."""
        self._state = state
        self._elected_with = elected_with
        self.progress: dict[MemberId, Progress] = {}
        self._handover: _Handover | None = None
        self._round = 0
        self._reads: list[_Read] = []
        self._early_reads: list[int] = []
        self._uncommitted_bytes = 0
        self._encoded_snapshot: tuple[int, bytes] = (-1, b"")
        self._match_members()
        # Only an entry of its own term tells a leader what is committed (Raft figure 8).
        self.term_start = self._append(EntryKind.NOOP, b"").index

    # --- proposing -------------------------------------------------------------------------------

    def propose(self, data: bytes) -> Entry:
        """Append records. Raises NotController while leadership moves, Throttled when too much
        is uncommitted."""
        if self._handover is not None:
            raise NotController(f"leadership is moving to {self._handover.target}")
        if self._uncommitted_bytes + len(data) > self._state.limits.uncommitted_bytes:
            raise Throttled(f"{self._uncommitted_bytes} bytes of metadata are not committed yet")
        return self._append(EntryKind.RECORDS, data)

    def propose_config(self, config: Config, *, force: bool = False) -> Entry:
        """Append a configuration; it is in force at once. Raises InvalidRequest, NotController."""
        if self._handover is not None:
            raise NotController(f"leadership is moving to {self._handover.target}")
        if not self.may_change_config():
            raise InvalidRequest("an earlier membership change, or this term, is not committed yet")
        check_change(self._state.log.config, config, live=self.live(), force=force)
        entry = self._append(EntryKind.CONFIG, config.to_bytes())
        self._match_members()
        return entry

    def may_change_config(self) -> bool:
        """One change at a time, and only after an entry of this term is committed: else two
        leaders could change one voter each, from the same start, to disjoint majorities."""
        log = self._state.log
        return log.config_index <= self._state.commit and self.term_is_committed()

    def term_is_committed(self) -> bool:
        return self._state.commit >= self.term_start

    def _append(self, kind: EntryKind, data: bytes) -> Entry:
        state = self._state
        entry = Entry(state.log.last_index + 1, state.term, kind, data)
        state.append(entry)
        self._uncommitted_bytes += len(data)
        return entry

    def _match_members(self) -> None:
        """Keep one Progress per member of the configuration in force."""
        state = self._state
        members = [member for member in state.log.config.member_ids if member != state.me]
        for gone in [member for member in self.progress if member not in members]:
            del self.progress[gone]
        for member in members:
            if member not in self.progress:
                self.progress[member] = Progress(
                    next=state.log.last_index + 1,
                    heard_tick=state.now_tick,
                    trust=Trust(self._elected_with.get(member, 0)),
                    round_target=state.log.last_index,
                )

    # --- sending ---------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send whatever members lack: entries, snapshot chunks, the commit index, the hand-over.

        Called once before effects are handed out, so that everything proposed meanwhile shares
        one round."""
        for member, progress in self.progress.items():
            if progress.mode is Mode.SNAPSHOT:
                self._send_chunk(member, progress)
            else:
                self._send_entries(member, progress)
        handover = self._handover
        if handover is not None and not handover.sent:
            target = self.progress.get(handover.target)
            if target is not None and target.match == self._state.log.last_index:
                handover.sent = True
                self._state.send(TimeoutNow(self._state.me, handover.target, self._state.term))

    def _send_entries(self, member: MemberId, progress: Progress) -> None:
        log, limits = self._state.log, self._state.limits
        while progress.next <= log.last_index:
            if progress.mode is Mode.PROBE and progress.probe_sent:
                return
            if len(progress.inflight) >= limits.inflight_appends:
                return
            if progress.next <= log.base_index:
                self._begin_transfer(member, progress)
                return
            entries = log.batch(
                progress.next, max_bytes=limits.append_bytes, max_entries=limits.append_entries
            )
            self._send_append(member, progress, entries)
            if progress.mode is Mode.PROBE:
                progress.probe_sent = True
                return
            progress.next += len(entries)
            progress.inflight.append(progress.next - 1)
        has_news = progress.sent_commit < self._state.commit or progress.trust.has_news()
        if progress.mode is Mode.REPLICATE and has_news:
            self._send_append(member, progress, ())

    def _send_append(
        self, member: MemberId, progress: Progress, entries: tuple[Entry, ...]
    ) -> None:
        state = self._state
        prev_index = progress.next - 1
        prev_term = state.log.term_at(prev_index)
        if progress.mode is Mode.SNAPSHOT or prev_term is None:
            # Nothing can be checked here; index 0 agrees with every log and commits nothing.
            prev_index, prev_term = 0, 0
        progress.sent_commit = state.commit
        state.send(
            Append(
                sender=state.me,
                to=member,
                term=state.term,
                prev_index=prev_index,
                prev_term=prev_term,
                commit=state.commit,
                round=self._round,
                sure_life=progress.trust.tell(),
                voters_since=state.log.newest_voters_since,
                entries=entries,
            )
        )

    def _heartbeat(self, member: MemberId, progress: Progress) -> None:
        """An empty Append: keeps the lease, and finds lost entries by being refused.

        Where the entry before ``next`` is compacted nothing could be refused any more, so a
        member whose entries were lost in flight would be stuck: it gets the snapshot.
        """
        if progress.mode is not Mode.SNAPSHOT and progress.next <= self._state.log.base_index:
            self._begin_transfer(member, progress)
        self._send_append(member, progress, ())

    # --- snapshots -------------------------------------------------------------------------------

    def _begin_transfer(self, member: MemberId, progress: Progress) -> None:
        snapshot = self._state.log.snapshot
        if self._encoded_snapshot[0] != snapshot.index:
            encoded = encode_snapshot(snapshot, self._state.cluster_id)
            self._encoded_snapshot = (snapshot.index, encoded)
        progress.mode = Mode.SNAPSHOT
        progress.inflight.clear()
        progress.transfer = SnapshotTransfer(
            snapshot.index,
            snapshot.term,
            self._encoded_snapshot[1],
            self._state.limits.chunk_bytes,
        )
        self._send_chunk(member, progress)

    def _send_chunk(self, member: MemberId, progress: Progress) -> None:
        """Send the next chunk, or repeat it after half an election timeout of silence."""
        transfer = progress.transfer
        assert transfer is not None
        state = self._state
        patience = state.timing.election_ticks // 2
        if transfer.sent_tick >= 0 and state.now_tick < transfer.sent_tick + patience:
            return
        transfer.sent_tick = state.now_tick
        state.send(
            SnapshotChunk(
                sender=state.me,
                to=member,
                term=state.term,
                index=transfer.index,
                snapshot_term=transfer.term,
                voters_since=state.log.newest_voters_since,
                total=len(transfer.data),
                crc=transfer.crc,
                offset=transfer.offset,
                data=transfer.piece(),
            )
        )

    def on_snapshot_response(self, message: SnapshotResponse) -> None:
        progress = self._heard(message.sender)
        if progress is None or progress.transfer is None:
            return
        transfer = progress.transfer
        if transfer.index != message.index or message.next_offset == transfer.offset:
            return
        if message.next_offset <= len(transfer.data):
            transfer.offset = message.next_offset
            transfer.sent_tick = -1

    # --- answers ---------------------------------------------------------------------------------

    def _heard(self, member: MemberId) -> Progress | None:
        progress = self.progress.get(member)
        if progress is not None:
            progress.heard_tick = self._state.now_tick
            progress.refused = False
        return progress

    def on_append_response(self, message: AppendResponse) -> None:
        progress = self._heard(message.sender)
        if progress is None:
            return
        progress.acked_round = max(progress.acked_round, message.round)
        self._note_trust(progress.trust, message)
        if not message.ok:
            progress.rejected(message.reject_index, message.hint)
            return
        log = self._state.log
        if progress.mode is Mode.SNAPSHOT:
            assert progress.transfer is not None
            if message.match < min(progress.transfer.index, log.base_index):
                return
            progress.probe(message.match + 1)
        progress.accepted(min(message.match, log.last_index))
        progress.note_round(log.last_index, self._state.limits.learner_lag)
        self.advance_commit()

    def _note_trust(self, trust: Trust, message: AppendResponse) -> None:
        """An answer came; of a process that started just now, it is asked for by a round."""
        trust.note(message)
        if trust.needs_round():
            trust.begin(self._round + 1)
            self._begin_round()
        elif self._reads or any(each.trust.is_open() for each in self.progress.values()):
            self._finish_rounds()

    def advance_commit(self) -> None:
        """Commit what a majority of the voters has on stable storage, this member included, if
        it is of this term; older entries are committed by what follows them."""
        state = self._state
        index = self._agreed(state.log.stable_index, lambda progress: progress.match)
        if index <= state.commit or state.log.term_at(index) != state.term:
            return
        for entry in state.log.slice(max(state.commit + 1, self.term_start), index + 1):
            self._uncommitted_bytes -= len(entry.data)
        state.commit_to(index)
        for context in self._early_reads:
            self.read_index(context)
        self._early_reads.clear()

    def _agreed(self, mine: int, theirs: Callable[[Progress], int]) -> int:
        """How far enough voters agree: a majority whose word counts, or all of them."""
        state = self._state
        return trusted_index(
            [
                (mine, True)
                if voter == state.me
                else (theirs(self.progress[voter]), self.progress[voter].trust.counts())
                for voter in state.log.config.voter_ids
            ]
        )

    # --- time ------------------------------------------------------------------------------------

    def tick(self) -> None:
        state = self._state
        if state.now_tick % state.timing.heartbeat_ticks == 0:
            for member, progress in self.progress.items():
                self._heartbeat(member, progress)
        if self._handover is not None and state.now_tick >= self._handover.deadline_tick:
            self._handover = None

    def live(self) -> frozenset[MemberId]:
        """Members heard within the minimum election timeout and not known to be dead; itself."""
        state = self._state
        oldest = state.now_tick - state.timing.election_ticks
        heard = {
            member
            for member, progress in self.progress.items()
            if progress.heard_tick > oldest and not progress.refused
        }
        return frozenset(heard | {state.me})

    def caught_up(self) -> frozenset[MemberId]:
        """Members that ended two catch-up rounds in a row close to the end of the log."""
        return frozenset(
            member for member, progress in self.progress.items() if progress.good_rounds >= 2
        )

    def forgetful(self) -> frozenset[MemberId]:
        """Members that lack entries which they had acknowledged to this leader."""
        return frozenset(member for member, progress in self.progress.items() if progress.forgot)

    def has_quorum(self) -> bool:
        """Check quorum: whether a majority of the voters was heard within the timeout.

        A refused connection does not count here: the process may be back before its time is up.
        """
        return self._have_majority(lambda progress: True)

    def must_ask_anew(self) -> bool:
        """Whether nothing will be committed, but an election may be won: the members that are heard
        are no majority without those that may have forgotten a newer leader, and are patient no
        more. In a term that goes far ahead it is certain who leads (RAFT 2.9)."""
        return not self._have_majority(lambda progress: progress.trust.counts()) and (
            self._have_majority(lambda progress: progress.trust.would_be_elected_with())
        )

    def _have_majority(self, counts: Callable[[Progress], bool]) -> bool:
        """Whether so many voters were heard within the minimum election timeout; itself."""
        state = self._state
        oldest = state.now_tick - state.timing.election_ticks
        heard = {
            member
            for member, progress in self.progress.items()
            if progress.heard_tick > oldest and counts(progress)
        }
        return has_majority(heard | {state.me}, state.log.config.voter_ids)

    def is_removed(self) -> bool:
        """Whether the change that took this member out of the voters is committed."""
        state = self._state
        return not state.is_voter() and state.log.config_index <= state.commit

    # --- reads -----------------------------------------------------------------------------------

    def read_index(self, context: int) -> None:
        """Ask a majority whether this is still the leader; answered through ``effects.reads``."""
        if not self.term_is_committed():
            self._early_reads.append(context)
            return
        self._reads.append(_Read(context, self._round + 1, self._state.commit))
        self._begin_round()

    def _begin_round(self) -> None:
        """Ask everybody whether this is still the leader."""
        self._round += 1
        for member, progress in self.progress.items():
            self._send_append(member, progress, ())
        self._finish_rounds()

    def _finish_rounds(self) -> None:
        """End what waits for a round that enough voters have answered."""
        state = self._state
        acked = self._agreed(self._round, lambda progress: progress.acked_round)
        self._confirm(acked)
        while self._reads and self._reads[0].round <= acked:
            read = self._reads.pop(0)
            state.effects.reads.append(ReadReady(read.context, read.index))

    def _confirm(self, acked: int) -> None:
        """Processes that this round was begun for have promised nothing to a newer leader."""
        voters = self._state.log.config.voter_ids
        if len(voters) >= _MANY_VOTERS:
            others = voters - {self._state.me}
            acked = min(self.progress[voter].acked_round for voter in others)
        for progress in self.progress.values():
            progress.trust.confirmed(acked, self._state.log.last_index)

    def abandon_reads(self) -> None:
        """Leadership is lost: the reads under way fail."""
        contexts = [read.context for read in self._reads] + self._early_reads
        self._state.effects.reads.extend(ReadReady(context, -1) for context in contexts)

    # --- handing over ----------------------------------------------------------------------------

    def transfer(self, target: MemberId) -> None:
        """Move leadership to another voter; given up after one election timeout.

        Raises InvalidRequest when ``target`` is none.
        """
        state = self._state
        if target == state.me or target not in state.log.config.voter_ids:
            raise InvalidRequest(f"{target} is no other voter of the metadata quorum")
        self._handover = _Handover(target, state.now_tick + state.timing.election_ticks)

    def best_successor(self) -> MemberId | None:
        """The live voter with the longest log; a sure one if possible, for no other wins a
        hand-over."""
        live = self.live()
        candidates = [
            (progress.trust.is_sure, progress.match, member)
            for member, progress in self.progress.items()
            if member in live and member in self._state.log.config.voter_ids
        ]
        return max(candidates)[2] if candidates else None

    def refused(self, member_node: int) -> None:
        """A connection to this node was refused: its process is dead for now."""
        for member, progress in self.progress.items():
            if member.node == member_node:
                progress.refused = True
