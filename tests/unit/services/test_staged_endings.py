"""A staged transaction commits offsets only of groups that were opened for that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from paceline.errors import ConcurrentTransactions
from paceline.wire.peer import transactions as wire
from paceline_node.groups.keys import Family as GroupFamily
from paceline_node.groups.keys import GroupKey
from paceline_node.security.principals import ANONYMOUS
from paceline_node.services.groups.open_group import OpenGroup
from paceline_node.services.transactions.transaction_service import TransactionService
from paceline_node.transaction_names import Family, TransactionKey
from tests.unit.transactions.desk import Desk

KEY = TransactionKey(Family.CURSUS, "worker")


def opened(group: str) -> OpenGroup:
    none = cast(Any, None)
    return OpenGroup(none, none, none, GroupKey(GroupFamily.CURSUS, group, "in"), "")


class Coordinator:
    """A real engine with an open transaction; ``pending``: groups told of offsets."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.desk.init(KEY)
        self.desk.engine.staging.begin(KEY, 0)
        self.pending: list[str] = []
        rpc = SimpleNamespace(stage_offsets=self._tell)
        access = SimpleNamespace(resource=lambda principal, operation, resource: None)
        env = SimpleNamespace(now=self.desk.now, host=SimpleNamespace(buggify=lambda place: None))
        endings = SimpleNamespace(rpc=rpc, wait_complete=self._never)
        store = SimpleNamespace(image=SimpleNamespace(topic_ids={}))
        parts = (env, store, self, endings, None, access, None)
        self.service = TransactionService(*cast(Any, parts), commit_s=1)

    async def _tell(self, request: wire.StageOffsets) -> None:
        self.pending.append(request.group.group)

    async def _never(self, key: TransactionKey, wait_s: float) -> bool:
        return False

    async def perform(self, number: int, key: object, operation: Any, *, commit_s: float) -> Any:
        return operation(self.desk.engine)

    @property
    def state(self) -> str:
        return self.desk.engine.store.transactions[KEY].state.name

    async def stage(self, group: str) -> None:
        await self.service.stage_offsets(
            ANONYMOUS, KEY, 0, opened(group), [(0, 5)], member="m", generation=1
        )

    async def commit(self, *groups: str) -> None:
        named = [opened(each) for each in groups]
        await self.service.end_staged(ANONYMOUS, KEY, 0, named, commits=True, wait_s=0.0)


async def test_offsets_added_since_the_groups_were_opened_are_not_committed() -> None:
    coordinator = Coordinator()
    await coordinator.stage("asked")
    await coordinator.stage("not-asked")
    with pytest.raises(ConcurrentTransactions, match="end it again"):
        await coordinator.commit("asked")
    assert coordinator.pending == []
    assert coordinator.state == "ONGOING"
    await coordinator.commit("asked", "not-asked")
    assert coordinator.pending == ["asked", "not-asked"]
    assert coordinator.state == "PREPARE_COMMIT"
