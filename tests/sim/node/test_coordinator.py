"""Consumers of the coordinator protocol in whole nodes: what must not happen is seen, when
a rule is broken."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

import pytest
import trio

from paceline_cluster.sim.foreign_clients.driven_member import GROUP
from paceline_cluster.sim.plan import ForeignClient
from paceline_node.groups.driven_groups import DrivenGroups, coordinator_key
from paceline_node.groups.driven_state import DrivenGroup
from paceline_node.groups.records import Group
from paceline_node.state_machines.replica import MachineReplica
from tests.sim.node.foreign_client_stories import (
    ForeignClientMutant,
    all_of,
    check_found,
    coordinator_of,
    depose,
    depose_coordinator,
    more,
    plan,
    reset,
)
from tests.sim.node.story import SESSION_S, Story, play

pytestmark = pytest.mark.timeout(600)

PARTITIONS = 2


async def leave_one_behind(story: Story) -> None:
    """Coordinators die, and one consumer of theirs hears nothing of it: it reads on until it has
    fenced itself."""
    for name in ("dm0", "dm1", "dm2"):
        await more(story, commits=8)
        machine, host = coordinator_of(story, coordinator_key(GROUP)), story.run.hosts[name]
        story.fabric.cut(host, machine.host)
        story.fabric.cut(machine.host, host)
        machine.kill()
        await trio.sleep(SESSION_S + 3.0)
        story.heal()
        story.start(machine)
        await story.in_sync()


def test_driven_consumers_are_told_the_truth() -> None:
    play(
        all_of(reset, depose, leave_one_behind),
        plan(ForeignClient.COORDINATOR, partitions=PARTITIONS),
    )


# --- wrong versions of single rules ---------------------------------------------------------------


@contextlib.contextmanager
def _the_next_coordinator_waits_for_nobody() -> Iterator[None]:
    honest = DrivenGroups._await_members

    def await_members(self: DrivenGroups, driven: DrivenGroup, group: Group) -> None:
        honest(self, driven, group)
        driven.awaited.clear()
        driven.timer = self._context.now()

    with mock.patch.object(DrivenGroups, "_await_members", await_members):
        yield


FOUND = (
    ForeignClientMutant(
        "the next coordinator waits for nobody",
        _the_next_coordinator_waits_for_nobody,
        leave_one_behind,
        "still reads it",
    ),
    ForeignClientMutant(
        "groups answer before their change is committed",
        lambda: mock.patch.object(MachineReplica, "uncommitted", return_value=None),
        all_of(*[depose_coordinator(coordinator_key(GROUP))] * 2),
        "",
        seed=2,
        slow=True,
    ),
)


@pytest.mark.parametrize("mutant", [mutant.parameter for mutant in FOUND])
def test_mutant_is_found(mutant: ForeignClientMutant) -> None:
    check_found(mutant, plan(ForeignClient.COORDINATOR, partitions=PARTITIONS))
