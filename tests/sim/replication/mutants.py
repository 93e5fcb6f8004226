"""Wrong versions of single rules: the checker of the checkers (sim/DESIGN 4.1,
replication/DESIGN 10).

Each one is a patch of the product's own code. A mutant that survives its budget of seeds says that
the profiles or the oracle are too weak.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from paceline.errors import ErrorCode
from paceline.types import NodeId
from paceline.wire.peer.control import PartitionProposal
from paceline_cluster.sim.replicas.broker import SimBroker
from paceline_cluster.sim.replicas.oracle import Oracle
from paceline_cluster.sim.replicas.runs import (
    AGED,
    AGED_ALONE,
    AGED_APART,
    AGED_DATA,
    LOSSY_SMALL,
    MIN_ISR,
    MIXED,
    MOVER,
    POWER_ALL,
    REJECTED,
    RESTARTS,
    SLOW_PROPOSAL,
    Profile,
)
from paceline_node.controller import context, isr_proposals, partition_change, registration
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.replication import refused_truncations
from paceline_node.replication import replica as replica_module
from paceline_node.replication.fetch_checks import (
    ACCEPTED,
    FetchCheck,
    FollowerIdentity,
    check_position,
)
from paceline_node.replication.follower import FetchOutcome, FollowerState
from paceline_node.replication.isr import FollowerProgress, committed_end
from paceline_node.replication.leader import Brokers, LeaderState
from paceline_node.replication.registration_gate import RegistrationGate
from paceline_node.replication.replica import Replica
from paceline_node.replication.replica_log import ReplicaLog
from paceline_node.storage import incarnation

Patch = Callable[[], contextlib.AbstractContextManager[object]]


@dataclass(frozen=True)
class Mutant:
    """``budget`` seeds of ``profile`` must suffice; ``seed`` is one that was found to."""

    name: str
    profile: Profile
    budget: int
    patch: Patch
    seed: int = 0


def _set(target: object, name: str, value: object) -> Patch:
    return lambda: mock.patch.object(target, name, value)


# --- leader --------------------------------------------------------------------------------------


def _committed_without_min_isr(self: LeaderState, own_ack: int) -> int | None:
    return committed_end(own_ack, self._others, self.followers, 1, 1)


def _recount_committed_isr_only(self: LeaderState) -> None:
    members = set(self.registration.isr) - {self.me}
    self._others = tuple(sorted(members))
    self._isr_size = len(self.registration.isr)


def _may_join(*, without: str) -> Callable[[LeaderState, NodeId, int, Brokers], bool]:
    def may_join(self: LeaderState, node: NodeId, high_watermark: int, brokers: Brokers) -> bool:
        known = self.followers.get(node)
        registered = brokers.get(node)
        if known is None or registered is None or registered.fenced:
            return False
        return (
            (without == "hw" or known.ack >= high_watermark)
            and (without == "leso" or known.ack >= self.start_offset)
            and (without == "epoch" or known.broker_epoch == registered.broker_epoch)
        )

    return may_join


@contextlib.contextmanager
def _followers_kept() -> Iterator[None]:
    become = Replica._become_leader
    kept: dict[int, dict[NodeId, FollowerProgress]] = {}

    def become_leader(self: Replica, registered: PartitionRegistration, now: float) -> None:
        if self.leader is not None:
            kept[id(self)] = self.leader.followers
        become(self, registered, now)
        assert self.leader is not None
        # Only a leader that never knew of the terms in between still has its state.
        self.leader.followers.update(kept.get(id(self), {}))

    leave = Replica._leave_role

    def leave_role(self: Replica, role: Any) -> None:
        if self.leader is not None:
            kept[id(self)] = self.leader.followers
        leave(self, role)

    with (
        mock.patch.object(Replica, "_become_leader", become_leader),
        mock.patch.object(Replica, "_leave_role", leave_role),
    ):
        yield


def _answer_commits(self: SimBroker, proposal: PartitionProposal, error: int) -> None:
    replica = self.replica
    if replica is None or replica.leader is None or error != ErrorCode.NONE:
        return
    state = replica.leader
    if state.pending is None or state.leader_epoch != proposal.leader_epoch:
        return
    isr = tuple(member.node_id for member in proposal.isr)
    base = state.registration
    if base.partition_epoch == proposal.partition_epoch:
        state.pending = None
        # The epoch is left as it was, so that metadata is still adopted.
        state.registration = replace(base, isr=isr)
        state._recount()
        self._advance()


@contextlib.contextmanager
def _min_isr_apart() -> Iterator[None]:
    """The answer is acted on, and min ISR changes without the partition epoch, as if it were no
    part of the partition's record (3.6, first hole)."""
    change_partition = partition_change.change_partition

    def keeping_epoch(
        partition: PartitionRegistration, electorate: Any, change: Any
    ) -> PartitionRegistration | None:
        changed = change_partition(partition, electorate, change)
        if changed is None or change.min_isr is None or changed.leader != partition.leader:
            return changed
        return replace(changed, partition_epoch=partition.partition_epoch)

    with (
        mock.patch.object(SimBroker, "on_proposal_answer", _answer_commits),
        mock.patch.object(context, "change_partition", keeping_epoch),
        mock.patch.object(Oracle, "ignored", frozenset(("I9",))),
    ):
        yield


def _answer_rolls_back(self: SimBroker, proposal: PartitionProposal, error: int) -> None:
    replica = self.replica
    if replica is not None and replica.leader is not None:
        state = replica.leader
        if error == ErrorCode.INELIGIBLE_REPLICA and state.pending is not None:
            state.pending = None
            state._recount()
            self._advance()


@contextlib.contextmanager
def _rolled_back_without_bump() -> Iterator[None]:
    with (
        mock.patch.object(SimBroker, "on_proposal_answer", _answer_rolls_back),
        _no_bump(),
    ):
        yield


@contextlib.contextmanager
def _no_bump() -> Iterator[None]:
    change_partition = partition_change.change_partition

    def without_bump(
        partition: PartitionRegistration, electorate: Any, change: Any
    ) -> PartitionRegistration | None:
        return change_partition(partition, electorate, replace(change, bump=False))

    with mock.patch.object(context, "change_partition", without_bump):
        yield


# --- fetch ---------------------------------------------------------------------------------------


def _check_without_epoch(self: Replica, sender: FollowerIdentity, position: Any) -> FetchCheck:
    if self.leader is None:
        return FetchCheck(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if sender.node not in self.leader.registration.replicas:
        return FetchCheck(ErrorCode.UNKNOWN_LEADER_EPOCH)
    if self._is_stale(self.leader, sender):
        return FetchCheck(ErrorCode.STALE_BROKER_EPOCH)
    return check_position(self.log, self.leader.registration, position)


def _accepts_without_nonce(
    self: FollowerState, nonce: int, leader_epoch: int, fetch_offset: int, log_end: int
) -> bool:
    return leader_epoch == self.leader_epoch and fetch_offset == log_end


@contextlib.contextmanager
def _nonce_missing() -> Iterator[None]:
    on_fetched = Replica.on_fetched

    def any_nonce(self: Replica, nonce: int, answer: Any, records: Any) -> FetchOutcome:
        if self.follower is not None:
            self.follower.in_flight = nonce
        return on_fetched(self, nonce, answer, records)

    with mock.patch.object(Replica, "on_fetched", any_nonce):
        yield


@contextlib.contextmanager
def _truncated_to_high_watermark() -> Iterator[None]:
    take = Replica._take_role

    def take_role(self: Replica, registered: PartitionRegistration, now: float) -> Any:
        if registered.leader not in (self.me, -1):
            self.log.truncate(self.high_watermark)
        return take(self, registered, now)

    def no_divergence(log: ReplicaLog, seen: PartitionRegistration, position: Any) -> FetchCheck:
        return ACCEPTED

    with (
        mock.patch.object(Replica, "_take_role", take_role),
        mock.patch.object(replica_module, "check_position", no_divergence),
    ):
        yield


@contextlib.contextmanager
def _log_end_counted() -> Iterator[None]:
    init = Replica.__init__

    def counting_log_end(self: Replica, me: NodeId, log: Any, **options: Any) -> None:
        init(self, me, log, high_watermark=options["high_watermark"], counts_durable=False)

    with mock.patch.object(Replica, "__init__", counting_log_end):
        yield


# --- controller ----------------------------------------------------------------------------------


def _sticky_elr(
    partition: PartitionRegistration,
    change: Any,
    replicas: tuple[NodeId, ...],
    min_isr: int,
    damaged: Any,
) -> Any:
    wanted = partition.isr if change.isr is None else change.isr
    isr = tuple(node for node in replicas if node in wanted)
    complete = {*partition.elr, *partition.isr}
    elr = tuple(
        node
        for node in replicas
        if node in complete and node not in isr and node not in change.untrusted
    )
    return partition_change._Membership(partition.leader, isr, elr, ())


@contextlib.contextmanager
def _always_trusted() -> Iterator[None]:
    replace_process = registration._replace_process

    def keeping(draft: Any, request: Any, *, is_trusted: bool, keeps_place: bool) -> None:
        replace_process(draft, request, is_trusted=is_trusted, keeps_place=True)

    with mock.patch.object(registration, "_replace_process", keeping):
        yield


def _follows_strictly(request: Any, known: Any) -> bool:
    same: bool = request.directory_id == known.directory_id
    return same and request.prev_epoch == known.broker_epoch


@contextlib.contextmanager
def _no_cas() -> Iterator[None]:
    without = tuple(
        check for check in isr_proposals._CHECKS if check is not isr_proposals._on_this_version
    )
    with mock.patch.object(isr_proposals, "_CHECKS", without):
        yield


@contextlib.contextmanager
def _broker_epoch_of_member_unchecked() -> Iterator[None]:
    def eligible(member: Any, partition: Any, draft: Any) -> bool:
        broker = draft.broker(member.node_id)
        return broker is not None and not broker.fenced

    with (
        mock.patch.object(LeaderState, "may_join", _may_join(without="epoch")),
        mock.patch.object(isr_proposals, "_eligible", eligible),
    ):
        yield


_OLD_COPIES_TRUSTED = _set(registration, "_is_outdated", lambda request, image: False)
_OLD_DATA_TRUSTED = _set(incarnation, "known_syncs", lambda previous, noted: 0)


def _although_trusted(patch: Patch) -> Patch:
    """Most disks that are older copies are known by the metadata on them, and so never lead. What
    holds where one is not known is seen sooner without that."""

    @contextlib.contextmanager
    def both() -> Iterator[None]:
        with _OLD_COPIES_TRUSTED(), patch():
            yield

    return both


def _obeys(cut: FetchOutcome) -> Patch:
    """What is refused for this reason is done after all."""
    judge = refused_truncations.judge

    def obedient(*seen: Any) -> FetchOutcome | None:
        refused = judge(*seen)
        return None if refused is cut else refused

    return _set(refused_truncations, "judge", obedient)


@contextlib.contextmanager
def _taint_forgotten() -> Iterator[None]:
    begin = incarnation.begin
    judge = incarnation.judge

    def forgetful(previous: Any, verdict: Any) -> Any:
        state = begin(previous, verdict)
        return replace(state, tainted=verdict is incarnation.Verdict.UNTRUSTED)

    def unsuspecting(previous: Any, boot_id: str) -> Any:
        return judge(None if previous is None else replace(previous, tainted=False), boot_id)

    with (
        mock.patch.object(incarnation, "begin", forgetful),
        mock.patch.object(incarnation, "judge", unsuspecting),
        # The longest log would make up for it, but in thousands of seeds.
        _obeys(FetchOutcome.LONGER)(),
        mock.patch.object(refused_truncations, "awaits_others", return_value=False),
    ):
        yield


def _present_term_alone(registration: Any) -> frozenset[int]:
    open_now = registration.recovery == partition_change.RECOVERY_UNCONFIRMED
    return frozenset({registration.leader_epoch} if open_now else ())


EARLY = (
    Mutant(
        "HW without min ISR",
        MIXED,
        5,
        _set(LeaderState, "committed_end", _committed_without_min_isr),
    ),
    Mutant("sticky ELR", MIXED, 5, _set(partition_change, "_membership", _sticky_elr)),
    Mutant("no maximal ISR", MIXED, 5, _set(LeaderState, "_recount", _recount_committed_isr_only)),
    Mutant(
        "expand without ack >= HW",
        MIXED,
        10,
        _set(LeaderState, "may_join", _may_join(without="hw")),
    ),
    Mutant("truncate to HW", MIXED, 5, _truncated_to_high_watermark),
)
"""Found within 1 to 6 seeds of profile mixed."""

MIDDLE = (
    Mutant(
        "expand without ack >= LESO",
        MIXED,
        50,
        _set(LeaderState, "may_join", _may_join(without="leso")),
        seed=105,
    ),
    Mutant(
        "roles before registration",
        MIXED,
        50,
        _set(RegistrationGate, "admits", lambda self, offset: True),
        seed=0,
    ),
    Mutant("always trusted", LOSSY_SMALL, 50, _always_trusted, seed=1),
    Mutant("answer commits the ISR, min ISR apart", MIN_ISR, 50, _min_isr_apart, seed=4),
    Mutant(
        "no leader epoch check in fetch",
        MOVER,
        50,
        _set(Replica, "check_fetch", _check_without_epoch),
        seed=21,
    ),
    Mutant("follower state kept over epochs", MOVER, 50, _followers_kept, seed=4),
    Mutant("no partition epoch CAS", SLOW_PROPOSAL, 50, _no_cas, seed=56),
    Mutant("log end counted in mode group", POWER_ALL, 50, _log_end_counted),
    Mutant(
        "committed records cut",
        AGED,
        50,
        _although_trusted(_obeys(FetchOutcome.LACKING)),
        seed=28,
    ),
    Mutant("longer logs cut", AGED, 100, _obeys(FetchOutcome.LONGER), seed=59),
    Mutant("older copies of a disk trusted", AGED_APART, 100, _OLD_COPIES_TRUSTED, seed=20),
    Mutant("old data not noticed", AGED_DATA, 100, _OLD_DATA_TRUSTED, seed=19),
    Mutant(
        "former unconfirmed terms count",
        AGED_ALONE,
        200,
        _although_trusted(_set(refused_truncations, "unconfirmed_epochs", _present_term_alone)),
        seed=8,
    ),
)
"""Found within 5 to 50 seeds of the profile that is biased to them."""

LATE = (
    Mutant(
        "broker epoch of added member unchecked",
        SLOW_PROPOSAL,
        1500,
        _broker_epoch_of_member_unchecked,
        seed=193,
    ),
    Mutant("taint forgotten", LOSSY_SMALL, 1500, _taint_forgotten, seed=2434),
    Mutant("nonce missing", MOVER, 1500, _nonce_missing, seed=0),
    Mutant(
        "boot_seq unchecked",
        RESTARTS,
        1500,
        _set(registration, "_check_start", lambda request, known: None),
        seed=1,
    ),
    Mutant(
        "registration after one never activated distrusted",
        RESTARTS,
        1500,
        _set(registration, "_follows", _follows_strictly),
        seed=2,
    ),
)
"""Budgets of 1500 seeds; each has one that is known to find it."""

SCRIPTED = (
    Mutant("rollback on INELIGIBLE without a bump", REJECTED, 0, _rolled_back_without_bump),
    Mutant(
        "fetch of an older broker epoch accepted",
        LOSSY_SMALL,
        0,
        _set(Replica, "_is_stale", lambda self, leader, sender: False),
    ),
)
"""Random runs take thousands of seeds for these: ``test_scripted_mutants.py``."""

ALL = (*EARLY, *MIDDLE, *LATE, *SCRIPTED)
