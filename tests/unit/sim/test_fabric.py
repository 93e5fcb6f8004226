"""The simulated network behaves as TCP between machines does."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest
import trio

from paceline_cluster.sim import loop
from paceline_cluster.sim.fabric import Fabric, SimListener, Weather
from paceline_cluster.sim.pipe import SimStream

A, B = "10.0.0.1", "10.0.0.2"
PORT = 7400


def simulated(main: Callable[[Fabric], Awaitable[None]], weather: Weather | None = None) -> None:
    async def run() -> None:
        fabric = Fabric(random.Random(1), weather or Weather(slow_share=0.0))
        async with trio.open_nursery() as nursery:
            await nursery.start(fabric.run)
            await main(fabric)
            nursery.cancel_scope.cancel()

    loop.run(run, seed=1, step=lambda: None)


async def connected(fabric: Fabric) -> tuple[SimStream, SimStream]:
    listener = fabric.listen(B, PORT)
    near = await fabric.connect(A, B, PORT)
    return near, await accepted(listener)


async def accepted(listener: SimListener) -> SimStream:
    stream = await listener.accept()
    assert isinstance(stream, SimStream)
    return stream


def test_bytes_arrive_in_order_whatever_the_pieces() -> None:
    async def main(fabric: Fabric) -> None:
        near, far = await connected(fabric)
        sent = [bytes([number]) * (number + 1) for number in range(50)]
        for piece in sent:
            await near.send_all(piece)
        await near.send_eof()
        received = b""
        while part := await far.receive_some(7):
            received += part
        assert received == b"".join(sent)
        await far.send_all(b"back")
        assert await near.receive_some() == b"back"

    simulated(main, Weather(slow_share=0.3, slow_s=1.0, split_share=0.5))


def test_a_cut_holds_back_one_direction_and_a_heal_delivers_it() -> None:
    async def main(fabric: Fabric) -> None:
        near, far = await connected(fabric)
        fabric.cut(A, B)
        await near.send_all(b"late")
        await far.send_all(b"now")
        assert await near.receive_some() == b"now"
        with trio.move_on_after(60):
            await far.receive_some()
            pytest.fail("a cut link delivered")
        fabric.heal(A, B)
        await near.send_all(b" later")
        assert await far.receive_some(4) == b"late"
        assert await far.receive_some() == b" later"

    simulated(main)


def test_nobody_listening_is_a_refusal() -> None:
    async def main(fabric: Fabric) -> None:
        with pytest.raises(ConnectionRefusedError):
            await fabric.connect(A, B, PORT)

    simulated(main)


def test_a_host_without_power_and_a_cut_are_silence() -> None:
    async def main(fabric: Fabric) -> None:
        fabric.power_off(B)
        with trio.move_on_after(60) as scope:
            await fabric.connect(A, B, PORT)
        assert scope.cancelled_caught
        fabric.power_on(B)
        fabric.cut(B, A)
        with trio.move_on_after(60) as scope:
            await fabric.connect(A, B, PORT)
        assert scope.cancelled_caught

    simulated(main)


def test_a_connect_outlives_a_short_cut() -> None:
    async def main(fabric: Fabric) -> None:
        listener = fabric.listen(B, PORT)
        fabric.cut(A, B)
        fabric.at(trio.current_time() + 0.4, lambda: fabric.heal(A, B))
        near = await fabric.connect(A, B, PORT)
        await near.send_all(b"x")
        assert await (await accepted(listener)).receive_some() == b"x"

    simulated(main)


def test_an_ended_process_closes_what_it_had() -> None:
    async def main(fabric: Fabric) -> None:
        near, far = await connected(fabric)
        await far.send_all(b"last")
        fabric.end_process(B)
        assert await near.receive_some() == b"last"
        assert await near.receive_some() == b""
        with pytest.raises(ConnectionRefusedError):
            await fabric.connect(A, B, PORT)

    simulated(main)


def test_a_power_cut_leaves_a_half_open_connection_until_something_is_sent() -> None:
    async def main(fabric: Fabric) -> None:
        near, _ = await connected(fabric)
        fabric.power_off(B)
        with trio.move_on_after(60) as scope:
            await near.receive_some()
        assert scope.cancelled_caught
        fabric.power_on(B)
        await near.send_all(b"are you there?")
        with pytest.raises(trio.BrokenResourceError):
            await near.receive_some()

    simulated(main)


def test_a_stalled_connection_is_overtaken_by_a_newer_one() -> None:
    async def main(fabric: Fabric) -> None:
        listener = fabric.listen(B, PORT)
        old = await fabric.connect(A, B, PORT)
        old_end = await accepted(listener)
        fabric.stall(old.out)
        await old.send_all(b"old")
        new = await fabric.connect(A, B, PORT)
        await new.send_all(b"new")
        assert await (await accepted(listener)).receive_some() == b"new"
        fabric.unstall(old.out)
        assert await old_end.receive_some() == b"old"

    simulated(main)


def test_a_reader_that_does_not_read_stops_its_sender() -> None:
    async def main(fabric: Fabric) -> None:
        near, far = await connected(fabric)
        with trio.move_on_after(60) as scope:
            while True:
                await near.send_all(bytes(100_000))
        assert scope.cancelled_caught
        await far.receive_some(100_000)
        with trio.fail_after(60):
            await near.send_all(b"x")

    simulated(main)
