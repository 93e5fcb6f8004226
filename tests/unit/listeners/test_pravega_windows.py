"""Clients of the Pravega controller that open no window for their answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes
from trio.testing import memory_stream_pair

from paceline.wire.pravega.grpc import GrpcLimits
from paceline_node.client_memory import ClientMemory
from paceline_node.listeners.pravega.listener import SERVICE, PravegaListener, Procedure
from paceline_node.listeners.pravega.login import PravegaLogin
from paceline_node.listeners.serving import Client
from paceline_node.loop_turns import Turns
from paceline_node.observe.metrics import Metrics

ANSWER = bytes(1024 * 1024)


class Message:
    """A request that says nothing, and an answer that says much."""

    @classmethod
    def decode(cls, _data: bytes) -> Message:
        return cls()

    def encode(self) -> bytes:
        return ANSWER


async def much(_principal: object, _request: object) -> Message:
    return Message()


class Clock:
    def now(self) -> float:
        return trio.current_time()


@pytest.mark.parametrize("pings", [False, True])
async def test_answers_that_nobody_takes_are_held_for_half_a_minute(
    autojump_clock, pings: bool
) -> None:
    """Windows of 0 kept 97 MiB for an hour."""
    listener = PravegaListener(
        Clock(),  # type: ignore[arg-type]
        {"call": Procedure(Message, much)},  # type: ignore[arg-type]
        GrpcLimits(),
        Metrics(version="test"),
        Turns(),
        lambda client: PravegaLogin(None, lambda: False, client),  # type: ignore[arg-type]
    )
    account = ClientMemory(1 << 30)
    ours, theirs = memory_stream_pair()
    client = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    client.initiate_connection()
    client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    for stream in (1, 3, 5):
        headers = {
            ":method": "POST", ":scheme": "http", ":path": SERVICE + "call",
            ":authority": "x", "content-type": "application/grpc",
        }  # fmt: skip
        client.send_headers(stream, list(headers.items()))
        client.send_data(stream, bytes(5), end_stream=True)
    begun = trio.current_time()
    held: list[int] = []

    async def say() -> None:
        await theirs.send_all(client.data_to_send())
        await trio.sleep(5)
        held.append(account.held_bytes)
        while pings:
            client.ping(b"12345678")
            await theirs.send_all(client.data_to_send())
            await trio.sleep(5)

    async def read() -> None:
        while await theirs.receive_some():
            pass

    async with trio.open_nursery() as nursery:
        nursery.start_soon(say)
        nursery.start_soon(read)
        with account.holding("pravega", "10.0.0.1", lambda _: None) as memory:
            await listener.serve(ours, replace(Client("10.0.0.1:1", False), memory=memory))
        assert trio.current_time() - begun < 60
        nursery.cancel_scope.cancel()
    assert held[0] >= 3 * len(ANSWER)
    assert account.held_bytes == 0
