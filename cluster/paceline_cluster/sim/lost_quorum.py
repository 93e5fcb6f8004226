"""A majority of the quorum is lost for good, and an operator goes on with the voter that is left.

Before, that voter hears nothing of the others for a while: what they commit meanwhile is metadata
that only the lost ones had. It is the only one to go on if no record is lost with them: it is in
sync everywhere, by what it knows itself and by what the others knew.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import trio

from paceline_cluster.sim.budget import LossBudget
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.disk_faults import Hand
from paceline_cluster.sim.machine import Machine
from paceline_cluster.sim.oracle import Oracle
from paceline_node.app.boot import METADATA
from paceline_node.controller import force_quorum
from paceline_node.controller.image import Image
from paceline_node.storage.layout import read_meta

_DECIDED_S = 0.5
"""How long the operator needs."""


class LostQuorum:
    """Strikes where every machine votes, and all disks are sound."""

    def __init__(self, cluster: SimCluster, oracle: Oracle, budget: LossBudget, hand: Hand) -> None:
        self._cluster = cluster
        self._oracle = oracle
        self._budget = budget
        self._hand = hand
        self._is_under_way = False

    def strike(self, rng: random.Random) -> None:
        """Cut a voter off, and let the others go on without it for a while, some of them begun
        again; then they are gone."""
        members = self._cluster.members
        voters = {voter.node_id for voter in self._oracle.voters()}
        running = [each for each in members if each.is_running and each.node is not None]
        if self._is_under_way or self._budget.hurt() or len(voters) < len(members):
            return
        if len(running) < len(members):
            return
        self._is_under_way = True
        left = rng.choice(members)
        others = [each for each in members if each is not left]
        self._cut(left, others)
        wait = rng.choice((0.1, 1.0, 2.0)) * rng.uniform(0.5, 1.5)
        self._hand.note("cut", left, about=f"for {wait:.2f} s, then the others are lost")
        for each in others:
            if rng.random() < 0.5:
                each.down_until = 0.0
                each.kill()
        self._hand.later(wait, lambda: self._lose(left, others))

    def _cut(self, left: Machine, others: Sequence[Machine]) -> None:
        for each in others:
            self._cluster.fabric.cut(left.host, each.host)
            self._cluster.fabric.cut(each.host, left.host)

    def _heal(self, left: Machine, others: Sequence[Machine]) -> None:
        for each in others:
            self._cluster.fabric.heal(left.host, each.host)
            self._cluster.fabric.heal(each.host, left.host)

    def _lose(self, left: Machine, others: Sequence[Machine]) -> None:
        self._heal(left, others)
        self._is_under_way = False
        if self._budget.hurt() or not self._holds_all(left):
            return
        self._hand.note("force-quorum", left)
        due = trio.current_time() + _DECIDED_S
        for each in (*others, left):
            each.down_until = due
            each.kill()
        for each in others:
            self._budget.lost(each)
            each.must_wipe = True
        self._cluster.nursery.start_soon(self._force, left)

    def _holds_all(self, left: Machine) -> bool:
        newest = self._oracle.metadata.newest
        broker = None if left.node is None else left.node.broker
        if newest is None or broker is None:
            return False
        known = broker.metadata.image_store.image
        return newest.topics.keys() == known.topics.keys() and all(
            _in_sync_everywhere(left.number, image) for image in (newest, known)
        )

    async def _force(self, left: Machine) -> None:
        """What ``paceline metadata force-quorum --execute`` does."""
        self._oracle.forget_metadata()
        meta = await read_meta(left.disk)
        assert meta is not None, "a sound disk"
        found = await force_quorum.examine(left.disk, METADATA, meta)
        forced = force_quorum.decide([found])
        await force_quorum.force(left.disk, METADATA, forced, wall_ms=left.wall_ms())


def _in_sync_everywhere(node: int, image: Image) -> bool:
    return all(
        node in partition.isr
        for topic in image.topics.values()
        for partition in topic.partitions.values()
        if node in partition.replicas
    )
