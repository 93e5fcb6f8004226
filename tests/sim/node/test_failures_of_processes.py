"""Rows of tests/sim/README.md about processes: killed, suspended, restarted, without controller."""

from __future__ import annotations

import pytest
import trio

from paceline.types import NO_NODE
from paceline_cluster.sim.machine import Machine
from paceline_node.app.boot import METADATA
from paceline_node.controller import force_quorum
from paceline_node.controller.raft_types import Member
from paceline_node.settings.topic_config import FlushMode
from paceline_node.storage.layout import read_meta
from tests.sim.node.story import SESSION_S, Story, plan_of, play


def test_row_01_follower_killed() -> None:
    async def script(story: Story) -> None:
        follower = story.followers[0]
        follower.kill()
        stall = await story.acknowledged()
        story.check(stall < SESSION_S + 1, f"writes stood still for {stall:.2f} s")
        await story.until("fenced", lambda: follower.number not in story.isr)
        story.start(follower)
        await story.in_sync()
        story.check(story.broker(follower).trusted, "a killed follower is not trusted")

    assert play(script).unknown == 0


def test_row_02_leader_killed() -> None:
    async def script(story: Story) -> None:
        leader = story.leader
        leader.kill()
        gap = await story.led_by_another(leader)
        await story.acknowledged()
        story.check(gap < SESSION_S, f"its death was proved, but the gap was {gap:.2f} s")
        story.start(leader)
        await story.in_sync()

    play(script)


def test_row_03_all_killed_at_once() -> None:
    async def script(story: Story) -> None:
        for machine in story.machines:
            machine.kill()
        story.start(*story.machines)
        await story.acknowledged(5, within=20)
        await story.in_sync()
        trusted = [story.broker(machine).trusted for machine in story.machines]
        story.check(all(trusted), "the same boot, but a start was not trusted")

    play(script)


@pytest.mark.slow
def test_row_12_leader_suspended_for_long_wakes_as_a_zombie() -> None:
    async def script(story: Story) -> None:
        leader = story.leader
        leader.suspend()
        await story.led_by_another(leader)
        await story.acknowledged(20)
        await trio.sleep(2)
        leader.resume()
        await story.acknowledged(20)
        await story.in_sync()

    play(script, plan_of(writers=3))


def test_row_13_follower_suspended() -> None:
    async def script(story: Story) -> None:
        follower = story.followers[0]
        epoch = story.broker(follower).broker_epoch
        follower.suspend()
        await story.until("out of sync", lambda: follower.number not in story.isr, SESSION_S + 1)
        await story.acknowledged()
        follower.resume()
        await story.in_sync()
        same = story.broker(follower).broker_epoch == epoch
        story.check(same, "a suspended process had to register anew")

    play(script)


def test_row_14_controller_suspended() -> None:
    async def script(story: Story) -> None:
        controller = story.controller
        assert controller is not None
        controller.suspend()
        await story.until("another controller", lambda: story.controller is not None, 3.0)
        await story.acknowledged()
        controller.resume()
        await story.in_sync()

    play(script)


@pytest.mark.slow
def test_row_15_wall_clock_jumps() -> None:
    async def script(story: Story) -> None:
        elections = story.run.oracle.metadata.elections
        for jump in (3_600_000, -7_200_000, -3_600_000):
            story.leader.wall_offset_ms += jump
            await story.acknowledged(20)
        story.check(story.run.oracle.metadata.elections == elections, "a role changed")

    play(script)


def test_row_31_rolling_restart_one_at_a_time() -> None:
    async def script(story: Story) -> None:
        for machine in story.machines:
            machine.stop()
            await story.until("stopped", lambda machine=machine: not machine.is_up)
            await story.acknowledged()
            story.start(machine)
            await story.until("whole", lambda: len(story.isr) == 3)
            story.check(story.broker(machine).trusted, "an orderly stop is not trusted")

    verdict = play(script, plan_of(partitions=3))
    assert (verdict.unknown, verdict.refused) == (0, 0)


def test_row_32_rolling_restart_without_waiting() -> None:
    async def script(story: Story) -> None:
        for machine in story.machines:
            machine.stop()
            await trio.sleep(0.3)
        for machine in story.machines:
            await story.until("stopped", lambda machine=machine: not machine.is_up, 60)
            story.start(machine)
        await story.acknowledged(5, within=20)

    play(script, plan_of(partitions=3, writers=2))


@pytest.mark.slow
def test_row_33_metadata_majority_lost() -> None:
    """Leaders go on for a session, then fence themselves: nothing is acknowledged until voters are
    back."""

    async def script(story: Story) -> None:
        voters = [m for m in story.machines[:3] if m is not story.leader][:2]
        for voter in voters:
            voter.kill()
        await trio.sleep(SESSION_S + 0.5)
        await story.silent(3)
        story.start(*voters)
        await story.acknowledged(5, within=20)

    play(script)


def test_row_33_metadata_majority_lost_for_good() -> None:
    """Two of three voters lose their disks: an operator makes the third one the only voter; the
    others come back as empty nodes, and no record is missing."""

    async def script(story: Story) -> None:
        survivor = story.leader
        lost = [machine for machine in story.machines if machine is not survivor]
        for machine in lost:
            story.wipe(machine)
        await trio.sleep(0.1)  # for what was on its way
        await story.silent(SESSION_S + 1)
        survivor.kill()
        meta = await read_meta(survivor.disk)
        assert meta is not None
        found = await force_quorum.examine(survivor.disk, METADATA, meta)
        forced = force_quorum.decide([found])
        assert {voter.node_id for voter in forced.lost} == {m.number for m in lost}
        partitions = await force_quorum.force(survivor.disk, METADATA, forced, wall_ms=0)
        story.check(partitions > len(story.image.topics), "no partition got new epochs")
        epoch = story.registered.leader_epoch
        story.start(survivor)
        ahead = epoch + force_quorum.EPOCHS_AHEAD
        await story.until("epochs far ahead", lambda: story.registered.leader_epoch > ahead, 20)
        await story.until("it leads", lambda: story.registered.leader == survivor.number)
        told = [key for key in story.image.configs if key.startswith(force_quorum.RECORD_KEY)]
        story.check(len(told) == 1, f"the step is not recorded: {told}")
        story.start(*lost)
        await story.acknowledged(5, within=20)
        await story.in_sync()
        await story.until("three voters", lambda: len(voters_of(survivor)) == 3, 20)

    play(script)


def voters_of(machine: Machine) -> tuple[Member, ...]:
    assert machine.node is not None
    assert machine.node.broker is not None
    return machine.node.broker.metadata.quorum.voters


def test_row_36_event_loop_stalls_for_less_than_a_session() -> None:
    async def script(story: Story) -> None:
        elections = story.run.oracle.metadata.elections
        leader = story.leader
        if leader is story.controller:
            leader = story.followers[0]
        leader.suspend()
        await trio.sleep(SESSION_S * 0.6)
        leader.resume()
        await story.acknowledged()
        story.check(story.run.oracle.metadata.elections == elections, "a leader changed")

    play(script)


def test_row_05_interval_flush_and_power_lost_everywhere_is_never_silent() -> None:
    """Nobody is trusted: no leader until an operator decides, and the last known ones are named."""

    async def script(story: Story) -> None:
        for machine in story.machines:
            machine.power_cut()
        story.start(*story.machines)
        await story.until(
            "all registered",
            lambda: all(not story.broker(m).trusted for m in story.machines),
            20,
        )
        await trio.sleep(3)
        registered = story.registered
        story.check(registered.leader == NO_NODE, f"somebody leads: {registered}")
        story.check(len(registered.lkelr) >= 2, f"nobody to ask: {registered}")
        story.end_here()

    play(script, plan_of(mode=FlushMode.INTERVAL))
