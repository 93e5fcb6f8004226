"""Cursus clients in whole nodes: the checker sees what must not happen, when a rule is broken."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import trio

from paceline.types import Acks
from paceline_cluster.sim.foreign_clients.cursus_member import GROUP
from paceline_cluster.sim.plan import ForeignClient
from paceline_node.groups.cursus_groups import CursusGroups, cursus_key
from paceline_node.listeners.cursus import produce as cursus_produce
from paceline_node.listeners.cursus.group_readers import GroupReaders
from paceline_node.replication.appends import Appends
from paceline_node.services.partitions import sequenced_appends
from paceline_node.services.partitions.sequenced_appends import RecordsWish
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
from tests.sim.node.story import TOPIC, play

pytestmark = pytest.mark.timeout(600)

PARTITIONS = 2


def test_cursus_clients_are_told_the_truth() -> None:
    play(
        all_of(reset, depose, kill),
        replace(plan(ForeignClient.CURSUS, partitions=PARTITIONS), seed=2),
    )


# --- wrong versions of single rules ---------------------------------------------------------------


def _set(target: object, name: str, value: object) -> Patch:
    return lambda: mock.patch.object(target, name, value)


def _wish_for_little(_acks: Acks, *wish: Any, **more: Any) -> RecordsWish:
    return RecordsWish(Acks.LEADER, *wish, **more)


def _all_are_new(numbers: Sequence[object], *_: object) -> list[int]:
    return list(range(len(numbers)))


_produce = Appends.produce


def _repetitions_need_nobody(self: Appends, batches: Any, headers: Any, **options: Any) -> None:
    if not headers:
        options["acks"] = Acks.LEADER
    _produce(self, batches, headers, **options)


@contextlib.contextmanager
def _no_generation_is_looked_at() -> Iterator[None]:
    async def _nobody_is_fenced(self: object, place: object, group: object) -> None:
        await trio.lowlevel.checkpoint()

    with (
        mock.patch.object(CursusGroups, "_require_generation"),
        mock.patch.object(GroupReaders, "fence", _nobody_is_fenced),
    ):
        yield


FOUND = (
    ForeignClientMutant(
        "acks=-1 is answered at append",
        _set(cursus_produce, "RecordsWish", _wish_for_little),
        depose,
        "acknowledged write lost",
    ),
    ForeignClientMutant(
        "numbers seen before are stored again",
        _set(sequenced_appends, "select_new", _all_are_new),
        reset,
        "stored twice",
    ),
    ForeignClientMutant(
        "what is said again is acknowledged at once",
        _set(Appends, "produce", _repetitions_need_nobody),
        depose,
        "",
        seed=5,
        slow=True,
    ),
    ForeignClientMutant(
        "reads go to the log end",
        readable_to_the_log_end,
        depose,
        "",
        seed=2,
        slow=True,
    ),
    ForeignClientMutant(
        "no generation is looked at",
        _no_generation_is_looked_at,
        share,
        "commit of an old generation",
    ),
    ForeignClientMutant(
        "groups answer before their change is committed",
        _set(MachineReplica, "uncommitted", lambda *_: None),
        depose_coordinator(cursus_key(GROUP, TOPIC)),
        "",
        slow=True,
    ),
)


@pytest.mark.parametrize("mutant", [mutant.parameter for mutant in FOUND])
def test_mutant_is_found(mutant: ForeignClientMutant) -> None:
    check_found(mutant, plan(ForeignClient.CURSUS, partitions=PARTITIONS))
