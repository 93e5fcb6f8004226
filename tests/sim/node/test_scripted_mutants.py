"""Mutants that random runs of whole nodes did not find within their budget: scripted."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest
import trio

from paceline.types import NodeId
from paceline.wire.message import Message
from paceline.wire.peer.control import AlterPartitionRequest
from paceline_cluster.sim.machine import Machine
from paceline_cluster.sim.plan import Plan
from paceline_node.replication import refused_truncations
from paceline_node.settings.flush_mode import FlushMode
from tests.sim.node.mutants import core
from tests.sim.node.story import (
    ANOTHER_SEED,
    Story,
    find,
    perform,
    plan_of,
    play,
    play_where_it_fits,
)

pytestmark = pytest.mark.timeout(600)


def plan() -> Plan:
    """Enough voters for a controller without two of the replicas; high watermarks are hardly ever
    written down."""
    settings = {"log.checkpoint_ms": "60000"}
    return replace(plan_of(nodes=5, writers=2), seed=2, voters=5, settings=settings)


async def wipe_a_candidate(story: Story) -> None:
    """Two followers leave, so that the last one to go stays eligible; then its disk is lost."""
    first, second = story.followers
    first.kill()
    await story.until("the first is out", lambda: first.number not in story.isr)
    story.wipe(second)
    await story.until("the second is out", lambda: second.number not in story.isr)
    story.check(second.number in story.registered.elr, "it is not eligible")
    before = story.broker(second).broker_epoch
    story.start(second)
    await story.until("it is back", lambda: story.broker(second).broker_epoch != before)
    story.start(first)
    await story.in_sync()


async def return_behind_a_new_leader(story: Story) -> None:
    """A follower falls behind; the rest commits on, then dies together before the new high
    watermark is on any disk. Whoever leads then must not let the follower in at the old one. Its
    disk is slow, so that this would show."""
    leader = story.leader
    behind, beside = story.followers
    story.cut([leader], [behind])
    await story.until("it is out", lambda: behind.number not in story.isr)
    await story.acknowledged(3)
    for machine in (leader, beside):
        machine.kill()
    behind.sync_s = (0.6, 0.7)
    story.heal()
    story.start(beside)
    await story.acknowledged(3, within=20)
    story.start(leader)
    await story.in_sync()


async def lead_from_outside(story: Story) -> None:
    """No replica is the controller, so that replicas can be cut off from each other alone. The
    first controller is among the first brokers, and so among the first topic's replicas."""
    for _ in range(4):
        before = story.controller
        assert before is not None
        if before.number not in story.registered.replicas:
            return
        await let_another_control(story, before)
    story.check(False, f"the controller is a replica: {ANOTHER_SEED}")


async def let_another_control(story: Story, controller: Machine) -> None:
    controller.kill()
    await story.until("another one controls", lambda: story.controller not in (None, controller))
    story.start(controller)
    await story.in_sync()


async def hear_a_fetch_of_an_older_term(story: Story) -> None:
    """A follower tells its leader how much it holds, on a connection that stands still. Meanwhile
    another leads, with less, and the follower follows; then the first one leads again, before it
    has cut anything, and hears what the follower said two terms ago."""
    await lead_from_outside(story)
    first, (second, follower), fabric = story.leader, story.followers, story.fabric
    writers = [f"10.0.1.{number}" for number in (1, 2)]
    await story.acknowledged(1)
    await trio.sleep(0.02)  # all fetches have arrived, and wait for more
    held = [s.out for s in fabric.connections(follower.host) if s.out.target == first.host]
    for pipe in held:
        fabric.stall(pipe)
    story.cut([first], [second])
    for host in writers:
        fabric.cut(host, second.host)
    less = story.partition_on(second)
    more = story.partition_on(follower)
    await story.until("one holds more", lambda: more.log_end_offset > less.log_end_offset)
    told = more.log_end_offset
    await story.move(second)
    await story.until("all is cut", lambda: more.log_end_offset == less.log_end_offset)
    await story.move(first)
    fabric.heal(first.host, second.host)
    await story.until("the other has it again", lambda: less.log_end_offset >= told)
    await trio.sleep(0.05)  # and has said so
    story.check(follower.number in story.isr, "the follower is waited for no longer")
    story.check(more.log_end_offset < told, "the follower has it again, too")
    for pipe in held:
        fabric.unstall(pipe)
    await trio.sleep(0.5)
    story.heal()
    await story.in_sync()


async def hear_a_proposal_twice(story: Story) -> None:
    """A follower leaves, comes back and leaves again; then a copy of the proposal that let it back
    in arrives."""
    await lead_from_outside(story)
    leader, (follower, _) = story.leader, story.followers
    controller = story.controller
    assert controller is not None
    assert controller.node is not None
    assert controller.node.broker is not None
    service = controller.node.broker.metadata.controller
    proposals: list[AlterPartitionRequest] = []
    handle = service.handle

    async def listening(sender: NodeId | None, message: Message) -> Message:
        if isinstance(message, AlterPartitionRequest):
            proposals.append(message)
        return await handle(sender, message)

    def cut_off() -> None:
        story.cut([leader], [follower])
        story.cut([follower], [leader])

    cut_off()
    await story.until("it is out", lambda: follower.number not in story.isr)
    with mock.patch.object(service, "handle", listening):
        story.heal()
        await story.in_sync()
    (back_in,) = proposals
    cut_off()
    await story.until("it is out again", lambda: follower.number not in story.isr)
    await story.acknowledged(3)
    await service.handle(NodeId(leader.number), back_in)
    await story.acknowledged(3)
    story.heal()
    await story.in_sync()


def test_a_wiped_candidate_is_none_any_more() -> None:
    play(wipe_a_candidate, plan())


def test_trusting_a_wiped_candidate_is_found() -> None:
    with core("always trusted")():
        violation = perform(wipe_a_candidate, plan()).violation
    assert violation is not None
    assert violation.invariant == "I16"


@pytest.mark.slow
def test_a_follower_behind_a_new_leader_has_to_catch_up() -> None:
    play(return_behind_a_new_leader, plan())


@pytest.mark.slow
def test_letting_it_in_at_the_old_high_watermark_is_found() -> None:
    # Nor is it let in as long as the other complete one may come back; that is another rule.
    at_once = mock.patch.object(refused_truncations, "awaits_others", return_value=False)
    with core("expand without ack >= LESO")(), at_once:
        violation = perform(return_behind_a_new_leader, plan()).violation
    assert violation is not None
    assert violation.invariant == "I4"


def alone() -> Plan:
    """One writer, which takes its time, but not as long as a fetch waits; no flush to wait for."""
    topics = plan_of(mode=FlushMode.INTERVAL).topics
    return replace(plan(), seed=2, writers=1, pause_s=0.2, topics=topics)


@pytest.mark.slow
def test_a_fetch_of_an_older_term_tells_nothing() -> None:
    play_where_it_fits(hear_a_fetch_of_an_older_term, alone())


@pytest.mark.slow
def test_counting_a_fetch_of_an_older_term_is_found() -> None:
    with core("no leader epoch check in fetch")():
        find(hear_a_fetch_of_an_older_term, alone(), "I4 ")


@pytest.mark.slow
def test_a_proposal_counts_once() -> None:
    play_where_it_fits(hear_a_proposal_twice, alone())


@pytest.mark.slow
def test_a_proposal_on_an_older_version_is_found() -> None:
    with core("no partition epoch CAS")():
        find(hear_a_proposal_twice, alone(), "I4 ")
