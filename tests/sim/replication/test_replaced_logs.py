"""A replica's log takes the place of another one: who has folded the old one folds anew, and what
was deleted does not come back (storage/DESIGN 9.7)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from paceline_node.env import Env
from paceline_node.state_machines.replica import Phase
from paceline_node.state_machines.topic import PartitionLog, StateTopic
from tests.integration.replication.test_compaction import last_values
from tests.sim.replication.memory_cluster import MemoryCluster, memory_cluster, rot
from tests.sim.replication.test_removed_tombstones import (
    GONE,
    caught_up,
    compacted,
    elect,
    fill_up,
    has_begun_anew,
    has_key,
    put,
    remove_tombstones,
)
from tests.unit.state_machines.test_replica import Register


class Coordinators:
    """What each node has beside its replica of ``t``, as a node has beside ``__groups``."""

    def __init__(self, cluster: MemoryCluster, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._build = cluster._build
        self._topics: dict[int, StateTopic[Register]] = {}
        cluster._build = self.build  # type: ignore[method-assign]

    def build(self, env: Env, node_id: int, directory_id: Any) -> Any:
        built = self._build(env, node_id, directory_id)
        topic = self._topics[node_id] = StateTopic(env, "t", built[2], lambda _: Register())
        self._nursery.start_soon(topic.run)
        return built

    def machine(self, node_id: int) -> Register | None:
        """The machine of a node, once it leads."""
        for _, replica, machine in self._topics[node_id].machines():
            if replica.phase is Phase.LEADING:
                return machine
        return None


async def lead_after_beginning_anew() -> None:
    async with memory_cluster() as cluster, trio.open_nursery() as nursery:
        leader = await compacted(cluster)
        await put(leader, GONE, b"old")
        await fill_up(leader)
        await caught_up(cluster)
        away = cluster.follower()
        await cluster.stop(away.node_id)  # in order: its checkpoint says what is committed
        await put(leader, GONE, None)
        await fill_up(leader)
        await remove_tombstones(cluster)
        coordinators = Coordinators(cluster, nursery)
        back = await cluster.start(away.node_id)
        await caught_up(cluster)
        assert has_begun_anew(back.partition("t"))
        assert not has_key(back.partition("t"), GONE)
        await elect(cluster, back)
        await cluster.wait(lambda: coordinators.machine(back.node_id) is not None)
        machine = coordinators.machine(back.node_id)
        assert machine is not None
        nursery.cancel_scope.cancel()
        assert machine.values == last_values(leader)


async def test_a_coordinator_forgets_what_was_deleted_while_it_was_away(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It had folded its old log before that began anew, and folded on in the new one."""
    await lead_after_beginning_anew()


async def test_a_coordinator_that_folds_on_brings_it_back(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: the scene above can fail."""
    monkeypatch.setattr(PartitionLog, "leads_on", lambda *_: True)
    with pytest.RaisesGroup(AssertionError, flatten_subgroups=True):
        await lead_after_beginning_anew()


async def repair_where_nothing_is_compacted_any_more() -> None:
    """This replica has removed a tombstone, its leader has not, and neither compacts any more."""
    async with memory_cluster() as cluster:
        leader = await compacted(cluster)
        await put(leader, GONE, b"old")
        await put(leader, b"other", b"it stays, so the placeholders before and behind are two")
        await fill_up(leader)
        await put(leader, GONE, None)
        await fill_up(leader)
        await caught_up(cluster)
        node = cluster.follower()
        replica = node.partition("t")
        await remove_tombstones(cluster, node)
        assert not has_key(replica, GONE)
        assert has_key(leader, GONE)
        cluster.alter_topic("t", cleanup_policy="delete")
        await cluster.wait(lambda: replica.log.settings.compaction is None)
        rot(cluster, node, 0)  # what compaction has left there
        node.manager.repairs.suspect(replica, 0)
        await cluster.wait(lambda: node.manager.repairs.repaired_count == 1)
        await caught_up(cluster)
        assert last_values(await elect(cluster, node)) == last_values(leader)


async def test_a_repair_heeds_what_the_damaged_log_itself_has_removed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The leader's records were put where the value had been, and its tombstone was gone."""
    await repair_where_nothing_is_compacted_any_more()
