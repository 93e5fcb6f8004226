"""Kafka clients in whole nodes: the checker sees what must not happen, when a rule is broken."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

import pytest

from paceline.types import Acks
from paceline_cluster.sim.foreign_clients import member
from paceline_cluster.sim.foreign_clients.kafka_member import GROUP
from paceline_cluster.sim.plan import ForeignClient
from paceline_node.groups.kafka_groups import KafkaGroups
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.listeners.kafka import produce as kafka_produce
from paceline_node.replication import appends as appends_module
from paceline_node.replication.sequences import NEW
from paceline_node.state_machines.replica import MachineReplica
from tests.sim.node.foreign_client_stories import (
    ForeignClientMutant,
    all_of,
    check_found,
    depose,
    depose_coordinator,
    kill,
    plan,
    readable_to_the_log_end,
    reset,
    share,
)
from tests.sim.node.mutants import Patch
from tests.sim.node.story import play

pytestmark = pytest.mark.timeout(600)

PARTITIONS = 2


def test_kafka_clients_are_told_the_truth() -> None:
    play(all_of(reset, depose, kill), plan(ForeignClient.KAFKA, partitions=PARTITIONS))


# --- wrong versions of single rules ---------------------------------------------------------------


def _set(target: object, name: str, value: object) -> Patch:
    return lambda: mock.patch.object(target, name, value)


class _FewAcks:
    """Whatever is asked for, the leader is enough."""

    NONE = Acks.NONE
    LEADER = Acks.LEADER

    def __call__(self, value: int) -> Acks:
        return Acks.LEADER


@contextlib.contextmanager
def _any_generation_commits() -> Iterator[None]:
    """Members doze off more often than usual, or this would take long to show."""
    with (
        mock.patch.object(member, "_DOZE", 0.5),
        mock.patch.object(KafkaGroups, "check_commit"),
    ):
        yield


FOUND = (
    ForeignClientMutant(
        "acks=-1 is answered at append",
        _set(kafka_produce, "Acks", _FewAcks()),
        depose,
        "OutOfOrderSequence",
    ),
    ForeignClientMutant(
        "repetitions are stored again",
        _set(appends_module, "judge", lambda *_: NEW),
        reset,
        "stored twice",
        slow=True,
    ),
    ForeignClientMutant(
        "reads go to the log end",
        readable_to_the_log_end,
        all_of(depose, depose, depose),
        "",
        slow=True,
    ),
    ForeignClientMutant(
        "commits of any generation count",
        _any_generation_commits,
        share,
        "commit of an old generation",
        slow=True,
    ),
    ForeignClientMutant(
        "groups answer before their change is committed",
        _set(MachineReplica, "uncommitted", lambda *_: None),
        depose_coordinator(GroupKey(Family.KAFKA, GROUP)),
        "",
        slow=True,
    ),
)


@pytest.mark.parametrize("mutant", [mutant.parameter for mutant in FOUND])
def test_mutant_is_found(mutant: ForeignClientMutant) -> None:
    check_found(mutant, plan(ForeignClient.KAFKA, partitions=PARTITIONS))
