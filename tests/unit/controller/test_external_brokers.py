"""V1's broker commands over a real controller (controller/DESIGN 11)."""

from __future__ import annotations

import pytest

from paceline.errors import BrokerNotRegistered, InvalidRequest, Throttled
from paceline.types import NodeId
from paceline.wire.native.admin import (
    Done,
    FenceBroker,
    Reconciled,
    ReconcileExternal,
    RegisterExternal,
    UnregisterBroker,
)
from paceline_node.controller.external_brokers import FORGOTTEN_MS
from paceline_node.settings.counts import EXTERNAL_BROKERS
from tests.unit.controller.bench import TERM, Bench


def cluster() -> Bench:
    bench = Bench()
    bench.start(0)
    bench.ask(RegisterExternal(NodeId(7), "10.0.0.7", 9093, 5))
    return bench


def test_recorded_and_never_assigned() -> None:
    bench = cluster()
    entry = bench.image.externals[NodeId(7)]
    assert (entry.host, entry.port, entry.epoch, entry.fenced) == ("10.0.0.7", 9093, 5, False)
    assert entry.last_heartbeat_ms == bench.wall_ms
    bench.create(factor=3)
    assert bench.partition().replicas == (0,)


def test_epoch_defaults_to_now_in_ns() -> None:
    bench = cluster()
    bench.ask(RegisterExternal(NodeId(8), "h", 1, 0))
    assert bench.image.externals[NodeId(8)].epoch == bench.wall_ms * 1_000_000


def test_heartbeat_refreshes_and_unfences() -> None:
    bench = cluster()
    bench.ask(FenceBroker(NodeId(7), True))
    assert bench.image.externals[NodeId(7)].fenced
    bench.wall_ms += 500
    bench.ask(RegisterExternal(NodeId(7), "", 0, 0))
    entry = bench.image.externals[NodeId(7)]
    assert (entry.fenced, entry.last_heartbeat_ms, entry.host) == (False, bench.wall_ms, "10.0.0.7")


def test_real_node_is_left_as_it_is() -> None:
    bench = cluster()
    image = bench.image
    for request in (RegisterExternal(NodeId(0), "x", 1, 1), RegisterExternal(NodeId(0), "", 0, 0)):
        assert bench.ask(request) == Done(bench.image.offset, TERM)
    assert bench.image is image


def test_a_real_registration_takes_the_id() -> None:
    bench = cluster()
    bench.start(7)
    assert NodeId(7) not in bench.image.externals
    assert not bench.image.brokers[NodeId(7)].fenced


@pytest.mark.parametrize(
    ("request_", "error", "text"),
    [
        (RegisterExternal(NodeId(-1), "h", 1, 1), InvalidRequest, "broker id must be >= 0"),
        (RegisterExternal(NodeId(3), "h", 0, 1), InvalidRequest, "broker port must be > 0"),
        (RegisterExternal(NodeId(9), "", 0, 0), BrokerNotRegistered, "broker not found: 9"),
        (FenceBroker(NodeId(9), False), BrokerNotRegistered, "broker not found: 9"),
        (ReconcileExternal(0), InvalidRequest, "timeout must be > 0"),
    ],
)
def test_refusals(
    request_: RegisterExternal | FenceBroker | ReconcileExternal,
    error: type[Exception],
    text: str,
) -> None:
    with pytest.raises(error, match=text):
        cluster().ask(request_)


def test_fencing_twice_changes_nothing() -> None:
    bench = cluster()
    bench.ask(FenceBroker(NodeId(7), True))
    image = bench.image
    bench.ask(FenceBroker(NodeId(7), True))
    assert bench.image is image


def test_reconcile_judges_externals_by_age() -> None:
    bench = cluster()
    bench.ask(RegisterExternal(NodeId(8), "h", 1, 1))
    bench.ask(FenceBroker(NodeId(8), True))
    bench.wall_ms += 1000
    assert bench.ask(ReconcileExternal(2000)) == Reconciled(1, bench.image.offset, TERM)
    assert not bench.image.externals[NodeId(8)].fenced
    assert bench.ask(ReconcileExternal(500)) == Reconciled(2, bench.image.offset, TERM)
    assert all(e.fenced for e in bench.image.externals.values())
    assert not bench.image.brokers[NodeId(0)].fenced


@pytest.mark.parametrize(
    ("request_", "what"),
    [
        (RegisterExternal(NodeId(8), "h" * 3_000_000, 1, 1), "3000000 characters, at most 255"),
        (RegisterExternal(NodeId(8), "h", 65_536, 1), "port must be at most 65535"),
        (RegisterExternal(NodeId(2**31), "h", 1, 1), "broker id"),
        (RegisterExternal(NodeId(8), "h", 1, 2**63), "epoch must be at most"),
    ],
)
def test_what_every_node_would_keep_for_ever_is_bounded(
    request_: RegisterExternal, what: str
) -> None:
    bench = cluster()
    with pytest.raises(InvalidRequest, match=what):
        bench.ask(request_)
    assert NodeId(8) not in bench.image.externals


def test_there_are_only_so_many_and_the_silent_make_room() -> None:
    """However many are registered, the snapshot of the metadata stays below 400 KB."""
    bench = cluster()
    for number in range(8, 8 + EXTERNAL_BROKERS.bound - 1):
        bench.ask(RegisterExternal(NodeId(number), "h" * 255, 9092, 5))
    with pytest.raises(Throttled, match="1000 external brokers"):
        bench.ask(RegisterExternal(NodeId(5_000), "h", 1, 1))
    assert len(bench.image.to_snapshot()) < 400_000
    bench.ask(RegisterExternal(NodeId(8), "", 0, 0))  # those that are there go on
    bench.wall_ms += FORGOTTEN_MS
    bench.ask(RegisterExternal(NodeId(8), "", 0, 0))
    bench.ask(RegisterExternal(NodeId(5_000), "h", 1, 1))
    assert NodeId(7) not in bench.image.externals
    assert {NodeId(8), NodeId(5_000)} <= set(bench.image.externals)
    assert len(bench.image.externals) == EXTERNAL_BROKERS.bound


def test_an_entry_can_be_removed() -> None:
    bench = cluster()
    bench.ask(UnregisterBroker(NodeId(7)))
    assert not bench.image.externals
    assert not bench.image.retired
    with pytest.raises(BrokerNotRegistered):
        bench.ask(UnregisterBroker(NodeId(7)))
