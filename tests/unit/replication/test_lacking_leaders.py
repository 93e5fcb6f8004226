"""A complete replica is never cut below what it knows to be committed because a leader says so: the
leader has lost something then. An unclean election ends the completeness of all others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.types import NodeId
from paceline_cluster.sim.replicas.simlog import SimLog
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.replication.follower import FetchOutcome
from paceline_node.replication.replica import Replica
from paceline_node.storage.producers import FrozenTable
from tests.sim.replication.build import brokers, fetch_once, log_of, registration

COMPLETE = {
    "in sync": registration(0, 5),
    "in the ELR": replace(registration(0, 5, isr=(0,)), elr=(NodeId(1), NodeId(2))),
}
OUTSIDE = {
    "not complete": registration(0, 5, isr=(0, 2)),
    "damaged": replace(registration(0, 5), damaged=(NodeId(1),)),
}
LACKING = {
    "shorter": (1, 1),
    "empty": (),
    "another epoch": (1, 1, 3, 3, 3, 3),
    "one epoch for all": (1, 1, 1, 1, 1, 1),
}
"""Leaders' logs that lack what the follower knows, or do not know whose it is."""
KNOWN = (1, 1, 2, 2)


def pair(
    theirs: tuple[int, ...], seen: PartitionRegistration, high_watermark: int
) -> tuple[Replica, Replica]:
    leader = Replica(NodeId(0), SimLog.of_epochs(theirs))
    follower = Replica(NodeId(1), SimLog.of_epochs(KNOWN), high_watermark=high_watermark)
    leader.apply(seen, brokers(), 0.0)
    follower.apply(seen, brokers(), 0.0)
    return leader, follower


@pytest.mark.parametrize("place", COMPLETE)
@pytest.mark.parametrize("what", LACKING)
def test_nothing_that_is_known_to_be_committed_is_cut(what: str, place: str) -> None:
    leader, follower = pair(LACKING[what], COMPLETE[place], high_watermark=4)
    for nonce in range(1, 4):
        assert fetch_once(leader, follower, nonce=nonce) is FetchOutcome.LACKING
    assert log_of(follower).log_end_offset == follower.high_watermark == 4


@pytest.mark.parametrize("place", OUTSIDE)
@pytest.mark.parametrize("what", LACKING)
def test_who_is_not_complete_is_cut(what: str, place: str) -> None:
    """So it is after an unclean election, which leaves nobody complete but the elected one."""
    leader, follower = pair(LACKING[what], OUTSIDE[place], high_watermark=4)
    outcomes = [fetch_once(leader, follower, nonce=nonce) for nonce in range(1, 4)]
    assert FetchOutcome.TRUNCATED in outcomes
    assert outcomes[-1] in (FetchOutcome.IDLE, FetchOutcome.APPENDED)
    assert log_of(follower).records == log_of(leader).records


def test_what_is_not_committed_is_cut_all_the_same() -> None:
    leader, follower = pair((1, 1), COMPLETE["in sync"], high_watermark=2)
    assert fetch_once(leader, follower) is FetchOutcome.TRUNCATED
    assert log_of(follower).log_end_offset == 2


def test_a_leader_without_the_trimmed_records_is_not_followed_either() -> None:
    """An empty log that begins at its log start knows that all below was committed."""
    leader = Replica(NodeId(0), SimLog.of_epochs((1, 1)))
    log = SimLog()
    log.begin_at(FrozenTable(4), is_kept=True)
    follower = Replica(NodeId(1), log)
    for replica in (leader, follower):
        replica.apply(COMPLETE["in sync"], brokers(), 0.0)
    assert fetch_once(leader, follower) is FetchOutcome.LACKING
