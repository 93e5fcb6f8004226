from __future__ import annotations

import pytest
import trio
import trio.testing

from paceline.errors import ConnectionLost, RemoteProtocolError
from paceline.wire.frame import Kind, encode_head
from paceline_node.net.framestream import FrameStream, OutboxLimits
from paceline_node.net.transport import FilePart


def message(number: int, payload: bytes = b"") -> tuple[bytes, bytes]:
    return encode_head(Kind.ONE_WAY, 1, number, [], len(payload)), payload


class BytesFile:
    """The part of File that sending needs."""

    path = "memory"

    def __init__(self, data: bytes) -> None:
        self.data = data

    def fileno(self) -> int | None:
        return None

    def pread(self, size: int, position: int) -> bytes:
        return self.data[position : position + size]

    async def read(self, size: int, position: int) -> bytes:
        await trio.lowlevel.checkpoint()
        return self.data[position : position + size]


async def test_frames_cross_in_order_with_files_between(nursery: trio.Nursery) -> None:
    near, far = trio.testing.memory_stream_pair()
    sender, receiver = FrameStream(near, name="a"), FrameStream(far, name="b")
    nursery.start_soon(sender.run_writer)
    content = bytes(range(256)) * 9000
    file = BytesFile(content)
    sender.send(*message(1, b"one"))
    sender.send(
        encode_head(Kind.ONE_WAY, 1, 2, [], 2_000_005), FilePart(file, 3, 2_000_000), b"tail!"
    )
    sender.send(*message(3, bytes(300_000)))
    got = [await receiver.receive() for _ in range(3)]
    assert [f.correlation for f in got if f] == [1, 2, 3]
    assert got[1] is not None
    assert bytes(got[1].payload) == content[3:2_000_003] + b"tail!"
    sender.finish()
    assert await receiver.receive() is None


async def test_small_frames_are_joined_into_one_send() -> None:
    out = trio.testing.MemorySendStream()
    sends: list[int] = []

    async def collect() -> None:
        sends.append(len(out.get_data_nowait()))

    out.send_all_hook = collect
    stream = trio.StapledStream(out, trio.testing.MemoryReceiveStream())
    sender = FrameStream(stream, name="a")
    for number in range(100):
        sender.send(*message(number, b"x" * 50))
    sender.finish()
    await sender.run_writer()
    assert len(sends) == 1
    assert sends[0] > 5000


async def test_an_end_inside_a_frame_is_an_error(nursery: trio.Nursery) -> None:
    near, far = trio.testing.memory_stream_pair()
    receiver = FrameStream(far, name="them")
    head, payload = message(1, b"payload")
    await near.send_all((head + payload)[:-1])
    await near.aclose()
    with pytest.raises(RemoteProtocolError, match="them: stream ended inside a frame"):
        await receiver.receive()
    await far.aclose()


async def test_drain_waits_for_a_slow_reader_and_the_hard_limit_ends_the_stream(
    nursery: trio.Nursery,
) -> None:
    near, far = trio.testing.lockstep_stream_pair()  # send_all returns when all is read
    limits = OutboxLimits(drain_bytes=10_000, max_bytes=50_000)
    sender = FrameStream(near, name="slow reader", outbox=limits)
    nursery.start_soon(sender.run_writer)
    await sender.drain()  # empty: does not wait
    sender.send(*message(1, bytes(20_000)))
    with trio.move_on_after(0.01) as waited:
        await sender.drain()
    assert waited.cancelled_caught
    assert sender.queued_bytes > 10_000
    with pytest.raises(ConnectionLost, match="slow reader: does not read") as caught:
        sender.send(*message(2, bytes(40_000)))
    assert not caught.value.was_sent
    await sender.drain()  # an ended stream keeps nobody waiting
    assert not sender.is_open
    with pytest.raises(ConnectionLost, match="does not read"):
        sender.send(*message(3))
    await far.aclose()


async def test_one_frame_larger_than_the_limit_is_sent_from_an_empty_outbox(
    nursery: trio.Nursery,
) -> None:
    near, far = trio.testing.memory_stream_pair()
    sender = FrameStream(near, name="a", outbox=OutboxLimits(10, 100))
    receiver = FrameStream(far, name="b")
    nursery.start_soon(sender.run_writer)
    head, payload = message(1, bytes(10_000))
    sender.send(head + payload)
    assert await receiver.receive() is not None
    nursery.cancel_scope.cancel()
    await trio.lowlevel.checkpoint()


async def test_a_broken_connection_shows_on_every_call(nursery: trio.Nursery) -> None:
    near, far = trio.testing.memory_stream_pair()
    sender = FrameStream(near, name="gone")
    nursery.start_soon(sender.run_writer)
    await far.aclose()
    start = sender.position()
    sender.send(*message(1))
    await trio.testing.wait_all_tasks_blocked()
    assert sender.may_have_sent(start)
    assert not sender.is_open
    with pytest.raises(ConnectionLost, match="gone"):
        sender.send(*message(2))
    with pytest.raises(ConnectionLost, match="gone"):
        await sender.receive()


async def test_abort_wakes_a_blocked_receiver_with_the_reason(nursery: trio.Nursery) -> None:
    near, far = trio.testing.memory_stream_pair()
    stream = FrameStream(near, name="a")
    nursery.start_soon(stream.run_writer)
    await trio.testing.wait_all_tasks_blocked()

    async def receive() -> None:
        with pytest.raises(ConnectionLost, match="enough"):
            await stream.receive()

    async with trio.open_nursery() as inner:
        inner.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        stream.abort("enough")
    assert await far.receive_some() == b""


async def test_what_was_queued_but_not_written_was_not_sent(nursery: trio.Nursery) -> None:
    near, far = trio.testing.lockstep_stream_pair()
    stream = FrameStream(near, name="a")
    nursery.start_soon(stream.run_writer)
    first = stream.position()
    stream.send(*message(1, bytes(100)))
    await trio.testing.wait_all_tasks_blocked()
    second = stream.position()
    stream.send(*message(2))
    stream.abort("over")
    await trio.testing.wait_all_tasks_blocked()
    assert stream.may_have_sent(first)
    assert not stream.may_have_sent(second)
    await far.aclose()


async def test_cancelled_receive_loses_nothing(nursery: trio.Nursery) -> None:
    near, far = trio.testing.memory_stream_pair()
    receiver = FrameStream(far, name="b")
    head, payload = message(5, bytes(70_000))
    data = head + payload
    for cut in range(0, len(data), 7_000):
        with trio.move_on_after(0):
            await receiver.receive()
        await near.send_all(data[cut : cut + 7_000])
        with trio.CancelScope() as scope:
            scope.cancel()
            await receiver.receive()
    frame = await receiver.receive()
    assert frame is not None
    assert len(frame.payload) == 70_000
    await near.aclose()
    await far.aclose()


async def test_finish_sends_what_is_queued_and_closes() -> None:
    near, far = trio.testing.memory_stream_pair()
    sender, receiver = FrameStream(near, name="a"), FrameStream(far, name="b")
    sender.send(*message(1, bytes(500_000)))
    sender.finish()
    with pytest.raises(ConnectionLost):
        sender.send(*message(2))
    await sender.run_writer()
    assert (await receiver.receive()) is not None
    assert (await receiver.receive()) is None
    await far.aclose()
