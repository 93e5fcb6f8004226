"""The controller service over a quorum in memory, on a virtual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
import trio
import trio.testing

from paceline.errors import (
    InvalidPartitions,
    NotController,
    PacelineError,
    Throttled,
    TopicAlreadyExists,
)
from paceline.types import NO_NODE, NodeId
from paceline.wire.message import Message
from paceline.wire.native.admin import (
    AddVoter,
    CreateTopic,
    ElectLeader,
    RemoveVoter,
    TopicCreated,
)
from paceline.wire.peer.control import (
    HeartbeatRequest,
    HeartbeatResponse,
    RegisterBrokerResponse,
)
from paceline_node.controller.client import EXCHANGES
from paceline_node.controller.context import ControllerSettings
from paceline_node.controller.election_reasons import ElectionReason
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.controller.request_handlers import HANDLED
from paceline_node.controller.service import Controller
from tests.unit.controller.bench import CLUSTER, Bench
from tests.unit.controller.memory_quorum import (
    EagerQuorum,
    MemoryQuorum,
    settle,
    virtual_env,
)

QUIET = ControllerSettings(
    noop_interval_s=1e6, balance_interval_s=1e6, session_timeout_s=1e5, internal_topics=()
)


@dataclass
class Node:
    """A controller under test, with requests as brokers would make them."""

    controller: Controller
    quorum: MemoryQuorum
    bench: Bench = field(default_factory=Bench)

    @property
    def image(self) -> Image:
        return self.quorum.store.image

    async def lead(self) -> None:
        self.quorum.lead()
        self.controller.role_changed()
        await settle(self.quorum)
        assert self.controller.active

    async def ask(self, message: Message) -> Message:
        """Ask and let the quorum commit whatever it takes."""
        answers: list[Message] = []
        errors: list[PacelineError] = []

        async def call() -> None:
            try:
                answers.append(await self.controller.handle(None, message))
            except PacelineError as error:
                errors.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await settle(self.quorum)
        if errors:
            raise errors[0]
        return answers[0]

    async def register(self, node: int) -> None:
        reply = await self.ask(self.bench.registration(node))
        assert isinstance(reply, RegisterBrokerResponse)
        self.bench.disks[node].epoch = reply.broker_epoch

    async def heartbeat(self, node: int) -> HeartbeatResponse:
        broker = self.image.brokers[NodeId(node)]
        request = HeartbeatRequest(
            NodeId(node), broker.broker_epoch, self.image.offset, False, False, False, False
        )
        reply = await self.ask(request)
        assert isinstance(reply, HeartbeatResponse)
        return reply

    async def start(self, *nodes: int) -> None:
        for node in nodes:
            await self.register(node)
            await self.heartbeat(node)

    def fenced(self) -> set[int]:
        return {int(n) for n, broker in self.image.brokers.items() if broker.fenced}


@asynccontextmanager
async def running(
    settings: ControllerSettings = QUIET,
    quorum: Callable[[MetadataStore], MemoryQuorum] = MemoryQuorum,
) -> AsyncIterator[Node]:
    store = MetadataStore(CLUSTER)
    node_quorum = quorum(store)
    controller = Controller(virtual_env(), node_quorum, store, settings)
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.run)
        yield Node(controller, node_quorum)
        nursery.cancel_scope.cancel()


TOPIC = CreateTopic("orders", 1, 1)


async def test_refuses_until_the_first_entry_of_its_term_is_applied() -> None:
    async with running() as node:
        with pytest.raises(NotController):
            await node.controller.handle(None, TOPIC)
        node.quorum.lead()
        node.controller.role_changed()
        await trio.testing.wait_all_tasks_blocked()
        assert not node.controller.active
        with pytest.raises(NotController):
            await node.controller.handle(None, TOPIC)
        await settle(node.quorum)
        assert node.controller.active


async def test_no_session_is_renewed_by_a_controller_that_was_stopped_and_may_be_deposed() -> None:
    async with running() as node:
        await node.lead()
        await node.start(0)
        node.quorum.stood_still = True
        with pytest.raises(NotController):
            await node.heartbeat(0)
        node.quorum.stood_still = False
        await node.heartbeat(0)


async def test_answers_after_commit_and_with_the_entrys_place() -> None:
    async with running() as node:
        await node.lead()
        await node.start(0)
        replies: list[Message] = []

        async def create() -> None:
            replies.append(await node.controller.handle(None, TOPIC))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(create)
            await trio.testing.wait_all_tasks_blocked()
            assert replies == []
            assert node.image.find_topic("orders") is None
            await settle(node.quorum)
        reply = replies[0]
        assert isinstance(reply, TopicCreated)
        assert (reply.metadata_offset, reply.term) == (node.image.offset, node.quorum.term)


async def test_requests_are_decided_on_what_is_appended_not_only_committed() -> None:
    async with running() as node:
        await node.lead()
        await node.start(0)
        order: list[str] = []

        async def create(name: str, tag: str) -> None:
            try:
                await node.controller.handle(None, CreateTopic(name, 1, 1))
            except TopicAlreadyExists:
                tag += " refused"
            order.append(tag)

        async with trio.open_nursery() as nursery:
            for name, tag in (("a", "first"), ("a", "second"), ("b", "third")):
                nursery.start_soon(create, name, tag)
                await trio.testing.wait_all_tasks_blocked()
            waiting = len(node.quorum.log) - node.image.offset
            assert waiting == 2, "two entries are under way together"
            assert order == [], "the refusal is not true before the first create is"
            node.quorum.commit(1)
            await trio.testing.wait_all_tasks_blocked()
            assert sorted(order) == ["first", "second refused"]
            await settle(node.quorum)
        assert order[-1] == "third"


async def test_lost_leadership_fails_those_who_wait_and_forgets_what_was_not_committed() -> None:
    async with running() as node:
        await node.lead()
        await node.start(0)
        outcomes: list[str] = []

        async def create(name: str) -> None:
            try:
                await node.controller.handle(None, CreateTopic(name, 1, 1))
            except NotController as error:
                outcomes.append(str(error))

        async with trio.open_nursery() as nursery:
            for name in ("kept", "lost"):
                nursery.start_soon(create, name)
                await trio.testing.wait_all_tasks_blocked()
            node.quorum.depose(keep=1)
            node.controller.role_changed()
        assert len(outcomes) == 2
        assert all("outcome unknown" in text for text in outcomes)
        await node.lead()
        assert node.image.find_topic("kept") is not None
        assert isinstance(await node.ask(CreateTopic("lost", 1, 1)), TopicCreated)


async def test_leadership_of_a_later_term_is_not_taken_for_the_old_one() -> None:
    async with running() as node:
        await node.lead()
        node.quorum.depose()
        node.quorum.lead()  # the callback has not come yet
        assert not node.controller.active
        with pytest.raises(NotController):
            await node.controller.handle(None, TOPIC)
        node.controller.role_changed()
        await settle(node.quorum)
        assert node.controller.active
        assert node.controller.statistics.activations == 2


async def test_a_quorum_that_commits_at_once() -> None:
    async with running(quorum=EagerQuorum) as node:
        await node.lead()
        await node.start(0)
        reply = await node.controller.handle(None, TOPIC)
        assert isinstance(reply, TopicCreated)
        assert node.image.topic("orders").partitions[0].leader == 0


def test_every_request_can_be_sent_to_another_node() -> None:
    assert {exchange.request for exchange in EXCHANGES} == HANDLED | {AddVoter, RemoveVoter}


async def test_cancelled_request_is_decided_all_the_same() -> None:
    async with running() as node:
        await node.lead()
        await node.start(0)
        with trio.move_on_after(0) as scope:
            await node.controller.handle(None, TOPIC)
        assert scope.cancelled_caught
        await settle(node.quorum)
        assert node.image.find_topic("orders") is not None
        await node.ask(CreateTopic("next", 1, 1))


async def test_errors_reach_the_caller() -> None:
    async with running() as node:
        await node.lead()
        await node.start(0)
        with pytest.raises(InvalidPartitions):
            await node.ask(CreateTopic("orders", 0, 1))
        assert node.controller.statistics.refused_requests == 1


async def test_waiting_requests_are_bounded() -> None:
    async with running(replace(QUIET, max_waiting=1)) as node:
        await node.lead()
        await node.start(0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.controller.handle, None, TOPIC)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(Throttled):
                await node.controller.handle(None, CreateTopic("more", 1, 1))
            await settle(node.quorum)


# --- time ----------------------------------------------------------------------------------------

FOUR_SECONDS = replace(QUIET, session_timeout_s=4.0, noop_interval_s=1.0)


async def pass_time(node: Node, clock: trio.testing.MockClock, seconds: float) -> None:
    """Let time pass in steps small enough that nothing looks like a stall."""
    for _ in range(round(seconds * 10)):
        clock.jump(0.1)
        await settle(node.quorum)


async def test_silent_brokers_are_fenced(mock_clock: trio.testing.MockClock) -> None:
    async with running(FOUR_SECONDS) as node:
        await node.lead()
        await node.start(0, 1, 2)
        await pass_time(node, mock_clock, 3.5)
        await node.heartbeat(0)
        await node.heartbeat(1)
        assert node.fenced() == set()
        await pass_time(node, mock_clock, 1.0)
        assert node.fenced() == {2}
        assert node.controller.statistics.fenced_by_session == 1


async def test_many_silent_brokers_are_fenced_one_a_second(
    mock_clock: trio.testing.MockClock,
) -> None:
    async with running(FOUR_SECONDS) as node:
        await node.lead()
        await node.start(0, 1, 2)
        await pass_time(node, mock_clock, 4.2)
        assert len(node.fenced()) == 1
        await pass_time(node, mock_clock, 0.5)
        assert len(node.fenced()) == 1
        await pass_time(node, mock_clock, 0.6)
        assert len(node.fenced()) >= 2


async def test_a_new_controller_gives_full_sessions(mock_clock: trio.testing.MockClock) -> None:
    async with running(FOUR_SECONDS) as node:
        await node.lead()
        await node.start(0)
        await pass_time(node, mock_clock, 3.5)
        node.quorum.depose()
        node.controller.role_changed()
        await node.lead()
        await pass_time(node, mock_clock, 3.5)
        assert node.fenced() == set()
        await pass_time(node, mock_clock, 1.0)
        assert node.fenced() == {0}


async def test_a_stalled_controller_blames_nobody(mock_clock: trio.testing.MockClock) -> None:
    async with running(FOUR_SECONDS) as node:
        await node.lead()
        await node.start(0)
        mock_clock.jump(30)
        await settle(node.quorum)
        assert node.fenced() == set()
        await pass_time(node, mock_clock, 4.5)
        assert node.fenced() == {0}


async def test_idle_controller_keeps_the_log_moving(mock_clock: trio.testing.MockClock) -> None:
    async with running(replace(QUIET, noop_interval_s=1.0)) as node:
        await node.lead()
        before = node.image.offset
        await pass_time(node, mock_clock, 3.5)
        assert node.image.offset == before + 3


async def test_what_brokers_hold_is_noted_however_busy_the_log(
    mock_clock: trio.testing.MockClock,
) -> None:
    async with running(replace(QUIET, noop_interval_s=1.0)) as node:
        await node.lead()
        await node.start(0, 1)
        epoch = node.image.brokers[NodeId(1)].broker_epoch
        held = node.image.offset
        heartbeat = HeartbeatRequest(
            NodeId(1), epoch, held, False, False, False, False, durable_offset=held
        )
        await node.ask(heartbeat)
        for number in range(5):
            await node.ask(CreateTopic(f"orders-{number}", 1, 2))
            await pass_time(node, mock_clock, 0.5)
        assert node.image.durable_offsets == {1: held}


async def test_balancer_runs_on_its_interval(mock_clock: trio.testing.MockClock) -> None:
    async with running(replace(QUIET, balance_interval_s=60.0)) as node:
        await node.lead()
        await node.start(0, 1)
        await node.ask(CreateTopic("orders", 1, 2))
        await node.ask(ElectLeader("orders", 0, NodeId(1)))
        await pass_time(node, mock_clock, 59)
        assert node.image.partition("orders", 0).leader == 1
        await pass_time(node, mock_clock, 2)
        assert node.image.partition("orders", 0).leader == 0
        assert node.controller.statistics.balance_moves == 1


async def test_internal_topics_come_with_the_first_broker() -> None:
    settings = replace(QUIET, internal_topics=ControllerSettings().internal_topics)
    async with running(settings) as node:
        await node.lead()
        assert node.image.topics == {}
        await node.start(0)
        assert sorted(node.image.topic_ids) == ["__groups", "__transactions"]
        assert all(p.leader == 0 for p in node.image.partitions())


async def test_leader_that_hands_over_but_stays_goes_on(
    mock_clock: trio.testing.MockClock,
) -> None:
    async with running(FOUR_SECONDS) as node:
        await node.lead()
        await node.start(0)
        node.quorum.refusing = True
        await pass_time(node, mock_clock, 4.5)
        assert node.fenced() == set()
        with pytest.raises(NotController):
            await node.controller.handle(None, TOPIC)
        node.quorum.refusing = False
        await pass_time(node, mock_clock, 1.5)
        assert node.controller.active
        assert node.fenced() == {0}


# --- proof of death ------------------------------------------------------------------------------


async def test_lost_process_is_fenced_at_once() -> None:
    async with running() as node:
        await node.lead()
        await node.start(0, 1)
        await node.ask(CreateTopic("orders", 1, 2))
        assert node.image.partition("orders", 0).leader == 0
        node.controller.peer_lost(NodeId(0))
        await settle(node.quorum)
        assert node.fenced() == {0}
        assert node.image.partition("orders", 0).leader == 1
        assert node.controller.statistics.fenced_by_proof == 1
        assert node.controller.statistics.elections == {ElectionReason.FENCED: 1}
        node.controller.peer_lost(NodeId(0))
        node.controller.peer_lost(NodeId(77))
        await settle(node.quorum)
        assert node.controller.statistics.fenced_by_proof == 1


async def test_its_successor_is_not_blamed(mock_clock: trio.testing.MockClock) -> None:
    async with running() as node:
        await node.lead()
        await node.start(0)
        lost_at = trio.current_time()
        await pass_time(node, mock_clock, 0.2)
        await node.start(0)
        node.controller.peer_lost(NodeId(0), lost_at)
        await settle(node.quorum)
        assert node.fenced() == set()


async def test_lost_process_frees_its_place_for_a_wiped_node() -> None:
    async with running() as node:
        await node.lead()
        await node.start(0, 1)
        node.controller.peer_lost(NodeId(0))
        node.bench.wipe(0)
        await node.start(0)
        assert node.fenced() == set()


async def test_proof_is_remembered_for_the_time_this_node_takes_over(
    mock_clock: trio.testing.MockClock,
) -> None:
    async with running(FOUR_SECONDS) as node:
        await node.lead()
        await node.start(0, 1)
        node.quorum.depose()
        node.controller.role_changed()
        node.controller.peer_lost(NodeId(1))
        await pass_time(node, mock_clock, 1)
        await node.lead()
        await settle(node.quorum)
        assert node.fenced() == {1}


async def test_old_proof_is_forgotten(mock_clock: trio.testing.MockClock) -> None:
    async with running(FOUR_SECONDS) as node:
        await node.lead()
        await node.start(0, 1)
        node.quorum.depose()
        node.controller.role_changed()
        node.controller.peer_lost(NodeId(1))
        await pass_time(node, mock_clock, 5)
        await node.lead()
        await settle(node.quorum)
        assert node.fenced() == set()


async def test_proof_that_cannot_be_used_now_is_used_later(
    mock_clock: trio.testing.MockClock,
) -> None:
    async with running() as node:
        await node.lead()
        await node.start(0, 1)
        node.quorum.refusing = True
        node.controller.peer_lost(NodeId(1))
        await pass_time(node, mock_clock, 0.3)
        assert node.fenced() == set()
        node.quorum.refusing = False
        await pass_time(node, mock_clock, 0.3)
        assert node.fenced() == {1}


async def test_elections_are_counted_by_their_reason() -> None:
    async with running() as node:
        await node.lead()
        await node.start(0, 1)
        await node.ask(CreateTopic("orders", 1, 2))
        for lost in (1, 0):
            node.controller.peer_lost(NodeId(lost))
            await settle(node.quorum)
        await node.heartbeat(1)
        assert node.image.partition("orders", 0).leader == 1, "complete: it left below min_isr"
        node.controller.peer_lost(NodeId(1))
        await settle(node.quorum)
        partition = node.image.partition("orders", 0)
        assert (partition.leader, partition.isr) == (NO_NODE, ())
        assert node.controller.statistics.elections == {ElectionReason.LEADERLESS: 1}
