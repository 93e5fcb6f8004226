"""What groups have many of is listed, read and forgotten some at a time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from paceline.errors import GroupNotFound
from paceline_node.groups.committed_offsets import Commit, OffsetRule
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.loop_turns import Turns
from paceline_node.services.groups.group_service import KAFKA, GroupService
from tests.unit.groups.desk import Desk

MANY = 1100
AT_ONCE = 260
KEY = GroupKey(Family.KAFKA, "g")
ALL = [("t", number) for number in range(MANY)]


class Machines:
    """One engine; ``most`` is what one command wrote at most, ``commands`` how many there were."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.most = self.commands = 0

    def machines(self) -> list[Any]:
        replica = SimpleNamespace(leads_log=True, check_leading=lambda: None)
        return [(0, replica, self.desk.engine)]

    async def perform(
        self, number: int, key: object, operation: Callable[[Any], Any], *, commit_s: float
    ) -> Any:
        before = len(self.desk.log)
        self.commands += 1
        result = operation(self.desk.engine)
        self.most = max(self.most, len(self.desk.log) - before)
        return result


class Room:
    def __init__(self) -> None:
        self.desk = Desk()
        self.machines = Machines(self.desk)
        image = SimpleNamespace(find_topic=lambda name: SimpleNamespace(partitions=[0]))
        store, limits = SimpleNamespace(image=image), self.desk.limits
        self.groups = GroupService(
            *cast(Any, (None, store, self.machines, None, limits, Turns())), commit_s=1
        )
        self.group = self.groups.inside(KEY)

    def commit(self) -> None:
        commits = [Commit(topic, number, 1) for topic, number in ALL]
        self.desk.engine.offsets.commit(KEY, commits, OffsetRule.FREE)


async def test_a_group_is_deleted_in_pieces() -> None:
    """The tombstones of all its offsets, 10,000 and more, were written in one step."""
    room = Room()
    room.commit()
    await room.group.delete()
    assert not room.desk.engine.store.knows(KEY)
    assert 0 < room.machines.most <= AT_ONCE
    with pytest.raises(GroupNotFound):
        await room.group.delete()


async def test_offsets_are_deleted_in_pieces() -> None:
    room = Room()
    room.commit()
    assert await room.group.stored() == ALL
    assert await room.group.delete_offsets(ALL) == frozenset()
    assert await room.group.stored() == []
    assert 0 < room.machines.most <= AT_ONCE
    with pytest.raises(GroupNotFound):
        await room.group.delete_offsets(ALL)


async def test_groups_are_listed_some_at_a_time() -> None:
    room = Room()
    keys = {GroupKey(Family.KAFKA, f"g{number}") for number in range(MANY)}
    for key in keys:
        room.desk.engine.offsets.commit(key, [Commit("t", 0, 1)], OffsetRule.FREE)
    found = await room.groups.list((KAFKA,), ())
    assert {each.key for each in found} == keys
    assert room.machines.commands > MANY // AT_ONCE
    assert await room.groups.list(("v1",), ()) == []
