"""A broker's session: what renews it, and from when on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import trio
import trio.testing

from paceline.errors import RequestTimedOut
from paceline.types import BrokerEpoch, NodeId
from paceline.wire.peer.control import (
    HeartbeatRequest,
    HeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from paceline_node.controller.lifecycle import BrokerState, Identity, Lifecycle, LifecycleTiming
from tests.unit.controller.memory_quorum import virtual_env

HEARTBEAT_S, SESSION_S, SHUTDOWN_S = 0.5, 4.0, 30.0
ME = Identity(
    UUID(int=1), NodeId(0), UUID(int=2), UUID(int=3), 1, BrokerEpoch(-1), trusted=True, endpoints=()
)


class Controller:
    """Answers as told: ``fenced``, after ``takes_s``, or not at all while it ``is_away``."""

    def __init__(self) -> None:
        self.fenced = False
        self.is_away = False
        self.takes_s = 0.0
        self.asked = 0
        self.question = trio.Event()

    async def call(self, request: object, reply: object, *, timeout_s: float) -> object:
        if isinstance(request, RegisterBrokerRequest):
            return RegisterBrokerResponse(BrokerEpoch(1))
        assert isinstance(request, HeartbeatRequest)
        self.asked += 1
        self.question.set()
        await trio.sleep(timeout_s if self.is_away else self.takes_s)
        if self.is_away:
            raise RequestTimedOut("no controller")
        return HeartbeatResponse(self.fenced, caught_up=True, should_shutdown=False)


class Disk:
    degraded = offline = slow = False
    shortage: tuple[str, ...] = ()


def broker(controller: Controller, session_lost: Callable[[], None]) -> Lifecycle:
    return Lifecycle(
        virtual_env(),
        cast("Any", controller),
        ME,
        LifecycleTiming(HEARTBEAT_S, SESSION_S, SHUTDOWN_S),
        health=Disk(),
        image_offset=lambda: 5,
        durable_offset=lambda: 5,
        session_lost=session_lost,
    )


async def test_whoever_is_told_that_it_was_fenced_has_no_session(autojump_clock: object) -> None:
    """It may have been deposed meanwhile, and its image may not show that yet."""
    controller, lost = Controller(), list[float]()
    lifecycle = broker(controller, lambda: lost.append(trio.current_time()))
    await lifecycle.register(())
    async with trio.open_nursery() as nursery:
        await nursery.start(lifecycle.run)
        await lifecycle.wait_running()
        assert lifecycle.session_valid
        controller.is_away = True
        await trio.sleep(SESSION_S + 1)
        assert len(lost) == 1
        controller.is_away, controller.fenced = False, True
        asked = controller.asked
        await trio.sleep(SESSION_S)
        assert controller.asked - asked > 10 * SESSION_S / HEARTBEAT_S, "it asks eagerly"
        assert lifecycle.state is BrokerState.FENCED
        assert not lifecycle.session_valid
        assert len(lost) == 1, "told once"
        controller.fenced = False
        await trio.sleep(0.1)
        assert lifecycle.session_valid
        nursery.cancel_scope.cancel()


async def test_to_hear_of_being_fenced_ends_the_session_at_once(autojump_clock: object) -> None:
    """Another may lead already, whatever is left of the time."""
    controller, lost = Controller(), list[float]()
    lifecycle = broker(controller, lambda: lost.append(trio.current_time()))
    await lifecycle.register(())
    async with trio.open_nursery() as nursery:
        await nursery.start(lifecycle.run)
        await lifecycle.wait_running()
        controller.fenced = True
        controller.question = trio.Event()
        await controller.question.wait()
        asked = trio.current_time()
        await trio.testing.wait_all_tasks_blocked()
        assert lifecycle.state is BrokerState.FENCED
        assert not lifecycle.session_valid
        assert lost == [asked]
        controller.fenced = False
        await trio.sleep(0.1)
        assert lifecycle.session_valid
        await trio.sleep(2 * SESSION_S)
        assert lifecycle.session_valid
        assert lost == [asked]
        nursery.cancel_scope.cancel()


async def test_a_session_counts_from_the_question_not_from_the_answer(
    autojump_clock: object,
) -> None:
    """The controller's own time runs from when it heard, which was before it answered."""
    controller = Controller()
    lifecycle = broker(controller, lambda: None)
    await lifecycle.register(())
    async with trio.open_nursery() as nursery:
        await nursery.start(lifecycle.run)
        await lifecycle.wait_running()
        controller.takes_s = 1.5
        controller.question = trio.Event()
        await controller.question.wait()
        asked, begun = controller.asked, trio.current_time()
        await trio.sleep(1.6)
        assert controller.asked == asked + 1, "answered, and asked once more"
        controller.is_away = True
        await trio.sleep(begun + SESSION_S - 0.1 - trio.current_time())
        assert lifecycle.session_valid
        await trio.sleep(0.2)
        assert not lifecycle.session_valid
        nursery.cancel_scope.cancel()
