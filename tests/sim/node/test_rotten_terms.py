"""A leader epoch that rotted behind the last mark makes no log the longest (storage/DESIGN 6.1).

One replica was behind when all went down, and one bit of its last record's epoch is another. Such a
label lies outside the checksum, and a term of that number has begun: without the rule the others
would be cut to a log that lacks what was acknowledged.
"""

from __future__ import annotations

from unittest import mock

import pytest

from paceline.client.client import Client
from paceline.types import NO_NODE, NodeId
from paceline.wire.batch import iter_batches
from paceline_cluster.sim.machine import Machine
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.replication import refused_truncations
from paceline_node.replication.partition import Partition
from paceline_node.storage.durability import Durability
from tests.sim.node.story import Story, perform, play

pytestmark = pytest.mark.timeout(120)

IDLE = "idle"
MARKS = "durable.marks"
_EPOCH_AT = 12
_ROTTEN = 3


class Idle:
    """A topic of one partition that nobody but the script writes to."""

    def __init__(self, story: Story) -> None:
        self.story = story

    @property
    def registered(self) -> PartitionRegistration:
        topic = self.story.image.find_topic(IDLE)
        assert topic is not None
        return topic.partitions[0]

    def on(self, machine: Machine) -> Partition | None:
        broker = None if machine.node is None else machine.node.broker
        return None if broker is None else broker.replicas.table.get(IDLE, 0)

    async def write(self, value: bytes) -> None:
        async def work(client: Client) -> None:
            async with client.producer() as producer:
                await producer.send(IDLE, value)

        await self.story.perform(work)

    async def move_to(self, machine: Machine) -> None:
        async def work(client: Client) -> None:
            await client.admin.elect_leader(IDLE, 0, NodeId(machine.number))

        await self.story.perform(work)
        await self.story.until("it leads", lambda: self.registered.leader == machine.number)

    async def have(self, count: int, *machines: Machine) -> None:
        def all_have() -> bool:
            found = [self.on(machine) for machine in machines]
            return all(each is not None and each.high_watermark == count for each in found)

        await self.story.until(f"all have {count}", all_have, 30)


def rot_last_epoch(machine: Machine) -> None:
    """The last record of the topic's log says that it is of another term; its checksum fits."""
    path = next(
        path for path, _ in machine.disk.files() if f"/{IDLE}-0." in path and path.endswith(".log")
    )
    content = bytearray(machine.disk.content(path))
    position, header = list(iter_batches(bytes(content)))[-1]
    assert header.leader_epoch == _ROTTEN - 2, header  # one bit
    at = position + _EPOCH_AT
    content[at : at + 4] = _ROTTEN.to_bytes(4, "big")
    machine.disk.overwrite(path, bytes(content))


async def rot_where_nobody_else_is_complete(story: Story) -> None:
    idle = Idle(story)

    async def create(client: Client) -> None:
        await client.admin.create_topic(IDLE, partitions=1, replication_factor=3)

    await story.perform(create)
    behind, second, third = story.machines
    await idle.move_to(second)  # term 1 at most
    while idle.registered.leader_epoch < _ROTTEN - 2:
        await idle.move_to(third if idle.registered.leader == second.number else second)
    await idle.have(0, *story.machines)
    early = behind.disk.content(MARKS)
    await idle.write(b"a")
    await idle.have(1, *story.machines)
    behind.kill()
    await story.until("it is out", lambda: behind.number not in idle.registered.isr)
    # In the next term something is acknowledged; the ones behind it begin and write nothing.
    await idle.move_to(third if idle.registered.leader == second.number else second)
    await idle.write(b"b")
    await idle.have(2, second, third)
    while idle.registered.leader_epoch < _ROTTEN:
        await idle.move_to(third if idle.registered.leader == second.number else second)
    second.kill()
    third.kill()
    behind.disk.overwrite(MARKS, early)
    rot_last_epoch(behind)
    # One that is complete stays away, so the other leads by what it was, and compares.
    story.start(behind, second)
    await story.until("it leads again", lambda: idle.registered.leader != NO_NODE, 30)
    await idle.have(2, behind, second)
    story.start(third)
    await idle.have(2, *story.machines)


def test_the_others_are_not_cut_to_it() -> None:
    play(rot_where_nobody_else_is_complete)


def test_believing_what_no_mark_knows_is_found() -> None:
    # Nor is one that is not complete believed where the two fork (replication/DESIGN 5.2): both
    # rules keep it from leading.
    believed = mock.patch.object(refused_truncations, "_is_surely_longer", return_value=True)
    with believed, mock.patch.object(Durability, "withhold"):
        violation = perform(rot_where_nobody_else_is_complete).violation
    assert violation is not None
    assert violation.invariant in ("I1", "I4"), violation
