"""After everybody went down the longest log leads: a follower that has it is not cut, and nobody
commits anything before a second complete replica was heard, for a while."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.types import LeaderEpoch, NodeId
from paceline_cluster.sim.replicas.simlog import SimLog
from paceline_node.controller.metadata_records import PartitionRegistration, UnconfirmedTerm
from paceline_node.controller.partition_change import RECOVERY_UNCLEAN, RECOVERY_UNCONFIRMED
from paceline_node.replication.follower import FetchOutcome
from paceline_node.replication.refused_truncations import PATIENCE_S
from paceline_node.replication.replica import Replica
from tests.sim.replication.build import brokers, fetch_once, log_of, registration

Epochs = tuple[int, ...]
OPEN = replace(registration(0, 6, isr=(0,)), elr=(NodeId(2),), recovery=RECOVERY_UNCONFIRMED)
"""Node 0 was complete, as was 2; of 1 nobody knows."""
LONGER = {
    "same epoch": ((1, 1), (1, 1, 1)),
    "newer epoch": ((1, 1), (1, 1, 2)),
    "leader is empty": ((), (1,)),
}
FORKED = {
    "newer epoch": ((1, 1, 1), (1, 1, 2)),
    "newer epoch, earlier end": ((1, 1, 1, 1), (1, 1, 2)),
}
"""The leader has something that the follower's newer epoch took the place of."""
NOT_LONGER = {
    "older epoch, later end": ((1, 1, 3), (1, 1, 1, 1, 1)),
    "epoch between": ((1, 1, 3), (1, 1, 2, 2)),
}


def pair(
    theirs: Epochs, mine: Epochs, seen: PartitionRegistration, *, high_watermark: int = 0
) -> tuple[Replica, Replica]:
    """``high_watermark`` is what the follower knows."""
    leader = Replica(NodeId(0), SimLog.of_epochs(theirs))
    follower = Replica(NodeId(1), SimLog.of_epochs(mine), high_watermark=high_watermark)
    for replica in (leader, follower):
        replica.apply(seen, brokers(), 0.0)
    return leader, follower


@pytest.mark.parametrize("logs", LONGER.values(), ids=LONGER)
def test_the_longer_log_is_not_cut(logs: tuple[Epochs, Epochs]) -> None:
    leader, follower = pair(*logs, OPEN)
    before = list(log_of(follower).records)
    for nonce in range(1, 4):
        assert fetch_once(leader, follower, nonce=nonce) is FetchOutcome.LONGER
    assert log_of(follower).records == before


@pytest.mark.parametrize("logs", FORKED.values(), ids=FORKED)
def test_a_newer_epoch_in_which_nothing_was_committed_speaks_for_nobody(
    logs: tuple[Epochs, Epochs],
) -> None:
    """What the leader has instead may have been committed in a still newer term, without a record
    of that. The high watermark reaches to where the two fork."""
    leader, follower = pair(*logs, OPEN, high_watermark=2)
    assert fetch_once(leader, follower) is FetchOutcome.TRUNCATED
    assert [epoch for epoch, _ in log_of(follower).records] == [1, 1]


@pytest.mark.parametrize("logs", FORKED.values(), ids=FORKED)
def test_what_was_committed_in_place_of_the_leaders_does(logs: tuple[Epochs, Epochs]) -> None:
    leader, follower = pair(*logs, OPEN, high_watermark=3)
    assert fetch_once(leader, follower) is FetchOutcome.LONGER


def test_that_may_be_of_an_epoch_between() -> None:
    leader, follower = pair((1, 1, 1), (1, 1, 2, 3), OPEN, high_watermark=3)
    assert fetch_once(leader, follower) is FetchOutcome.LONGER


@pytest.mark.parametrize("logs", FORKED.values(), ids=FORKED)
def test_who_counts_as_complete_is_believed_whatever_its_epochs(
    logs: tuple[Epochs, Epochs],
) -> None:
    leader, follower = pair(*logs, replace(OPEN, elr=(NodeId(1), NodeId(2))))
    assert fetch_once(leader, follower) is FetchOutcome.LONGER


@pytest.mark.parametrize("logs", LONGER.values(), ids=LONGER)
def test_what_the_leader_writes_in_its_term_makes_it_no_longer(
    logs: tuple[Epochs, Epochs],
) -> None:
    leader, follower = pair(*logs, OPEN)
    for value in range(9):
        log_of(leader).append(6, value)
    assert fetch_once(leader, follower) is FetchOutcome.LONGER


@pytest.mark.parametrize("logs", NOT_LONGER.values(), ids=NOT_LONGER)
def test_the_shorter_log_is_cut(logs: tuple[Epochs, Epochs]) -> None:
    leader, follower = pair(*logs, OPEN)
    assert fetch_once(leader, follower) is FetchOutcome.TRUNCATED


OF_ITS_OWN = replace(OPEN, unconfirmed=(UnconfirmedTerm(LeaderEpoch(3), NodeId(0)),))
"""Node 0 led a term before, all alone; then everybody went down again."""
VOID = {
    "the leader wrote in it": ((1, 1, 3), (1, 1, 1, 1, 1)),
    "all that the leader has is of it": ((3,), (1,)),
}


@pytest.mark.parametrize("logs", VOID.values(), ids=VOID)
def test_what_was_written_in_unconfirmed_terms_makes_no_log_longer(
    logs: tuple[Epochs, Epochs],
) -> None:
    leader, follower = pair(*logs, OF_ITS_OWN)
    assert fetch_once(leader, follower) is FetchOutcome.LONGER


@pytest.mark.parametrize(
    "logs", [((1, 1, 1), (1, 1, 3)), ((1, 1, 2), (1, 1, 3)), ((1, 1, 2), (1, 1, 1, 3))]
)
def test_a_follower_is_no_longer_by_them_either(logs: tuple[Epochs, Epochs]) -> None:
    leader, follower = pair(*logs, OF_ITS_OWN)
    assert fetch_once(leader, follower) is FetchOutcome.TRUNCATED
    assert fetch_once(leader, follower, nonce=2) is not FetchOutcome.LONGER


def test_below_them_a_follower_may_be_longer() -> None:
    leader, follower = pair((1, 1), (1, 1, 1, 3, 3), OF_ITS_OWN)
    assert fetch_once(leader, follower) is FetchOutcome.TRUNCATED
    assert [epoch for epoch, _ in log_of(follower).records] == [1, 1, 1]
    assert fetch_once(leader, follower, nonce=2) is FetchOutcome.LONGER


class Withholding(SimLog):
    """Its last term may be rot: it was told to nobody (storage/DESIGN 6.1)."""

    is_true = False

    def is_proven(self) -> bool:
        return self.is_true

    def prove(self) -> bool:
        was, self.is_true = self.is_true, True
        return not was


def withholding(node: int, epochs: Epochs, seen: PartitionRegistration) -> Replica:
    replica = Replica(NodeId(node), Withholding.of_epochs(epochs))
    replica.apply(seen, brokers(), 0.0)
    return replica


@pytest.mark.parametrize("logs", LONGER.values(), ids=LONGER)
def test_what_is_withheld_makes_no_log_the_longer_one(logs: tuple[Epochs, Epochs]) -> None:
    leader, _ = pair(*logs, OPEN)
    follower = withholding(1, logs[1], OPEN)
    assert fetch_once(leader, follower) is FetchOutcome.TRUNCATED


def test_the_leader_proves_what_it_has_too() -> None:
    leader, _ = pair((1, 1, 2), (), OPEN)
    follower = withholding(1, (1, 1, 2), OPEN)
    assert fetch_once(leader, follower) is FetchOutcome.PROVEN
    assert fetch_once(leader, follower, nonce=2) is FetchOutcome.IDLE


def test_who_leads_proves_its_own() -> None:
    assert withholding(0, (1, 1, 2), OPEN).log.is_proven()
    assert not withholding(1, (1, 1, 2), OPEN).log.is_proven()


CLOSED = {
    "something may be committed since": replace(OPEN, recovery=0),
    "an operator elected it": replace(OPEN, recovery=RECOVERY_UNCLEAN),
    "damaged": replace(OPEN, damaged=(NodeId(1),)),
    "may not lead": replace(OPEN, marks=(NodeId(1),)),
}


@pytest.mark.parametrize("seen", CLOSED.values(), ids=CLOSED)
def test_otherwise_the_longer_log_is_cut_as_ever(seen: PartitionRegistration) -> None:
    leader, follower = pair(*LONGER["same epoch"], seen)
    assert fetch_once(leader, follower) is FetchOutcome.TRUNCATED


def proposed(leader: Replica) -> bool:
    assert leader.leader is not None
    return leader.leader.pending is not None


def test_who_does_not_count_joins_when_the_others_had_their_time() -> None:
    leader, follower = pair((1, 1), (1, 1), OPEN)
    fetch_once(leader, follower, now=PATIENCE_S - 0.1)
    assert not proposed(leader)
    fetch_once(leader, follower, nonce=2, now=PATIENCE_S)
    assert proposed(leader)


@pytest.mark.parametrize(
    "seen",
    [replace(OPEN, recovery=0), replace(OPEN, elr=()), replace(OPEN, elr=(NodeId(1),))],
    ids=["confirmed", "nobody else counts", "it counts itself"],
)
def test_nobody_else_waits(seen: PartitionRegistration) -> None:
    leader, follower = pair((1, 1), (1, 1), seen)
    fetch_once(leader, follower)
    assert proposed(leader)


def test_a_process_that_has_been_here_for_long_does_not_wait() -> None:
    leader, follower = pair((1, 1), (1, 1), registration(1, 5))
    for replica in (leader, follower):
        replica.apply(OPEN, brokers(), 100.0)
    fetch_once(leader, follower, now=100.0)
    assert proposed(leader)


def test_nobody_joins_while_a_longer_log_is_known_of() -> None:
    """Its word to the controller may be long on its way, and with another one in sync the leader
    would commit something else."""
    leader, longer = pair((1, 1), (1, 1, 1), replace(OPEN, elr=(NodeId(1), NodeId(2))))
    equal = Replica(NodeId(2), SimLog.of_epochs((1, 1)))
    equal.apply(replace(OPEN, elr=(NodeId(1), NodeId(2))), brokers(), 0.0)
    late = 10 * PATIENCE_S
    assert fetch_once(leader, longer, now=late) is FetchOutcome.LONGER
    fetch_once(leader, equal, now=late + PATIENCE_S - 0.1)
    assert not proposed(leader)
    fetch_once(leader, equal, nonce=2, now=late + PATIENCE_S)
    assert proposed(leader), "who has it is gone, and told nobody"
