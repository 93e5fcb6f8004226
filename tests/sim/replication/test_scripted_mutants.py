"""Two mutants that take a message of just the right age: scripted, for random runs need thousands
of seeds to hit them. The oracle is that of the random runs; without the mutant it finds nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from paceline.types import NodeId
from paceline.wire.peer.control import AlterPartitionRequest
from paceline.wire.peer.replica import FetchPartition
from paceline_cluster.sim.replicas.broker import SimBroker
from paceline_cluster.sim.replicas.oracle import Violation
from paceline_cluster.sim.replicas.runs import Profile, Run
from paceline_node.replication.fetch_checks import FollowerIdentity
from paceline_node.settings.flush_mode import FlushMode
from tests.sim.replication.mutants import ALL, Mutant

Fetch = tuple[FollowerIdentity, FetchPartition]


class Scene:
    """Three brokers on a perfect network, all in sync, min ISR 2; ``leader`` and two followers."""

    def __init__(self, mode: FlushMode) -> None:
        seed = next(seed for seed in range(50) if len(Run(seed, Profile("quiet")).brokers) == 3)
        self.run = Run(seed, Profile("quiet", modes=(mode,)))
        self.world = self.run.world
        self.authority = self.run.authority
        self.run.warm_up()
        partition = self.authority.partition
        assert partition is not None
        assert len(partition.isr) == 3
        self.leader = self.run.brokers[partition.leader]
        self.first, self.second = (each for each in self.run.brokers if each is not self.leader)

    @property
    def isr(self) -> set[int]:
        assert self.authority.partition is not None
        return set(self.authority.partition.isr)

    def fenced(self, broker: SimBroker) -> bool:
        return self.authority.image.brokers[broker.node].fenced

    def until(self, what: str, holds: Callable[[], bool], within: float = 5.0) -> None:
        deadline = self.world.now + within
        while not holds():
            assert self.world.now < deadline, f"{what}: not within {within} s"
            self.world.run(self.world.now + 0.001)


def late_copy_of_a_rejected_proposal() -> None:
    """A proposal to admit a follower is rejected while that is fenced; a copy of it arrives when it
    is not, and the leader must still be counting with it, or have made the copy worthless."""
    scene = Scene(FlushMode.GROUP)
    follower, held = scene.first, list[AlterPartitionRequest]()
    ask = scene.authority.ask

    def hold_proposals(node: NodeId, request: Any, answered: Any, **options: Any) -> None:
        if isinstance(request, AlterPartitionRequest) and scene.isr != {0, 1, 2} - {node}:
            held.append(request)
            answers.append(answered)
        else:
            ask(node, request, answered, **options)

    answers: list[Any] = []
    follower.pause(0.9)
    scene.until("the follower is out", lambda: follower.node not in scene.isr)
    scene.authority.ask = hold_proposals  # type: ignore[method-assign]
    scene.until("a proposal to admit it", lambda: bool(held))
    follower.pause(1.0)
    scene.until("it is fenced", lambda: scene.fenced(follower))
    ask(scene.leader.node, held[0], answers[0])
    scene.until("it is back", lambda: not scene.fenced(follower))
    scene.authority.handle(scene.leader.node, held[0])
    scene.world.run(scene.world.now + 0.2)


def late_fetch_of_a_dead_process() -> None:
    """A follower has said what it holds, loses its unsynced tail with its power, and is back in the
    ISR with less, when the message of the dead process arrives."""
    scene = Scene(FlushMode.INTERVAL)
    follower, leader, fetches = scene.first, scene.leader, list[Fetch]()
    on_fetch = leader.on_fetch
    is_starved = [False]

    def hearing(sender: FollowerIdentity, position: FetchPartition, nonce: int | None) -> None:
        if sender.node == follower.node:
            fetches.append((sender, position))
            if is_starved[0]:
                nonce = None  # what it says is heard, but not answered
        on_fetch(sender, position, nonce)

    leader.on_fetch = hearing  # type: ignore[method-assign]
    scene.second.pause(2.0)
    scene.world.run(scene.world.now + 0.3)
    stale = max(fetches, key=lambda fetch: fetch[1].durable_offset)
    scene.second.kill()
    assert leader.replica is not None
    kept = leader.replica.high_watermark + 1
    assert stale[1].durable_offset > kept + 6, "nothing would be shown"
    follower.log.truncate(kept)
    follower.power_cut()
    is_starved[0] = True
    follower.start()
    scene.until("it is out", lambda: follower.node not in _counted(leader))
    scene.until("it is admitted", lambda: follower.node in _counted(leader))
    scene.until("it is in sync", lambda: follower.node in scene.isr)
    # The other follower, dead, is soon waited for no longer: the late fetch comes just then.
    scene.until("it is alone with the leader", lambda: scene.second.node not in _counted(leader))
    scene.until("the leader knows that it is in sync", lambda: follower.node in _in_sync(leader))
    scene.world.after(0.0, leader.guard(lambda: on_fetch(stale[0], stale[1], None)))
    scene.world.run(scene.world.now + 0.1)


def _counted(leader: SimBroker) -> frozenset[NodeId]:
    assert leader.replica is not None
    assert leader.replica.leader is not None
    return frozenset(leader.replica.leader.maximal_isr)


def _in_sync(leader: SimBroker) -> tuple[NodeId, ...]:
    assert leader.replica is not None
    assert leader.replica.leader is not None
    return leader.replica.leader.isr


def mutant(name: str) -> Mutant:
    return next(each for each in ALL if each.name == name)


SCENES = pytest.mark.parametrize(
    ("scene", "name"),
    [
        (late_copy_of_a_rejected_proposal, "rollback on INELIGIBLE without a bump"),
        (late_fetch_of_a_dead_process, "fetch of an older broker epoch accepted"),
    ],
    ids=("proposal", "fetch"),
)


@SCENES
def test_the_scene_is_harmless(scene: Callable[[], None], name: str) -> None:
    scene()


@SCENES
def test_the_mutant_is_found(scene: Callable[[], None], name: str) -> None:
    with mutant(name).patch(), pytest.raises(Violation, match=r"^I[45]"):
        scene()
