"""ALTER_PARTITION: every check, in the order of controller/DESIGN 6.1."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from paceline.errors import ErrorCode
from paceline.types import NodeId, PartitionEpoch, TopicId
from paceline.wire.native.admin import UnregisterBroker
from paceline.wire.peer.control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionProposal,
)
from tests.unit.controller.bench import Bench


def led_by_0(isr: tuple[int, ...] = (0, 1)) -> Bench:
    bench = Bench()
    bench.start(0, 1, 2, 3)
    bench.create()
    if isr != bench.partition().isr:
        assert bench.propose(isr) == ErrorCode.NONE
    return bench


def test_grow_and_shrink() -> None:
    bench = led_by_0()
    assert (bench.partition().isr, bench.partition().elr) == ((0, 1), ())
    assert bench.propose((2, 1, 0)) == ErrorCode.NONE
    assert bench.partition().isr == (0, 1, 2)
    assert bench.propose((0,)) == ErrorCode.NONE
    assert (bench.partition().isr, bench.partition().elr) == ((0,), (1, 2))


def test_success_names_the_entry_to_wait_for() -> None:
    bench = led_by_0()
    reply = bench.ask(bench.proposal(bench.partition(), (0,)))
    assert isinstance(reply, AlterPartitionResponse)
    assert reply.results[0].metadata_offset == bench.image.offset


@pytest.mark.parametrize(
    ("isr", "stale", "error"),
    [
        ((0, 1, 2), {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ((0, 1, 2), {"partition_epoch": 99}, ErrorCode.NOT_CONTROLLER),
        ((0, 1, 2), {"broker_epoch": 10**6}, ErrorCode.NOT_CONTROLLER),
        ((0, 1, 2), {"member_epoch": 10**6}, ErrorCode.NOT_CONTROLLER),
        ((0, 1, 2), {"partition_epoch": 99, "leader_epoch": -1}, ErrorCode.NOT_CONTROLLER),
        ((0, 1, 2), {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ((0, 1, 2), {"sender": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ((0, 1, 2), {"sender": 9}, ErrorCode.FENCED_LEADER_EPOCH),
        ((0, 1, 2), {"broker_epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ((0, 1, 2), {"sender": 1, "partition_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ((0, 1, 2), {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ((0, 3), {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ((0, 3), {}, ErrorCode.INVALID_REQUEST),
        ((1, 2), {}, ErrorCode.INVALID_REQUEST),
        ((), {}, ErrorCode.INVALID_REQUEST),
        ((0, 0), {}, ErrorCode.INVALID_REQUEST),
        ((0, 1, 2), {"member_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ((0, 1, 2), {"member_epoch": 3}, ErrorCode.INELIGIBLE_REPLICA),
        ((0, 1, 2), {}, ErrorCode.NONE),
    ],
)
def test_checks_in_order(isr: tuple[int, ...], stale: dict[str, int], error: ErrorCode) -> None:
    bench = led_by_0()
    before = bench.partition()
    assert ErrorCode(bench.propose(isr, 0, "orders", **stale)) is error
    changed = error in (ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA)
    assert bench.partition().partition_epoch == before.partition_epoch + changed


def test_unknown_topic_and_partition() -> None:
    bench = led_by_0()
    known = bench.proposal(bench.partition(), (0, 1))
    proposal = known.proposals[0]

    def errors(topic_id: TopicId, number: int) -> int:
        wrong = PartitionProposal(
            topic_id, number, proposal.leader_epoch, proposal.partition_epoch, proposal.isr
        )
        reply = bench.ask(AlterPartitionRequest(known.node_id, known.broker_epoch, (wrong,)))
        assert isinstance(reply, AlterPartitionResponse)
        return reply.results[0].error

    assert errors(TopicId(UUID(int=404)), 0) == ErrorCode.UNKNOWN_TOPIC_ID
    assert errors(proposal.topic_id, 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("trouble", ["fenced", "shutting down", "restarted", "unregistered"])
def test_ineligible_member_kills_every_copy_of_the_proposal(trouble: str) -> None:
    bench = led_by_0()
    request = bench.proposal(bench.partition(), (0, 1, 2))
    epoch = bench.partition().partition_epoch
    if trouble == "shutting down":
        bench.heartbeat(2, want_shutdown=True)
    elif trouble == "restarted":
        bench.register(2, trusted=False)
        bench.heartbeat(2)
    else:
        bench.fence(2)
    assert bench.partition().partition_epoch == epoch, "node 2 was not in sync: nothing changed"
    if trouble == "unregistered":
        bench.ask(UnregisterBroker(NodeId(2)))
    first = bench.ask(request)
    assert isinstance(first, AlterPartitionResponse)
    assert first.results[0].error == ErrorCode.INELIGIBLE_REPLICA
    assert bench.partition().partition_epoch == epoch + 1
    if trouble in ("fenced", "restarted"):
        bench.start(2)
    second = bench.ask(request)
    assert isinstance(second, AlterPartitionResponse)
    assert second.results[0].error == ErrorCode.INVALID_UPDATE_VERSION


def test_second_proposal_for_a_partition_is_judged_after_the_first() -> None:
    bench = led_by_0()
    partition = bench.partition()
    first = bench.proposal(partition, (0, 1, 2)).proposals[0]
    stale = bench.proposal(partition, (0,)).proposals[0]
    following = PartitionProposal(
        stale.topic_id,
        0,
        stale.leader_epoch,
        PartitionEpoch(partition.partition_epoch + 1),
        stale.isr,
    )
    epoch = bench.image.brokers[NodeId(0)].broker_epoch
    reply = bench.ask(AlterPartitionRequest(NodeId(0), epoch, (first, stale, following)))
    assert isinstance(reply, AlterPartitionResponse)
    assert [r.error for r in reply.results] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NONE,
    ]
    assert bench.partition().isr == (0,)
    assert bench.partition().partition_epoch == partition.partition_epoch + 2


def test_repeated_proposal_that_changes_nothing_is_fine() -> None:
    bench = led_by_0()
    image = bench.image
    assert bench.propose((0, 1)) == ErrorCode.NONE
    assert bench.image is image


def relinquish(bench: Bench) -> int:
    request = bench.proposal(bench.partition(), ())
    [proposal] = request.proposals
    wish = replace(request, proposals=(replace(proposal, relinquish=True),))
    reply = bench.ask(wish)
    assert isinstance(reply, AlterPartitionResponse)
    return reply.results[0].error


def test_a_leader_that_relinquishes_stays_eligible() -> None:
    bench = led_by_0()
    assert bench.propose((0,)) == ErrorCode.NONE
    epoch = bench.partition().leader_epoch
    assert relinquish(bench) == ErrorCode.NONE
    after = bench.partition()
    assert (after.leader, after.isr, after.elr) == (1, (1,), (0,))
    assert after.leader_epoch == epoch + 1


def test_relinquishing_is_refused_where_nobody_can_take_over() -> None:
    """The partition epoch moves on all the same: the leader learns of it by the metadata."""
    bench = led_by_0((0, 1, 2))
    before = bench.partition()
    assert relinquish(bench) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "enough are in sync"
    bench.fence(1)
    bench.fence(2)
    assert relinquish(bench) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "all others are dead"
    after = bench.partition()
    assert (after.leader, after.isr, after.leader_epoch) == (0, (0,), before.leader_epoch)
    assert after.partition_epoch == before.partition_epoch + 4
