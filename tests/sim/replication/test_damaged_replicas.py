"""A damaged replica and the ISR: what it acknowledged before its damage was found, or before it was
reset, counts for nothing afterwards, whoever speaks and however late.

Each story ends with the question that matters: is what was acknowledged still there? The rules that
once lost everything are the mutants of these stories.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import trio
import trio.testing

from paceline.types import NodeId
from paceline.wire.peer.control import IsrMember
from paceline_node.controller import isr_proposals, partition_change
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.replication.fetch_checks import FollowerIdentity
from paceline_node.replication.leader import ALREADY_MEMBER, Brokers, LeaderState
from paceline_node.replication.repairs import Repairs
from paceline_node.storage.producers import FrozenTable
from tests.integration.replication.cluster import TestNode
from tests.integration.replication.test_replication import values
from tests.sim.replication.memory_cluster import RECORDS, MemoryCluster, memory_cluster, rot

Story = Callable[[MemoryCluster], Awaitable[None]]


class Lost(AssertionError):
    """Acknowledged records are gone."""


class Repairer:
    """Holds all repairs until ``go``, as a slow disk or a busy peer would."""

    def __init__(self) -> None:
        self._repair_all = Repairs._repair_all
        self.goes = False

    async def repair_all(self, repairs: Repairs) -> None:
        if self.goes:
            await self._repair_all(repairs)

    @classmethod
    @contextlib.contextmanager
    def held(cls) -> Iterator[Repairer]:
        repairer = cls()

        async def repair_all(repairs: Repairs) -> None:
            await repairer.repair_all(repairs)

        with mock.patch.object(Repairs, "_repair_all", repair_all):
            yield repairer


async def written(cluster: MemoryCluster) -> tuple[TestNode, TestNode, TestNode]:
    """(leader, the follower that will rot, the other one) of a compacted topic."""
    leader = await cluster.written(RECORDS, cleanup_policy="compact", min_insync_replicas="2")
    damaged = cluster.follower()
    here = cluster.nodes[leader.leader]
    other = next(node for node in cluster.nodes.values() if node not in (here, damaged))
    return here, damaged, other


def in_sync(cluster: MemoryCluster) -> set[int]:
    return set(cluster.registration("t").isr)


def find_damage(cluster: MemoryCluster, node: TestNode) -> None:
    rot(cluster, node, 5)
    node.manager.repairs.suspect(node.partition("t"), 5)


def cut_off_once_reset(cluster: MemoryCluster, node: TestNode) -> trio.Event:
    """Nothing reaches ``node`` from the moment its log is reset on; the event of that."""
    log, done = node.partition("t").log, trio.Event()
    begin_at = log.begin_at

    def beginning(state: FrozenTable, *, is_kept: bool) -> None:
        begin_at(state, is_kept=is_kept)
        for other in cluster.nodes.values():
            if other is not node:
                cluster.fabric.cut(cluster.host_of(node.node_id), cluster.host_of(other.node_id))
        done.set()

    log.begin_at = beginning  # type: ignore[method-assign]
    return done


async def all_others_fail(cluster: MemoryCluster, node: TestNode) -> None:
    """They lose power together and come back. ``node`` may not lead without the records."""
    others = [number for number in cluster.nodes if number != node.node_id]
    for number in others:
        await cluster.kill(number)
    await trio.sleep(1)
    if cluster.registration("t").leader == node.node_id:
        raise Lost(f"node {node.node_id} leads with {values(node.partition('t'))}")
    for number in others:
        again = await cluster.start(number)
        cluster.fabric.heal(cluster.host_of(node.node_id), cluster.host_of(again.node_id))
    await cluster.wait(lambda: len(in_sync(cluster)) == 3, timeout_s=60)
    await cluster.wait(lambda: cluster.all_at("t", len(RECORDS)))
    for each in cluster.nodes.values():
        assert values(each.partition("t"), from_follower=True) == RECORDS


# --- stories --------------------------------------------------------------------------------------


async def another_follower_fetches(cluster: MemoryCluster) -> None:
    """One follower is out of the ISR. The other one rots and is taken out. Then the first comes
    back, and its fetch makes the leader think of who may join."""
    here, damaged, away = await written(cluster)
    links = cluster.host_of(here.node_id), cluster.host_of(away.node_id)
    cluster.fabric.cut(*links)
    await cluster.wait(lambda: away.node_id not in in_sync(cluster))
    with Repairer.held() as repairer:
        find_damage(cluster, damaged)
        await cluster.wait(lambda: damaged.node_id not in in_sync(cluster))
        assert damaged.partition("t").log.damaged
        reset = cut_off_once_reset(cluster, damaged)
        cluster.fabric.heal(*links)
        await cluster.wait(lambda: away.node_id in in_sync(cluster))
        repairer.goes = True
        damaged.manager.repairs.suspect(damaged.partition("t"), 0)  # now, not at the next try
        await reset.wait()
        await all_others_fail(cluster, damaged)


async def acknowledgement_arrives_late(cluster: MemoryCluster) -> None:
    """What the damaged replica said while it was sound is heard after it was reset, and after it
    called itself whole again, which it is: whole and empty."""
    here, damaged, _ = await written(cluster)
    leader = here.partition("t")
    said = damaged.partition("t").replica.position(1024)
    directory = cluster.authority.image.brokers[damaged.node_id].directory_id
    speaker = FollowerIdentity(damaged.node_id, damaged.broker_epoch, directory)
    reset = cut_off_once_reset(cluster, damaged)
    find_damage(cluster, damaged)
    await reset.wait()
    await cluster.wait(lambda: not cluster.registration("t").damaged)
    for _ in range(20):
        leader.replica.on_fetch(speaker, said, trio.current_time())
        leader.on_follower_progress()
        await trio.sleep(0.1)
    await all_others_fail(cluster, damaged)


async def leader_changes_meanwhile(cluster: MemoryCluster) -> None:
    """The damage is found just before another leads, who has heard the replica when it was sound
    and cannot have heard of the damage."""
    here, damaged, other = await written(cluster)
    with Repairer.held() as repairer:
        damaged.controller.cut = True
        here.controller.cut = True  # so that nobody shrinks the ISR
        reset = cut_off_once_reset(cluster, damaged)
        cluster.elect("t", other.node_id)
        await cluster.wait(lambda: cluster.leader("t") is other.partition("t"))
        await cluster.wait(lambda: other.partition("t").acked(damaged.node_id) == len(RECORDS))
        find_damage(cluster, damaged)
        await cluster.wait(lambda: bool(damaged.manager.repairs.damaged))
        here.controller.cut = damaged.controller.cut = False
        await cluster.wait(lambda: damaged.node_id not in in_sync(cluster))
        await trio.sleep(3)
        repairer.goes = True
        await reset.wait()
        await all_others_fail(cluster, damaged)


# --- mutants --------------------------------------------------------------------------------------


def _everybody(self: LeaderState, node: NodeId, high_watermark: int, brokers: Brokers) -> bool:
    if self.pending is not None or node in self.registration.isr:
        return False
    isr = self.registration.isr
    joining = [
        each
        for each in self.registration.replicas
        if each not in isr and self.may_join(each, high_watermark, brokers)
    ]
    members = [IsrMember(each, ALREADY_MEMBER) for each in isr]
    members += [IsrMember(each, brokers[each].broker_epoch) for each in joining]
    if joining:
        self._propose(tuple(members))
    return bool(joining)


def _whatever_it_said(
    self: LeaderState, node: NodeId, high_watermark: int, brokers: Brokers
) -> bool:
    known, registered = self.followers.get(node), brokers.get(node)
    return (
        known is not None
        and registered is not None
        and known.ack >= max(high_watermark, self.start_offset)
        and known.broker_epoch == registered.broker_epoch
    )


def _nothing_forgotten(self: LeaderState, registration: PartitionRegistration) -> None:
    pending, self.registration = self.pending, registration
    if pending is not None and registration.partition_epoch > pending.partition_epoch:
        self.pending = None
    self._recount()


def _damaged_is_eligible(member: IsrMember, partition: PartitionRegistration, draft: Any) -> bool:
    broker = draft.broker(member.node_id)
    return broker is not None and not broker.fenced


_membership = partition_change._membership


def _damage_is_an_event(
    partition: PartitionRegistration,
    change: Any,
    replicas: tuple[NodeId, ...],
    min_isr: int,
    damaged: Any,
) -> Any:
    found_now = tuple(node for node in damaged if node not in partition.damaged)
    return _membership(partition, change, replicas, min_isr, found_now)


@contextlib.contextmanager
def progress_is_for_ever() -> Iterator[None]:
    """All replicas are considered at any fetch, by what they said at any time; and the controller
    does not remember who is damaged."""
    with (
        mock.patch.object(LeaderState, "consider_expand", _everybody),
        mock.patch.object(LeaderState, "may_join", _whatever_it_said),
        mock.patch.object(LeaderState, "adopt", _nothing_forgotten),
        mock.patch.object(isr_proposals, "_eligible", _damaged_is_eligible),
        mock.patch.object(Repairs, "_check_forgettable", return_value=None),
        mock.patch.object(partition_change, "_membership", _damage_is_an_event),
    ):
        yield


STORIES = (another_follower_fetches, acknowledgement_arrives_late, leader_changes_meanwhile)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_nothing_is_lost(story: Story, autojump_clock: trio.testing.MockClock) -> None:
    async with memory_cluster() as cluster:
        await story(cluster)


@pytest.mark.parametrize("story", STORIES[:2], ids=lambda story: story.__name__)
async def test_the_mutant_is_found(story: Story, autojump_clock: trio.testing.MockClock) -> None:
    with progress_is_for_ever(), pytest.RaisesGroup(Lost, flatten_subgroups=True):
        async with memory_cluster() as cluster:
            await story(cluster)
