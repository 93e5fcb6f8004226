"""Every operation of the controller over more partitions than one entry may hold.

What does not fit into one entry is split; each entry leaves a state that is true by itself, and the
next controller finishes what one that lost its leadership had begun.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.lowlevel

from paceline.errors import InternalError, NotController, Throttled
from paceline.types import NO_NODE, NodeId
from paceline.wire.message import Message
from paceline.wire.native.admin import (
    AddPartitions,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ElectLeader,
    FenceBroker,
    ReassignPartition,
    SetRole,
    UnregisterBroker,
)
from paceline.wire.peer.control import HeartbeatRequest, PartitionRef, ReportDamagedRequest
from paceline_node.controller import request_handlers, service
from paceline_node.controller.context import MAX_STEP_RECORDS
from paceline_node.controller.metadata_records import PartitionRegistration, decode_record
from tests.unit.controller.invariants import check_image
from tests.unit.controller.memory_quorum import settle
from tests.unit.controller.test_service import Node, running

ENTRY = 1_000
"""Records that one entry may hold here: a tenth of what it may else, for the rules are the same."""
COUNT = 2 * ENTRY + 2
STEP = 2_000
"""Partitions that one request may add."""


@pytest.fixture(autouse=True)
def _small_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_BATCH_RECORDS", ENTRY)


@asynccontextmanager
async def crowded(nodes: int = 3) -> AsyncIterator[Node]:
    """A controller with a topic of COUNT partitions, all in sync on three nodes."""
    async with running() as node:
        await node.lead()
        await node.start(*range(nodes))
        await node.ask(CreateTopic("wide", STEP, 3))
        for total in [*range(2 * STEP, COUNT, STEP), COUNT]:
            await node.ask(AddPartitions("wide", total))
        assert len(partitions(node)) == COUNT
        yield node
        check_image(node.image)


def partitions(node: Node) -> list[PartitionRegistration]:
    return list(node.image.partitions())


async def test_a_topic_is_altered_everywhere() -> None:
    async with crowded() as node:
        await node.ask(AlterTopic("wide", {"min.insync.replicas": "1"}))
        assert {p.min_isr for p in partitions(node)} == {1}
        await node.ask(AlterTopic("wide", {"min.insync.replicas": "3"}))
        assert {p.min_isr for p in partitions(node)} == {3}


async def test_a_node_dies_comes_back_and_goes_for_good() -> None:
    async with crowded() as node:
        node.controller.peer_lost(NodeId(1))
        await settle(node.quorum)
        assert node.controller.active
        assert node.fenced() == {1}
        for partition in partitions(node):
            assert NodeId(1) not in partition.isr
            assert partition.leader != NO_NODE
        await node.register(1)
        await node.heartbeat(1)
        assert node.fenced() == set()
        await trio.lowlevel.checkpoint()
        node.controller.peer_lost(NodeId(1), node.controller._env.now() + 1)
        await settle(node.quorum)
        await node.ask(UnregisterBroker(NodeId(1)))
        assert NodeId(1) not in node.image.brokers


async def test_a_node_that_dies_leaves_others_their_turns() -> None:
    """A decision about thousands of partitions is made in steps, and requests come in between.
    Whose clients wait come first."""
    async with crowded() as node, trio.open_nursery() as nursery:
        before = len(node.quorum.log)
        node.controller.peer_lost(NodeId(1))
        nursery.start_soon(node.controller.handle, None, CreateTopic("small", 1, 3))
        await settle(node.quorum)
        entries = [[decode_record(r) for r in records] for _, records in node.quorum.log[before:]]
        changes = [
            [each for each in entry if isinstance(each, PartitionRegistration)] for entry in entries
        ]
        assert max(map(len, changes)) <= MAX_STEP_RECORDS
        small = node.image.topic("small").topic_id
        created = next(n for n, entry in enumerate(changes) if small in {c.topic_id for c in entry})
        assert created < len(changes) - 1, "the request waited for all of it"
        moved = [change.leader_epoch > 0 for entry in changes for change in entry]
        led = sum(moved)
        assert led > 2 * MAX_STEP_RECORDS
        assert sum(moved[: led + 1]) >= led


async def test_who_was_fenced_comes_back_when_all_of_it_is_decided() -> None:
    """A fenced broker must know what it has lost before it is let in: and that is not yet said."""
    async with crowded() as node:
        node.controller.peer_lost(NodeId(1))
        assert any(NodeId(1) in p.isr for p in node.controller._image.partitions())
        epoch = node.image.brokers[NodeId(1)].broker_epoch
        beat = HeartbeatRequest(
            NodeId(1),
            epoch,
            10**9,
            want_fence=False,
            want_shutdown=False,
            degraded=False,
            offline=False,
        )
        answers = []

        async def ask() -> None:
            answers.append(await node.controller.handle(NodeId(1), beat))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await settle(node.quorum)
        assert [answer.fenced for answer in answers] == [True]
        assert all(NodeId(1) not in p.isr for p in partitions(node))


async def test_the_last_replicas_die_and_return() -> None:
    async with crowded() as node:
        for dead in (0, 1, 2):
            node.controller.peer_lost(NodeId(dead))
            await settle(node.quorum)
        assert {p.leader for p in partitions(node)} == {NO_NODE}
        for back in (2, 1):
            await node.register(back)
            await node.heartbeat(back)
        assert all(p.leader != NO_NODE for p in partitions(node))


async def test_a_disk_fails_and_damage_is_reported() -> None:
    async with crowded() as node:
        broker = node.image.brokers[NodeId(2)]
        topic = node.image.topic("wide").topic_id
        refs = tuple(PartitionRef(topic, number) for number in range(COUNT))
        await node.ask(ReportDamagedRequest(NodeId(2), broker.broker_epoch, refs))
        assert all(NodeId(2) not in (*p.isr, *p.elr) for p in partitions(node))
        epoch = node.image.brokers[NodeId(0)].broker_epoch
        offline = HeartbeatRequest(
            NodeId(0), epoch, 0, want_fence=False, want_shutdown=False, degraded=False, offline=True
        )
        await node.ask(offline)
        assert all(NodeId(0) not in (*p.isr, *p.elr) for p in partitions(node))


async def test_an_operator_fences_sets_roles_elects_moves_and_deletes() -> None:
    async with crowded(4) as node:
        await node.ask(FenceBroker(NodeId(0), True))
        assert all(p.leader != NodeId(0) for p in partitions(node))
        await node.ask(FenceBroker(NodeId(0), False))
        last = partitions(node)[-1]
        other = next(n for n in last.isr if n != last.leader)
        await node.ask(ElectLeader("wide", COUNT - 1, other))
        assert partitions(node)[-1].leader == other
        await node.ask(SetRole("wide", COUNT - 1, other, "follower"))
        target = tuple(NodeId(n) for n in range(4) if n != last.replicas[0])
        await node.ask(ReassignPartition("wide", COUNT - 1, target))
        await node.ask(DeleteTopic("wide"))
        assert partitions(node) == []


async def test_the_next_controller_finishes_what_was_begun() -> None:
    async with crowded() as node:
        for message in (
            AlterTopic("wide", {"min.insync.replicas": "3"}),
            FenceBroker(NodeId(0), True),
        ):
            await _begin_and_lose(node, message)
        configured = node.image.topic("wide").configs["min.insync.replicas"]
        assert (configured, {p.min_isr for p in partitions(node)}) == ("3", {3})
        assert all(p.leader != NodeId(0) for p in partitions(node))

        node.controller.peer_lost(NodeId(1))
        node.quorum.depose(keep=1)
        node.controller.role_changed()
        await settle(node.quorum)
        assert any(NodeId(1) in p.isr for p in partitions(node)), "half of it was lost"
        await node.lead()
        await settle(node.quorum)
        assert all(NodeId(1) not in p.isr for p in partitions(node))


async def _begin_and_lose(node: Node, message: Message) -> None:
    """Leadership is lost when only the first of a request's entries is on other nodes."""
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            with pytest.raises(NotController):
                await node.controller.handle(None, message)

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert len(node.quorum.log) - node.image.offset > 1, "one entry holds it all"
        node.quorum.depose(keep=1)
        node.controller.role_changed()
    await settle(node.quorum)
    await node.lead()
    await settle(node.quorum)


async def test_what_the_quorum_had_no_room_for_is_finished_when_it_has() -> None:
    async with crowded() as node:
        room = 1
        propose = node.quorum.propose

        def narrow(records: object) -> tuple[int, int]:
            nonlocal room
            if room == 0:
                raise Throttled("too much is not committed yet")
            room -= 1
            return propose(records)  # type: ignore[arg-type]

        node.quorum.propose = narrow  # type: ignore[method-assign]
        node.controller.peer_lost(NodeId(1))
        room = 1_000
        await settle(node.quorum)
        with trio.move_on_after(10):
            while any(NodeId(1) in p.isr for p in partitions(node)):
                await trio.sleep(0.1)
                await settle(node.quorum)
        assert all(NodeId(1) not in p.isr for p in partitions(node))


async def test_a_bug_in_a_handler_is_that_requests_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as node:
        await node.lead()
        await node.start(0)

        def broken(*_: object) -> None:
            raise AssertionError("a broken rule")

        with monkeypatch.context() as patch:
            patch.setattr(request_handlers, "handle", broken)
            with pytest.raises(InternalError, match="AssertionError"):
                await node.ask(CreateTopic("orders", 1, 1))
        await node.ask(CreateTopic("orders", 1, 1))
