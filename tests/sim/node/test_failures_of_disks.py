"""Rows of tests/sim/README.md about disks: power, room, slowness, errors, rot, loss."""

from __future__ import annotations

import random

import pytest
import trio

from paceline.client.client import Client
from paceline.types import NodeId
from paceline_cluster.sim.machine import Machine
from paceline_node.controller.raft_types import Member
from paceline_node.settings.topic_config import FlushMode
from tests.sim.node.story import Story, plan_of, play


@pytest.mark.parametrize("mode", [FlushMode.GROUP, FlushMode.INTERVAL])
def test_row_04_power_lost_on_one_node(mode: FlushMode) -> None:
    async def script(story: Story) -> None:
        leader = story.leader
        leader.power_cut()
        await story.led_by_another(leader, within=5)
        await story.acknowledged()
        story.start(leader)
        await story.in_sync()
        trusted = story.broker(leader).trusted
        story.check(trusted == (mode is FlushMode.GROUP), f"trusted is {trusted}")

    play(script, plan_of(mode=mode))


def test_row_05_power_lost_everywhere() -> None:
    async def script(story: Story) -> None:
        for machine in story.machines:
            machine.power_cut()
        await trio.sleep(1)
        story.start(*story.machines)
        await story.acknowledged(5, within=20)
        await story.in_sync()

    play(script, plan_of(writers=3))


def fill(machine: Machine) -> None:
    disk = machine.disk
    disk.capacity_bytes = disk.total_bytes() - disk.free_bytes()


def test_row_17_disk_full_on_a_follower() -> None:
    async def script(story: Story) -> None:
        follower = story.followers[0]
        fill(follower)
        await story.until("out of sync", lambda: follower.number not in story.isr)
        await story.acknowledged()
        follower.disk.capacity_bytes = None
        await story.in_sync()

    play(script)


def test_row_18_disk_full_on_the_leader() -> None:
    async def script(story: Story) -> None:
        leader = story.leader
        fill(leader)
        await story.led_by_another(leader, within=20)
        await story.acknowledged(5, within=20)
        leader.disk.capacity_bytes = None
        await story.in_sync()

    play(script)


@pytest.mark.slow
def test_row_19_slow_disk_on_the_leader() -> None:
    async def script(story: Story) -> None:
        leader = story.leader
        leader.sync_s = (1.5, 3.0)
        await story.led_by_another(leader, within=30)
        await story.acknowledged(5, within=20)
        leader.sync_s = (0.0001, 0.0006)
        await story.in_sync()

    play(script)


@pytest.mark.slow
def test_row_20_failed_sync() -> None:
    async def script(story: Story) -> None:
        leader = story.leader
        leader.disk.fail_next("sync", path="topics")
        await story.until("ended", lambda: not leader.is_up)
        story.check(leader.life is not None and leader.life.exit_code == 69, "exit code")
        await story.led_by_another(leader)
        await story.acknowledged()
        story.start(leader)
        await story.until("back", lambda: leader.number in story.isr, 20)
        story.check(not story.broker(leader).trusted, "a failed disk is trusted")

    play(script)


def rot(story: Story, machine: Machine) -> None:
    """Flip bits in the first committed bytes of the watched partition."""
    partition = story.partition_on(machine)
    story.run.oracle.damaged.add((machine.number, partition.key))
    path = partition.log.segments[0].file.path
    content = bytearray(machine.disk.content(path))
    rng = random.Random(1)
    for _ in range(20):
        content[rng.randrange(70, 200)] ^= 0x10
    machine.disk.overwrite(path, bytes(content))


@pytest.mark.slow
def test_row_21_rot_on_a_follower_is_repaired_once_it_is_read() -> None:
    """It is found when it leads and a reader asks for it; what readers get is whole."""

    async def script(story: Story) -> None:
        leader, follower = story.leader, story.followers[0]
        await story.acknowledged(20)
        rot(story, follower)
        leader.kill()
        await story.led_by_another(leader)
        story.start(leader)
        await story.acknowledged()
        await story.in_sync()

    play(script)


def test_row_22_rot_on_the_leader_under_the_high_watermark() -> None:
    async def script(story: Story) -> None:
        await story.acknowledged(20)
        leader = story.leader
        rot(story, leader)
        await story.until(
            "read, found and repaired", lambda: not story.run.oracle.is_damaged(leader), 60
        )
        await story.acknowledged()
        await story.in_sync()

    play(script)


@pytest.mark.slow
def test_row_27_node_wiped() -> None:
    async def script(story: Story) -> None:
        node = story.followers[0]
        directory = story.broker(node).directory_id
        story.wipe(node)
        await story.acknowledged()
        story.start(node)
        await story.in_sync()
        story.check(story.broker(node).directory_id != directory, "the disk is the old one")

    play(script)


def test_row_28_wiped_node_was_the_only_one_in_sync() -> None:
    """Others were in the ELR, complete: one of them is elected at once."""

    async def script(story: Story) -> None:
        watch_beyond_voters(story)
        first, second = story.followers
        first.kill()
        await story.until("one gone", lambda: first.number not in story.isr)
        second.kill()
        leader = story.leader
        await story.until("alone", lambda: story.isr == {leader.number})
        story.check(set(story.registered.elr) == {second.number}, f"{story.registered}")
        story.wipe(leader)
        await story.until("nobody in sync", lambda: not story.isr)
        story.start(second)
        await story.until("elected", lambda: story.registered.leader == second.number)
        story.start(first, leader)
        await story.acknowledged(5, within=20)
        await story.in_sync()

    play(script, plan_of(nodes=5, partitions=3))


def watch_beyond_voters(story: Story) -> None:
    """Watch a partition that has two replicas on nodes that are no voters."""
    for number in range(3):
        story.partition = number
        if {3, 4} <= set(story.registered.replicas):
            return
    raise AssertionError("no partition fits")


def test_row_29_two_of_three_wiped_at_once() -> None:
    """More than the budget: the one that is left leads, and writes wait for another."""

    async def script(story: Story) -> None:
        watch_beyond_voters(story)
        lost = [story.machines[3], story.machines[4]]
        [left] = [n for n in story.registered.replicas if n not in (3, 4)]
        for machine in lost:
            story.wipe(machine)
        await story.until("one leads", lambda: story.registered.leader == left)
        story.start(*lost)
        await story.acknowledged(5, within=20)
        await story.in_sync()

    play(script, plan_of(nodes=5, partitions=3))


@pytest.mark.slow
def test_row_34_voter_disk_lost() -> None:
    """It is no voter with its new disk until the quorum has replaced the old one."""

    async def script(story: Story) -> None:
        voter = next(m for m in story.machines[:3] if m is not story.controller)
        directory = story.broker(voter).directory_id
        story.wipe(voter)
        story.start(voter)
        await story.until("registered", lambda: story.broker(voter).directory_id != directory)

        def is_voter_again() -> bool:
            controller = story.controller
            broker = None if controller is None else (controller.node and controller.node.broker)
            if not broker:
                return False
            voters = {member.directory_id for member in broker.metadata.quorum.voters}
            return story.broker(voter).directory_id in voters and directory not in voters

        await story.until("a voter again", is_voter_again, 30)
        await story.acknowledged()

    play(script)


@pytest.mark.slow
def test_an_emptied_node_answers_a_leader_that_old_metadata_does_not_name() -> None:
    """What it is sent first is the oldest snapshot, and who leads now was no member then."""

    async def script(story: Story) -> None:
        first, late = story.machines[0], story.machines[4]
        directory = story.broker(first).directory_id
        story.wipe(first)  # it comes back when another has its place

        async def replace_it(client: Client) -> None:
            await client.admin.remove_voter(NodeId(first.number), directory)

        await story.until("it is missed", lambda: story.broker(first).fenced)
        await trio.sleep(1.0)  # the quorum forgets that it was there a moment ago
        await story.perform(replace_it)

        def younger() -> Machine | None:
            return next((m for m in story.machines[3:] if votes(story, m)), None)

        await story.until("a younger one votes", lambda: younger() is not None, 20)
        story.start(first)
        leader = younger()
        assert leader is not None
        while story.controller is not leader:
            old = story.controller
            if old is not None:
                old.stop()
                await story.until("stopped", lambda old=old: not old.is_up)
                story.start(old)
            await story.until("another controller", lambda: story.controller is not None)
        if late is leader:
            late = story.machines[3]
        await story.in_sync()
        story.wipe(late)
        story.start(late)
        await story.until("it serves", lambda: serves(late), 5)

    play(script, plan_of(nodes=5))


def test_an_emptied_node_asks_again_when_it_was_let_in_by_a_leader_that_lost_its_power() -> None:
    """Nobody but that leader ever had the change, and the next one knows nothing of it."""

    async def script(story: Story) -> None:
        await story.until("a controller", lambda: story.controller is not None)
        old = story.controller
        assert old is not None
        voters = [m for m in story.machines[:3] if m is not old]
        late = story.machines[4]
        directory = story.broker(late).directory_id
        story.wipe(late)
        await trio.sleep(0.2)
        story.cut([old], voters)
        story.cut(voters, [old])
        story.start(late)

        def let_in() -> bool:
            listed = {m.directory_id for m in members(old) if m.node_id == late.number}
            return bool(listed) and directory not in listed

        await story.until("let in", let_in, 1.0)
        await trio.sleep(0.3)  # it asks, and is told so
        await story.until("another controller", lambda: story.controller in voters)
        story.heal()
        await story.until("it serves", lambda: serves(late), 5)

    play(script, plan_of(nodes=5))


def members(machine: Machine) -> tuple[Member, ...]:
    assert machine.node is not None
    assert machine.node.broker is not None
    return machine.node.broker.metadata.quorum.config.members


def votes(story: Story, machine: Machine) -> bool:
    controller = story.controller
    broker = None if controller is None else (controller.node and controller.node.broker)
    if not broker:
        return False
    return machine.number in {voter.node_id for voter in broker.metadata.quorum.voters}


def serves(machine: Machine) -> bool:
    return machine.life is not None and machine.is_up and machine.life.is_serving


def test_row_40_min_isr_changes_while_replicas_leave() -> None:
    async def script(story: Story) -> None:
        rng = random.Random(2)
        for _ in range(4):
            story.run.operator.ask("min-isr", rng)
            follower = story.followers[0]
            follower.kill()
            await trio.sleep(0.3)
            story.start(follower)
            await trio.sleep(0.5)
        await story.acknowledged(5, within=20)

    play(script, plan_of(writers=2))


@pytest.mark.slow
def test_a_node_that_starts_without_any_descriptor_waits() -> None:
    """Its disk is sound: it neither ends itself, nor is it taken for a damaged one."""

    async def script(story: Story) -> None:
        await story.acknowledged()
        late = story.leader
        late.stop()
        await story.until("stopped", lambda: not late.is_up)
        asked = 0

        def starve() -> bool:
            nonlocal asked
            asked += 1
            return asked < 40

        late.disk.starves = starve
        story.start(late)
        await story.until("all were refused", lambda: asked >= 40, 60)
        story.check(late.is_up, "it has ended itself")
        await story.until("back", lambda: late.number in story.isr, 60)
        story.check(late.lives == 2, "it was started again")

    play(script)


@pytest.mark.parametrize("want", ["room", "descriptors"])
def test_a_node_that_stops_in_want_ends_in_order(want: str) -> None:
    """It cannot write its last checkpoints; the next start recovers, as after a kill."""

    async def script(story: Story) -> None:
        follower = story.followers[0]
        if want == "room":
            fill(follower)
        else:
            follower.disk.starves = lambda: True
        life = follower.life
        follower.stop()
        await story.until("stopped", lambda: not follower.is_up, 20)
        assert life is not None
        story.check(life.exit_code == 0, f"exit code {life.exit_code}")
        follower.disk.capacity_bytes = None
        follower.disk.starves = lambda: False
        story.start(follower)
        await story.in_sync()
        await story.acknowledged()

    play(script)
