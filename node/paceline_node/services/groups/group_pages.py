"""The groups that this node coordinates, a page at a time: only those of the page are described."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.inspection import Inspection, Listing
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.loop_turns import Turns
from paceline_node.services.groups.group_service import GroupService, family_named
from paceline_node.services.paging import Paged, cut_off, in_order
from paceline_node.state_machines.machine import EVERYTHING
from paceline_node.state_machines.topic import StateTopic

T = TypeVar("T")
Place = tuple[str, str, str]
"""Family, name and subject of a group: where it stands in a list."""


class GroupPages:
    """Looks into the engines that decide here."""

    def __init__(
        self, groups: GroupService, machines: StateTopic[GroupEngine], turns: Turns
    ) -> None:
        self._groups = groups
        self._machines = machines
        self._turns = turns

    async def page(
        self, families: Iterable[str], states: Iterable[str], after: Place | None, limit: int
    ) -> Paged[Listing]:
        """The first ``limit`` of these families and in these states (empty filters let everything
        pass) behind ``after``. Raises InvalidRequest where there is no such family,
        CoordinatorLoadInProgress while this node still reads some."""
        wanted, wanted_states = frozenset(map(family_named, families)), frozenset(states)
        keys: list[GroupKey] = []
        for number in self._led():
            await self._turns.next()
            keys += await self._ask(number, lambda engine: list(engine.store.all_keys()))
        named = (_place(each) for each in keys if not wanted or each.family in wanted)
        places = await self._turns.run(in_order(named, after))
        found: list[Listing] = []
        while some := list(islice(places, limit + 1 - len(found))):
            found += await self._listings(some, wanted_states)
        return cut_off(found, limit)

    def _led(self) -> list[int]:
        led = [each for each in self._machines.machines() if each[1].leads_log]
        for _, replica, _ in led:
            replica.check_leading()
        return [number for number, _, _ in led]

    async def _listings(self, places: Sequence[Place], states: frozenset[str]) -> list[Listing]:
        """Of these groups, in their order, those that are still there and in such a state."""

        def listed(some: Iterable[GroupKey], engine: GroupEngine) -> list[Listing]:
            return list(Inspection(engine).groups(some, (), states))

        by_number: dict[int, list[GroupKey]] = {}
        for family, group, subject in places:
            key = GroupKey(Family(family), group, subject)
            by_number.setdefault(self._groups.partition(key), []).append(key)
        found: list[Listing] = []
        for number, keys in by_number.items():
            await self._turns.next()
            found += await self._ask(number, partial(listed, keys))
        return sorted(found, key=lambda each: _place(each.key))

    async def _ask(self, number: int, operation: Callable[[GroupEngine], list[T]]) -> list[T]:
        return await self._machines.perform(
            number, EVERYTHING, operation, commit_s=self._groups.commit_s
        )


def _place(key: GroupKey) -> Place:
    return key.family.value, key.group, key.subject
