"""The one judgement of health, from facts alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paceline.health import (
    OF_CLUSTER,
    OF_NODE,
    SOON_S,
    Certificates,
    Check,
    ClusterFacts,
    Damage,
    Exposure,
    Level,
    NodeFacts,
    failed_to_serve,
    found,
    judge_cluster,
    judge_node,
    unhealthy,
    with_passed,
    worst,
)

WELL = NodeFacts(
    node=2,
    state="running",
    knows_controller=True,
    other_history="",
    has_session=True,
    shortage=(),
    disk_is_slow=False,
    damage=(),
    certificates=None,
    loop_delay_s=0.1,
    session_s=4.0,
)
CLUSTER = ClusterFacts(
    members=(0, 1, 2),
    active=frozenset({0, 1, 2}),
    topics=2,
    partitions=17,
    leaderless=0,
    under_min_isr=0,
    under_replicated=0,
    controllers=(1, 1, 1),
)
NOW = 1_000_000_000.0


def _certificate(ends: float, refused: str = "") -> Certificates:
    return Certificates({"tls.certificate": int(ends)}, refused, NOW)


def test_a_node_that_is_well_passes_every_check() -> None:
    checks = judge_node(WELL)
    assert [each.name for each in checks] == list(OF_NODE)
    assert (worst(checks), found(checks)) == (Level.OK, ())
    assert {each.node for each in checks} == {2}


@pytest.mark.parametrize(
    ("changed", "name", "level", "serves"),
    [
        ({"state": "fenced"}, "state", Level.CRITICAL, False),
        ({"state": "draining"}, "state", Level.CRITICAL, False),
        ({"knows_controller": False}, "controller", Level.CRITICAL, False),
        ({"other_history": "it went another way"}, "controller", Level.CRITICAL, False),
        ({"has_session": False}, "session", Level.CRITICAL, False),
        ({"shortage": ("the disk is full",)}, "disk-space", Level.CRITICAL, False),
        ({"disk_is_slow": True}, "disk-speed", Level.CRITICAL, False),
        ({"damage": (Damage("rotten", is_repaired=True),)}, "damage", Level.WARNING, True),
        ({"damage": (Damage("rotten", is_repaired=False),)}, "damage", Level.CRITICAL, True),
        ({"certificates": _certificate(NOW + SOON_S - 1)}, "certificates", Level.WARNING, True),
        ({"certificates": _certificate(NOW - 1)}, "certificates", Level.CRITICAL, True),
        ({"certificates": _certificate(2 * NOW, "no")}, "certificates", Level.WARNING, True),
        ({"loop_delay_s": 1.1}, "event-loop", Level.WARNING, True),
        ({"loop_delay_s": 4.0}, "event-loop", Level.CRITICAL, True),
        ({"exposures": (Exposure("it is open", "close it"),)}, "exposure", Level.WARNING, True),
    ],
)
def test_what_a_node_finds(changed: dict[str, Any], name: str, level: Level, serves: bool) -> None:
    checks = judge_node(replace(WELL, **changed))
    [finding] = found(checks)
    assert (finding.name, finding.level, finding.node) == (name, level, 2)
    assert finding.reason
    assert (not failed_to_serve(checks)) is serves
    assert bool(unhealthy(checks)) is (name not in ("event-loop", "exposure"))


def test_a_certificate_that_is_good_for_long_passes() -> None:
    assert not found(judge_node(replace(WELL, certificates=_certificate(NOW + SOON_S))))


def test_several_findings_of_a_name_are_all_told() -> None:
    damage = tuple(Damage(f"orders/{number}", is_repaired=False) for number in range(3))
    told = [each.reason for each in found(judge_node(replace(WELL, damage=damage)))]
    assert told == ["orders/0", "orders/1", "orders/2"]


def test_a_cluster_that_is_well_passes_every_check() -> None:
    checks = judge_cluster(CLUSTER)
    assert [each.name for each in checks] == list(OF_CLUSTER)
    assert worst(checks) is Level.OK


@pytest.mark.parametrize(
    ("changed", "name", "level"),
    [
        ({"controllers": (-1, -1)}, "quorum", Level.CRITICAL),
        ({"controllers": (1, -1)}, "quorum", Level.CRITICAL),
        ({"controllers": (1, 2)}, "quorum", Level.CRITICAL),
        ({"topics": 1}, "internal-topics", Level.CRITICAL),
        ({"active": frozenset({0, 2})}, "nodes", Level.CRITICAL),
        ({"leaderless": 1}, "leaders", Level.CRITICAL),
        ({"under_min_isr": 1}, "min-isr", Level.CRITICAL),
        ({"under_replicated": 1}, "replicas", Level.WARNING),
        ({"drained": [2]}, "drained", Level.WARNING),
    ],
)
def test_what_is_found_of_a_cluster(changed: dict[str, Any], name: str, level: Level) -> None:
    checks = judge_cluster(replace(CLUSTER, **changed))
    [finding] = found(checks)
    assert bool(unhealthy(checks)) is (name != "drained")
    assert (finding.name, finding.level) == (name, level)
    assert finding.what_to_do
    assert not failed_to_serve(checks), "a load balancer would turn away from every node"


def test_one_node_alone_judges_no_agreement() -> None:
    assert worst(judge_cluster(replace(CLUSTER, controllers=()))) is Level.OK


def test_a_check_of_a_later_version_is_kept() -> None:
    later = Check("later", Level.WARNING, "it hurts")
    assert with_passed([later], OF_NODE)[-1] == later


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"under_min_isr": 3},
            (
                "3 of 17 partitions below min.insync.replicas: writes with acks=all to them are "
                "refused"
            ),
        ),
        ({"leaderless": 2}, "2 of 17 partitions without leader: nobody can write or read them"),
        (
            {"controllers": (-1,), "any_session": False},
            "there is no controller: writes to all 17 partitions are refused",
        ),
        (
            {"controllers": (-1,)},
            (
                "there is no controller: nothing can be elected, and writes are refused once the "
                "nodes' sessions are over"
            ),
        ),
    ],
)
def test_what_becomes_of_writes_is_told(changed: dict[str, Any], told: str) -> None:
    [finding] = found(judge_cluster(replace(CLUSTER, **changed)))
    assert finding.reason == told
