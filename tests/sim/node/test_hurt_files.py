"""One file of a node is gone, rotten, or cannot be read when it starts: it comes back in sync by
itself, and nothing that was acknowledged is lost."""

from __future__ import annotations

import random

import pytest
import trio

from paceline.client.client import Client
from paceline.types import NodeId
from paceline_cluster.sim.fault_model import kind_of
from paceline_cluster.sim.machine import Machine
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.replication.partition import Partition
from paceline_node.transactions.keys import TRANSACTIONS_TOPIC
from tests.sim.node.story import TOPIC, Story, play

pytestmark = pytest.mark.timeout(120)

_CHECKPOINTS_S = 1.5
"""Longer than ``log.checkpoint_ms`` of the simulated clusters."""
KINDS = ("incarnation", "recovery.ckpt", "hw.ckpt", "logstart.ckpt", "hardstate", "meta.json")
FIRST = ("incarnation", "hardstate")
"""What a start and the quorum believe; the others are slow."""


def path_of(machine: Machine, kind: str) -> str:
    """A file of a kind; of partitions that of the workload's topic."""
    paths = [
        path
        for path, _ in machine.disk.files()
        if (found := kind_of(path)) is not None and found.name == kind
    ]
    return next((path for path in paths if f"/{TOPIC}-" in path), paths[0])


def hurt(machine: Machine, path: str, how: str) -> None:
    disk = machine.disk
    match how:
        case "loss":
            disk.lose(path)
        case "rot":
            disk.rot(path, random.Random(path), bits=8)
        case _:
            disk.make_unreadable(path, 0, len(disk.content(path)))


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind in FIRST else [pytest.mark.slow]) for kind in KINDS],
)
def test_a_node_comes_back_without_a_small_file(kind: str) -> None:
    async def once(story: Story, how: str) -> None:
        follower = next(each for each in story.followers if each is not story.controller)
        if follower.lives == 1:
            # Its second start at least: a file that is lost forgets the first, too.
            follower.kill()
            story.start(follower)
            await story.in_sync()
        await story.acknowledged(20)
        await trio.sleep(_CHECKPOINTS_S)
        follower.kill()
        hurt(follower, path_of(follower, kind), how)
        epoch = story.broker(follower).broker_epoch
        story.start(follower)
        await story.until("registered anew", lambda: story.broker(follower).broker_epoch != epoch)
        await story.in_sync()
        leader = story.leader
        leader.kill()
        await story.led_by_another(leader)
        await story.acknowledged(20)
        story.start(leader)
        await story.in_sync()

    async def script(story: Story) -> None:
        for how in ("loss", "rot", "unreadable"):
            await once(story, how)

    play(script)


def test_a_lost_log_of_an_idle_partition_is_filled_again() -> None:
    """Its leader has no news of such a partition, and so sent no answer about it: the replica was
    called damaged for good."""

    async def script(story: Story) -> None:
        def found() -> PartitionRegistration:
            topic = story.image.find_topic(TRANSACTIONS_TOPIC)
            assert topic is not None
            return topic.partitions[0]

        numbers = [n for n in found().replicas if n != found().leader]
        candidates = [story.machines[n] for n in numbers]
        follower = next(each for each in candidates if each is not story.controller)
        follower.kill()
        story.start(follower)
        await story.until("it is in sync", lambda: len(found().isr) == len(found().replicas), 30)
        await trio.sleep(_CHECKPOINTS_S)
        follower.kill()
        follower.disk.lose(directory_of(follower, f"{TRANSACTIONS_TOPIC}-0."))
        await story.until("it is out", lambda: follower.number not in found().isr)
        story.start(follower)
        await story.until("it is back", lambda: follower.number in found().isr, 30)

    play(script)


def test_an_idle_partition_counts_again_where_no_mark_knows_its_newest_term() -> None:
    """What was written last is withheld at first (storage/DESIGN 6.1). No write comes that would
    have it synced: it counts because this replica leads, or because its leader has it, too."""
    idle = "idle"

    async def script(story: Story) -> None:
        def log_on(machine: Machine) -> Partition:
            broker = None if machine.node is None else machine.node.broker
            found = None if broker is None else broker.replicas.table.get(idle, 0)
            assert found is not None
            return found

        def is_whole(machine: Machine) -> bool:
            if machine.node is None or machine.node.broker is None:
                return False
            found = machine.node.broker.replicas.table.get(idle, 0)
            return found is not None and found.high_watermark == found.log.durable_offset == 2

        async def first(client: Client) -> None:
            await client.admin.create_topic(idle, partitions=1, replication_factor=3)
            async with client.producer() as producer:
                await producer.send(idle, b"1")

        async def second(client: Client) -> None:
            leader = next(each for each in story.machines if log_on(each).is_leader)
            other = next(each for each in story.machines if each is not leader)
            await client.admin.elect_leader(idle, 0, NodeId(other.number))
            async with client.producer() as producer:
                await producer.send(idle, b"2")

        await story.perform(first)
        early = [machine.disk.content("durable.marks") for machine in story.machines]
        await story.perform(second)
        await story.until("all have both", lambda: all(map(is_whole, story.machines)))
        for machine, content in zip(story.machines, early, strict=True):
            machine.kill()
            now = machine.disk.content("durable.marks")
            machine.disk.overwrite("durable.marks", _with_count_of(now, content))
        story.start(*story.machines)
        await story.until("all have both again", lambda: all(map(is_whole, story.machines)), 30)

    play(script)


def _with_count_of(now: bytes, early: bytes) -> bytes:
    """Early marks whose count of syncs is the present one, else they are known to be old
    (storage/DESIGN 6.2)."""
    place = now.index(b"syncs so far")
    assert early.index(b"syncs so far") == place
    return early[:place] + now[place : place + 64] + early[place + 64 :]


def directory_of(machine: Machine, start: str) -> str:
    """The directory of a partition, by how its name starts."""
    paths = (path.rpartition("/")[0] for path, _ in machine.disk.files())
    return next(path for path in paths if path.rpartition("/")[2].startswith(start))
