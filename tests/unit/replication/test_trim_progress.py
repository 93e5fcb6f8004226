"""The low watermark of a partition whose records were deleted, and who waits for it."""

from __future__ import annotations

from paceline.types import NO_NODE, BrokerEpoch, LeaderEpoch, NodeId
from paceline_cluster.sim.replicas.simlog import SimLog
from paceline_node.replication.isr import FollowerProgress
from paceline_node.replication.replica import Replica
from paceline_node.replication.trim_progress import TrimProgress
from tests.sim.replication.build import brokers, fetch_once, next_registration
from tests.unit.replication.test_replica import elected, following


def test_a_follower_knows_no_low_watermark() -> None:
    assert TrimProgress(following()).low_watermark == -1


def test_the_low_watermark_is_that_of_the_last_replica_in_sync() -> None:
    leader = elected()
    trims = TrimProgress(leader)
    leader.durable_start = 2
    assert trims.low_watermark == -1, "nobody has said yet where its log begins"
    told: list[str] = []
    trims.when_reached(0, lambda: told.append("at the start"))
    trims.when_reached(1, lambda: told.append("one deleted"))
    gone = trims.when_reached(0, lambda: told.append("cancelled"))
    trims.cancel(gone)
    trims.cancel(gone)
    assert leader.registration is not None
    for node in (NodeId(1), NodeId(2)):
        follower = Replica(node, SimLog.of_epochs((1, 1)))
        follower.apply(leader.registration, brokers(), 0.0)
        fetch_once(leader, follower)
    trims.settle()
    assert trims.low_watermark == 0
    assert told == ["at the start"]
    trims.when_reached(0, lambda: told.append("at once"))
    assert told == ["at the start", "at once"]


def test_who_waits_is_called_when_the_role_changes() -> None:
    leader = elected()
    trims = TrimProgress(leader)
    told: list[str] = []
    trims.when_reached(7, lambda: told.append("over"))
    assert leader.registration is not None
    gone = next_registration(leader.registration, leader=NO_NODE, leader_epoch=LeaderEpoch(9))
    leader.apply(gone, brokers(), 0.0)
    assert trims.low_watermark == -1
    trims.role_changed()
    trims.role_changed()
    assert told == ["over"]


def test_a_leader_learns_a_later_log_start_from_all_others_in_sync() -> None:
    """Its own disk has forgotten what was deleted; one of them alone may be wrong."""
    leader = elected()
    followers: list[Replica] = []
    assert leader.registration is not None
    for node, start in ((NodeId(1), 1), (NodeId(2), 2)):
        log = SimLog.of_epochs((1, 1))
        log.advance_start(start)
        follower = Replica(node, log, high_watermark=2)
        follower.apply(leader.registration, brokers(), 0.0)
        assert leader.log.log_start_offset == 0
        fetch_once(leader, follower)
        followers.append(follower)
    assert leader.high_watermark == 2
    fetch_once(leader, followers[1])
    assert leader.log.log_start_offset == 1


def test_whoever_may_still_be_elected_must_have_it_too() -> None:
    """It has left the ISR, and is complete: leading, it would show what was deleted."""
    leader = elected()
    trims = TrimProgress(leader)
    leader.durable_start = 1
    assert leader.registration is not None
    alone = next_registration(
        leader.registration, isr=(NodeId(0),), elr=(NodeId(1), NodeId(2)), min_isr=2
    )
    leader.apply(alone, brokers(), 0.0)
    assert trims.low_watermark == -1
    without = next_registration(alone, elr=())
    leader.apply(without, brokers(), 0.0)
    assert trims.low_watermark == 1


def test_who_lacks_what_clients_were_told_is_deleted_does_not_join() -> None:
    leader = elected()
    leader.durable_start = 1
    assert leader.registration is not None
    alone = next_registration(leader.registration, isr=(NodeId(0),), min_isr=1)
    leader.apply(alone, brokers(), 0.0)
    leader.log.advance_start(1)
    follower = Replica(NodeId(1), SimLog.of_epochs((1, 1)))
    follower.apply(alone, brokers(), 0.0)
    fetch_once(leader, follower)
    fetch_once(leader, follower)
    assert follower.log.log_start_offset == 1
    assert leader.leader is not None
    assert leader.leader.pending is None, "it has not written down yet where the log begins"
    follower.durable_start = 1
    fetch_once(leader, follower)
    assert leader.leader.pending is not None


def test_a_follower_that_does_not_write_down_where_the_log_begins_leaves() -> None:
    """It is caught up with all that is written; a trim waits for it all the same."""
    leader = elected()
    assert leader.registration is not None
    followers = [Replica(NodeId(node), SimLog.of_epochs((1, 1))) for node in (1, 2)]
    for follower in followers:
        follower.apply(leader.registration, brokers(), 0.0)
        fetch_once(leader, follower)
    leader.log.advance_start(1)
    for second in range(5):
        for follower in followers:
            fetch_once(leader, follower, now=float(second))
        followers[1].durable_start = 1
        assert leader.consider_shrink(float(second), 3.0) is (second > 3)
    assert leader.leader is not None
    assert leader.leader.pending is not None
    assert [each.node_id for each in leader.leader.pending.isr] == [0, 2]


def test_a_follower_that_is_always_one_trim_behind_stays() -> None:
    known = FollowerProgress(BrokerEpoch(10), 0, 0, 0.0, 0.0, 0, 0.0)
    for second in range(1, 20):
        known.observe(0, 0, 0, float(second))
        known.observe_start(second - 1, second, float(second))
        assert not known.is_lagging(0, float(second), 3.0)
