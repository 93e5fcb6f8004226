"""Registration, rule by rule (controller/DESIGN 2), damage reports, unregistering."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from paceline.errors import (
    AuthorizationFailed,
    BrokerNotRegistered,
    DuplicateBrokerRegistration,
    ErrorCode,
    InconsistentClusterId,
    InvalidRegistration,
    InvalidRequest,
    NotController,
    PacelineError,
    StaleBrokerEpoch,
    UnsupportedVersion,
)
from paceline.types import NO_NODE, BrokerEpoch, NodeId
from paceline.wire.native.admin import ElectLeader, UnregisterBroker
from paceline.wire.peer.control import (
    AlterPartitionResponse,
    PartitionRef,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    ReportDamagedRequest,
)
from paceline_node.controller import durable_offsets
from paceline_node.controller.metadata_records import DurableOffset, NoOp
from paceline_node.controller.partition_change import RECOVERY_DAMAGED
from tests.unit.controller.bench import Bench
from tests.unit.controller.invariants import check_image


def accepted(bench: Bench, request: RegisterBrokerRequest) -> int:
    reply = bench.ask(request, request.node_id)
    assert isinstance(reply, RegisterBrokerResponse)
    return reply.broker_epoch


def three() -> Bench:
    bench = Bench()
    bench.start(0, 1, 2)
    return bench


def test_broker_epoch_is_the_entry_of_the_registration() -> None:
    bench = Bench()
    bench.start(5)
    epoch = accepted(bench, bench.registration(0))
    broker = bench.image.brokers[NodeId(0)]
    assert epoch == broker.broker_epoch == bench.image.offset
    assert broker.fenced
    assert not broker.activated
    assert broker.endpoint("v1") is not None
    assert broker.endpoint("nothing") is None


def test_rule_1_foreign_cluster() -> None:
    bench = Bench()
    request = replace(bench.registration(0), cluster_id=UUID(int=99))
    with pytest.raises(InconsistentClusterId, match="node 0 belongs to cluster"):
        bench.ask(request)


@pytest.mark.parametrize(("low", "high"), [(0, 0), (2, 3)])
def test_rule_1_feature_range(low: int, high: int) -> None:
    bench = Bench()
    with pytest.raises(UnsupportedVersion, match="runs at 1"):
        bench.ask(replace(bench.registration(0), feature_min=low, feature_max=high))


def test_negative_node_id() -> None:
    bench = Bench()
    with pytest.raises(InvalidRegistration, match="negative"):
        bench.ask(replace(bench.registration(0), node_id=NodeId(-1)))


def test_rule_2_directory_of_another_node() -> None:
    bench = three()
    stolen = replace(bench.registration(7), directory_id=bench.disks[1].directory_id)
    with pytest.raises(InvalidRegistration, match="registered to node 1, not to node 7"):
        bench.ask(stolen)


def test_rule_2_retired_directory_never_returns() -> None:
    bench = three()
    old = bench.disks[1]
    bench.fence(1)
    bench.wipe(1)
    bench.register(1)
    bench.fence(1)
    bench.disks[1] = old
    with pytest.raises(InvalidRegistration, match="given up by node 1"):
        bench.register(1)


def test_rule_3_retry_gets_the_same_epoch_and_changes_nothing() -> None:
    bench = three()
    request = bench.registration(0)
    epoch = accepted(bench, request)
    image = bench.image
    assert accepted(bench, request) == epoch
    assert bench.image is image


@pytest.mark.parametrize("delay", [1, 0], ids=["dead process", "copied directory"])
def test_rule_4_late_message_of_a_dead_process(delay: int) -> None:
    bench = three()
    late = bench.registration(0)
    bench.disks[0].boot_seq += delay - 1
    bench.register(0)
    image = bench.image
    if delay == 0:
        late = replace(late, boot_seq=image.brokers[NodeId(0)].boot_seq)
    with pytest.raises(InvalidRegistration, match="is registered"):
        bench.ask(late)
    assert bench.image is image


def test_rule_5_direct_successor_takes_over_a_live_session_and_keeps_its_place() -> None:
    bench = Bench()
    bench.start(0)
    bench.create(factor=1)
    bench.register(0)
    partition = bench.partition()
    assert (partition.isr, partition.elr, partition.leader) == ((), (0,), NO_NODE)
    bench.heartbeat(0)
    assert bench.partition().leader == 0
    assert bench.partition().recovery == 0


def test_rule_5_process_that_died_before_writing_its_epoch_down() -> None:
    bench = Bench()
    bench.start(0)
    bench.create(factor=1)
    bench.ask(bench.registration(0))  # accepted, but the process dies at once
    bench.register(0)
    assert bench.partition().elr == (0,)
    bench.ask(bench.registration(0))
    bench.ask(bench.registration(0))
    assert bench.partition().elr == (0,)


def test_rule_5_not_after_the_lost_epoch_was_active() -> None:
    bench = Bench()
    bench.start(0)
    bench.create(factor=1)
    former = bench.disks[0].epoch
    bench.start(0)
    bench.disks[0].epoch = former  # an older copy of the disk
    with pytest.raises(DuplicateBrokerRegistration):
        bench.register(0)
    bench.fence(0)
    bench.register(0)
    assert (bench.partition().elr, bench.partition().lkelr) == ((), (0,))


def test_rule_6_session_of_another_process_still_runs() -> None:
    bench = three()
    bench.wipe(0)
    with pytest.raises(DuplicateBrokerRegistration, match="session still runs"):
        bench.register(0)
    bench.now += bench.settings.session_timeout_s
    bench.register(0)
    assert bench.image.brokers[NodeId(0)].directory_id == bench.disks[0].directory_id


@pytest.mark.parametrize("trusted", [True, False])
def test_rule_7_trust_decides_about_the_elr(trusted: bool) -> None:
    bench = three()
    bench.create()
    bench.fence(2)
    bench.fence(1)
    assert (bench.partition().isr, bench.partition().elr) == ((0,), (1,))
    bench.register(1, trusted=trusted)
    partition = bench.partition()
    assert partition.elr == ((1,) if trusted else ())
    assert partition.lkelr == (() if trusted else (1,))
    check_image(bench.image)


def note_durable(bench: Bench) -> None:
    """The idle record of the active controller."""
    image = bench.image
    news = durable_offsets.news(image.brokers, image.durable_offsets, bench.sessions)
    bench.commit((NoOp(1, news),))


@pytest.mark.parametrize(
    ("behind", "is_trusted"), [(1, False), (0, True), (-1, True), (None, True)]
)
def test_rule_8_a_directory_that_holds_less_metadata_is_an_older_copy(
    behind: int | None, is_trusted: bool
) -> None:
    bench = three()
    bench.create()
    bench.heartbeat(1, durable_offset=bench.image.offset)
    noted = bench.image.offset
    note_durable(bench)
    assert bench.image.durable_offsets == {1: noted}
    bench.fence(2)
    bench.fence(1)
    offset = durable_offsets.NOT_KNOWN if behind is None else noted - behind
    accepted(bench, replace(bench.registration(1), metadata_offset=offset))
    assert bench.image.brokers[NodeId(1)].trusted is is_trusted
    assert bench.partition().elr == ((1,) if is_trusted else ())
    assert bench.image.durable_offsets == {}, "the next process has said nothing yet"
    check_image(bench.image)


def test_rule_8_another_directory_owes_nothing_to_the_old_one() -> None:
    bench = three()
    bench.heartbeat(1, durable_offset=bench.image.offset)
    note_durable(bench)
    bench.fence(1)
    bench.wipe(1)
    accepted(bench, replace(bench.registration(1), metadata_offset=1))
    assert bench.image.brokers[NodeId(1)].trusted


def test_rule_8_only_the_registered_process_is_noted() -> None:
    bench = three()
    image = bench.image
    late = DurableOffset(NodeId(1), BrokerEpoch(image.brokers[NodeId(1)].broker_epoch - 1), 9)
    bench.commit((NoOp(1, (late, DurableOffset(NodeId(7), BrokerEpoch(1), 9))),))
    assert bench.image.durable_offsets == {}


def test_rule_7_takeover_fences_and_moves_leadership_in_one_entry() -> None:
    bench = three()
    bench.create(partitions=3)
    entries = len(bench.entries)
    bench.register(0)
    assert len(bench.entries) == entries + 1
    for partition in bench.image.topic("orders").partitions.values():
        assert 0 not in partition.isr
        assert partition.leader in (1, 2)
    check_image(bench.image)


def test_rule_7_damaged_partitions_alone_lose_their_place() -> None:
    bench = three()
    topic = bench.create(partitions=2)
    bench.fence(2)
    bench.fence(1)
    request = bench.registration(1, damaged=(PartitionRef(topic, 1), PartitionRef(topic, 9)))
    accepted(bench, request)
    assert (bench.partition(0).elr, bench.partition(0).lkelr) == ((1,), ())
    assert (bench.partition(1).elr, bench.partition(1).lkelr) == ((), (1,))


def test_epoch_beyond_the_controllers_state() -> None:
    bench = three()
    bench.disks[0].epoch = bench.image.offset + 1
    with pytest.raises(NotController):
        bench.register(0)


def test_nobody_speaks_for_another_node() -> None:
    bench = Bench()
    with pytest.raises(AuthorizationFailed, match="node 2 spoke for node 0"):
        bench.ask(bench.registration(0), NodeId(2))


# --- damage --------------------------------------------------------------------------------------


def damage(bench: Bench, node: int, number: int = 0, *, epoch: int | None = None) -> None:
    registered = bench.image.brokers[NodeId(node)].broker_epoch
    bench.ask(
        ReportDamagedRequest(
            NodeId(node),
            registered if epoch is None else BrokerEpoch(epoch),
            (PartitionRef(bench.partition().topic_id, number),),
        )
    )


def test_damaged_leader_hands_over() -> None:
    bench = three()
    bench.create()
    damage(bench, 0)
    assert (bench.partition().isr, bench.partition().leader) == ((1, 2), 1)


def test_damage_kills_a_proposal_to_readmit_the_replica() -> None:
    bench = three()
    bench.create()
    damage(bench, 2)
    late = bench.proposal(bench.partition(), (0, 1, 2))
    damage(bench, 2)
    reply = bench.ask(late)
    assert isinstance(reply, AlterPartitionResponse)
    assert reply.results[0].error == ErrorCode.INVALID_UPDATE_VERSION
    assert bench.partition().isr == (0, 1)


def test_unknown_partition_in_a_report_is_passed_over() -> None:
    bench = three()
    bench.create()
    image = bench.image
    damage(bench, 0, number=9)
    assert bench.image is image


@pytest.mark.parametrize(
    ("node", "epoch", "error"), [(0, 1, StaleBrokerEpoch), (0, 10**6, NotController)]
)
def test_damage_report_of_a_wrong_epoch(node: int, epoch: int, error: type[PacelineError]) -> None:
    bench = three()
    bench.create()
    with pytest.raises(error):
        damage(bench, node, epoch=epoch)


def test_damaged_sole_replica_waits_for_the_operator() -> None:
    bench = Bench()
    bench.start(0)
    bench.create(factor=1)
    damage(bench, 0)
    assert (bench.partition().leader, bench.partition().recovery) == (NO_NODE, RECOVERY_DAMAGED)
    assert bench.partition().damaged == (0,)
    bench.start(0)
    assert bench.partition().leader == NO_NODE
    bench.ask(ElectLeader("orders", 0, NO_NODE, unclean=True))
    assert (bench.partition().leader, bench.partition().recovery) == (0, 1)


# --- unregister ----------------------------------------------------------------------------------


def test_unregister_drops_the_broker_and_its_claims() -> None:
    bench = three()
    bench.create()
    bench.fence(2)
    bench.fence(1)
    bench.ask(UnregisterBroker(NodeId(1)))
    assert NodeId(1) not in bench.image.brokers
    assert (bench.partition().elr, bench.partition().lkelr) == ((), (1,))
    with pytest.raises(InvalidRegistration, match="given up by node 1"):
        bench.register(1)


def test_unregister_refuses_the_living_and_the_unknown() -> None:
    bench = three()
    with pytest.raises(InvalidRequest, match="node 1 is alive"):
        bench.ask(UnregisterBroker(NodeId(1)))
    with pytest.raises(BrokerNotRegistered, match="broker not found: 9"):
        bench.ask(UnregisterBroker(NodeId(9)))
