"""A group of hundreds of members in whole nodes, while its coordinator falls: each gets what it was
dealt, nobody is forgotten, and what is wrong with that is found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from paceline_cluster.sim.foreign_clients.audience import GROUP, Audience
from paceline_cluster.sim.plan import ForeignClient, Plan
from paceline_node.groups import kafka_group
from paceline_node.groups.kafka_answers import Answers
from paceline_node.groups.kafka_roster import Roster
from paceline_node.groups.kafka_rounds import Synced
from paceline_node.groups.keys import Family, GroupKey
from tests.sim.node.foreign_client_stories import coordinator_of, cut_off
from tests.sim.node.story import Story, find, plan_of, play

pytestmark = pytest.mark.timeout(900)

SIZE = 120
KEY = GroupKey(Family.KAFKA, GROUP)


def plan() -> Plan:
    return replace(
        plan_of(), foreign_clients=(ForeignClient.KAFKA,), audience=SIZE, readers=0, pause_s=0.5
    )


async def it_falls(story: Story) -> None:
    """The coordinator is cut off, moved and killed, in the middle of rebalances or not."""
    audience = next(each for each in story.run.workers.writers if isinstance(each, Audience))

    async def settled() -> None:
        await story.until("all have seats", audience.is_settled)

    await settled()
    await cut_off(story, coordinator_of(story, KEY))
    await settled()
    victim = coordinator_of(story, KEY)
    victim.kill()
    await settled()
    story.start(victim)
    await story.in_sync()


@pytest.mark.slow
def test_all_have_their_seats_again() -> None:
    play(it_falls, plan())


_go_on = Answers.go_on
_synced = kafka_group._synced


def _the_rest_is_forgotten(self: Answers) -> bool:
    _go_on(self)
    self._owed = None
    return False


def _what_the_next_one_has(roster: Roster, member_id: str) -> Synced:
    members = sorted(roster.stored)
    return _synced(roster, members[members.index(member_id) - 1])


def _set(target: object, name: str, value: Any) -> Callable[[], AbstractContextManager[object]]:
    return lambda: mock.patch.object(target, name, value)


@pytest.mark.parametrize(
    ("away", "sign"),
    [
        pytest.param(
            _set(Answers, "go_on", _the_rest_is_forgotten),
            "all have seats",
            id="who waits long is forgotten",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            _set(kafka_group, "_synced", _what_the_next_one_has),
            "was dealt",
            id="another's seat is told",
        ),
    ],
)
def test_mutant_is_found(away: Callable[[], AbstractContextManager[object]], sign: str) -> None:
    with away():
        find(it_falls, plan(), sign, seeds=4)
